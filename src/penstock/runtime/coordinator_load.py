"""Making a coordinator's state from its log: read and decoded by a thread, taken in on the loop a little at a time."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from typing import NamedTuple

from penstock.model.ids import TopicId
from penstock.runtime.coordinator import GroupCoordinator
from penstock.runtime.group_journal import EventReader, GroupEvent
from penstock.storage.view import LogView
from penstock.wire.record_columns import decode_columns

SLICE_BYTES = 256 * 1024
"""Bytes of batches that are decoded at once: what is read and not yet taken in is bounded by it."""

EVENTS_AT_ONCE = 500
"""Events taken in before others have their turn on the loop: about a millisecond."""


class Loaded(NamedTuple):
    """What a load came to."""

    events: int
    unreadable: int
    """Records that were read over."""
    topics: Mapping[TopicId, str]
    """Topics that offsets were committed for, some of which may be gone."""


async def load(coordinator: GroupCoordinator, view: LogView, threads: Executor) -> Loaded:
    """Take in everything in the log.

    Raises what reading raises, and stops early where the coordinator has been ended meanwhile.
    """
    loop = asyncio.get_running_loop()
    reader = EventReader()
    slices = event_slices(view, reader)
    count = 0
    while (events := await loop.run_in_executor(threads, next, slices, None)) is not None:
        count += len(events)
        for at in range(0, len(events), EVENTS_AT_ONCE):
            if not coordinator.take_in(events[at : at + EVENTS_AT_ONCE]):
                break
            await asyncio.sleep(0)
    return Loaded(count, reader.unreadable, reader.topics)


def event_slices(view: LogView, reader: EventReader) -> Iterator[list[GroupEvent]]:
    """The log's events in their order, a bounded number at a time. Reads the disk: off the loop."""
    gathered = bytearray()
    for batch in view.walk_from(view.log_start, bodies=True):
        if batch.header.is_control:
            continue
        gathered += batch.data
        if len(gathered) >= SLICE_BYTES:
            yield reader.read(decode_columns(gathered))
            gathered = bytearray()
    if gathered:
        yield reader.read(decode_columns(gathered))
