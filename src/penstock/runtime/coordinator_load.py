"""Making a coordinator's state from its log: read and decoded by a thread, taken in on the loop a little at a time."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from penstock.core.step import Event
from penstock.model.batch import TRANSACTIONAL_FLAG, BatchHeader
from penstock.runtime.coordinator_shell import Coordinator
from penstock.storage.view import LogView
from penstock.wire.record_columns import Columns, decode_columns

SLICE_BYTES = 256 * 1024
"""Bytes of batches that are decoded at once: what is read and not yet taken in is bounded by it."""

EVENTS_AT_ONCE = 500
"""Events taken in before others have their turn on the loop: about a millisecond."""


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


async def load(coordinator: Coordinator[Any], view: LogView, reader: BatchReader, threads: Executor) -> int:
    """Take in everything in the log, and give how many events it was.

    Raises what reading raises, and stops early where the coordinator has been ended meanwhile.
    """
    loop = asyncio.get_running_loop()
    slices = event_slices(view, reader)
    count = 0
    while (events := await loop.run_in_executor(threads, next, slices, None)) is not None:
        count += len(events)
        for at in range(0, len(events), EVENTS_AT_ONCE):
            if not coordinator.take_in(events[at : at + EVENTS_AT_ONCE]):
                return count
            await asyncio.sleep(0)
    return count


def event_slices(view: LogView, reader: BatchReader) -> Iterator[list[Event]]:
    """The log's events in their order, a bounded number at a time. Reads the disk: off the loop."""
    plain = bytearray()
    """Batches that are decoded together."""
    events: list[Event] = []
    size = 0
    for batch in view.walk_from(view.log_start, bodies=True):
        size += len(batch.data)
        if batch.header.attributes & TRANSACTIONAL_FLAG:
            if plain:
                events += reader.read(decode_columns(plain))
                plain = bytearray()
            events += reader.read_transactional(batch.header, bytes(batch.data))
        else:
            plain += batch.data
        if size >= SLICE_BYTES:
            yield events + list(reader.read(decode_columns(plain)) if plain else ())
            plain, events, size = bytearray(), [], 0
    if plain:
        events += reader.read(decode_columns(plain))
    if events:
        yield events
