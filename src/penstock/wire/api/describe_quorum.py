"""DescribeQuorum (API key 55), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 55
NAME = "DescribeQuorum"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_iiq = Struct(">iiq")
_qq = Struct(">qq")


class RequestPartitionData(Message):
    __slots__ = ("partition_index",)

    def __init__(self, *, partition_index: int = 0) -> None:
        self.partition_index = partition_index


class RequestTopicData(Message):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self, *, topic_name: str = "", partitions: list[RequestPartitionData] | tuple[RequestPartitionData, ...] = ()
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[RequestPartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("topics",)

    def __init__(self, *, topics: list[RequestTopicData] | tuple[RequestTopicData, ...] = ()) -> None:
        self.topics: list[RequestTopicData] = list(topics) if isinstance(topics, tuple) else topics


def _read_request_partition_data(r: Reader, v: int) -> RequestPartitionData:
    m = RequestPartitionData.__new__(RequestPartitionData)
    m.partition_index = r.int32()
    r.skip_tags()
    return m


def _write_request_partition_data(w: Writer, m: RequestPartitionData, v: int) -> None:
    w.int32(m.partition_index)
    w.tags()


def _read_request_topic_data(r: Reader, v: int) -> RequestTopicData:
    m = RequestTopicData.__new__(RequestTopicData)
    m.topic_name = r.string()
    m.partitions = r.array(_read_request_partition_data, v, 5)
    r.skip_tags()
    return m


def _write_request_topic_data(w: Writer, m: RequestTopicData, v: int) -> None:
    w.string(m.topic_name)
    w.array(_write_request_partition_data, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_request_topic_data, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_request_topic_data, m.topics, v)
    w.tags()


class ReplicaState(Message):
    __slots__ = (
        "replica_id",
        "replica_directory_id",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    )

    def __init__(
        self,
        *,
        replica_id: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp
        self.last_caught_up_timestamp = last_caught_up_timestamp


class ResponsePartitionData(Message):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "leader_id",
        "leader_epoch",
        "high_watermark",
        "current_voters",
        "observers",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] | tuple[ReplicaState, ...] = (),
        observers: list[ReplicaState] | tuple[ReplicaState, ...] = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters: list[ReplicaState] = (
            list(current_voters) if isinstance(current_voters, tuple) else current_voters
        )
        self.observers: list[ReplicaState] = list(observers) if isinstance(observers, tuple) else observers


class ResponseTopicData(Message):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self, *, topic_name: str = "", partitions: list[ResponsePartitionData] | tuple[ResponsePartitionData, ...] = ()
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[ResponsePartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class Listener(Message):
    __slots__ = ("name", "host", "port")

    def __init__(self, *, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port


class Node(Message):
    __slots__ = ("node_id", "listeners")

    def __init__(self, *, node_id: int = 0, listeners: list[Listener] | tuple[Listener, ...] = ()) -> None:
        self.node_id = node_id
        self.listeners: list[Listener] = list(listeners) if isinstance(listeners, tuple) else listeners


class Response(Message):
    __slots__ = ("error_code", "error_message", "topics", "nodes")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[ResponseTopicData] | tuple[ResponseTopicData, ...] = (),
        nodes: list[Node] | tuple[Node, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[ResponseTopicData] = list(topics) if isinstance(topics, tuple) else topics
        self.nodes: list[Node] = list(nodes) if isinstance(nodes, tuple) else nodes


def _read_replica_state(r: Reader, v: int) -> ReplicaState:
    m = ReplicaState.__new__(ReplicaState)
    m.replica_id = r.int32()
    if v >= 2:
        m.replica_directory_id = r.uuid()
    else:
        m.replica_directory_id = ZERO_UUID
    m.log_end_offset = r.int64()
    if v >= 1:
        m.last_fetch_timestamp, m.last_caught_up_timestamp = r.fixed(_qq)
    else:
        m.last_fetch_timestamp = -1
        m.last_caught_up_timestamp = -1
    r.skip_tags()
    return m


def _write_replica_state(w: Writer, m: ReplicaState, v: int) -> None:
    w.int32(m.replica_id)
    if v >= 2:
        w.uuid(m.replica_directory_id)
    else:
        if m.replica_directory_id != ZERO_UUID:
            absent(m, "replica_directory_id", v)
    w.int64(m.log_end_offset)
    if v >= 1:
        w += _qq.pack(m.last_fetch_timestamp, m.last_caught_up_timestamp)
    w.tags()


def _read_response_partition_data(r: Reader, v: int) -> ResponsePartitionData:
    m = ResponsePartitionData.__new__(ResponsePartitionData)
    m.partition_index, m.error_code = r.fixed(_ih)
    if v >= 2:
        m.error_message = r.string_nullable()
    else:
        m.error_message = ""
    m.leader_id, m.leader_epoch, m.high_watermark = r.fixed(_iiq)
    m.current_voters = r.array(_read_replica_state, v, 13)
    m.observers = r.array(_read_replica_state, v, 13)
    r.skip_tags()
    return m


def _write_response_partition_data(w: Writer, m: ResponsePartitionData, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    if v >= 2:
        w.string_nullable(m.error_message)
    w += _iiq.pack(m.leader_id, m.leader_epoch, m.high_watermark)
    w.array(_write_replica_state, m.current_voters, v)
    w.array(_write_replica_state, m.observers, v)
    w.tags()


def _read_response_topic_data(r: Reader, v: int) -> ResponseTopicData:
    m = ResponseTopicData.__new__(ResponseTopicData)
    m.topic_name = r.string()
    m.partitions = r.array(_read_response_partition_data, v, 25)
    r.skip_tags()
    return m


def _write_response_topic_data(w: Writer, m: ResponseTopicData, v: int) -> None:
    w.string(m.topic_name)
    w.array(_write_response_partition_data, m.partitions, v)
    w.tags()


def _read_listener(r: Reader, v: int) -> Listener:
    m = Listener.__new__(Listener)
    m.name = r.string()
    m.host = r.string()
    m.port = r.uint16()
    r.skip_tags()
    return m


def _write_listener(w: Writer, m: Listener, v: int) -> None:
    w.string(m.name)
    w.string(m.host)
    w.uint16(m.port)
    w.tags()


def _read_node(r: Reader, v: int) -> Node:
    m = Node.__new__(Node)
    m.node_id = r.int32()
    m.listeners = r.array(_read_listener, v, 5)
    r.skip_tags()
    return m


def _write_node(w: Writer, m: Node, v: int) -> None:
    w.int32(m.node_id)
    w.array(_write_listener, m.listeners, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code = r.int16()
    if v >= 2:
        m.error_message = r.string_nullable()
    else:
        m.error_message = ""
    m.topics = r.array(_read_response_topic_data, v, 3)
    if v >= 2:
        m.nodes = r.array(_read_node, v, 6)
    else:
        m.nodes = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int16(m.error_code)
    if v >= 2:
        w.string_nullable(m.error_message)
    w.array(_write_response_topic_data, m.topics, v)
    if v >= 2:
        w.array(_write_node, m.nodes, v)
    else:
        if m.nodes:
            absent(m, "nodes", v)
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
