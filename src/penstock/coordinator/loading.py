"""Loads a coordinator's state from its log: a thread reads and decodes it, the loop applies it in small slices."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.coordinator.context import CoordinatorContext
from penstock.coordinator.step import Event
from penstock.model.batch import BatchHeader
from penstock.model.ids import Offset
from penstock.storage.view import LogView
from penstock.storage.walk import BatchAt
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns, column_slices, decode_columns
from penstock.wire.records import iter_batches

SLICE_BYTES = 256 * 1024
"""Bytes of batches that are decoded at once, which bounds what is read and not yet applied."""

RECORDS_AT_ONCE = 50_000
"""Records that are decoded at once: a compressed batch of a few kilobytes may hold millions."""

EVENTS_AT_ONCE = 500
"""Events applied in one turn of the loop: about a millisecond."""


UNREADABLE = (Malformed, UnsupportedCompression)


class BatchReader(Protocol):
    """Decodes the records of a coordinator's topic into events."""

    unreadable: int
    """Records that were skipped."""

    def read(self, columns: Columns) -> Sequence[Event]:
        """The events of non-transactional records, in order."""
        ...

    def read_transactional(self, header: BatchHeader, batch: bytes) -> Sequence[Event]:
        """The events of a transactional batch, which may be a marker."""
        ...


class SkippedBatches:
    """Batches with a valid CRC that cannot be decoded: the coordinator loads without them."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[Offset, str] | None = None
        """The offset of the first of them, and the reason."""

    def add(self, header: BatchHeader, reason: Exception) -> None:
        self.count += 1
        if self.first is None:
            self.first = header.base_offset, f"{type(reason).__name__}: {reason}"


async def load(
    coordinator: CoordinatorContext[Any], view: LogView, reader: BatchReader, threads: Executor, skipped: SkippedBatches
) -> int:
    """Apply every event of the log; returns their number.

    Raises the errors of reading, and stops early if the coordinator has ended meanwhile.
    """
    loop = asyncio.get_running_loop()
    slices = event_slices(view, reader, skipped)
    count = 0
    while (events := await loop.run_in_executor(threads, next, slices, None)) is not None:
        count += len(events)
        for at in range(0, len(events), EVENTS_AT_ONCE):
            if not coordinator.replay(events[at : at + EVENTS_AT_ONCE]):
                return count
            await asyncio.sleep(0)
    return count


def event_slices(view: LogView, reader: BatchReader, skipped: SkippedBatches) -> Iterator[list[Event]]:
    """The log's events in order, a bounded number at a time. Reads the disk, so it runs in a thread."""
    gathered = GatheredBatches(reader, skipped)
    for batch in view.walk_from(view.log_start, bodies=True):
        header = batch.header
        if header.record_count > RECORDS_AT_ONCE and not header.is_transactional and not header.is_control:
            yield gathered.take()
            try:
                parts = column_slices(batch.data, RECORDS_AT_ONCE)
            except UNREADABLE as error:
                skipped.add(header, error)
                continue
            for columns in parts:
                yield list(reader.read(columns))
            continue
        gathered.add(batch)
        if gathered.is_full:
            yield gathered.take()
    yield gathered.take()


class GatheredBatches:
    """Batches to decode: plain ones together, transactional ones one by one."""

    def __init__(self, reader: BatchReader, skipped: SkippedBatches) -> None:
        self._reader = reader
        self._skipped = skipped
        self._plain = bytearray()
        self._events: list[Event] = []
        self._bytes = self._records = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= SLICE_BYTES or self._records >= RECORDS_AT_ONCE

    def add(self, batch: BatchAt) -> None:
        header = batch.header
        self._bytes += len(batch.data)
        self._records += header.record_count
        if not header.is_transactional:
            self._plain += batch.data
            return
        self._decode_plain()
        try:
            self._events += self._reader.read_transactional(header, bytes(batch.data))
        except UNREADABLE as error:
            self._skipped.add(header, error)

    def take(self) -> list[Event]:
        """The events of the batches since the last call."""
        self._decode_plain()
        events, self._events = self._events, []
        self._bytes = self._records = 0
        return events

    def _decode_plain(self) -> None:
        self._events += read_plain(self._plain, self._reader, self._skipped)
        self._plain = bytearray()


def read_plain(batches: bytearray, reader: BatchReader, skipped: SkippedBatches) -> list[Event]:
    """The events of several batches, decoded at once; one by one if a batch cannot be decoded."""
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
