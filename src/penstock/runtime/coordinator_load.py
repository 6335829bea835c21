"""Making a coordinator's state from its log: read and decoded by a thread, taken in on the loop a little at a time."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.core.step import Event
from penstock.model.batch import TRANSACTIONAL_FLAG, BatchHeader
from penstock.runtime.coordinator_shell import Coordinator
from penstock.storage.view import LogView
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns, decode_columns
from penstock.wire.records import iter_batches

SLICE_BYTES = 256 * 1024
"""Bytes of batches that are decoded at once: what is read and not yet taken in is bounded by it."""

EVENTS_AT_ONCE = 500
"""Events taken in before others have their turn on the loop: about a millisecond."""


UNREADABLE = (Malformed, UnsupportedCompression)


class BatchReader(Protocol):
    """Turns the records of a coordinator's topic into events."""

    unreadable: int
    """Records that were read over."""

    def read(self, columns: Columns) -> Sequence[Event]:
        """The events of plain records, in their order."""
        ...

    def read_transactional(self, header: BatchHeader, batch: bytes) -> Sequence[Event]:
        """The events of one batch that is part of a transaction, or ends one."""
        ...


class SkippedBatches:
    """Batches that hold together and cannot be decoded: the coordinator goes on without them."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[int, str] | None = None
        """The offset of the first of them, and why."""

    def add(self, header: BatchHeader, reason: Exception) -> None:
        self.count += 1
        if self.first is None:
            self.first = header.base_offset, f"{type(reason).__name__}: {reason}"


async def load(
    coordinator: Coordinator[Any], view: LogView, reader: BatchReader, threads: Executor, skipped: SkippedBatches
) -> int:
    """Take in everything in the log, and give how many events it was.

    Raises what reading raises, and stops early where the coordinator has been ended meanwhile.
    """
    loop = asyncio.get_running_loop()
    slices = event_slices(view, reader, skipped)
    count = 0
    while (events := await loop.run_in_executor(threads, next, slices, None)) is not None:
        count += len(events)
        for at in range(0, len(events), EVENTS_AT_ONCE):
            if not coordinator.take_in(events[at : at + EVENTS_AT_ONCE]):
                return count
            await asyncio.sleep(0)
    return count


def event_slices(view: LogView, reader: BatchReader, skipped: SkippedBatches) -> Iterator[list[Event]]:
    """The log's events in their order, a bounded number at a time. Reads the disk: off the loop."""
    plain = bytearray()
    """Batches that are decoded together."""
    events: list[Event] = []
    size = 0
    for batch in view.walk_from(view.log_start, bodies=True):
        size += len(batch.data)
        if batch.header.attributes & TRANSACTIONAL_FLAG:
            events += read_plain(plain, reader, skipped)
            plain = bytearray()
            try:
                events += reader.read_transactional(batch.header, bytes(batch.data))
            except UNREADABLE as error:
                skipped.add(batch.header, error)
        else:
            plain += batch.data
        if size >= SLICE_BYTES:
            yield events + read_plain(plain, reader, skipped)
            plain, events, size = bytearray(), [], 0
    events += read_plain(plain, reader, skipped)
    if events:
        yield events


def read_plain(batches: bytearray, reader: BatchReader, skipped: SkippedBatches) -> list[Event]:
    """The events of several batches: of all at once, or of one after the other where one cannot be decoded."""
    if not batches:
        return []
    try:
        return list(reader.read(decode_columns(batches)))
    except UNREADABLE:
        events: list[Event] = []
        for position, header in iter_batches(batches):
            try:
                events += reader.read(decode_columns(batches[position : position + header.size]))
            except UNREADABLE as error:
                skipped.add(header, error)
        return events
