"""Lake tables written exactly once: tasks write data files, and one commit of the driver makes them part of a table.

A commit carries the writer's id, the number of its batch and, for archives, the offsets up to which the table now holds
each partition. A batch that is repeated finds itself there; a checkpoint that does not fit the table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines.store import Store

PIP_LAKE = 'pip install "penstock[lake]"'


class LakeError(Exception):
    """A table that cannot take what it is given, or is not what it is said to be."""


class FormatMissing(LakeError):
    """A table format whose package is not installed."""


class SchemaClash(LakeError):
    """A table has columns that what is written does not fit."""


class OutOfStep(LakeError):
    """A checkpoint and a table that do not belong together."""


class TableFormat(StrEnum):
    """What a table is made of."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a file holds of one partition of a topic: offsets and times, both ends included."""

    topic: str
    partition: int
    offset_min: int
    offset_max: int
    timestamp_us_min: int = 0
    timestamp_us_max: int = 0

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that a task has written, or that a table has."""

    path: str
    """Below the table's root."""
    size: int
    rows: int
    values: Mapping[str, str | None]
    """Of the columns the table is partitioned by."""
    spans: tuple[Span, ...] = ()
    """Of archives: what it holds of which partitions, where that is known."""

    def to_json(self) -> dict[str, Any]:
        spans = [
            [each.topic, each.partition, each.offset_min, each.offset_max, each.timestamp_us_min, each.timestamp_us_max]
            for each in self.spans
        ]
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "values": dict(self.values),
            "spans": spans,
        }

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> DataFile:
        names = ("topic", "partition", "offset_min", "offset_max", "timestamp_us_min", "timestamp_us_max")
        spans = tuple(Span(**dict(zip(names, each, strict=True))) for each in found["spans"])
        return cls(path=found["path"], size=found["size"], rows=found["rows"], values=found["values"], spans=spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table's files lie: what tasks need to know to write them."""

    store: Store
    folder: str
    """Below the root: where tasks put new files."""
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool
    """Whether the columns stand in the files too, and not in their paths alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Which batch of which writer a commit is."""

    writer: str
    number: int


class LakeTable(Protocol):
    """One table of some format. Only the driver uses it."""

    @property
    def store(self) -> Store: ...

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Make the table, or give it the columns it lacks; SchemaClash where a column has another type.

        ``schema`` is Arrow's.
        """
        ...

    def last_batch(self, writer: str) -> int | None:
        """The last batch of a writer that is in the table."""
        ...

    def offsets(self) -> dict[Place, int]:
        """Of archives: the offset after the last one the table holds, by partition."""
        ...

    def layout(self, batch: Batch) -> Layout:
        """Where the tasks of a batch write."""
        ...

    def commit(self, batch: Batch, files: Sequence[DataFile], offsets: Mapping[Place, int]) -> None:
        """Make files part of the table, all of them or none, and note the batch and the offsets with them."""
        ...

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        """Delete what earlier attempts at a batch left behind; ``files`` are those that were committed."""
        ...

    def files(self) -> list[DataFile]:
        """The table's files as they are now; without rows and spans where only their footers know."""
        ...

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        """Exchange files for one with the same rows."""
        ...


def open_table(kind: TableFormat, where: str, *, name: str = "", catalog: str = "") -> LakeTable:
    """A table that is there or will be made by `prepare`; FormatMissing names what to install."""
    match kind:
        case TableFormat.PARQUET:
            from pyspark_penstock.pipelines.parquet_table import ParquetTable

            return ParquetTable(Store.at(where))
        case TableFormat.DELTA:
            from pyspark_penstock.pipelines.delta_table import DeltaLakeTable

            return DeltaLakeTable(Store.at(where))
        case TableFormat.ICEBERG:
            from pyspark_penstock.pipelines.iceberg_table import IcebergTable

            return IcebergTable(Store.at(where), name=name, catalog=catalog)


def check_step(batch: Batch, last: int | None) -> bool:
    """Whether a batch is still to be written: True, or False where it is in the table.

    Spark repeats the last batch and no other, and skips none. An earlier one comes from a checkpoint that was put
    back, and what it holds need not be what it held before.
    """
    if batch.number == (0 if last is None else last + 1):
        return True
    if batch.number == last:
        return False
    if last is None or batch.number > last:
        raise OutOfStep(
            f"the checkpoint is at batch {batch.number}, and the table holds "
            f"{'no batch' if last is None else f'batch {last}'} of this query: they do not belong together. Start with "
            "a new, empty checkpoint, or name the table that the checkpoint belongs to"
        )
    raise OutOfStep(
        f"the table holds batch {last} of this query, and the checkpoint is at batch {batch.number}: it is older than "
        "the table. Start with a new, empty checkpoint: an archive goes on where its table ends"
    )


def check_offsets(files: Sequence[DataFile], held: Mapping[Place, int]) -> None:
    """OutOfStep where a file begins before what the table holds of its partition."""
    for each in files:
        for span in each.spans:
            end = held.get(span.place)
            if end is not None and span.offset_min < end:
                raise OutOfStep(
                    f"the table holds {span.topic}-{span.partition} up to offset {end - 1}, and this batch begins at "
                    f"{span.offset_min}: another archive writes to the table, or the checkpoint is not the table's. "
                    "Start with a new, empty checkpoint: an archive goes on where its table ends"
                )


def ends_of(files: Sequence[DataFile]) -> dict[Place, int]:
    """The offset after the last one of each partition in some files."""
    ends: dict[Place, int] = {}
    for each in files:
        for span in each.spans:
            ends[span.place] = max(ends.get(span.place, 0), span.offset_max + 1)
    return ends
