"""ShareFetch (API key 78), versions 1 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 78
NAME = "ShareFetch"
VERSION_MIN = 1
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 1

_bt = Struct(">b?")
_ih = Struct(">ih")
_ii = Struct(">ii")
_iiiiii = Struct(">iiiiii")
_qq = Struct(">qq")
_qqh = Struct(">qqh")


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


class FetchPartition(Message):
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


class FetchTopic(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, partitions: list[FetchPartition] | tuple[FetchPartition, ...] = ()
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = list(partitions) if isinstance(partitions, tuple) else partitions


class ForgottenTopic(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(self, *, topic_id: bytes = ZERO_UUID, partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "share_session_epoch",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "max_records",
        "batch_size",
        "share_acquire_mode",
        "is_renew_ack",
        "topics",
        "forgotten_topics_data",
    )

    def __init__(
        self,
        *,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[FetchTopic] | tuple[FetchTopic, ...] = (),
        forgotten_topics_data: list[ForgottenTopic] | tuple[ForgottenTopic, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.share_acquire_mode = share_acquire_mode
        self.is_renew_ack = is_renew_ack
        self.topics: list[FetchTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.forgotten_topics_data: list[ForgottenTopic] = (
            list(forgotten_topics_data) if isinstance(forgotten_topics_data, tuple) else forgotten_topics_data
        )


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


def _read_fetch_partition(r: Reader, v: int) -> FetchPartition:
    m = FetchPartition.__new__(FetchPartition)
    m.partition_index = r.int32()
    m.acknowledgement_batches = r.array(_read_acknowledgement_batch, v, 18)
    r.skip_tags()
    return m


def _write_fetch_partition(w: Writer, m: FetchPartition, v: int) -> None:
    w.int32(m.partition_index)
    w.array(_write_acknowledgement_batch, m.acknowledgement_batches, v)
    w.tags()


def _read_fetch_topic(r: Reader, v: int) -> FetchTopic:
    m = FetchTopic.__new__(FetchTopic)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_fetch_partition, v, 6)
    r.skip_tags()
    return m


def _write_fetch_topic(w: Writer, m: FetchTopic, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_fetch_partition, m.partitions, v)
    w.tags()


def _read_forgotten_topic(r: Reader, v: int) -> ForgottenTopic:
    m = ForgottenTopic.__new__(ForgottenTopic)
    m.topic_id = r.uuid()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_forgotten_topic(w: Writer, m: ForgottenTopic, v: int) -> None:
    w.uuid(m.topic_id)
    w.integers("i", m.partitions)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string_nullable()
    m.member_id = r.string_nullable()
    m.share_session_epoch, m.max_wait_ms, m.min_bytes, m.max_bytes, m.max_records, m.batch_size = r.fixed(_iiiiii)
    if v >= 2:
        m.share_acquire_mode, m.is_renew_ack = r.fixed(_bt)
    else:
        m.share_acquire_mode = 0
        m.is_renew_ack = False
    m.topics = r.array(_read_fetch_topic, v, 18)
    m.forgotten_topics_data = r.array(_read_forgotten_topic, v, 18)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string_nullable(m.group_id)
    w.string_nullable(m.member_id)
    w += _iiiiii.pack(m.share_session_epoch, m.max_wait_ms, m.min_bytes, m.max_bytes, m.max_records, m.batch_size)
    if v >= 2:
        w += _bt.pack(m.share_acquire_mode, m.is_renew_ack)
    else:
        if m.is_renew_ack:
            absent(m, "is_renew_ack", v)
    w.array(_write_fetch_topic, m.topics, v)
    w.array(_write_forgotten_topic, m.forgotten_topics_data, v)
    w.tags()


class LeaderIdAndEpoch(Message):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = 0, leader_epoch: int = 0) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class AcquiredRecords(Message):
    __slots__ = ("first_offset", "last_offset", "delivery_count")

    def __init__(self, *, first_offset: int = 0, last_offset: int = 0, delivery_count: int = 0) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_count = delivery_count


class PartitionData(Message):
    __slots__ = (
        "partition_index",
        "error_code",
        "error_message",
        "acknowledge_error_code",
        "acknowledge_error_message",
        "current_leader",
        "records",
        "acquired_records",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acknowledge_error_code: int = 0,
        acknowledge_error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        records: Buffer | None = None,
        acquired_records: list[AcquiredRecords] | tuple[AcquiredRecords, ...] = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.acknowledge_error_code = acknowledge_error_code
        self.acknowledge_error_message = acknowledge_error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.records = records
        self.acquired_records: list[AcquiredRecords] = (
            list(acquired_records) if isinstance(acquired_records, tuple) else acquired_records
        )


class ShareFetchableTopicResponse(Message):
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
        responses: list[ShareFetchableTopicResponse] | tuple[ShareFetchableTopicResponse, ...] = (),
        node_endpoints: list[NodeEndpoint] | tuple[NodeEndpoint, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses: list[ShareFetchableTopicResponse] = (
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


def _read_acquired_records(r: Reader, v: int) -> AcquiredRecords:
    m = AcquiredRecords.__new__(AcquiredRecords)
    m.first_offset, m.last_offset, m.delivery_count = r.fixed(_qqh)
    r.skip_tags()
    return m


def _write_acquired_records(w: Writer, m: AcquiredRecords, v: int) -> None:
    w += _qqh.pack(m.first_offset, m.last_offset, m.delivery_count)
    w.tags()


def _read_partition_data(r: Reader, v: int) -> PartitionData:
    m = PartitionData.__new__(PartitionData)
    m.partition_index, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.acknowledge_error_code = r.int16()
    m.acknowledge_error_message = r.string_nullable()
    m.current_leader = _read_leader_id_and_epoch(r, v)
    m.records = r.view_nullable()
    m.acquired_records = r.array(_read_acquired_records, v, 19)
    r.skip_tags()
    return m


def _write_partition_data(w: Writer, m: PartitionData, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.string_nullable(m.error_message)
    w.int16(m.acknowledge_error_code)
    w.string_nullable(m.acknowledge_error_message)
    _write_leader_id_and_epoch(w, m.current_leader, v)
    if m.records is None:
        raise ValueError("records is null")
    w.raw(m.records)
    w.array(_write_acquired_records, m.acquired_records, v)
    w.tags()


def _read_share_fetchable_topic_response(r: Reader, v: int) -> ShareFetchableTopicResponse:
    m = ShareFetchableTopicResponse.__new__(ShareFetchableTopicResponse)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_partition_data, v, 22)
    r.skip_tags()
    return m


def _write_share_fetchable_topic_response(w: Writer, m: ShareFetchableTopicResponse, v: int) -> None:
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
    m.acquisition_lock_timeout_ms = r.int32()
    m.responses = r.array(_read_share_fetchable_topic_response, v, 18)
    m.node_endpoints = r.array(_read_node_endpoint, v, 11)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.int32(m.acquisition_lock_timeout_ms)
    w.array(_write_share_fetchable_topic_response, m.responses, v)
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
