"""Reads batches of a schedule partition into its state, and entries of it by their offsets."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from penstock.model.batch import BatchHeader
from penstock.model.ids import Offset
from penstock.schedules.firing import Held, PartitionSchedules
from penstock.schedules.headers import BadSchedule, Schedule, read
from penstock.schedules.index import digest_of
from penstock.storage.view import LogView
from penstock.wire.column_batches import murmur2
from penstock.wire.primitives import Buffer
from penstock.wire.record_columns import Columns, decode_columns
from penstock.wire.records import ABORT_MARKER, Header, decode_records, parse_marker
from penstock.wire.schedule_records import Fire, parse

HASH_MASK = 0x7FFFFFFF
NO_LIMIT = 2**63


class Entry(NamedTuple):
    """A record of a schedule."""

    offset: Offset
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: list[Header]
    schedule: Schedule


def partition_hash(key: bytes) -> int:
    """The hash from which the partition of a key follows, as Kafka's producers choose it."""
    return murmur2(key, 0, len(key)) & HASH_MASK


def feed(state: PartitionSchedules, batch: Buffer, header: BatchHeader) -> None:
    """Apply one batch."""
    if header.is_control:
        feed_control(state, batch, header)
    elif header.record_count:
        columns = decode_columns(batch)
        feed_records(state, columns, header, range(len(columns)))
    state.applied = header.next_offset


def feed_control(state: PartitionSchedules, batch: Buffer, header: BatchHeader) -> None:
    if header.producer_id >= 0:
        # Compaction empties a marker's batch when no record needs it: what is left of its transaction is committed.
        aborted = header.record_count > 0 and parse_marker(decode_records(batch)[0])[0] == ABORT_MARKER
        state.decide(header.producer_id, committed=not aborted)
    elif header.record_count:
        for found in parse(decode_records(batch)[0]):
            if isinstance(found, Fire):
                state.fire(header.base_offset, header.next_offset, found)
            else:
                state.close(found)


def feed_records(state: PartitionSchedules, columns: Columns, header: BatchHeader, rows: range) -> None:
    """Apply some records of a batch: a large one in steps, in order."""
    data = memoryview(columns.data)
    transaction = header.producer_id if header.is_transactional else None
    for row in rows:
        offset = columns.offsets[row]
        at, size = columns.key_at[row], columns.key_sizes[row]
        if size < 0:
            continue
        key = bytes(data[at : at + size])
        digest = digest_of(key)
        due_ms: int | None = None
        hashed = 0
        is_tombstone = columns.value_sizes[row] < 0
        if not is_tombstone:
            try:
                schedule = read(key, columns.headers(row), columns.timestamps[row])
            except BadSchedule:
                # Never due. It was refused when it was produced, if this version was there to refuse it.
                schedule = Schedule(None, None)
            due_ms = schedule.due_ms
            if due_ms is not None:
                hashed = partition_hash(key if schedule.key is None else schedule.key)
        if transaction is not None:
            state.hold(transaction, Held(Offset(offset), digest, due_ms, hashed, is_tombstone))
        elif is_tombstone:
            state.remove(Offset(offset), digest)
        else:
            state.put(Offset(offset), digest, due_ms, hashed)


def load(view: LogView) -> PartitionSchedules:
    """The state of a partition as of a view's end. Reads the whole log, in any thread."""
    state = PartitionSchedules()
    state.applied = view.log_start
    for batch in view.walk_from(view.log_start, bodies=True):
        feed(state, batch.data, batch.header)
    # Those were too late for an earlier leader, which counted them.
    state.too_late = 0
    return state


def entries_in(columns: Columns, offsets: Iterable[Offset], bytes_max: int = NO_LIMIT) -> dict[Offset, Entry]:
    """The entries at some offsets of a batch, in order; those that compaction has removed are left out.

    With more than `bytes_max` bytes of values it is without those after the last one in it.
    """
    data = memoryview(columns.data)
    found: dict[Offset, Entry] = {}
    size = 0
    for offset in offsets:
        if size > bytes_max:
            break
        row = bisect_left(columns.offsets, offset)
        if (
            row == len(columns)
            or columns.offsets[row] != offset
            or columns.key_sizes[row] < 0
            or columns.value_sizes[row] < 0
        ):
            continue
        key_at, value_at = columns.key_at[row], columns.value_at[row]
        key = bytes(data[key_at : key_at + columns.key_sizes[row]])
        headers = columns.headers(row)
        try:
            schedule = read(key, headers, columns.timestamps[row])
        except BadSchedule:
            continue
        value = bytes(data[value_at : value_at + columns.value_sizes[row]])
        size += len(value)
        found[offset] = Entry(offset, columns.timestamps[row], key, value, headers, schedule)
    return found
