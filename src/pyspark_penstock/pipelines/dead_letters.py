"""Dead letters, records whose values do not parse: in a folder beside an archive's table, or in a topic.

The tasks of a batch write them to files of their own while they write the table's, so the source is read once. The
driver then adds the files to the folder's table, or sends their records to the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark_penstock.column_options import VALUE_BYTES_COLUMN, VALUE_ERROR_COLUMN
from pyspark_penstock.foreach import each_batch
from pyspark_penstock.headers import ARRAY_TYPE
from pyspark_penstock.lake import Batch, DataFile, Held, LakeTable, Layout, TableFormat, ends_of, open_table
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.data_files import RowWriting, read_rows
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.spark_internals import arrow_schema
from pyspark_penstock.untyped import pyarrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FOLDER = "_dead_letters"
STAGING = "_staging"
SINK_SUFFIX = "-dead-letters"
PARTITION_BY = ("topic", "day")
COLUMNS = (
    ("key", "key"),
    (VALUE_BYTES_COLUMN, "value"),
    ("headers", "headers"),
    ("topic", "topic"),
    ("partition", "partition"),
    ("offset", "offset"),
    ("timestamp", "timestamp"),
    (VALUE_ERROR_COLUMN, "error"),
    ("day", "day"),
)


def _renamed(schema: Any) -> Any:
    """The Arrow schema of dead letters, given that of the archive's rows."""
    return pyarrow.schema([schema.field(name).with_name(new) for name, new in COLUMNS])


class FolderDeadLetters:
    """A Parquet table beside the archive's table, whatever its format; created with the first dead letter."""

    def __init__(self, to: str) -> None:
        self._table: LakeTable = open_table(TableFormat.PARQUET, f"{to.rstrip('/')}/{FOLDER}")
        self._schema: Any = None

    def writing(self, schema: Any, batch: Batch) -> RowWriting:
        self._schema = _renamed(schema)
        held = self._table.held().offsets
        return RowWriting(
            layout=replace(self._table.layout(batch), partition_by=PARTITION_BY),
            schema=schemas.to_text(self._schema),
            spans=True,
            columns=COLUMNS,
            held=tuple((topic, partition, end) for (topic, partition), end in sorted(held.items())),
        )

    def commit(self, spark: SparkSession, batch: Batch, files: Sequence[DataFile]) -> None:
        self._table.prepare(self._schema, PARTITION_BY)
        last = self._table.last_batch(batch.writer)
        if last is None or not last.is_of(batch):
            self._table.commit(batch, files, Held(offsets=ends_of(files)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeadLetters:
    """A topic, written with the exactly-once sink. Until then the files of the records are beside the table."""

    to: str
    topic: str
    options: Mapping[str, str]
    """The options of the sink."""

    @property
    def _store(self) -> Store:
        return Store.at(f"{self.to.rstrip('/')}/{FOLDER}")

    def writing(self, schema: Any, batch: Batch) -> RowWriting:
        layout = Layout(
            store=self._store,
            folder=f"{STAGING}/{batch.writer}/{batch.number}",
            partition_by=(),
            keeps_partition_columns=True,
            values_in_paths=False,
        )
        return RowWriting(layout=layout, schema=schemas.to_text(_renamed(schema)), spans=True, columns=COLUMNS)

    def commit(self, spark: SparkSession, batch: Batch, files: Sequence[DataFile]) -> None:
        options = {
            **self.options,
            "topic": self.topic,
            "timestamp.column": "timestamp",
            # The first batch with dead letters need not be batch 0.
            "ledgerMissing": "begin",
        }
        ordered = sorted(files, key=lambda each: [(span.place, span.offset_min) for span in each.spans])
        rows = staged_rows(spark, self._store, [each.path for each in ordered])
        each_batch(f"{batch.writer}{SINK_SUFFIX}", options)(dead_records(rows), batch.number)
        self._store.delete_folder(f"{STAGING}/{batch.writer}")


def staged_rows(spark: SparkSession, store: Store, paths: Sequence[str]) -> DataFrame:
    """The dead letters in some files, with the columns of the archive."""
    schema = _staged_schema()
    arrow = arrow_schema(schema)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                for rows in read_rows(store, path, 0, 1 << 62, [name for _, name in COLUMNS]):
                    columns = [rows.column(new).cast(arrow.field(name).type) for name, new in COLUMNS if new != "day"]
                    yield pyarrow.RecordBatch.from_arrays(columns, schema=arrow)

    session: Any = spark
    listed = session.createDataFrame([(path,) for path in paths], "path STRING")
    rows: DataFrame = listed.mapInArrow(read, schema)
    return rows


def _staged_schema() -> StructType:
    from pyspark.sql.types import (
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    kinds = {
        "key": BinaryType(),
        VALUE_BYTES_COLUMN: BinaryType(),
        "headers": ARRAY_TYPE,
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        VALUE_ERROR_COLUMN: StringType(),
    }
    return StructType([StructField(name, kinds[name]) for name, _ in COLUMNS if name in kinds])


def dead_records(frame: DataFrame) -> DataFrame:
    """The original records that do not parse, with headers for the error and their origin."""
    added_headers = (
        ("penstock.error", VALUE_ERROR_COLUMN),
        ("penstock.topic", "topic"),
        ("penstock.partition", "CAST(partition AS STRING)"),
        ("penstock.offset", "CAST(offset AS STRING)"),
    )
    added = ", ".join(
        f"named_struct('key', '{name}', 'value', CAST({column} AS BINARY))" for name, column in added_headers
    )
    return frame.where(f"{VALUE_ERROR_COLUMN} IS NOT NULL").selectExpr(
        "key",
        f"{VALUE_BYTES_COLUMN} AS value",
        f"concat(coalesce(headers, array()), array({added})) AS headers",
        "timestamp",
    )
