"""A lake table at the end of a streaming query: every batch is in it once, however often it is tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_penstock.lake import Batch, LakeTable, check_step
from pyspark_penstock.pipelines import schemas
from pyspark_penstock.pipelines.compaction import compact
from pyspark_penstock.pipelines.data_files import RESULT_SCHEMA, FileWriting, Written
from pyspark_penstock.untyped import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
COMPACT_BATCHES = 8
"""How many batches pass between two looks for small files."""

DeadLetters = Callable[["DataFrame", Batch], None]
"""Puts the rows that do not parse somewhere, once for every batch."""


@dataclass(slots=True, kw_only=True)
class TableSink:
    """A function for ``foreachBatch``. It lives in the driver."""

    table: LakeTable
    partition_by: Sequence[str]
    spans: bool = False
    error_column: str = ""
    """Rows with a value here are dead letters; the column itself is not part of the table."""
    dropped: Sequence[str] = ()
    """Columns that dead letters need and the table does not."""
    dead_letters: DeadLetters | None = None
    compacts: bool = False
    _swept: bool = field(default=False, init=False)

    def prepare(self, frame: DataFrame) -> None:
        """Make the table, or look whether the rows fit it; before the query starts, where a refusal is seen at once."""
        self.table.prepare(self._schema(frame), self.partition_by)

    def __call__(self, frame: DataFrame, number: int) -> None:
        batch = Batch(writer=writer_of(frame), number=number)
        if not check_step(batch, self.table.last_batch(batch.writer)):
            return
        written = self._write(frame.drop(*self.dropped), batch)
        if written.dead_rows and self.dead_letters is not None:
            self.dead_letters(frame, batch)
        self.table.commit(batch, written.files, written.ends)
        if not self._swept:
            # Only the first batch of a run can have been tried before.
            self.table.sweep(batch, written.files)
            self._swept = True
        if self.compacts and number % COMPACT_BATCHES == COMPACT_BATCHES - 1:
            compact(self.table)

    def write_once(self, frame: DataFrame, batch: Batch) -> None:
        """For tables that not every batch of a query has rows for."""
        last = self.table.last_batch(batch.writer)
        if last is None or batch.number > last:
            written = self._write(frame, batch)
            self.table.commit(batch, written.files, written.ends)

    def _write(self, frame: DataFrame, batch: Batch) -> Written:
        writing = FileWriting(
            layout=self.table.layout(batch),
            batch=batch,
            schema=schemas.to_text(self._schema(frame)),
            spans=self.spans,
            error_column=self.error_column,
        )
        rows: Any = frame
        return Written.of(row["told"] for row in rows.mapInArrow(writing.__call__, RESULT_SCHEMA).collect())

    def _schema(self, frame: DataFrame) -> Any:
        """Arrow's, of what the table holds."""
        kept = frame.drop(self.error_column, *self.dropped)
        return arrow_schema(kept.schema).remove_metadata()


def writer_of(frame: DataFrame) -> str:
    """The id of the query that a batch belongs to: it is as old as its checkpoint."""
    found: Any = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert found, "a batch outside of a query"
    return str(found)
