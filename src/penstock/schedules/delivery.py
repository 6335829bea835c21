"""Builds the batches of a fire: what is delivered, and what closes it. Each is a function of the log."""

from collections.abc import Iterable, Mapping

from penstock.model.ids import Offset
from penstock.schedules.firing import PartitionSchedules, counts_from, timestamp_of
from penstock.schedules.headers import FIRED_BY, Misfire, delivered_headers, recurring_headers
from penstock.schedules.index import digest_of
from penstock.schedules.loading import Entry
from penstock.wire.records import RecordBatchBuilder
from penstock.wire.schedule_records import Fire, Named

RECORD_OVERHEAD_BYTES = 96
"""Of a delivered record beside key, value and headers of its own, at most: lengths, deltas and the header of its due
time."""


def size_max(entry: Entry) -> int:
    """The most bytes of an entry's message in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(entry.schedule.key or b"") + len(entry.value)
    for name, value in entry.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size


def build_delivery(fire: Fire, entries: Mapping[Offset, Entry]) -> bytearray:
    """The batch that a fire delivers; its entries are there, since compaction keeps what an open fire names."""
    builder = RecordBatchBuilder()
    for offset, due_ms in fire.named:
        entry = entries[offset]
        headers = delivered_headers(entry.headers, due_ms)
        builder.add(timestamp_of(due_ms, fire.fired_ms), entry.schedule.key, entry.value, headers)
    return builder.build(producer_id=fire.producer_id, producer_epoch=fire.epoch, base_sequence=fire.base_sequence)


def build_closing(
    state: PartitionSchedules,
    fire_offset: Offset,
    fired_ms: int,
    named: Iterable[Named],
    entries: Mapping[Offset, Entry],
    *,
    misfire: Misfire,
) -> bytearray | None:
    """What follows the entries of a fire, where their keys have no later record; None if that is nothing.

    `misfire` is the topic's, for schedules that do not say.
    """
    times: dict[Offset, list[int]] = {}
    for offset, due_ms in named:
        times.setdefault(offset, []).append(due_ms)
    builder = RecordBatchBuilder()
    for offset, dues in times.items():
        entry = entries.get(offset)
        if entry is not None and state.is_to_close(offset, digest_of(entry.key)):
            after_ms = counts_from(entry.schedule.misfire or misfire, fired_ms, dues[-1], len(dues))
            add_closing(builder, entry, after_ms, fire_offset, fired_ms)
    return builder.build() if builder.count else None


def add_closing(builder: RecordBatchBuilder, entry: Entry, after_ms: int, fire: int, now_ms: int) -> None:
    """The record after an entry that is done: its next time, or a tombstone where it has none."""
    recurrence = entry.schedule.recurrence
    if recurrence is not None and recurrence.next_after(after_ms) is not None:
        headers = recurring_headers(entry.headers, after_ms=after_ms, fire=fire)
        builder.add(now_ms, entry.key, entry.value, headers)
    else:
        builder.add(now_ms, entry.key, None, [(FIRED_BY, b"%d" % fire)])
