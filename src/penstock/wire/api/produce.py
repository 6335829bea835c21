"""Produce (API key 0), versions 3 to 13. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 0
NAME = "Produce"
VERSION_MIN = 3
VERSION_MAX = 13
FLEXIBLE_FROM: int | None = 9

_hi = Struct(">hi")
_ihqq = Struct(">ihqq")
_ii = Struct(">ii")


class PartitionProduceData(Message):
    __slots__ = ("index", "records")

    def __init__(self, *, index: int = 0, records: Buffer | None = None) -> None:
        self.index = index
        self.records = records


class TopicProduceData(Message):
    __slots__ = ("name", "topic_id", "partition_data")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_data: list[PartitionProduceData] | tuple[PartitionProduceData, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data: list[PartitionProduceData] = (
            list(partition_data) if isinstance(partition_data, tuple) else partition_data
        )


class Request(Message):
    __slots__ = ("transactional_id", "acks", "timeout_ms", "topic_data")

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] | tuple[TopicProduceData, ...] = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data: list[TopicProduceData] = list(topic_data) if isinstance(topic_data, tuple) else topic_data


def _read_partition_produce_data(r: Reader, v: int) -> PartitionProduceData:
    m = PartitionProduceData.__new__(PartitionProduceData)
    m.index = r.int32()
    m.records = r.view_nullable()
    r.skip_tags()
    return m


def _write_partition_produce_data(w: Writer, m: PartitionProduceData, v: int) -> None:
    w.int32(m.index)
    w.raw_nullable(m.records)
    w.tags()


def _read_topic_produce_data(r: Reader, v: int) -> TopicProduceData:
    m = TopicProduceData.__new__(TopicProduceData)
    if v <= 12:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 13:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partition_data = r.array(_read_partition_produce_data, v, 6)
    r.skip_tags()
    return m


def _write_topic_produce_data(w: Writer, m: TopicProduceData, v: int) -> None:
    if v <= 12:
        w.string(m.name)
    if v >= 13:
        w.uuid(m.topic_id)
    w.array(_write_partition_produce_data, m.partition_data, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.transactional_id = r.string_nullable()
    m.acks, m.timeout_ms = r.fixed(_hi)
    m.topic_data = r.array(_read_topic_produce_data, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string_nullable(m.transactional_id)
    w += _hi.pack(m.acks, m.timeout_ms)
    w.array(_write_topic_produce_data, m.topic_data, v)
    w.tags()


class PartitionProduceResponse(Message):
    __slots__ = (
        "index",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "current_leader",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] | tuple[BatchIndexAndErrorMessage, ...] = (),
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors: list[BatchIndexAndErrorMessage] = (
            list(record_errors) if isinstance(record_errors, tuple) else record_errors
        )
        self.error_message = error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader


class TopicProduceResponse(Message):
    __slots__ = ("name", "topic_id", "partition_responses")
    ERROR_LISTS = ("partition_responses",)

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_responses: list[PartitionProduceResponse] | tuple[PartitionProduceResponse, ...] = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses: list[PartitionProduceResponse] = (
            list(partition_responses) if isinstance(partition_responses, tuple) else partition_responses
        )


class BatchIndexAndErrorMessage(Message):
    __slots__ = ("batch_index", "batch_index_error_message")

    def __init__(self, *, batch_index: int = 0, batch_index_error_message: str | None = None) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


class LeaderIdAndEpoch(Message):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class NodeEndpoint(Message):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class Response(Message):
    __slots__ = ("responses", "throttle_time_ms", "node_endpoints")
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] | tuple[TopicProduceResponse, ...] = (),
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | tuple[NodeEndpoint, ...] = (),
    ) -> None:
        self.responses: list[TopicProduceResponse] = list(responses) if isinstance(responses, tuple) else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = (
            list(node_endpoints) if isinstance(node_endpoints, tuple) else node_endpoints
        )


def _read_partition_produce_response(r: Reader, v: int) -> PartitionProduceResponse:
    m = PartitionProduceResponse.__new__(PartitionProduceResponse)
    m.index, m.error_code, m.base_offset, m.log_append_time_ms = r.fixed(_ihqq)
    if v >= 5:
        m.log_start_offset = r.int64()
    else:
        m.log_start_offset = -1
    if v >= 8:
        m.record_errors = r.array(_read_batch_index_and_error_message, v, 6)
        m.error_message = r.string_nullable()
    else:
        m.record_errors = []
        m.error_message = None
    m.current_leader = LeaderIdAndEpoch()
    for tag, end in r.tagged():
        if tag == 0 and v >= 10:
            m.current_leader = _read_leader_id_and_epoch(r, v)
        else:
            r.pos = end
    return m


def _write_partition_produce_response(w: Writer, m: PartitionProduceResponse, v: int) -> None:
    w += _ihqq.pack(m.index, m.error_code, m.base_offset, m.log_append_time_ms)
    if v >= 5:
        w.int64(m.log_start_offset)
    if v >= 8:
        w.array(_write_batch_index_and_error_message, m.record_errors, v)
        w.string_nullable(m.error_message)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 10) and m.current_leader != LeaderIdAndEpoch():
        t = w.fresh()
        _write_leader_id_and_epoch(t, m.current_leader, v)
        tagged.append((0, t))
    elif m.current_leader != LeaderIdAndEpoch():
        absent(m, "current_leader", v)
    w.tags(tagged)


def _read_topic_produce_response(r: Reader, v: int) -> TopicProduceResponse:
    m = TopicProduceResponse.__new__(TopicProduceResponse)
    if v <= 12:
        m.name = r.string()
    else:
        m.name = ""
    if v >= 13:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partition_responses = r.array(_read_partition_produce_response, v, 22)
    r.skip_tags()
    return m


def _write_topic_produce_response(w: Writer, m: TopicProduceResponse, v: int) -> None:
    if v <= 12:
        w.string(m.name)
    if v >= 13:
        w.uuid(m.topic_id)
    w.array(_write_partition_produce_response, m.partition_responses, v)
    w.tags()


def _read_batch_index_and_error_message(r: Reader, v: int) -> BatchIndexAndErrorMessage:
    m = BatchIndexAndErrorMessage.__new__(BatchIndexAndErrorMessage)
    m.batch_index = r.int32()
    m.batch_index_error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_batch_index_and_error_message(w: Writer, m: BatchIndexAndErrorMessage, v: int) -> None:
    w.int32(m.batch_index)
    w.string_nullable(m.batch_index_error_message)
    w.tags()


def _read_leader_id_and_epoch(r: Reader, v: int) -> LeaderIdAndEpoch:
    m = LeaderIdAndEpoch.__new__(LeaderIdAndEpoch)
    m.leader_id, m.leader_epoch = r.fixed(_ii)
    r.skip_tags()
    return m


def _write_leader_id_and_epoch(w: Writer, m: LeaderIdAndEpoch, v: int) -> None:
    w += _ii.pack(m.leader_id, m.leader_epoch)
    w.tags()


def _read_node_endpoint(r: Reader, v: int) -> NodeEndpoint:
    m = NodeEndpoint.__new__(NodeEndpoint)
    m.node_id = r.int32()
    m.host = r.string()
    m.port = r.int32()
    m.rack = r.string_nullable()
    r.skip_tags()
    return m


def _write_node_endpoint(w: Writer, m: NodeEndpoint, v: int) -> None:
    w.int32(m.node_id)
    w.string(m.host)
    w.int32(m.port)
    w.string_nullable(m.rack)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.responses = r.array(_read_topic_produce_response, v, 3)
    m.throttle_time_ms = r.int32()
    m.node_endpoints = []
    for tag, end in r.tagged():
        if tag == 0 and v >= 10:
            m.node_endpoints = r.array(_read_node_endpoint, v, 11)
        else:
            r.pos = end
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.array(_write_topic_produce_response, m.responses, v)
    w.int32(m.throttle_time_ms)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 10) and m.node_endpoints:
        t = w.fresh()
        t.array(_write_node_endpoint, m.node_endpoints, v)
        tagged.append((0, t))
    elif m.node_endpoints:
        absent(m, "node_endpoints", v)
    w.tags(tagged)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 9)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 9)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 9)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 9)
