"""The codec of Redirect, which the leader of a drained partition sends to the leader of the one it is drained into.

Only between brokers of penstock. Kafka has no API with this key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import ClassVar

from penstock.model.ids import (
    NO_OFFSET,
    OFFSET_ZERO,
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from penstock.wire.primitives import Buffer, Malformed

API_KEY = 20552
NAME = "Redirect"
VERSION_MIN = 0
VERSION_MAX = 0

_REQUEST = Struct(">16siiqqiibbhii")
_MARKER = Struct(">qh?ib")
_RESPONSE = Struct(">hqqqi")
_PRODUCER = Struct(">qh?b")
_BATCH = Struct(">iiq")


class Kind(IntEnum):
    """What is redirected."""

    RECORDS = 0
    MARKER = 1
    FENCE = 2
    FENCE_AGAIN = 3
    """A fence whose sender needs to know of open transactions only."""
    PRODUCERS = 4
    """What a partition that is about to be a ghost knows of its producers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One batch, marker or fence of one partition."""

    topic_id: TopicId
    source: int
    source_epoch: LeaderEpoch
    source_life: Offset = OFFSET_ZERO
    number: int
    target: int
    target_epoch: LeaderEpoch
    kind: Kind
    acks: int = -1
    produce_version: int = 0
    first_sequence: int = -1
    begins_at: int = -1
    payload: Buffer = b""
    """The batch, the packed `Marker`, or the packed producers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How a transaction of a drained partition ended; the producer id is the derived one."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: CoordinatorEpoch
    transaction_version: int


KnownProducer = tuple[ProducerId, ProducerEpoch, bool, tuple[tuple[int, int, int], ...]]
"""A producer, its epoch, whether its transaction is open, and (last sequence, offset delta, timestamp) of batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Where the batch is, or why it was refused; the response to a fence has what the target knows."""

    ERROR_FIELD: ClassVar[str] = "error_code"
    ERROR_LISTS: ClassVar[tuple[str, ...]] = ()

    error_code: int = 0
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = -1
    log_start: Offset = NO_OFFSET
    producers: tuple[KnownProducer, ...] = ()


def pack_marker(marker: Marker) -> bytes:
    return _MARKER.pack(
        marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.transaction_version
    )


def unpack_marker(data: Buffer) -> Marker:
    if len(data) != _MARKER.size:
        raise Malformed(f"a marker of {len(data)} bytes")
    producer_id, epoch, commit, coordinator_epoch, transaction_version = _MARKER.unpack(data)
    return Marker(
        producer_id=producer_id,
        epoch=epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def encode_request(request: Request, version: int) -> bytes:
    head = _REQUEST.pack(
        request.topic_id,
        request.source,
        request.source_epoch,
        request.source_life,
        request.number,
        request.target,
        request.target_epoch,
        request.kind,
        request.acks,
        request.produce_version,
        request.first_sequence,
        request.begins_at,
    )
    return head + bytes(request.payload)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    """The payload is a view of `data`."""
    if len(data) - offset < _REQUEST.size:
        raise Malformed(f"a redirect of {len(data) - offset} bytes")
    (
        topic_id,
        source,
        source_epoch,
        source_life,
        number,
        target,
        target_epoch,
        kind,
        acks,
        produce_version,
        first,
        begins,
    ) = _REQUEST.unpack_from(data, offset)
    try:
        known = Kind(kind)
    except ValueError as error:
        raise Malformed(f"a redirect of kind {kind}") from error
    return Request(
        topic_id=topic_id,
        source=source,
        source_epoch=source_epoch,
        source_life=source_life,
        number=number,
        target=target,
        target_epoch=target_epoch,
        kind=known,
        acks=acks,
        produce_version=produce_version,
        first_sequence=first,
        begins_at=begins,
        payload=memoryview(data)[offset + _REQUEST.size :],
    )


def encode_response(response: Response, version: int) -> bytes:
    parts = [
        _RESPONSE.pack(
            response.error_code,
            response.base_offset,
            response.log_append_time_ms,
            response.log_start,
            len(response.producers),
        )
    ]
    parts.append(pack_producers(response.producers))
    return b"".join(parts)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    error_code, base_offset, log_append_time_ms, log_start, count = _RESPONSE.unpack_from(data, offset)
    producers, _ = _unpacked(data, offset + _RESPONSE.size, count)
    return Response(
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start=log_start,
        producers=producers,
    )


def pack_producers(producers: Iterable[KnownProducer]) -> bytes:
    """Producers one after the other, without their number."""
    parts: list[bytes] = []
    for producer_id, epoch, is_open, batches in producers:
        parts.append(_PRODUCER.pack(producer_id, epoch, is_open, len(batches)))
        parts += (_BATCH.pack(*batch) for batch in batches)
    return b"".join(parts)


def unpack_producers(data: Buffer) -> tuple[KnownProducer, ...]:
    """All producers of a payload."""
    found: list[KnownProducer] = []
    at = 0
    try:
        while at < len(data):
            more, at = _unpacked(data, at, 1)
            found += more
    except StructError as error:
        raise Malformed(f"producers of {len(data)} bytes") from error
    return tuple(found)


def _unpacked(data: Buffer, at: int, count: int) -> tuple[tuple[KnownProducer, ...], int]:
    """So many producers from a position on, and where they end."""
    producers: list[KnownProducer] = []
    for _ in range(count):
        producer_id, epoch, is_open, size = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        batches: list[tuple[int, int, int]] = []
        for _ in range(size):
            sequence, delta, timestamp = _BATCH.unpack_from(data, at)
            batches.append((sequence, delta, timestamp))
            at += _BATCH.size
        producers.append((producer_id, epoch, is_open, tuple(batches)))
    return tuple(producers), at
