"""Topics kept as a table: every record once, by topic and day, its value typed where a schema is declared.

An archive goes on from its checkpoint. Without one it goes on where its table ends, so a checkpoint that is lost, or
left behind, costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_penstock.cluster import Cluster
from pyspark_penstock.lake import Batch, LakeTable, TableFormat, open_table
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.offsets import EARLIEST, Place, to_json
from pyspark_penstock.options import VALUE_BYTES_COLUMN, VALUE_ERROR_COLUMN, ReadOptions
from pyspark_penstock.pipelines.checkpoint import check_topics
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.pipelines.table_sink import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITION_BY = ("topic", "day")
DEAD_FOLDER = "_dead_letters"
DEAD_SINK_SUFFIX = "-dead-letters"
BINARY = "binary"
DAY = "date_from_unix_date(CAST(unix_micros(timestamp) DIV 86400000000 AS INT))"
"""In UTC, whatever the session's time zone is."""
RECORDS_PER_BATCH_DEFAULT = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What is kept, where and how."""

    name: str
    bootstrap: str
    topics: tuple[str, ...]
    to: str
    format: TableFormat = TableFormat.PARQUET
    checkpoint: str
    table_name: str = ""
    catalog: str = ""
    value_format: str = BINARY
    value_schema: str = ""
    keeps_bytes: bool = True
    """Whether the bytes of typed values are kept beside them: only so can they be replayed as they were."""
    dead_letters_topic: str = ""
    """Where values go that do not parse; a folder of the table if it is empty."""
    start: str = "earliest"
    once: bool = False
    interval_seconds: float = 10.0
    records_per_batch_max: int = RECORDS_PER_BATCH_DEFAULT
    compacts: bool = False
    group: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def typed(self) -> bool:
        return self.value_format != BINARY

    def open_table(self) -> LakeTable:
        return open_table(self.format, self.to, name=self.table_name, catalog=self.catalog)

    def read_options(self) -> dict[str, str]:
        """The source's options, but for where it starts."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(self.topics),
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(self.records_per_batch_max),
            **{f"kafka.{name}": value for name, value in self.kafka.items()},
        }
        if self.group:
            options["commitGroup"] = self.group
        columns = ["key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType"]
        if self.typed:
            options["value.format"] = self.value_format
            columns += [VALUE_ERROR_COLUMN, VALUE_BYTES_COLUMN]
        if self.value_schema:
            options["value.schema"] = self.value_schema
        return {**options, "columns": ",".join(columns)}


def start_archive(spark: SparkSession, archive: Archive) -> StreamingQuery:
    """The running query; what cannot be meant is refused before it starts."""
    table = archive.open_table()
    options = archive.read_options()
    ReadOptions.of(options, streaming=True)
    if not check_topics(Store.at(archive.checkpoint), set(archive.topics)):
        options["startingOffsets"] = _start(archive, table.offsets(), options)
    rows = spark.readStream.format("penstock").options(**options).load()
    frame = rows.selectExpr("*", f"{DAY} AS day")
    sink = table_sink(archive, table)
    sink.prepare(frame)
    writer = (
        frame.writeStream.queryName(archive.name).foreachBatch(sink).option("checkpointLocation", archive.checkpoint)
    )
    if archive.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(archive.interval_seconds * 1000)} milliseconds").start()


def finish_archive(archive: Archive) -> int:
    """After an archive has taken all there is: merge what is small, if it shall; how many files are gone."""
    return compact(archive.open_table(), files_min=2) if archive.compacts else 0


def table_sink(archive: Archive, table: LakeTable) -> TableSink:
    return TableSink(
        table=table,
        partition_by=PARTITION_BY,
        spans=True,
        error_column=VALUE_ERROR_COLUMN if archive.typed else "",
        dropped=() if archive.keeps_bytes or not archive.typed else (VALUE_BYTES_COLUMN,),
        dead_letters=_dead_letters(archive),
        compacts=archive.compacts,
    )


def _start(archive: Archive, held: Mapping[Place, int], options: Mapping[str, str]) -> str:
    """Where a query without a checkpoint begins."""
    mine = {place: end for place, end in held.items() if place[0] in archive.topics}
    if not mine:
        return archive.start
    parsed = ReadOptions.of(options, streaming=True)
    with BrokerLink(parsed.link) as link:
        there = Cluster(link, parsed.subscription, read_committed=True).require()
    return json.dumps(to_json({place: mine.get(place, EARLIEST) for place in there}))


# Dead letters


def _dead_letters(archive: Archive) -> Any:
    if not archive.typed:
        return None
    return _to_topic(archive) if archive.dead_letters_topic else _to_folder(archive)


def _to_folder(archive: Archive) -> Any:
    """A table of Parquet files beside the table, whatever that is made of."""
    table = open_table(TableFormat.PARQUET, f"{archive.to.rstrip('/')}/{DEAD_FOLDER}")
    sink = TableSink(table=table, partition_by=PARTITION_BY)

    def put(frame: DataFrame, batch: Batch) -> None:
        dead = frame.where(f"{VALUE_ERROR_COLUMN} IS NOT NULL").selectExpr(
            "key",
            f"{VALUE_BYTES_COLUMN} AS value",
            "headers",
            "topic",
            "partition",
            "offset",
            "timestamp",
            f"{VALUE_ERROR_COLUMN} AS error",
            "day",
        )
        sink.prepare(dead)
        sink.write_once(dead, batch)

    return put


def dead_records(frame: DataFrame) -> DataFrame:
    """Records that do not parse as they were, with headers that say what is wrong and where they come from."""
    said = (
        ("penstock.error", VALUE_ERROR_COLUMN),
        ("penstock.topic", "topic"),
        ("penstock.partition", "CAST(partition AS STRING)"),
        ("penstock.offset", "CAST(offset AS STRING)"),
    )
    added = ", ".join(f"named_struct('key', '{name}', 'value', CAST({column} AS BINARY))" for name, column in said)
    return frame.where(f"{VALUE_ERROR_COLUMN} IS NOT NULL").selectExpr(
        "key",
        f"{VALUE_BYTES_COLUMN} AS value",
        f"concat(coalesce(headers, array()), array({added})) AS headers",
        "timestamp",
    )


def _to_topic(archive: Archive) -> Any:
    def put(frame: DataFrame, batch: Batch) -> None:
        options = {
            "kafka.bootstrap.servers": archive.bootstrap,
            **{f"kafka.{name}": value for name, value in archive.kafka.items()},
            "topic": archive.dead_letters_topic,
            "sinkId": f"{batch.writer}{DEAD_SINK_SUFFIX}",
            "batchId": str(batch.number),
        }
        dead_records(frame).write.format("penstock").mode("append").options(**options).save()

    return put
