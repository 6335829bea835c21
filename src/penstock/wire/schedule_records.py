"""The control records of schedule topics: fires, and closes of fires. Kafka has none of these types.

Both are batches with the control and transactional flags and without a producer id: consumers skip them, and recovery,
followers and the list of aborted transactions pass over them. A fire says what is delivered, to which partition, under
which producer id, epoch and sequences, before anything is sent. A close says how that ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.model.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from penstock.model.ids import Offset, ProducerEpoch, ProducerId, TopicId
from penstock.wire.primitives import Malformed
from penstock.wire.records import Record, RecordBatchBuilder

FIRE = 20550
CLOSE = 20551
VERSION = 0

_KEY = Struct(">hh")
_FIRES = Struct(">hqi")
_FIRE = Struct(">16siqhii")
_ENTRY = Struct(">qq")
_CLOSES = Struct(">hi")
_CLOSE = Struct(">qib")


class Outcome(IntEnum):
    """How a fire ended."""

    DELIVERED = 0
    REFUSED = 1
    """The target partition refuses the batch for good. Its entries are done; the epoch goes up."""
    RELEASED = 2
    """It will not be delivered, because the target lost data, is gone or refuses so many records at once: its entries
    may be named by another fire, and the epoch goes up."""


class Named(NamedTuple):
    """One delivery: the entry it is made of, and the due time that it is for."""

    offset: Offset
    due_ms: int


class Fire(NamedTuple):
    """A batch that is to be delivered."""

    fired_ms: int
    topic_id: TopicId
    partition: int
    producer_id: ProducerId
    epoch: ProducerEpoch
    base_sequence: int
    named: Sequence[Named]


class Close(NamedTuple):
    """The end of a fire: of the record at an offset, the one for a partition."""

    fire: Offset
    partition: int
    outcome: Outcome


def build_fires(fires: Sequence[Fire]) -> bytearray:
    """The control batch of fires that are made at one time."""
    fired_ms = fires[0].fired_ms
    parts = [_FIRES.pack(VERSION, fired_ms, len(fires))]
    for fire in fires:
        assert fire.fired_ms == fired_ms, "fires of several times"
        parts.append(
            _FIRE.pack(fire.topic_id, fire.partition, fire.producer_id, fire.epoch, fire.base_sequence, len(fire.named))
        )
        parts += (_ENTRY.pack(*each) for each in fire.named)
    return _built(FIRE, b"".join(parts), fired_ms)


def build_closes(closes: Sequence[Close], timestamp_ms: int) -> bytearray:
    value = _CLOSES.pack(VERSION, len(closes)) + b"".join(_CLOSE.pack(*each) for each in closes)
    return _built(CLOSE, value, timestamp_ms)


def _built(kind: int, value: bytes, timestamp_ms: int) -> bytearray:
    builder = RecordBatchBuilder()
    builder.add(timestamp_ms, _KEY.pack(0, kind), value)
    return builder.build(attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG)


def parse(record: Record) -> list[Fire] | list[Close]:
    """What a control record says of schedules; nothing for any other type."""
    value = record.value or b""
    try:
        _, kind = _KEY.unpack_from(record.key or b"", 0)
        if kind == CLOSE:
            _, count = _CLOSES.unpack_from(value, 0)
            return [_close(value, _CLOSES.size + at * _CLOSE.size) for at in range(count)]
        return _fires(value) if kind == FIRE else []
    except (StructError, ValueError) as error:
        raise Malformed(f"no control record of a schedule: {error}") from error


def _close(value: bytes, at: int) -> Close:
    fire, partition, outcome = _CLOSE.unpack_from(value, at)
    return Close(Offset(fire), partition, Outcome(outcome))


def _fires(value: bytes) -> list[Fire]:
    _, fired_ms, fires = _FIRES.unpack_from(value, 0)
    at = _FIRES.size
    found: list[Fire] = []
    for _ in range(fires):
        topic_id, partition, producer_id, epoch, base_sequence, count = _FIRE.unpack_from(value, at)
        at += _FIRE.size
        end = at + count * _ENTRY.size
        if not at <= end <= len(value):
            raise Malformed(f"a fire of {count} deliveries in {len(value)} bytes")
        named = tuple(Named(Offset(offset), due_ms) for offset, due_ms in _ENTRY.iter_unpack(value[at:end]))
        found.append(Fire(fired_ms, TopicId(topic_id), partition, producer_id, epoch, base_sequence, named))
        at = end
    return found
