"""Lake tables written exactly once: tasks write data files, and one commit of the driver adds them to a table.

A commit carries the writer's id, the number of its batch, where the batch's sources end and, for archives, the offsets
up to which the table now holds each partition, with the ids of their topics. A repeated batch is recognized by where
its sources end, not by its number alone: a checkpoint that was restored from a backup, or copied, gives the number of a
committed batch to other records. Such a checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines.store import Store

PIP_LAKE = 'pip install "penstock[lake]"'
COMMIT_TRIES_MAX = 5


class LakeError(PenstockRuntimeError):
    """A failure of a lake table, or of a write to it."""


class FormatMissing(LakeError):
    """A table format whose package is not installed."""


class SchemaClash(LakeError):
    """The rows to write do not fit the columns of the table."""


class OutOfStep(LakeError):
    """The checkpoint does not belong to the table."""


class TopicRecreated(LakeError):
    """A topic that was deleted and created again since the table was written."""


class TableFormat(StrEnum):
    """The format of a table."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The offsets and times of one partition of a topic in a file, both ends included."""

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
    """The values of the partition columns."""
    spans: tuple[Span, ...] = ()
    """For archives: the spans of topic partitions in it, if they are known."""

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
    """Where and how the tasks of a batch write a table's files."""

    store: Store
    folder: str
    """Below the root: where tasks put new files."""
    partition_by: tuple[str, ...]
    keeps_partition_columns: bool
    """Whether the files contain the partition columns too.

    Otherwise an empty text is read back as null: Hive's folders and Delta's log cannot represent it.
    """
    values_in_paths: bool
    """Whether only the names of folders hold the partition values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of a writer."""

    writer: str
    number: int
    identity: str = ""
    """A digest that distinguishes it from other batches of its number; empty if it is not known."""
    identity_before: str = ""
    """The identity of the previous batch."""
    offsets: str = ""
    """Where its sources end, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBatch:
    """The last batch of a writer that is in a table."""

    number: int
    identity: str = ""
    """Empty in tables of older versions; some formats keep only its first digits."""
    offsets: str = ""

    def is_of(self, batch: Batch) -> bool:
        """Whether this is the same batch."""
        return self.number == batch.number and self.matches(batch.identity)

    def matches(self, identity: str) -> bool:
        return not self.identity or not identity or identity.startswith(self.identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The offsets and topics that an archive's table holds."""

    offsets: Mapping[Place, int] = field(default_factory=dict[Place, int])
    """The offset after the last one, by partition."""
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids of topics, as Kafka's tools print them, if they are known."""

    def joined(self, other: Held) -> Held:
        """Merge with the additions of a commit; offsets do not go back."""
        ends = dict(self.offsets)
        for place, end in other.offsets.items():
            ends[place] = max(end, ends.get(place, 0))
        return Held(offsets=ends, topic_ids={**self.topic_ids, **other.topic_ids})


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Files and snapshots that only old versions of a table need."""

    versions: int
    files: tuple[str, ...]
    """Below the table's root."""
    needed_by: tuple[str, ...] = ()
    """Replays that have yet to read some of the files; if there are any, nothing was deleted."""


class LakeTable(Protocol):
    """One table of some format. Only the driver uses it."""

    @property
    def store(self) -> Store: ...

    def prepare(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Create the table, or add missing columns; SchemaClash if a column has another type.

        ``schema`` is Arrow's.
        """
        ...

    def last_batch(self, writer: str) -> LastBatch | None:
        """The last batch of a writer that is in the table."""
        ...

    def held(self) -> Held:
        """For archives: the offsets that the table holds."""
        ...

    def layout(self, batch: Batch) -> Layout:
        """Where the tasks of a batch write."""
        ...

    def commit(self, batch: Batch, files: Sequence[DataFile], added: Held) -> None:
        """Add files to the table, all or none, together with the batch and its offsets.

        OutOfStep if another writer has committed some of the offsets meanwhile.
        """
        ...

    def sweep(self, batch: Batch, files: Sequence[DataFile]) -> None:
        """Delete the files of earlier attempts at a batch; ``files`` are the committed ones."""
        ...

    def files(self) -> list[DataFile]:
        """The current files of the table; without rows and spans if only the footers have them."""
        ...

    def replace(self, old: Sequence[DataFile], new: DataFile) -> None:
        """Replace files by one with the same rows."""
        ...

    def expire(self, before_ms: int, *, dry_run: bool) -> Expired:
        """Expire the versions before a time, and delete the files that only they need."""
        ...


def open_table(kind: TableFormat, where: str, *, name: str = "", catalog: str = "") -> LakeTable:
    """An existing table, or one that `prepare` will create; FormatMissing names the package to install."""
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


def commit_again(
    change: Callable[[], None], is_done: Callable[[], bool], conflicts: tuple[type[Exception], ...]
) -> None:
    """Commit, and retry after a conflict with another writer; a commit whose response was lost may have succeeded."""
    for left in reversed(range(COMMIT_TRIES_MAX)):
        try:
            change()
        except conflicts:
            if is_done():
                return
            if not left:
                raise
        else:
            return


# Refusals

RESTART_ARCHIVE = "Start with a new, empty checkpoint: an archive goes on where its table ends"
RESTART_TABLE = (
    "Put back the checkpoint that belongs to the table, or start with a new, empty checkpoint and another table"
)


def partitioned_otherwise(table: str, held: Sequence[str], wanted: Sequence[str]) -> LakeError:
    return LakeError(
        f"{table} is partitioned by {', '.join(held) or 'nothing'}, not by {', '.join(wanted) or 'nothing'}: write to "
        "another table, or partition as it is"
    )


def check_step(batch: Batch, last: LastBatch | None, *, is_archive: bool) -> bool:
    """Whether a batch has to be written: True, or False if the table holds the same batch.

    Spark repeats the last batch and no other, and skips none.
    """
    advice = RESTART_ARCHIVE if is_archive else RESTART_TABLE
    if last is None and batch.number == 0:
        return True
    if last is None or batch.number > last.number + 1:
        raise _not_together(batch, last, advice)
    if batch.number < last.number:
        raise OutOfStep(
            f"the table holds batch {last.number} of this query, and the checkpoint is at batch {batch.number}: it is "
            f"older than the table. {advice}"
        )
    if batch.number == last.number:
        check_same(last, batch.identity, batch.offsets, advice)
        return False
    check_same(last, batch.identity_before, "", advice)
    return True


def check_completed(batch: Batch, last: LastBatch | None, *, is_archive: bool) -> None:
    """OutOfStep if a batch that is completed in the checkpoint is not in the table."""
    if check_step(batch, last, is_archive=is_archive):
        raise _not_together(batch, last, RESTART_ARCHIVE if is_archive else RESTART_TABLE)


def _not_together(batch: Batch, last: LastBatch | None, advice: str) -> OutOfStep:
    return OutOfStep(
        f"the checkpoint is at batch {batch.number}, and the table holds "
        f"{'no batch' if last is None else f'batch {last.number}'} of this query: they do not belong together. "
        f"{advice}, or name the table that the checkpoint belongs to"
    )


def check_same(last: LastBatch, identity: str, offsets: str, advice: str) -> None:
    """OutOfStep if the checkpoint's batch of the same number is not the one in the table."""
    if not last.matches(identity):
        raise OutOfStep(
            f"batch {last.number} of this query in the table is not batch {last.number} of the checkpoint: in the "
            f"table it ends at {last.offsets or 'other offsets'}, in the checkpoint at {offsets or 'other offsets'}. "
            f"The checkpoint was restored from a backup or copied, or is of another table. {advice}"
        )


def check_offsets(files: Sequence[DataFile], held: Held) -> None:
    """OutOfStep if a file begins before the end of its partition in the table."""
    for each in files:
        for span in each.spans:
            end = held.offsets.get(span.place)
            if end is not None and span.offset_min < end:
                raise OutOfStep(
                    f"the table holds {span.topic}-{span.partition} up to offset {end - 1}, and this batch begins at "
                    f"{span.offset_min}: another archive writes to the table, or the checkpoint is not the table's. "
                    f"{RESTART_ARCHIVE}"
                )


def check_topic_ids(held: Held, current: Mapping[str, str]) -> None:
    """TopicRecreated if the table holds records of an earlier topic of the same name.

    Offsets of the new topic begin again, so its records and those of the old one would be indistinguishable in one
    table.
    """
    known = {topic for topic, _ in held.offsets}
    for topic, now in sorted(current.items()):
        then = held.topic_ids.get(topic, now)
        if topic in known and then != now:
            raise TopicRecreated(
                f"topic {topic} was deleted and created again: the table holds records of the topic with id {then}, "
                f"and its id is now {now}. Archive the new topic in another table"
            )


def ends_of(files: Sequence[DataFile]) -> dict[Place, int]:
    """The offset after the last one of each partition in some files."""
    ends: dict[Place, int] = {}
    for each in files:
        for span in each.spans:
            ends[span.place] = max(ends.get(span.place, 0), span.offset_max + 1)
    return ends
