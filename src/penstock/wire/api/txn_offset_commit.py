"""TxnOffsetCommit (API key 28), versions 0 to 5. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 28
NAME = "TxnOffsetCommit"
VERSION_MIN = 0
VERSION_MAX = 5
FLEXIBLE_FROM: int | None = 3

_ih = Struct(">ih")
_iq = Struct(">iq")
_qh = Struct(">qh")


class TxnOffsetCommitRequestPartition(Message):
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


class TxnOffsetCommitRequestTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[TxnOffsetCommitRequestPartition] | tuple[TxnOffsetCommitRequestPartition, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitRequestPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = (
        "transactional_id",
        "group_id",
        "producer_id",
        "producer_epoch",
        "generation_id",
        "member_id",
        "group_instance_id",
        "topics",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] | tuple[TxnOffsetCommitRequestTopic, ...] = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.topics: list[TxnOffsetCommitRequestTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_txn_offset_commit_request_partition(r: Reader, v: int) -> TxnOffsetCommitRequestPartition:
    m = TxnOffsetCommitRequestPartition.__new__(TxnOffsetCommitRequestPartition)
    m.partition_index, m.committed_offset = r.fixed(_iq)
    if v >= 2:
        m.committed_leader_epoch = r.int32()
    else:
        m.committed_leader_epoch = -1
    m.committed_metadata = r.string_nullable()
    r.skip_tags()
    return m


def _write_txn_offset_commit_request_partition(w: Writer, m: TxnOffsetCommitRequestPartition, v: int) -> None:
    w += _iq.pack(m.partition_index, m.committed_offset)
    if v >= 2:
        w.int32(m.committed_leader_epoch)
    w.string_nullable(m.committed_metadata)
    w.tags()


def _read_txn_offset_commit_request_topic(r: Reader, v: int) -> TxnOffsetCommitRequestTopic:
    m = TxnOffsetCommitRequestTopic.__new__(TxnOffsetCommitRequestTopic)
    m.name = r.string()
    m.partitions = r.array(_read_txn_offset_commit_request_partition, v, 14)
    r.skip_tags()
    return m


def _write_txn_offset_commit_request_topic(w: Writer, m: TxnOffsetCommitRequestTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_txn_offset_commit_request_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.transactional_id = r.string()
    m.group_id = r.string()
    m.producer_id, m.producer_epoch = r.fixed(_qh)
    if v >= 3:
        m.generation_id = r.int32()
        m.member_id = r.string()
        m.group_instance_id = r.string_nullable()
    else:
        m.generation_id = -1
        m.member_id = ""
        m.group_instance_id = None
    m.topics = r.array(_read_txn_offset_commit_request_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.transactional_id)
    w.string(m.group_id)
    w += _qh.pack(m.producer_id, m.producer_epoch)
    if v >= 3:
        w.int32(m.generation_id)
        w.string(m.member_id)
        w.string_nullable(m.group_instance_id)
    else:
        if m.generation_id != -1:
            absent(m, "generation_id", v)
        if m.member_id:
            absent(m, "member_id", v)
        if m.group_instance_id is not None:
            absent(m, "group_instance_id", v)
    w.array(_write_txn_offset_commit_request_topic, m.topics, v)
    w.tags()


class TxnOffsetCommitResponsePartition(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class TxnOffsetCommitResponseTopic(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[TxnOffsetCommitResponsePartition] | tuple[TxnOffsetCommitResponsePartition, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponseTopic] | tuple[TxnOffsetCommitResponseTopic, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TxnOffsetCommitResponseTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_txn_offset_commit_response_partition(r: Reader, v: int) -> TxnOffsetCommitResponsePartition:
    m = TxnOffsetCommitResponsePartition.__new__(TxnOffsetCommitResponsePartition)
    m.partition_index, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_txn_offset_commit_response_partition(w: Writer, m: TxnOffsetCommitResponsePartition, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.tags()


def _read_txn_offset_commit_response_topic(r: Reader, v: int) -> TxnOffsetCommitResponseTopic:
    m = TxnOffsetCommitResponseTopic.__new__(TxnOffsetCommitResponseTopic)
    m.name = r.string()
    m.partitions = r.array(_read_txn_offset_commit_response_partition, v, 6)
    r.skip_tags()
    return m


def _write_txn_offset_commit_response_topic(w: Writer, m: TxnOffsetCommitResponseTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_txn_offset_commit_response_partition, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_txn_offset_commit_response_topic, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_txn_offset_commit_response_topic, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 3)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 3)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 3)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 3)
