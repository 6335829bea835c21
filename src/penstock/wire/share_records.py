"""The codec of the records of `__share_group_state`: writes Kafka 4.3's bytes.

A key begins with its kind, a value with its version. A snapshot is the whole state of a share partition; an update
adds to the snapshot before it. The time before which a released record is not handed out is tagged field 10000 of a
state batch, which Kafka skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.wire.primitives import STRING_BYTES_MAX, Buffer, FlexibleReader, FlexibleWriter, Malformed, Reader, Writer

SNAPSHOT = 0
UPDATE = 1
VALUE_VERSION = 0

UNKNOWN_COUNT = -1
COMPLETE_COUNT_TAG = 0
NOT_BEFORE_TAG = 10_000
BATCH_BYTES_MIN = 20

_KIND = Struct(">h")
_LENGTH = Struct(">h")
_KEY_END = Struct(">16si")
_BATCH = Struct(">qqbh")

Batch = tuple[int, int, int, int, int]
"""First and last offset, delivery state, delivery count, and the earliest time of the next delivery, or 0."""


class ShareKey(NamedTuple):
    """The share partition of a record: one partition of a topic as one group sees it."""

    group: str
    topic_id: bytes
    partition: int


class SnapshotValue(NamedTuple):
    """The whole state of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: Sequence[Batch]


class UpdateValue(NamedTuple):
    """A change since the snapshot of this epoch; a leader epoch or start offset of -1 leaves it as it was."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[Batch]


# Writing


def share_key(kind: int, key: ShareKey) -> bytes:
    raw = key.group.encode()
    assert len(raw) <= STRING_BYTES_MAX, f"a group id of {len(raw)} bytes"
    return _KIND.pack(kind) + _LENGTH.pack(len(raw)) + raw + _KEY_END.pack(key.topic_id, key.partition)


def snapshot_value(value: SnapshotValue) -> bytes:
    out = FlexibleWriter(_KIND.pack(VALUE_VERSION))
    out.int32(value.snapshot_epoch)
    out.int32(value.state_epoch)
    out.int32(value.leader_epoch)
    out.int64(value.start_offset)
    out.int64(value.create_ms)
    out.int64(value.write_ms)
    return _ended(out, value.batches, value.delivery_complete_count)


def update_value(value: UpdateValue) -> bytes:
    out = FlexibleWriter(_KIND.pack(VALUE_VERSION))
    out.int32(value.snapshot_epoch)
    out.int32(value.leader_epoch)
    out.int64(value.start_offset)
    return _ended(out, value.batches, value.delivery_complete_count)


def _ended(out: FlexibleWriter, batches: Sequence[Batch], complete_count: int) -> bytes:
    """The fields at the end of both kinds of values."""
    out.length(len(batches))
    for first, last, state, deliveries, not_before_ms in batches:
        out += _BATCH.pack(first, last, state, deliveries)
        write_not_before(out, not_before_ms)
    if complete_count == UNKNOWN_COUNT:
        out.tags()
    else:
        body = out.fresh()
        body.int32(complete_count)
        out.tags([(COMPLETE_COUNT_TAG, body)])
    return bytes(out)


def write_not_before(out: Writer, not_before_ms: int) -> None:
    """The tagged fields of a state batch: none for a record that may be handed out at once."""
    if not not_before_ms:
        out.tags()
    else:
        body = out.fresh()
        body.int64(not_before_ms)
        out.tags([(NOT_BEFORE_TAG, body)])


# Reading


def read_share_key(raw: Buffer) -> tuple[int, ShareKey] | None:
    """The kind and the key of a record; None for a key of an unknown kind. Raises `Malformed`."""
    try:
        (kind,) = _KIND.unpack_from(raw, 0)
        if kind not in (SNAPSHOT, UPDATE):
            return None
        reader = Reader(raw, _KIND.size)
        return kind, ShareKey(reader.string(), reader.uuid(), reader.int32())
    except (StructError, UnicodeDecodeError) as error:
        raise Malformed(f"a key of {len(raw)} bytes: {error}") from error


def read_snapshot(raw: Buffer) -> SnapshotValue:
    """The value of a snapshot. Raises `Malformed`, also for a later version."""
    reader = _versioned(raw)
    snapshot_epoch = reader.int32()
    state_epoch = reader.int32()
    leader_epoch = reader.int32()
    start_offset = reader.int64()
    create_ms = reader.int64()
    write_ms = reader.int64()
    batches = _read_batches(reader)
    return SnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=_read_complete_count(reader),
        create_ms=create_ms,
        write_ms=write_ms,
        batches=batches,
    )


def read_update(raw: Buffer) -> UpdateValue:
    """The value of an update. Raises `Malformed`, also for a later version."""
    reader = _versioned(raw)
    snapshot_epoch = reader.int32()
    leader_epoch = reader.int32()
    start_offset = reader.int64()
    batches = _read_batches(reader)
    return UpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=_read_complete_count(reader),
        batches=batches,
    )


def _versioned(raw: Buffer) -> FlexibleReader:
    if len(raw) < _KIND.size:
        raise Malformed(f"a value of {len(raw)} bytes")
    (version,) = _KIND.unpack_from(raw, 0)
    if version != VALUE_VERSION:
        raise Malformed(f"a share partition's record of version {version}")
    return FlexibleReader(raw, _KIND.size)


def _read_batches(reader: Reader) -> tuple[Batch, ...]:
    return tuple(_read_batch(reader) for _ in range(reader.items(BATCH_BYTES_MIN, False)))


def _read_batch(reader: Reader) -> Batch:
    first, last, state, deliveries = reader.fixed(_BATCH)
    not_before_ms = 0
    for tag, end in reader.tagged():
        if tag == NOT_BEFORE_TAG:
            not_before_ms = reader.int64()
        else:
            reader.pos = end
    return first, last, state, deliveries, not_before_ms


def _read_complete_count(reader: Reader) -> int:
    count = UNKNOWN_COUNT
    for tag, end in reader.tagged():
        if tag == COMPLETE_COUNT_TAG:
            count = reader.int32()
        else:
            reader.pos = end
    return count
