"""DescribeTopicPartitions (API key 75), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 75
NAME = "DescribeTopicPartitions"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_hiii = Struct(">hiii")


class TopicRequest(Message):
    __slots__ = ("name",)

    def __init__(self, *, name: str = "") -> None:
        self.name = name


class Cursor(Message):
    __slots__ = ("topic_name", "partition_index")

    def __init__(self, *, topic_name: str = "", partition_index: int = 0) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class Request(Message):
    __slots__ = ("topics", "response_partition_limit", "cursor")

    def __init__(
        self,
        *,
        topics: list[TopicRequest] | tuple[TopicRequest, ...] = (),
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
    ) -> None:
        self.topics: list[TopicRequest] = list(topics) if isinstance(topics, tuple) else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor


def _read_topic_request(r: Reader, v: int) -> TopicRequest:
    m = TopicRequest.__new__(TopicRequest)
    m.name = r.string()
    r.skip_tags()
    return m


def _write_topic_request(w: Writer, m: TopicRequest, v: int) -> None:
    w.string(m.name)
    w.tags()


def _read_cursor(r: Reader, v: int) -> Cursor:
    m = Cursor.__new__(Cursor)
    m.topic_name = r.string()
    m.partition_index = r.int32()
    r.skip_tags()
    return m


def _write_cursor(w: Writer, m: Cursor, v: int) -> None:
    w.string(m.topic_name)
    w.int32(m.partition_index)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_topic_request, v, 2)
    m.response_partition_limit = r.int32()
    m.cursor = _read_cursor(r, v) if r.present() else None
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_topic_request, m.topics, v)
    w.int32(m.response_partition_limit)
    w.present(m.cursor)
    if m.cursor is not None:
        _write_cursor(w, m.cursor, v)
    w.tags()


class DescribeTopicPartitionsResponsePartition(Message):
    __slots__ = (
        "error_code",
        "partition_index",
        "leader_id",
        "leader_epoch",
        "replica_nodes",
        "isr_nodes",
        "eligible_leader_replicas",
        "last_known_elr",
        "offline_replicas",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | tuple[int, ...] = (),
        isr_nodes: list[int] | tuple[int, ...] = (),
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
        offline_replicas: list[int] | tuple[int, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = list(replica_nodes) if isinstance(replica_nodes, tuple) else replica_nodes
        self.isr_nodes: list[int] = list(isr_nodes) if isinstance(isr_nodes, tuple) else isr_nodes
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
        self.offline_replicas: list[int] = (
            list(offline_replicas) if isinstance(offline_replicas, tuple) else offline_replicas
        )


class DescribeTopicPartitionsResponseTopic(Message):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: list[DescribeTopicPartitionsResponsePartition]
        | tuple[DescribeTopicPartitionsResponsePartition, ...] = (),
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[DescribeTopicPartitionsResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )
        self.topic_authorized_operations = topic_authorized_operations


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics", "next_cursor")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponseTopic] | tuple[DescribeTopicPartitionsResponseTopic, ...] = (),
        next_cursor: Cursor | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DescribeTopicPartitionsResponseTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.next_cursor = next_cursor


def _read_describe_topic_partitions_response_partition(r: Reader, v: int) -> DescribeTopicPartitionsResponsePartition:
    m = DescribeTopicPartitionsResponsePartition.__new__(DescribeTopicPartitionsResponsePartition)
    m.error_code, m.partition_index, m.leader_id, m.leader_epoch = r.fixed(_hiii)
    m.replica_nodes = r.integers("i", 4)
    m.isr_nodes = r.integers("i", 4)
    m.eligible_leader_replicas = r.integers_nullable("i", 4)
    m.last_known_elr = r.integers_nullable("i", 4)
    m.offline_replicas = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_describe_topic_partitions_response_partition(
    w: Writer, m: DescribeTopicPartitionsResponsePartition, v: int
) -> None:
    w += _hiii.pack(m.error_code, m.partition_index, m.leader_id, m.leader_epoch)
    w.integers("i", m.replica_nodes)
    w.integers("i", m.isr_nodes)
    w.integers_nullable("i", m.eligible_leader_replicas)
    w.integers_nullable("i", m.last_known_elr)
    w.integers("i", m.offline_replicas)
    w.tags()


def _read_describe_topic_partitions_response_topic(r: Reader, v: int) -> DescribeTopicPartitionsResponseTopic:
    m = DescribeTopicPartitionsResponseTopic.__new__(DescribeTopicPartitionsResponseTopic)
    m.error_code = r.int16()
    m.name = r.string_nullable()
    m.topic_id = r.uuid()
    m.is_internal = r.boolean()
    m.partitions = r.array(_read_describe_topic_partitions_response_partition, v, 20)
    m.topic_authorized_operations = r.int32()
    r.skip_tags()
    return m


def _write_describe_topic_partitions_response_topic(w: Writer, m: DescribeTopicPartitionsResponseTopic, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.name)
    w.uuid(m.topic_id)
    w.boolean(m.is_internal)
    w.array(_write_describe_topic_partitions_response_partition, m.partitions, v)
    w.int32(m.topic_authorized_operations)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_describe_topic_partitions_response_topic, v, 26)
    m.next_cursor = _read_cursor(r, v) if r.present() else None
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_describe_topic_partitions_response_topic, m.topics, v)
    w.present(m.next_cursor)
    if m.next_cursor is not None:
        _write_cursor(w, m.next_cursor, v)
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
