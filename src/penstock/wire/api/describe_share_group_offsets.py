"""DescribeShareGroupOffsets (API key 90), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 90
NAME = "DescribeShareGroupOffsets"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 0

_iqi = Struct(">iqi")


class DescribeShareGroupOffsetsRequestTopic(Message):
    __slots__ = ("topic_name", "partitions")

    def __init__(self, *, topic_name: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic_name = topic_name
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class DescribeShareGroupOffsetsRequestGroup(Message):
    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic]
        | tuple[DescribeShareGroupOffsetsRequestTopic, ...]
        | None = (),
    ) -> None:
        self.group_id = group_id
        self.topics: list[DescribeShareGroupOffsetsRequestTopic] | None = (
            list(topics) if isinstance(topics, tuple) else topics
        )


class Request(Message):
    __slots__ = ("groups",)

    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequestGroup] | tuple[DescribeShareGroupOffsetsRequestGroup, ...] = (),
    ) -> None:
        self.groups: list[DescribeShareGroupOffsetsRequestGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_describe_share_group_offsets_request_topic(r: Reader, v: int) -> DescribeShareGroupOffsetsRequestTopic:
    m = DescribeShareGroupOffsetsRequestTopic.__new__(DescribeShareGroupOffsetsRequestTopic)
    m.topic_name = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_describe_share_group_offsets_request_topic(
    w: Writer, m: DescribeShareGroupOffsetsRequestTopic, v: int
) -> None:
    w.string(m.topic_name)
    w.integers("i", m.partitions)
    w.tags()


def _read_describe_share_group_offsets_request_group(r: Reader, v: int) -> DescribeShareGroupOffsetsRequestGroup:
    m = DescribeShareGroupOffsetsRequestGroup.__new__(DescribeShareGroupOffsetsRequestGroup)
    m.group_id = r.string()
    m.topics = r.array_nullable(_read_describe_share_group_offsets_request_topic, v, 3)
    r.skip_tags()
    return m


def _write_describe_share_group_offsets_request_group(
    w: Writer, m: DescribeShareGroupOffsetsRequestGroup, v: int
) -> None:
    w.string(m.group_id)
    w.array_nullable(_write_describe_share_group_offsets_request_topic, m.topics, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.groups = r.array(_read_describe_share_group_offsets_request_group, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_describe_share_group_offsets_request_group, m.groups, v)
    w.tags()


class DescribeShareGroupOffsetsResponsePartition(Message):
    __slots__ = ("partition_index", "start_offset", "leader_epoch", "lag", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
        leader_epoch: int = 0,
        lag: int = -1,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponseTopic(Message):
    __slots__ = ("topic_name", "topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[DescribeShareGroupOffsetsResponsePartition]
        | tuple[DescribeShareGroupOffsetsResponsePartition, ...] = (),
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[DescribeShareGroupOffsetsResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class DescribeShareGroupOffsetsResponseGroup(Message):
    __slots__ = ("group_id", "topics", "error_code", "error_message")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsResponseTopic] | tuple[DescribeShareGroupOffsetsResponseTopic, ...] = (),
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DescribeShareGroupOffsetsResponseTopic] = (
            list(topics) if isinstance(topics, tuple) else topics
        )
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "groups")
    ERROR_LISTS = ("groups",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponseGroup] | tuple[DescribeShareGroupOffsetsResponseGroup, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribeShareGroupOffsetsResponseGroup] = (
            list(groups) if isinstance(groups, tuple) else groups
        )


def _read_describe_share_group_offsets_response_partition(
    r: Reader, v: int
) -> DescribeShareGroupOffsetsResponsePartition:
    m = DescribeShareGroupOffsetsResponsePartition.__new__(DescribeShareGroupOffsetsResponsePartition)
    m.partition_index, m.start_offset, m.leader_epoch = r.fixed(_iqi)
    if v >= 1:
        m.lag = r.int64()
    else:
        m.lag = -1
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_describe_share_group_offsets_response_partition(
    w: Writer, m: DescribeShareGroupOffsetsResponsePartition, v: int
) -> None:
    w += _iqi.pack(m.partition_index, m.start_offset, m.leader_epoch)
    if v >= 1:
        w.int64(m.lag)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_describe_share_group_offsets_response_topic(r: Reader, v: int) -> DescribeShareGroupOffsetsResponseTopic:
    m = DescribeShareGroupOffsetsResponseTopic.__new__(DescribeShareGroupOffsetsResponseTopic)
    m.topic_name = r.string()
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_describe_share_group_offsets_response_partition, v, 20)
    r.skip_tags()
    return m


def _write_describe_share_group_offsets_response_topic(
    w: Writer, m: DescribeShareGroupOffsetsResponseTopic, v: int
) -> None:
    w.string(m.topic_name)
    w.uuid(m.topic_id)
    w.array(_write_describe_share_group_offsets_response_partition, m.partitions, v)
    w.tags()


def _read_describe_share_group_offsets_response_group(r: Reader, v: int) -> DescribeShareGroupOffsetsResponseGroup:
    m = DescribeShareGroupOffsetsResponseGroup.__new__(DescribeShareGroupOffsetsResponseGroup)
    m.group_id = r.string()
    m.topics = r.array(_read_describe_share_group_offsets_response_topic, v, 19)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_describe_share_group_offsets_response_group(
    w: Writer, m: DescribeShareGroupOffsetsResponseGroup, v: int
) -> None:
    w.string(m.group_id)
    w.array(_write_describe_share_group_offsets_response_topic, m.topics, v)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.groups = r.array(_read_describe_share_group_offsets_response_group, v, 6)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_describe_share_group_offsets_response_group, m.groups, v)
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
