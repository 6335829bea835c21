"""A lake table as the sink of a streaming query: every batch is in it once, however often it is retried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_penstock.lake import Batch, DataFile, Held, LakeError, LakeTable, check_step
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.checkpoint import running_batch
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.data_files import RESULT_SCHEMA, FileWriting, RowWriting, Written
from pyspark_penstock.spark_internals import arrow_schema, query_id_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAINTENANCE_BATCHES = 8
"""The number of batches between two compactions and expirations."""


class DeadLetters(Protocol):
    """The destination of rows that do not parse. Tasks write them to files, in the same pass as the other rows."""

    def writing(self, schema: Any, batch: Batch) -> RowWriting:
        """Where the tasks of a batch write, given the Arrow schema of its rows."""
        ...

    def commit(self, spark: SparkSession, batch: Batch, files: Sequence[DataFile]) -> None:
        """Add the files of a batch, once however often it is retried."""
        ...


@dataclass(slots=True, kw_only=True)
class TableSink:
    """A function for ``foreachBatch``, in the driver."""

    table: LakeTable
    partition_by: Sequence[str]
    is_archive: bool = False
    """Whether rows are records of topics, each with its topic, partition and offset."""
    topic_ids: Callable[[], Mapping[str, str]] | None = None
    """For archives: the current ids of the topics; LakeError if the table holds other topics of that name."""
    error_column: str = ""
    """Rows with a value in this column are dead letters; the column is not part of the table."""
    dropped: Sequence[str] = ()
    """Columns that dead letters need and the table does not."""
    dead_letters: DeadLetters | None = None
    compacts: bool = False
    maintain: Callable[[], object] | None = None
    """Called at intervals, between two batches."""
    _topic_ids: Mapping[str, str] | None = field(default=None, init=False)
    _swept: bool = field(default=False, init=False)

    def prepare(self, frame: DataFrame) -> None:
        """Create the table, or check that the rows fit it; called before the query starts."""
        schema = self._schema(frame)
        check_partition_columns(schema, self.partition_by)
        self.table.prepare(schema, self.partition_by)

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = running_batch(frame, query_id_of(frame), number, is_archive=self.is_archive)
        if not batch.identity:
            raise LakeError(f"the offsets of batch {number} cannot be read from the query's checkpoint")
        if not check_step(batch, self.table.last_batch(batch.writer), is_archive=self.is_archive):
            return
        if self._topic_ids is None:
            self._topic_ids = {} if self.topic_ids is None else self.topic_ids()
        written = self._write(frame, batch)
        if written.dead_files and self.dead_letters is not None:
            self.dead_letters.commit(frame.sparkSession, batch, written.dead_files)
        read = {topic for topic, _ in written.ends}
        ids = {topic: each for topic, each in self._topic_ids.items() if topic in read}
        self.table.commit(batch, written.files, Held(offsets=written.ends, topic_ids=ids))
        if not self._swept:
            # Only the first batch of a run can be a retry.
            self.table.sweep(batch, written.files)
            self._swept = True
        if number % MAINTENANCE_BATCHES == MAINTENANCE_BATCHES - 1:
            self._maintain()

    def _maintain(self) -> None:
        if self.compacts:
            compact(self.table)
        if self.maintain is not None:
            self.maintain()

    def _write(self, frame: DataFrame, batch: Batch) -> Written:
        dead = None if self.dead_letters is None else self.dead_letters.writing(_arrow(frame), batch)
        kept = [name for name in self._kept(frame).columns if name != self.error_column]
        writing = FileWriting(
            batch=batch,
            rows=RowWriting(
                layout=self.table.layout(batch),
                schema=schemas.to_text(self._schema(frame)),
                spans=self.is_archive,
                columns=tuple((name, name) for name in kept) if self.dropped else (),
            ),
            error_column=self.error_column,
            dead=dead,
        )
        rows: Any = frame
        return Written.of(row["result"] for row in rows.mapInArrow(writing.__call__, RESULT_SCHEMA).collect())

    def _kept(self, frame: DataFrame) -> DataFrame:
        return frame.drop(self.error_column, *self.dropped)

    def _schema(self, frame: DataFrame) -> Any:
        """The Arrow schema of the table's rows."""
        return _arrow(self._kept(frame))


def _arrow(frame: DataFrame) -> Any:
    return arrow_schema(frame.schema).remove_metadata()


def check_partition_columns(schema: Any, names: Sequence[str]) -> None:
    """LakeError for a column whose values have no unambiguous text in paths and logs."""
    for name in names:
        if name in schema.names and not schemas.is_partitionable(schema.field(name).type):
            raise LakeError(
                f"a table cannot be partitioned by {name}, which is of type {schema.field(name).type}: texts, whole "
                "numbers, dates and booleans are possible, of a time its day or hour"
            )
