"""Builds the batches of a fire: what is delivered, and what closes it. Each is a function of the log."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model.ids import Offset
from penstock.schedules.firing import PartitionSchedules, counts_from, timestamp_of
from penstock.schedules.headers import FIRED_BY, Misfire, delivered_headers, recurring_headers
from penstock.schedules.index import digest_of
from penstock.schedules.loading import Entry
from penstock.wire.records import RecordBatchBuilder
from penstock.wire.schedule_records import Close, Fire, Named, Outcome, build_closes

CLOSING_BYTES_MAX = 512 * 1024
"""Size from which a batch of closing records is complete."""
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


class Ended(NamedTuple):
    """A fire that is delivered, refused or released."""

    offset: Offset
    fire: Fire
    outcome: Outcome
    entries: Mapping[Offset, Entry]


def build_end(state: PartitionSchedules, ended: Sequence[Ended], *, misfire: Misfire, now_ms: int) -> list[bytearray]:
    """What is appended at the end of fires, in order: what follows their entries, and their closes.

    `misfire` is the topic's, for schedules that do not say.
    """
    batches: list[bytearray] = []
    builder = RecordBatchBuilder()
    for offset, fire, outcome, entries in ended:
        if outcome is not Outcome.RELEASED:
            add_closings(state, builder, offset, fire.fired_ms, fire.named, entries, misfire=misfire)
            if builder.size_bytes > CLOSING_BYTES_MAX:
                batches.append(builder.build())
                builder = RecordBatchBuilder()
    if builder.count:
        batches.append(builder.build())
    closes = [Close(offset, fire.partition, outcome) for offset, fire, outcome, _ in ended]
    return [*batches, build_closes(closes, now_ms)]


def add_closings(
    state: PartitionSchedules,
    builder: RecordBatchBuilder,
    fire_offset: Offset,
    fired_ms: int,
    named: Iterable[Named],
    entries: Mapping[Offset, Entry],
    *,
    misfire: Misfire,
) -> None:
    """Add what follows the entries of a fire, where their keys have no later record."""
    times: dict[Offset, list[int]] = {}
    for offset, due_ms in named:
        times.setdefault(offset, []).append(due_ms)
    for offset, dues in times.items():
        entry = entries.get(offset)
        if entry is not None and state.is_to_close(offset, digest_of(entry.key)):
            after_ms = counts_from(entry.schedule.misfire or misfire, fired_ms, dues[-1], len(dues))
            add_closing(builder, entry, after_ms, fire_offset, fired_ms)


def add_closing(builder: RecordBatchBuilder, entry: Entry, after_ms: int, fire: int, now_ms: int) -> None:
    """The record after an entry that is done: its next time, or a tombstone where it has none."""
    recurrence = entry.schedule.recurrence
    if recurrence is not None and recurrence.next_after(after_ms) is not None:
        headers = recurring_headers(entry.headers, after_ms=after_ms, fire=fire)
        builder.add(now_ms, entry.key, entry.value, headers)
    else:
        builder.add(now_ms, entry.key, None, [(FIRED_BY, b"%d" % fire)])
