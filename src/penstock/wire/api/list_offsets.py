"""ListOffsets (API key 2), versions 1 to 11. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 2
NAME = "ListOffsets"
VERSION_MIN = 1
VERSION_MAX = 11
FLEXIBLE_FROM: int | None = 6

_ihqq = Struct(">ihqq")


class ListOffsetsPartition(Message):
    __slots__ = ("partition_index", "current_leader_epoch", "timestamp")

    def __init__(self, *, partition_index: int = 0, current_leader_epoch: int = -1, timestamp: int = 0) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp


class ListOffsetsTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self, *, name: str = "", partitions: list[ListOffsetsPartition] | tuple[ListOffsetsPartition, ...] = ()
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartition] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("replica_id", "isolation_level", "topics", "timeout_ms")

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] | tuple[ListOffsetsTopic, ...] = (),
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics: list[ListOffsetsTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.timeout_ms = timeout_ms


def _read_list_offsets_partition(r: Reader, v: int) -> ListOffsetsPartition:
    m = ListOffsetsPartition.__new__(ListOffsetsPartition)
    m.partition_index = r.int32()
    if v >= 4:
        m.current_leader_epoch = r.int32()
    else:
        m.current_leader_epoch = -1
    m.timestamp = r.int64()
    r.skip_tags()
    return m


def _write_list_offsets_partition(w: Writer, m: ListOffsetsPartition, v: int) -> None:
    w.int32(m.partition_index)
    if v >= 4:
        w.int32(m.current_leader_epoch)
    w.int64(m.timestamp)
    w.tags()


def _read_list_offsets_topic(r: Reader, v: int) -> ListOffsetsTopic:
    m = ListOffsetsTopic.__new__(ListOffsetsTopic)
    m.name = r.string()
    m.partitions = r.array(_read_list_offsets_partition, v, 12)
    r.skip_tags()
    return m


def _write_list_offsets_topic(w: Writer, m: ListOffsetsTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_list_offsets_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.replica_id = r.int32()
    if v >= 2:
        m.isolation_level = r.int8()
    else:
        m.isolation_level = 0
    m.topics = r.array(_read_list_offsets_topic, v, 3)
    if v >= 10:
        m.timeout_ms = r.int32()
    else:
        m.timeout_ms = 0
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.int32(m.replica_id)
    if v >= 2:
        w.int8(m.isolation_level)
    else:
        if m.isolation_level != 0:
            absent(m, "isolation_level", v)
    w.array(_write_list_offsets_topic, m.topics, v)
    if v >= 10:
        w.int32(m.timeout_ms)
    w.tags()


class ListOffsetsPartitionResponse(Message):
    __slots__ = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch


class ListOffsetsTopicResponse(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartitionResponse] | tuple[ListOffsetsPartitionResponse, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartitionResponse] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsTopicResponse] | tuple[ListOffsetsTopicResponse, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[ListOffsetsTopicResponse] = list(topics) if isinstance(topics, tuple) else topics


def _read_list_offsets_partition_response(r: Reader, v: int) -> ListOffsetsPartitionResponse:
    m = ListOffsetsPartitionResponse.__new__(ListOffsetsPartitionResponse)
    m.partition_index, m.error_code, m.timestamp, m.offset = r.fixed(_ihqq)
    if v >= 4:
        m.leader_epoch = r.int32()
    else:
        m.leader_epoch = -1
    r.skip_tags()
    return m


def _write_list_offsets_partition_response(w: Writer, m: ListOffsetsPartitionResponse, v: int) -> None:
    w += _ihqq.pack(m.partition_index, m.error_code, m.timestamp, m.offset)
    if v >= 4:
        w.int32(m.leader_epoch)
    else:
        if m.leader_epoch != -1:
            absent(m, "leader_epoch", v)
    w.tags()


def _read_list_offsets_topic_response(r: Reader, v: int) -> ListOffsetsTopicResponse:
    m = ListOffsetsTopicResponse.__new__(ListOffsetsTopicResponse)
    m.name = r.string()
    m.partitions = r.array(_read_list_offsets_partition_response, v, 22)
    r.skip_tags()
    return m


def _write_list_offsets_topic_response(w: Writer, m: ListOffsetsTopicResponse, v: int) -> None:
    w.string(m.name)
    w.array(_write_list_offsets_partition_response, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 2:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.topics = r.array(_read_list_offsets_topic_response, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 2:
        w.int32(m.throttle_time_ms)
    w.array(_write_list_offsets_topic_response, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 6)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 6)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 6)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 6)
