"""Fetch (API key 1), versions 4 to 18. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 1
NAME = "Fetch"
VERSION_MIN = 4
VERSION_MAX = 18
FLEXIBLE_FROM: int | None = 12

_hi = Struct(">hi")
_ihqq = Struct(">ihqq")
_ii = Struct(">ii")
_iiib = Struct(">iiib")
_iq = Struct(">iq")
_qi = Struct(">qi")
_qq = Struct(">qq")


class FetchPartition(Message):
    __slots__ = (
        "partition",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "replica_directory_id",
        "high_watermark",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


class FetchTopic(Message):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[FetchPartition] | tuple[FetchPartition, ...] = (),
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = list(partitions) if isinstance(partitions, tuple) else partitions


class ForgottenTopic(Message):
    __slots__ = ("topic", "topic_id", "partitions")

    def __init__(
        self, *, topic: str = "", topic_id: bytes = ZERO_UUID, partitions: list[int] | tuple[int, ...] = ()
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class ReplicaState(Message):
    __slots__ = ("replica_id", "replica_epoch")

    def __init__(self, *, replica_id: int = -1, replica_epoch: int = -1) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


class Request(Message):
    __slots__ = (
        "cluster_id",
        "replica_id",
        "replica_state",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "topics",
        "forgotten_topics_data",
        "rack_id",
    )

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] | tuple[FetchTopic, ...] = (),
        forgotten_topics_data: list[ForgottenTopic] | tuple[ForgottenTopic, ...] = (),
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = ReplicaState() if replica_state is None else replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[FetchTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.forgotten_topics_data: list[ForgottenTopic] = (
            list(forgotten_topics_data) if isinstance(forgotten_topics_data, tuple) else forgotten_topics_data
        )
        self.rack_id = rack_id


def _read_fetch_partition(r: Reader, v: int) -> FetchPartition:
    m = FetchPartition.__new__(FetchPartition)
    m.partition = r.int32()
    if v >= 9:
        m.current_leader_epoch = r.int32()
    else:
        m.current_leader_epoch = -1
    m.fetch_offset = r.int64()
    if v >= 12:
        m.last_fetched_epoch = r.int32()
    else:
        m.last_fetched_epoch = -1
    if v >= 5:
        m.log_start_offset = r.int64()
    else:
        m.log_start_offset = -1
    m.partition_max_bytes = r.int32()
    m.replica_directory_id = ZERO_UUID
    m.high_watermark = 9223372036854775807
    for tag, end in r.tagged():
        if tag == 0 and v >= 17:
            m.replica_directory_id = r.uuid()
        elif tag == 1 and v >= 18:
            m.high_watermark = r.int64()
        else:
            r.pos = end
    return m


def _write_fetch_partition(w: Writer, m: FetchPartition, v: int) -> None:
    w.int32(m.partition)
    if v >= 9:
        w.int32(m.current_leader_epoch)
    w.int64(m.fetch_offset)
    if v >= 12:
        w.int32(m.last_fetched_epoch)
    else:
        if m.last_fetched_epoch != -1:
            absent(m, "last_fetched_epoch", v)
    if v >= 5:
        w.int64(m.log_start_offset)
    w.int32(m.partition_max_bytes)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 17) and m.replica_directory_id != ZERO_UUID:
        t = w.fresh()
        t.uuid(m.replica_directory_id)
        tagged.append((0, t))
    if (v >= 18) and m.high_watermark != 9223372036854775807:
        t = w.fresh()
        t.int64(m.high_watermark)
        tagged.append((1, t))
    w.tags(tagged)


def _read_fetch_topic(r: Reader, v: int) -> FetchTopic:
    m = FetchTopic.__new__(FetchTopic)
    if v <= 12:
        m.topic = r.string()
    else:
        m.topic = ""
    if v >= 13:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.array(_read_fetch_partition, v, 16)
    r.skip_tags()
    return m


def _write_fetch_topic(w: Writer, m: FetchTopic, v: int) -> None:
    if v <= 12:
        w.string(m.topic)
    if v >= 13:
        w.uuid(m.topic_id)
    w.array(_write_fetch_partition, m.partitions, v)
    w.tags()


def _read_forgotten_topic(r: Reader, v: int) -> ForgottenTopic:
    m = ForgottenTopic.__new__(ForgottenTopic)
    if v <= 12:
        m.topic = r.string()
    else:
        m.topic = ""
    if v >= 13:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_forgotten_topic(w: Writer, m: ForgottenTopic, v: int) -> None:
    if v <= 12:
        w.string(m.topic)
    if v >= 13:
        w.uuid(m.topic_id)
    w.integers("i", m.partitions)
    w.tags()


def _read_replica_state(r: Reader, v: int) -> ReplicaState:
    m = ReplicaState.__new__(ReplicaState)
    m.replica_id, m.replica_epoch = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_replica_state(w: Writer, m: ReplicaState, v: int) -> None:
    w += _iq.pack(m.replica_id, m.replica_epoch)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v <= 14:
        m.replica_id = r.int32()
    else:
        m.replica_id = -1
    m.max_wait_ms, m.min_bytes, m.max_bytes, m.isolation_level = r.fixed(_iiib)
    if v >= 7:
        m.session_id, m.session_epoch = r.fixed(_ii)
    else:
        m.session_id = 0
        m.session_epoch = -1
    m.topics = r.array(_read_fetch_topic, v, 3)
    if v >= 7:
        m.forgotten_topics_data = r.array(_read_forgotten_topic, v, 3)
    else:
        m.forgotten_topics_data = []
    if v >= 11:
        m.rack_id = r.string()
    else:
        m.rack_id = ""
    m.cluster_id = None
    m.replica_state = ReplicaState()
    for tag, end in r.tagged():
        if tag == 0:
            m.cluster_id = r.string_nullable()
        elif tag == 1 and v >= 15:
            m.replica_state = _read_replica_state(r, v)
        else:
            r.pos = end
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v <= 14:
        w.int32(m.replica_id)
    else:
        if m.replica_id != -1:
            absent(m, "replica_id", v)
    w += _iiib.pack(m.max_wait_ms, m.min_bytes, m.max_bytes, m.isolation_level)
    if v >= 7:
        w += _ii.pack(m.session_id, m.session_epoch)
    w.array(_write_fetch_topic, m.topics, v)
    if v >= 7:
        w.array(_write_forgotten_topic, m.forgotten_topics_data, v)
    else:
        if m.forgotten_topics_data:
            absent(m, "forgotten_topics_data", v)
    if v >= 11:
        w.string(m.rack_id)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 12) and m.cluster_id is not None:
        t = w.fresh()
        t.string_nullable(m.cluster_id)
        tagged.append((0, t))
    if (v >= 15) and m.replica_state != ReplicaState():
        t = w.fresh()
        _write_replica_state(t, m.replica_state, v)
        tagged.append((1, t))
    elif m.replica_state != ReplicaState():
        absent(m, "replica_state", v)
    w.tags(tagged)


class AbortedTransaction(Message):
    __slots__ = ("producer_id", "first_offset")

    def __init__(self, *, producer_id: int = 0, first_offset: int = 0) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset


class PartitionData(Message):
    __slots__ = (
        "partition_index",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "diverging_epoch",
        "current_leader",
        "snapshot_id",
        "aborted_transactions",
        "preferred_read_replica",
        "records",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: list[AbortedTransaction] | tuple[AbortedTransaction, ...] | None = (),
        preferred_read_replica: int = -1,
        records: Buffer | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = EpochEndOffset() if diverging_epoch is None else diverging_epoch
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.aborted_transactions: list[AbortedTransaction] | None = (
            list(aborted_transactions) if isinstance(aborted_transactions, tuple) else aborted_transactions
        )
        self.preferred_read_replica = preferred_read_replica
        self.records = records


class FetchableTopicResponse(Message):
    __slots__ = ("topic", "topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | tuple[PartitionData, ...] = (),
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class EpochEndOffset(Message):
    __slots__ = ("epoch", "end_offset")

    def __init__(self, *, epoch: int = -1, end_offset: int = -1) -> None:
        self.epoch = epoch
        self.end_offset = end_offset


class LeaderIdAndEpoch(Message):
    __slots__ = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class SnapshotId(Message):
    __slots__ = ("end_offset", "epoch")

    def __init__(self, *, end_offset: int = -1, epoch: int = -1) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class NodeEndpoint(Message):
    __slots__ = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "session_id", "responses", "node_endpoints")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchableTopicResponse] | tuple[FetchableTopicResponse, ...] = (),
        node_endpoints: list[NodeEndpoint] | tuple[NodeEndpoint, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses: list[FetchableTopicResponse] = list(responses) if isinstance(responses, tuple) else responses
        self.node_endpoints: list[NodeEndpoint] = (
            list(node_endpoints) if isinstance(node_endpoints, tuple) else node_endpoints
        )


def _read_aborted_transaction(r: Reader, v: int) -> AbortedTransaction:
    m = AbortedTransaction.__new__(AbortedTransaction)
    m.producer_id, m.first_offset = r.fixed(_qq)
    r.skip_tags()
    return m


def _write_aborted_transaction(w: Writer, m: AbortedTransaction, v: int) -> None:
    w += _qq.pack(m.producer_id, m.first_offset)
    w.tags()


def _read_partition_data(r: Reader, v: int) -> PartitionData:
    m = PartitionData.__new__(PartitionData)
    m.partition_index, m.error_code, m.high_watermark, m.last_stable_offset = r.fixed(_ihqq)
    if v >= 5:
        m.log_start_offset = r.int64()
    else:
        m.log_start_offset = -1
    m.aborted_transactions = r.array_nullable(_read_aborted_transaction, v, 16)
    if v >= 11:
        m.preferred_read_replica = r.int32()
    else:
        m.preferred_read_replica = -1
    m.records = r.view_nullable()
    m.diverging_epoch = EpochEndOffset()
    m.current_leader = LeaderIdAndEpoch()
    m.snapshot_id = SnapshotId()
    for tag, end in r.tagged():
        if tag == 0:
            m.diverging_epoch = _read_epoch_end_offset(r, v)
        elif tag == 1:
            m.current_leader = _read_leader_id_and_epoch(r, v)
        elif tag == 2:
            m.snapshot_id = _read_snapshot_id(r, v)
        else:
            r.pos = end
    return m


def _write_partition_data(w: Writer, m: PartitionData, v: int) -> None:
    w += _ihqq.pack(m.partition_index, m.error_code, m.high_watermark, m.last_stable_offset)
    if v >= 5:
        w.int64(m.log_start_offset)
    w.array_nullable(_write_aborted_transaction, m.aborted_transactions, v)
    if v >= 11:
        w.int32(m.preferred_read_replica)
    else:
        if m.preferred_read_replica != -1:
            absent(m, "preferred_read_replica", v)
    w.raw_nullable(m.records)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 12) and m.diverging_epoch != EpochEndOffset():
        t = w.fresh()
        _write_epoch_end_offset(t, m.diverging_epoch, v)
        tagged.append((0, t))
    elif m.diverging_epoch != EpochEndOffset():
        absent(m, "diverging_epoch", v)
    if (v >= 12) and m.current_leader != LeaderIdAndEpoch():
        t = w.fresh()
        _write_leader_id_and_epoch(t, m.current_leader, v)
        tagged.append((1, t))
    elif m.current_leader != LeaderIdAndEpoch():
        absent(m, "current_leader", v)
    if (v >= 12) and m.snapshot_id != SnapshotId():
        t = w.fresh()
        _write_snapshot_id(t, m.snapshot_id, v)
        tagged.append((2, t))
    elif m.snapshot_id != SnapshotId():
        absent(m, "snapshot_id", v)
    w.tags(tagged)


def _read_fetchable_topic_response(r: Reader, v: int) -> FetchableTopicResponse:
    m = FetchableTopicResponse.__new__(FetchableTopicResponse)
    if v <= 12:
        m.topic = r.string()
    else:
        m.topic = ""
    if v >= 13:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.partitions = r.array(_read_partition_data, v, 30)
    r.skip_tags()
    return m


def _write_fetchable_topic_response(w: Writer, m: FetchableTopicResponse, v: int) -> None:
    if v <= 12:
        w.string(m.topic)
    if v >= 13:
        w.uuid(m.topic_id)
    w.array(_write_partition_data, m.partitions, v)
    w.tags()


def _read_epoch_end_offset(r: Reader, v: int) -> EpochEndOffset:
    m = EpochEndOffset.__new__(EpochEndOffset)
    m.epoch, m.end_offset = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_epoch_end_offset(w: Writer, m: EpochEndOffset, v: int) -> None:
    w += _iq.pack(m.epoch, m.end_offset)
    w.tags()


def _read_leader_id_and_epoch(r: Reader, v: int) -> LeaderIdAndEpoch:
    m = LeaderIdAndEpoch.__new__(LeaderIdAndEpoch)
    m.leader_id, m.leader_epoch = r.fixed(_ii)
    r.skip_tags()
    return m


def _write_leader_id_and_epoch(w: Writer, m: LeaderIdAndEpoch, v: int) -> None:
    w += _ii.pack(m.leader_id, m.leader_epoch)
    w.tags()


def _read_snapshot_id(r: Reader, v: int) -> SnapshotId:
    m = SnapshotId.__new__(SnapshotId)
    m.end_offset, m.epoch = r.fixed(_qi)
    r.skip_tags()
    return m


def _write_snapshot_id(w: Writer, m: SnapshotId, v: int) -> None:
    w += _qi.pack(m.end_offset, m.epoch)
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
    m.throttle_time_ms = r.int32()
    if v >= 7:
        m.error_code, m.session_id = r.fixed(_hi)
    else:
        m.error_code = 0
        m.session_id = 0
    m.responses = r.array(_read_fetchable_topic_response, v, 3)
    m.node_endpoints = []
    for tag, end in r.tagged():
        if tag == 0 and v >= 16:
            m.node_endpoints = r.array(_read_node_endpoint, v, 11)
        else:
            r.pos = end
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    if v >= 7:
        w += _hi.pack(m.error_code, m.session_id)
    else:
        if m.session_id != 0:
            absent(m, "session_id", v)
    w.array(_write_fetchable_topic_response, m.responses, v)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 16) and m.node_endpoints:
        t = w.fresh()
        t.array(_write_node_endpoint, m.node_endpoints, v)
        tagged.append((0, t))
    elif m.node_endpoints:
        absent(m, "node_endpoints", v)
    w.tags(tagged)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 12)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 12)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 12)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 12)
