"""Archives topics in a table: every record once, by topic and day, with typed values if a schema is given.

An archive goes on from its checkpoint. Without one it goes on where its table ends, so a lost checkpoint does no harm.
A checkpoint that does not belong to the table, and a topic that was deleted and created again since the table was
written, are refused before the query starts.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.wire.primitives import ZERO_UUID
from pyspark_penstock.cluster import Cluster
from pyspark_penstock.column_options import VALUE_BYTES_COLUMN, VALUE_ERROR_COLUMN
from pyspark_penstock.lake import Held, LakeTable, TableFormat, check_topic_ids, open_table
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.offsets import EARLIEST, to_json
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pipelines.checkpoint import check_table, check_topics
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.dead_letters import FolderDeadLetters, TopicDeadLetters
from pyspark_penstock.pipelines.expiry import Expiry, NeededBy, check_age, expire
from pyspark_penstock.pipelines.partitioning import TIME_COLUMN, archive_columns, time_sql
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.pipelines.table_sink import DeadLetters, TableSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITION_BY = ("topic", "day")
BINARY = "binary"
RECORDS_PER_BATCH_DEFAULT = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The settings of an archive."""

    name: str
    bootstrap: str
    topics: tuple[str, ...]
    to: str
    format: TableFormat = TableFormat.PARQUET
    partition_by: tuple[str, ...] = PARTITION_BY
    """In the syntax of `partitioning`."""
    checkpoint: str
    table_name: str = ""
    catalog: str = ""
    value_format: str = BINARY
    value_schema: str = ""
    keeps_bytes: bool = True
    """Whether the bytes of typed values are kept too, which a replay needs."""
    dead_letters_topic: str = ""
    """The topic for values that do not parse; empty for a folder of the table."""
    start: str = "earliest"
    once: bool = False
    interval_seconds: float = 10.0
    records_per_batch_max: int = RECORDS_PER_BATCH_DEFAULT
    compacts: bool = False
    expire_after_ms: int = 0
    """Delete files that only older versions of the table need; 0 keeps all versions."""
    group: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def typed(self) -> bool:
        return self.value_format != BINARY

    def open_table(self) -> LakeTable:
        return open_table(self.format, self.to, name=self.table_name, catalog=self.catalog)

    def read_options(self) -> dict[str, str]:
        """The source's options without its start."""
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


def start_archive(spark: SparkSession, archive: Archive, *, needed_by: NeededBy | None = None) -> StreamingQuery:
    """Start the query; wrong settings are refused before it starts.

    ``needed_by`` names the replays that have yet to read some files that could be deleted.
    """
    table = archive.open_table()
    options = archive.read_options()
    columns = archive_columns(archive.partition_by, typed=archive.typed)
    ReadOptions.of(options, streaming=True)
    check_archive(archive, table)
    if not check_topics(Store.at(archive.checkpoint), set(archive.topics)):
        options["startingOffsets"] = _start(archive, table.held(), options)
    rows = spark.readStream.format("penstock").options(**options).load()
    made = {each.name: each.sql for each in columns if each.sql}
    if archive.typed:
        made.setdefault("day", time_sql("day", TIME_COLUMN))
    frame = rows.selectExpr("*", *(f"{sql} AS `{name}`" for name, sql in made.items()))
    sink = table_sink(archive, table, tuple(each.name for each in columns))
    if archive.expire_after_ms:
        check_age(archive.expire_after_ms)
        sink.maintain = Expiry(table=table, age_ms=archive.expire_after_ms, needed_by=needed_by)
    sink.prepare(frame)
    writer = (
        frame.writeStream.queryName(archive.name).foreachBatch(sink).option("checkpointLocation", archive.checkpoint)
    )
    if archive.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(archive.interval_seconds * 1000)} milliseconds").start()


def check_archive(archive: Archive, table: LakeTable) -> None:
    """LakeError if the checkpoint does not belong to the table, or the table holds another topic of the same name.

    Needs no Spark, and does not depend on whether there is anything to archive.
    """
    check_table(archive.checkpoint, table, is_archive=True)
    check_topic_ids(table.held(), topic_ids(archive))


def topic_ids(archive: Archive) -> dict[str, str]:
    """The current ids of the topics, if the cluster has topic ids."""
    parsed = ReadOptions.of(archive.read_options(), streaming=True)
    with BrokerLink(parsed.link) as link:
        cluster = Cluster(link, parsed.subscription, read_committed=True)
        cluster.require()
        found = {topic: cluster.topic_id(topic) for topic in archive.topics}
    return {topic: shown_id(each) for topic, each in found.items() if each != ZERO_UUID}


def shown_id(topic_id: bytes) -> str:
    """As Kafka's tools print it."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def finish_archive(archive: Archive, *, needed_by: NeededBy | None = None) -> int:
    """Merge small files and delete old ones after an archive with ``once``, if its settings say so.

    Returns the number of files that were merged away.
    """
    table = archive.open_table()
    gone = compact(table, files_min=2) if archive.compacts else 0
    if archive.expire_after_ms:
        expire(table, archive.expire_after_ms, needed_by=needed_by)
    return gone


def table_sink(archive: Archive, table: LakeTable, partition_by: Sequence[str]) -> TableSink:
    def checked_ids() -> dict[str, str]:
        found = topic_ids(archive)
        check_topic_ids(table.held(), found)
        return found

    dropped = [] if archive.keeps_bytes or not archive.typed else [VALUE_BYTES_COLUMN]
    if archive.typed and "day" not in partition_by:
        dropped.append("day")
    return TableSink(
        table=table,
        partition_by=partition_by,
        is_archive=True,
        topic_ids=checked_ids,
        error_column=VALUE_ERROR_COLUMN if archive.typed else "",
        dropped=dropped,
        dead_letters=_dead_letters(archive) if archive.typed else None,
        compacts=archive.compacts,
    )


def _start(archive: Archive, held: Held, options: Mapping[str, str]) -> str:
    """Where a query without a checkpoint begins."""
    mine = {place: end for place, end in held.offsets.items() if place[0] in archive.topics}
    if not mine:
        return archive.start
    parsed = ReadOptions.of(options, streaming=True)
    with BrokerLink(parsed.link) as link:
        there = Cluster(link, parsed.subscription, read_committed=True).require()
    return json.dumps(to_json({place: mine.get(place, EARLIEST) for place in there}))


def _dead_letters(archive: Archive) -> DeadLetters:
    if not archive.dead_letters_topic:
        return FolderDeadLetters(archive.to)
    options = {
        "kafka.bootstrap.servers": archive.bootstrap,
        **{f"kafka.{name}": value for name, value in archive.kafka.items()},
    }
    return TopicDeadLetters(to=archive.to, topic=archive.dead_letters_topic, options=options)
