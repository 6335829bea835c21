"""OffsetCommit (API key 8), versions 2 to 10. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 8
NAME = "OffsetCommit"
VERSION_MIN = 2
VERSION_MAX = 10
FLEXIBLE_FROM: int | None = 8

_ih = Struct(">ih")
_iq = Struct(">iq")


class OffsetCommitRequestPartition(Message):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class OffsetCommitRequestTopic(Message):
    __slots__ = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetCommitRequestPartition] | tuple[OffsetCommitRequestPartition, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitRequestPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = (
        "group_id",
        "generation_id_or_member_epoch",
        "member_id",
        "retention_time_ms",
        "group_instance_id",
        "topics",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        retention_time_ms: int = -1,
        group_instance_id: str | None = None,
        topics: list[OffsetCommitRequestTopic] | tuple[OffsetCommitRequestTopic, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.retention_time_ms = retention_time_ms
        self.group_instance_id = group_instance_id
        self.topics: list[OffsetCommitRequestTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_offset_commit_request_partition(r: Reader, v: int) -> OffsetCommitRequestPartition:
    m = OffsetCommitRequestPartition.__new__(OffsetCommitRequestPartition)
    m.partition_index, m.committed_offset = r.fixed(_iq)
    if v >= 6:
        m.committed_leader_epoch = r.int32()
    else:
        m.committed_leader_epoch = -1
    m.committed_metadata = r.string_nullable()
    r.skip_tags()
    return m


def _write_offset_commit_request_partition(w: Writer, m: OffsetCommitRequestPartition, v: int) -> None:
    w += _iq.pack(m.partition_index, m.committed_offset)
    if v >= 6:
        w.int32(m.committed_leader_epoch)
    w.string_nullable(m.committed_metadata)
    w.tags()


def _read_offset_commit_request_topic(r: Reader, v: int) -> OffsetCommitRequestTopic:
    m = OffsetCommitRequestTopic.__new__(OffsetCommitRequestTopic)
    if v <= 9:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.array(_read_offset_commit_request_partition, v, 14)
    r.skip_tags()
    return m


def _write_offset_commit_request_topic(w: Writer, m: OffsetCommitRequestTopic, v: int) -> None:
    if v <= 9:
        w.string(m.name)
    if v >= 10:
        w.uuid(m.topic_id)
    w.array(_write_offset_commit_request_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.generation_id_or_member_epoch = r.int32()
    m.member_id = r.string()
    if v <= 4:
        m.retention_time_ms = r.int64()
    else:
        m.retention_time_ms = -1
    if v >= 7:
        m.group_instance_id = r.string_nullable()
    else:
        m.group_instance_id = None
    m.topics = r.array(_read_offset_commit_request_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.int32(m.generation_id_or_member_epoch)
    w.string(m.member_id)
    if v <= 4:
        w.int64(m.retention_time_ms)
    if v >= 7:
        w.string_nullable(m.group_instance_id)
    else:
        if m.group_instance_id is not None:
            absent(m, "group_instance_id", v)
    w.array(_write_offset_commit_request_topic, m.topics, v)
    w.tags()


class OffsetCommitResponsePartition(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetCommitResponseTopic(Message):
    __slots__ = ("name", "topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetCommitResponsePartition] | tuple[OffsetCommitResponsePartition, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponseTopic] | tuple[OffsetCommitResponseTopic, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetCommitResponseTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_offset_commit_response_partition(r: Reader, v: int) -> OffsetCommitResponsePartition:
    m = OffsetCommitResponsePartition.__new__(OffsetCommitResponsePartition)
    m.partition_index, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_offset_commit_response_partition(w: Writer, m: OffsetCommitResponsePartition, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.tags()


def _read_offset_commit_response_topic(r: Reader, v: int) -> OffsetCommitResponseTopic:
    m = OffsetCommitResponseTopic.__new__(OffsetCommitResponseTopic)
    if v <= 9:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.array(_read_offset_commit_response_partition, v, 6)
    r.skip_tags()
    return m


def _write_offset_commit_response_topic(w: Writer, m: OffsetCommitResponseTopic, v: int) -> None:
    if v <= 9:
        w.string(m.name)
    if v >= 10:
        w.uuid(m.topic_id)
    w.array(_write_offset_commit_response_partition, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 3:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.topics = r.array(_read_offset_commit_response_topic, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 3:
        w.int32(m.throttle_time_ms)
    w.array(_write_offset_commit_response_topic, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 8)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 8)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 8)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 8)
