"""AlterPartitionReassignments (API key 45), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 45
NAME = "AlterPartitionReassignments"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class ReassignablePartition(Message):
    __slots__ = ("partition_index", "replicas")

    def __init__(self, *, partition_index: int = 0, replicas: list[int] | None = None) -> None:
        self.partition_index = partition_index
        self.replicas = replicas


class ReassignableTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self, *, name: str = "", partitions: list[ReassignablePartition] | tuple[ReassignablePartition, ...] = ()
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartition] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("timeout_ms", "allow_replication_factor_change", "topics")

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] | tuple[ReassignableTopic, ...] = (),
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.topics: list[ReassignableTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_reassignable_partition(r: Reader, v: int) -> ReassignablePartition:
    m = ReassignablePartition.__new__(ReassignablePartition)
    m.partition_index = r.int32()
    m.replicas = r.integers_nullable("i", 4)
    r.skip_tags()
    return m


def _write_reassignable_partition(w: Writer, m: ReassignablePartition, v: int) -> None:
    w.int32(m.partition_index)
    w.integers_nullable("i", m.replicas)
    w.tags()


def _read_reassignable_topic(r: Reader, v: int) -> ReassignableTopic:
    m = ReassignableTopic.__new__(ReassignableTopic)
    m.name = r.string()
    m.partitions = r.array(_read_reassignable_partition, v, 6)
    r.skip_tags()
    return m


def _write_reassignable_topic(w: Writer, m: ReassignableTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_reassignable_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.timeout_ms = r.int32()
    if v >= 1:
        m.allow_replication_factor_change = r.boolean()
    else:
        m.allow_replication_factor_change = True
    m.topics = r.array(_read_reassignable_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.int32(m.timeout_ms)
    if v >= 1:
        w.boolean(m.allow_replication_factor_change)
    else:
        if not m.allow_replication_factor_change:
            absent(m, "allow_replication_factor_change", v)
    w.array(_write_reassignable_topic, m.topics, v)
    w.tags()


class ReassignablePartitionResponse(Message):
    __slots__ = ("partition_index", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0, error_message: str | None = "") -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class ReassignableTopicResponse(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartitionResponse] | tuple[ReassignablePartitionResponse, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartitionResponse] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "allow_replication_factor_change", "error_code", "error_message", "responses")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[ReassignableTopicResponse] | tuple[ReassignableTopicResponse, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[ReassignableTopicResponse] = list(responses) if isinstance(responses, tuple) else responses


def _read_reassignable_partition_response(r: Reader, v: int) -> ReassignablePartitionResponse:
    m = ReassignablePartitionResponse.__new__(ReassignablePartitionResponse)
    m.partition_index, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_reassignable_partition_response(w: Writer, m: ReassignablePartitionResponse, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_reassignable_topic_response(r: Reader, v: int) -> ReassignableTopicResponse:
    m = ReassignableTopicResponse.__new__(ReassignableTopicResponse)
    m.name = r.string()
    m.partitions = r.array(_read_reassignable_partition_response, v, 8)
    r.skip_tags()
    return m


def _write_reassignable_topic_response(w: Writer, m: ReassignableTopicResponse, v: int) -> None:
    w.string(m.name)
    w.array(_write_reassignable_partition_response, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    if v >= 1:
        m.allow_replication_factor_change = r.boolean()
    else:
        m.allow_replication_factor_change = True
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.responses = r.array(_read_reassignable_topic_response, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    if v >= 1:
        w.boolean(m.allow_replication_factor_change)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_reassignable_topic_response, m.responses, v)
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
