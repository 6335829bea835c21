"""The codec of DeliverScheduled, which the leader of a schedule partition sends to the leader of a target partition.

Only between brokers of penstock. Kafka has no API with this key.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from penstock.model.ids import LeaderEpoch, TopicId
from penstock.wire.primitives import Buffer, Malformed

API_KEY = 20550
NAME = "DeliverScheduled"
VERSION_MIN = 0
VERSION_MAX = 0

_REQUEST = Struct(">16si16sii")
_RESPONSE = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The batch of one fire, which gets its response when it is committed."""

    topic_id: TopicId
    partition: int
    source_id: TopicId
    source: int
    source_epoch: LeaderEpoch
    """Topic, partition and leader epoch of the schedules."""
    payload: Buffer = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    ERROR_FIELD: ClassVar[str] = "error_code"
    ERROR_LISTS: ClassVar[tuple[str, ...]] = ()

    error_code: int = 0


def encode_request(request: Request, version: int) -> bytes:
    head = _REQUEST.pack(request.topic_id, request.partition, request.source_id, request.source, request.source_epoch)
    return head + bytes(request.payload)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    """The payload is a view of `data`."""
    if len(data) - offset < _REQUEST.size:
        raise Malformed(f"a delivery of {len(data) - offset} bytes")
    topic_id, partition, source_id, source, epoch = _REQUEST.unpack_from(data, offset)
    return Request(
        topic_id=topic_id,
        partition=partition,
        source_id=source_id,
        source=source,
        source_epoch=epoch,
        payload=memoryview(data)[offset + _REQUEST.size :],
    )


def encode_response(response: Response, version: int) -> bytes:
    return _RESPONSE.pack(response.error_code)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if len(data) - offset < _RESPONSE.size:
        raise Malformed(f"a response of {len(data) - offset} bytes")
    return Response(error_code=_RESPONSE.unpack_from(data, offset)[0])
