"""Reads a query's checkpoint before the query starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from pyspark_penstock.batch_identity import BatchOffsets, offsets_in_foreach_batch, offsets_of_batch
from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.lake import Batch, LakeTable, check_completed, check_step
from pyspark_penstock.pipelines.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WrongCheckpoint(PenstockRuntimeError):
    """A checkpoint that belongs to another query."""


def query_id(checkpoint: Store) -> str | None:
    """The id of the checkpoint's query; None for an empty checkpoint."""
    found: Any = checkpoint.read_json("metadata")
    return None if found is None else str(found["id"])


def last_planned(checkpoint: Store) -> int | None:
    """The number of the last planned batch; None for a checkpoint without batches."""
    numbers = [
        int(name)
        for entry in checkpoint.list("offsets")
        if (name := entry.path.rpartition("/")[2]).isdigit() and entry.path.count("/") == 1
    ]
    return max(numbers, default=None)


def planned_batch(checkpoint: str, *, is_archive: bool) -> Batch | None:
    """The last planned batch, with the query's id as its writer; None for a checkpoint without batches."""
    store = Store.at(checkpoint)
    writer, number = query_id(store), last_planned(store)
    if writer is None or number is None:
        return None
    return batch_with(writer, number, lambda each: offsets_of_batch(store.root, each), is_archive=is_archive)


def running_batch(frame: DataFrame, writer: str, number: int, *, is_archive: bool) -> Batch:
    """The batch that ``foreachBatch`` was called with."""
    return batch_with(writer, number, lambda each: offsets_in_foreach_batch(frame, each), is_archive=is_archive)


def batch_with(writer: str, number: int, read: Callable[[int], BatchOffsets | None], *, is_archive: bool) -> Batch:
    """A batch with its identity.

    An archive's rows follow from the offsets alone, however often a batch is planned. Another query's batch is the same
    only if it was planned once.
    """
    found = read(number)
    if found is None:
        return Batch(writer=writer, number=number)
    if is_archive:
        return Batch(writer=writer, number=number, identity=found.end, identity_before=found.start, offsets=found.text)
    before = read(number - 1) if number else None
    return Batch(
        writer=writer,
        number=number,
        identity=found.plan,
        identity_before="" if before is None else before.plan,
        offsets=found.text,
    )


def check_topics(checkpoint: Store, topics: set[str]) -> bool:
    """Whether a query has run on this checkpoint before; WrongCheckpoint if it read other topics."""
    last = last_planned(checkpoint)
    if last is None:
        return False
    read = _topics(checkpoint.read(f"offsets/{last}"))
    if read and not read & topics:
        raise WrongCheckpoint(
            f"the checkpoint {checkpoint.root} is of a query that reads {', '.join(sorted(read))}, not "
            f"{', '.join(sorted(topics))}: choose another one, or leave it out"
        )
    return True


def _topics(raw: bytes | None) -> set[str]:
    """The topics in an offset log: after a version and the batch's metadata it has a line for each source."""
    assert raw is not None, "a listed offset log has been deleted"
    found: set[str] = set()
    for line in raw.decode().splitlines()[2:]:
        offsets: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(offsets, dict):
            found |= set(cast("dict[str, Any]", offsets))
    return found


def check_table(checkpoint: str, table: LakeTable, *, is_archive: bool) -> None:
    """OutOfStep if the checkpoint's query has not written to this table.

    Called before the query starts, so that it is refused even if there is nothing new to write.
    """
    planned = planned_batch(checkpoint, is_archive=is_archive)
    if planned is not None:
        # Spark records a batch as completed after the commit to the table.
        is_completed = Store.at(checkpoint).exists(f"commits/{planned.number}")
        check = check_completed if is_completed else check_step
        check(planned, table.last_batch(planned.writer), is_archive=is_archive)
