"""ShareAcknowledge (API key 79), versions 1 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 79
NAME = "ShareAcknowledge"
VERSION_MIN = 1
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 1

_ih = Struct(">ih")
_ii = Struct(">ii")
_qq = Struct(">qq")


class AcknowledgementBatch(Message):
    __slots__ = ("first_offset", "last_offset", "acknowledge_types")

    def __init__(
        self, *, first_offset: int = 0, last_offset: int = 0, acknowledge_types: list[int] | tuple[int, ...] = ()
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types: list[int] = (
            list(acknowledge_types) if isinstance(acknowledge_types, tuple) else acknowledge_types
        )


class AcknowledgePartition(Message):
    __slots__ = ("partition_index", "acknowledgement_batches")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] | tuple[AcknowledgementBatch, ...] = (),
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches: list[AcknowledgementBatch] = (
            list(acknowledgement_batches) if isinstance(acknowledgement_batches, tuple) else acknowledgement_batches
        )


class AcknowledgeTopic(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[AcknowledgePartition] | tuple[AcknowledgePartition, ...] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[AcknowledgePartition] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("group_id", "member_id", "share_session_epoch", "is_renew_ack", "topics")

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[AcknowledgeTopic] | tuple[AcknowledgeTopic, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.is_renew_ack = is_renew_ack
        self.topics: list[AcknowledgeTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_acknowledgement_batch(r: Reader, v: int) -> AcknowledgementBatch:
    m = AcknowledgementBatch.__new__(AcknowledgementBatch)
    m.first_offset, m.last_offset = r.fixed(_qq)
    m.acknowledge_types = r.integers("b", 1)
    r.skip_tags()
    return m


def _write_acknowledgement_batch(w: Writer, m: AcknowledgementBatch, v: int) -> None:
    w += _qq.pack(m.first_offset, m.last_offset)
    w.integers("b", m.acknowledge_types)
    w.tags()


def _read_acknowledge_partition(r: Reader, v: int) -> AcknowledgePartition:
    m = AcknowledgePartition.__new__(AcknowledgePartition)
    m.partition_index = r.int32()
    m.acknowledgement_batches = r.array(_read_acknowledgement_batch, v, 18)
    r.skip_tags()
    return m


def _write_acknowledge_partition(w: Writer, m: AcknowledgePartition, v: int) -> None:
    w.int32(m.partition_index)
    w.array(_write_acknowledgement_batch, m.acknowledgement_batches, v)
    w.tags()


def _read_acknowledge_topic(r: Reader, v: int) -> AcknowledgeTopic:
    m = AcknowledgeTopic.__new__(AcknowledgeTopic)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_acknowledge_partition, v, 6)
    r.skip_tags()
    return m


def _write_acknowledge_topic(w: Writer, m: AcknowledgeTopic, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_acknowledge_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string_nullable()
    m.member_id = r.string_nullable()
    m.share_session_epoch = r.int32()
    if v >= 2:
        m.is_renew_ack = r.boolean()
    else:
        m.is_renew_ack = False
    m.topics = r.array(_read_acknowledge_topic, v, 18)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string_nullable(m.group_id)
    w.string_nullable(m.member_id)
    w.int32(m.share_session_epoch)
    if v >= 2:
        w.boolean(m.is_renew_ack)
    else:
        if m.is_renew_ack:
            absent(m, "is_renew_ack", v)
    w.array(_write_acknowledge_topic, m.topics, v)
    w.tags()


class LeaderIdAndEpoch(Message):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = 0, leader_epoch: int = 0) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionData(Message):
    __slots__ = ("partition_index", "error_code", "error_message", "current_leader")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader


class ShareAcknowledgeTopicResponse(Message):
    __slots__ = ("topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, partitions: list[PartitionData] | tuple[PartitionData, ...] = ()
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class NodeEndpoint(Message):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "acquisition_lock_timeout_ms",
        "responses",
        "node_endpoints",
    )
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareAcknowledgeTopicResponse] | tuple[ShareAcknowledgeTopicResponse, ...] = (),
        node_endpoints: list[NodeEndpoint] | tuple[NodeEndpoint, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses: list[ShareAcknowledgeTopicResponse] = (
            list(responses) if isinstance(responses, tuple) else responses
        )
        self.node_endpoints: list[NodeEndpoint] = (
            list(node_endpoints) if isinstance(node_endpoints, tuple) else node_endpoints
        )


def _read_leader_id_and_epoch(r: Reader, v: int) -> LeaderIdAndEpoch:
    m = LeaderIdAndEpoch.__new__(LeaderIdAndEpoch)
    m.leader_id, m.leader_epoch = r.fixed(_ii)
    r.skip_tags()
    return m


def _write_leader_id_and_epoch(w: Writer, m: LeaderIdAndEpoch, v: int) -> None:
    w += _ii.pack(m.leader_id, m.leader_epoch)
    w.tags()


def _read_partition_data(r: Reader, v: int) -> PartitionData:
    m = PartitionData.__new__(PartitionData)
    m.partition_index, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.current_leader = _read_leader_id_and_epoch(r, v)
    r.skip_tags()
    return m


def _write_partition_data(w: Writer, m: PartitionData, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.string_nullable(m.error_message)
    _write_leader_id_and_epoch(w, m.current_leader, v)
    w.tags()


def _read_share_acknowledge_topic_response(r: Reader, v: int) -> ShareAcknowledgeTopicResponse:
    m = ShareAcknowledgeTopicResponse.__new__(ShareAcknowledgeTopicResponse)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_partition_data, v, 17)
    r.skip_tags()
    return m


def _write_share_acknowledge_topic_response(w: Writer, m: ShareAcknowledgeTopicResponse, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_partition_data, m.partitions, v)
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
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    if v >= 2:
        m.acquisition_lock_timeout_ms = r.int32()
    else:
        m.acquisition_lock_timeout_ms = 0
    m.responses = r.array(_read_share_acknowledge_topic_response, v, 18)
    m.node_endpoints = r.array(_read_node_endpoint, v, 11)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    if v >= 2:
        w.int32(m.acquisition_lock_timeout_ms)
    w.array(_write_share_acknowledge_topic_response, m.responses, v)
    w.array(_write_node_endpoint, m.node_endpoints, v)
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
