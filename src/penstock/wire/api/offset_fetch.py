"""OffsetFetch (API key 9), versions 1 to 10. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 9
NAME = "OffsetFetch"
VERSION_MIN = 1
VERSION_MAX = 10
FLEXIBLE_FROM: int | None = 6

_iq = Struct(">iq")
_iqi = Struct(">iqi")


class OffsetFetchRequestTopic(Message):
    __slots__ = ("name", "partition_indexes")

    def __init__(self, *, name: str = "", partition_indexes: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partition_indexes: list[int] = (
            list(partition_indexes) if isinstance(partition_indexes, tuple) else partition_indexes
        )


class OffsetFetchRequestTopics(Message):
    __slots__ = ("name", "topic_id", "partition_indexes")

    def __init__(
        self, *, name: str = "", topic_id: bytes = ZERO_UUID, partition_indexes: list[int] | tuple[int, ...] = ()
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes: list[int] = (
            list(partition_indexes) if isinstance(partition_indexes, tuple) else partition_indexes
        )


class OffsetFetchRequestGroup(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | tuple[OffsetFetchRequestTopics, ...] | None = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics: list[OffsetFetchRequestTopics] | None = list(topics) if isinstance(topics, tuple) else topics


class Request(Message):
    __slots__ = ("group_id", "topics", "groups", "require_stable")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | tuple[OffsetFetchRequestTopic, ...] | None = (),
        groups: list[OffsetFetchRequestGroup] | tuple[OffsetFetchRequestGroup, ...] = (),
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetFetchRequestTopic] | None = list(topics) if isinstance(topics, tuple) else topics
        self.groups: list[OffsetFetchRequestGroup] = list(groups) if isinstance(groups, tuple) else groups
        self.require_stable = require_stable


def _read_offset_fetch_request_topic(r: Reader, v: int) -> OffsetFetchRequestTopic:
    m = OffsetFetchRequestTopic.__new__(OffsetFetchRequestTopic)
    m.name = r.string()
    m.partition_indexes = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_offset_fetch_request_topic(w: Writer, m: OffsetFetchRequestTopic, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partition_indexes)
    w.tags()


def _read_offset_fetch_request_topics(r: Reader, v: int) -> OffsetFetchRequestTopics:
    m = OffsetFetchRequestTopics.__new__(OffsetFetchRequestTopics)
    if v <= 9:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partition_indexes = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_offset_fetch_request_topics(w: Writer, m: OffsetFetchRequestTopics, v: int) -> None:
    if v <= 9:
        w.string(m.name)
    if v >= 10:
        w.uuid(m.topic_id)
    w.integers("i", m.partition_indexes)
    w.tags()


def _read_offset_fetch_request_group(r: Reader, v: int) -> OffsetFetchRequestGroup:
    m = OffsetFetchRequestGroup.__new__(OffsetFetchRequestGroup)
    m.group_id = r.string()
    if v >= 9:
        m.member_id = r.string_nullable()
        m.member_epoch = r.int32()
    else:
        m.member_id = None
        m.member_epoch = -1
    m.topics = r.array_nullable(_read_offset_fetch_request_topics, v, 3)
    r.skip_tags()
    return m


def _write_offset_fetch_request_group(w: Writer, m: OffsetFetchRequestGroup, v: int) -> None:
    w.string(m.group_id)
    if v >= 9:
        w.string_nullable(m.member_id)
        w.int32(m.member_epoch)
    w.array_nullable(_write_offset_fetch_request_topics, m.topics, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v <= 7:
        m.group_id = r.string()
        m.topics = (
            r.array_nullable(_read_offset_fetch_request_topic, v, 3)
            if v >= 2
            else r.array(_read_offset_fetch_request_topic, v, 3)
        )
    else:
        m.group_id = ""
        m.topics = []
    if v >= 8:
        m.groups = r.array(_read_offset_fetch_request_group, v, 3)
    else:
        m.groups = []
    if v >= 7:
        m.require_stable = r.boolean()
    else:
        m.require_stable = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v <= 7:
        w.string(m.group_id)
        if v >= 2:
            w.array_nullable(_write_offset_fetch_request_topic, m.topics, v)
        elif m.topics is None:
            raise ValueError(f"topics is null in version {v}")
        else:
            w.array(_write_offset_fetch_request_topic, m.topics, v)
    else:
        if m.group_id:
            absent(m, "group_id", v)
        if m.topics != []:
            absent(m, "topics", v)
    if v >= 8:
        w.array(_write_offset_fetch_request_group, m.groups, v)
    else:
        if m.groups:
            absent(m, "groups", v)
    if v >= 7:
        w.boolean(m.require_stable)
    else:
        if m.require_stable:
            absent(m, "require_stable", v)
    w.tags()


class OffsetFetchResponsePartition(Message):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopic(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OffsetFetchResponsePartition] | tuple[OffsetFetchResponsePartition, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[OffsetFetchResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class OffsetFetchResponsePartitions(Message):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopics(Message):
    __slots__ = ("name", "topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetFetchResponsePartitions] | tuple[OffsetFetchResponsePartitions, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetFetchResponsePartitions] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class OffsetFetchResponseGroup(Message):
    __slots__ = ("group_id", "topics", "error_code")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] | tuple[OffsetFetchResponseTopics, ...] = (),
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetFetchResponseTopics] = list(topics) if isinstance(topics, tuple) else topics
        self.error_code = error_code


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics", "error_code", "groups")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("topics", "groups")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] | tuple[OffsetFetchResponseTopic, ...] = (),
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] | tuple[OffsetFetchResponseGroup, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetFetchResponseTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.error_code = error_code
        self.groups: list[OffsetFetchResponseGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_offset_fetch_response_partition(r: Reader, v: int) -> OffsetFetchResponsePartition:
    m = OffsetFetchResponsePartition.__new__(OffsetFetchResponsePartition)
    m.partition_index, m.committed_offset = r.fixed(_iq)
    if v >= 5:
        m.committed_leader_epoch = r.int32()
    else:
        m.committed_leader_epoch = -1
    m.metadata = r.string_nullable()
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_offset_fetch_response_partition(w: Writer, m: OffsetFetchResponsePartition, v: int) -> None:
    w += _iq.pack(m.partition_index, m.committed_offset)
    if v >= 5:
        w.int32(m.committed_leader_epoch)
    w.string_nullable(m.metadata)
    w.int16(m.error_code)
    w.tags()


def _read_offset_fetch_response_topic(r: Reader, v: int) -> OffsetFetchResponseTopic:
    m = OffsetFetchResponseTopic.__new__(OffsetFetchResponseTopic)
    m.name = r.string()
    m.partitions = r.array(_read_offset_fetch_response_partition, v, 16)
    r.skip_tags()
    return m


def _write_offset_fetch_response_topic(w: Writer, m: OffsetFetchResponseTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_offset_fetch_response_partition, m.partitions, v)
    w.tags()


def _read_offset_fetch_response_partitions(r: Reader, v: int) -> OffsetFetchResponsePartitions:
    m = OffsetFetchResponsePartitions.__new__(OffsetFetchResponsePartitions)
    m.partition_index, m.committed_offset, m.committed_leader_epoch = r.fixed(_iqi)
    m.metadata = r.string_nullable()
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_offset_fetch_response_partitions(w: Writer, m: OffsetFetchResponsePartitions, v: int) -> None:
    w += _iqi.pack(m.partition_index, m.committed_offset, m.committed_leader_epoch)
    w.string_nullable(m.metadata)
    w.int16(m.error_code)
    w.tags()


def _read_offset_fetch_response_topics(r: Reader, v: int) -> OffsetFetchResponseTopics:
    m = OffsetFetchResponseTopics.__new__(OffsetFetchResponseTopics)
    if v <= 9:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 10:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.array(_read_offset_fetch_response_partitions, v, 20)
    r.skip_tags()
    return m


def _write_offset_fetch_response_topics(w: Writer, m: OffsetFetchResponseTopics, v: int) -> None:
    if v <= 9:
        w.string(m.name)
    if v >= 10:
        w.uuid(m.topic_id)
    w.array(_write_offset_fetch_response_partitions, m.partitions, v)
    w.tags()


def _read_offset_fetch_response_group(r: Reader, v: int) -> OffsetFetchResponseGroup:
    m = OffsetFetchResponseGroup.__new__(OffsetFetchResponseGroup)
    m.group_id = r.string()
    m.topics = r.array(_read_offset_fetch_response_topics, v, 3)
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_offset_fetch_response_group(w: Writer, m: OffsetFetchResponseGroup, v: int) -> None:
    w.string(m.group_id)
    w.array(_write_offset_fetch_response_topics, m.topics, v)
    w.int16(m.error_code)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 3:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    if v <= 7:
        m.topics = r.array(_read_offset_fetch_response_topic, v, 3)
    else:
        m.topics = []
    if 2 <= v <= 7:
        m.error_code = r.int16()
    else:
        m.error_code = 0
    if v >= 8:
        m.groups = r.array(_read_offset_fetch_response_group, v, 5)
    else:
        m.groups = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 3:
        w.int32(m.throttle_time_ms)
    if v <= 7:
        w.array(_write_offset_fetch_response_topic, m.topics, v)
    else:
        if m.topics:
            absent(m, "topics", v)
    if 2 <= v <= 7:
        w.int16(m.error_code)
    if v >= 8:
        w.array(_write_offset_fetch_response_group, m.groups, v)
    else:
        if m.groups:
            absent(m, "groups", v)
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
