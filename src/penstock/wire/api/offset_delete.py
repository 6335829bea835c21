"""OffsetDelete (API key 47), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 47
NAME = "OffsetDelete"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = None

_hi = Struct(">hi")
_ih = Struct(">ih")


class OffsetDeleteRequestPartition(Message):
    __slots__ = ("partition_index",)

    def __init__(self, *, partition_index: int = 0) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteRequestPartition] | tuple[OffsetDeleteRequestPartition, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteRequestPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = ("group_id", "topics")

    def __init__(
        self, *, group_id: str = "", topics: list[OffsetDeleteRequestTopic] | tuple[OffsetDeleteRequestTopic, ...] = ()
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetDeleteRequestTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_offset_delete_request_partition(r: Reader, v: int) -> OffsetDeleteRequestPartition:
    m = OffsetDeleteRequestPartition.__new__(OffsetDeleteRequestPartition)
    m.partition_index = r.int32()
    return m


def _write_offset_delete_request_partition(w: Writer, m: OffsetDeleteRequestPartition, v: int) -> None:
    w.int32(m.partition_index)


def _read_offset_delete_request_topic(r: Reader, v: int) -> OffsetDeleteRequestTopic:
    m = OffsetDeleteRequestTopic.__new__(OffsetDeleteRequestTopic)
    m.name = r.string()
    m.partitions = r.array(_read_offset_delete_request_partition, v, 4)
    return m


def _write_offset_delete_request_topic(w: Writer, m: OffsetDeleteRequestTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_offset_delete_request_partition, m.partitions, v)


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.topics = r.array(_read_offset_delete_request_topic, v, 6)
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.array(_write_offset_delete_request_topic, m.topics, v)


class OffsetDeleteResponsePartition(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetDeleteResponsePartition] | tuple[OffsetDeleteResponsePartition, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("error_code", "throttle_time_ms", "topics")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] | tuple[OffsetDeleteResponseTopic, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetDeleteResponseTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_offset_delete_response_partition(r: Reader, v: int) -> OffsetDeleteResponsePartition:
    m = OffsetDeleteResponsePartition.__new__(OffsetDeleteResponsePartition)
    m.partition_index, m.error_code = r.fixed(_ih)
    return m


def _write_offset_delete_response_partition(w: Writer, m: OffsetDeleteResponsePartition, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)


def _read_offset_delete_response_topic(r: Reader, v: int) -> OffsetDeleteResponseTopic:
    m = OffsetDeleteResponseTopic.__new__(OffsetDeleteResponseTopic)
    m.name = r.string()
    m.partitions = r.array(_read_offset_delete_response_partition, v, 6)
    return m


def _write_offset_delete_response_topic(w: Writer, m: OffsetDeleteResponseTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_offset_delete_response_partition, m.partitions, v)


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code, m.throttle_time_ms = r.fixed(_hi)
    m.topics = r.array(_read_offset_delete_response_topic, v, 6)
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _hi.pack(m.error_code, m.throttle_time_ms)
    w.array(_write_offset_delete_response_topic, m.topics, v)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, False)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, False)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, False)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, False)
