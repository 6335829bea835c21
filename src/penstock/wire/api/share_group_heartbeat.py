"""ShareGroupHeartbeat (API key 76), versions 1 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 76
NAME = "ShareGroupHeartbeat"
VERSION_MIN = 1
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 1

_ih = Struct(">ih")
_ii = Struct(">ii")


class Request(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "rack_id", "subscribed_topic_names")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.member_id = r.string()
    m.member_epoch = r.int32()
    m.rack_id = r.string_nullable()
    m.subscribed_topic_names = r.strings_nullable()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.string(m.member_id)
    w.int32(m.member_epoch)
    w.string_nullable(m.rack_id)
    w.strings_nullable(m.subscribed_topic_names)
    w.tags()


class TopicPartitions(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(self, *, topic_id: bytes = ZERO_UUID, partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Assignment(Message):
    __slots__ = ("topic_partitions",)

    def __init__(self, *, topic_partitions: list[TopicPartitions] | tuple[TopicPartitions, ...] = ()) -> None:
        self.topic_partitions: list[TopicPartitions] = (
            list(topic_partitions) if isinstance(topic_partitions, tuple) else topic_partitions
        )


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "member_id",
        "member_epoch",
        "heartbeat_interval_ms",
        "assignment",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: Assignment | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.assignment = assignment


def _read_topic_partitions(r: Reader, v: int) -> TopicPartitions:
    m = TopicPartitions.__new__(TopicPartitions)
    m.topic_id = r.uuid()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_partitions(w: Writer, m: TopicPartitions, v: int) -> None:
    w.uuid(m.topic_id)
    w.integers("i", m.partitions)
    w.tags()


def _read_assignment(r: Reader, v: int) -> Assignment:
    m = Assignment.__new__(Assignment)
    m.topic_partitions = r.array(_read_topic_partitions, v, 18)
    r.skip_tags()
    return m


def _write_assignment(w: Writer, m: Assignment, v: int) -> None:
    w.array(_write_topic_partitions, m.topic_partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.member_id = r.string_nullable()
    m.member_epoch, m.heartbeat_interval_ms = r.fixed(_ii)
    m.assignment = _read_assignment(r, v) if r.present() else None
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.string_nullable(m.member_id)
    w += _ii.pack(m.member_epoch, m.heartbeat_interval_ms)
    w.present(m.assignment)
    if m.assignment is not None:
        _write_assignment(w, m.assignment, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, True)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, True)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, True)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, True)
