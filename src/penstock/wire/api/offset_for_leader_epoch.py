"""OffsetForLeaderEpoch (API key 23), versions 2 to 4. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 23
NAME = "OffsetForLeaderEpoch"
VERSION_MIN = 2
VERSION_MAX = 4
FLEXIBLE_FROM: int | None = 4

_hiiq = Struct(">hiiq")
_iii = Struct(">iii")


class OffsetForLeaderPartition(Message):
    __slots__ = ("partition", "current_leader_epoch", "leader_epoch")

    def __init__(self, *, partition: int = 0, current_leader_epoch: int = -1, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch


class OffsetForLeaderTopic(Message):
    __slots__ = ("topic", "partitions")

    def __init__(
        self, *, topic: str = "", partitions: list[OffsetForLeaderPartition] | tuple[OffsetForLeaderPartition, ...] = ()
    ) -> None:
        self.topic = topic
        self.partitions: list[OffsetForLeaderPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = ("replica_id", "topics")

    def __init__(
        self, *, replica_id: int = -2, topics: list[OffsetForLeaderTopic] | tuple[OffsetForLeaderTopic, ...] = ()
    ) -> None:
        self.replica_id = replica_id
        self.topics: list[OffsetForLeaderTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_offset_for_leader_partition(r: Reader, v: int) -> OffsetForLeaderPartition:
    m = OffsetForLeaderPartition.__new__(OffsetForLeaderPartition)
    m.partition, m.current_leader_epoch, m.leader_epoch = r.fixed(_iii)
    r.skip_tags()
    return m


def _write_offset_for_leader_partition(w: Writer, m: OffsetForLeaderPartition, v: int) -> None:
    w += _iii.pack(m.partition, m.current_leader_epoch, m.leader_epoch)
    w.tags()


def _read_offset_for_leader_topic(r: Reader, v: int) -> OffsetForLeaderTopic:
    m = OffsetForLeaderTopic.__new__(OffsetForLeaderTopic)
    m.topic = r.string()
    m.partitions = r.array(_read_offset_for_leader_partition, v, 12)
    r.skip_tags()
    return m


def _write_offset_for_leader_topic(w: Writer, m: OffsetForLeaderTopic, v: int) -> None:
    w.string(m.topic)
    w.array(_write_offset_for_leader_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 3:
        m.replica_id = r.int32()
    else:
        m.replica_id = -2
    m.topics = r.array(_read_offset_for_leader_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 3:
        w.int32(m.replica_id)
    w.array(_write_offset_for_leader_topic, m.topics, v)
    w.tags()


class EpochEndOffset(Message):
    __slots__ = ("error_code", "partition", "leader_epoch", "end_offset")
    ERROR_FIELD = "error_code"

    def __init__(
        self, *, error_code: int = 0, partition: int = 0, leader_epoch: int = -1, end_offset: int = -1
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class OffsetForLeaderTopicResult(Message):
    __slots__ = ("topic", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(self, *, topic: str = "", partitions: list[EpochEndOffset] | tuple[EpochEndOffset, ...] = ()) -> None:
        self.topic = topic
        self.partitions: list[EpochEndOffset] = list(partitions) if isinstance(partitions, tuple) else partitions


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderTopicResult] | tuple[OffsetForLeaderTopicResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetForLeaderTopicResult] = list(topics) if isinstance(topics, tuple) else topics


def _read_epoch_end_offset(r: Reader, v: int) -> EpochEndOffset:
    m = EpochEndOffset.__new__(EpochEndOffset)
    m.error_code, m.partition, m.leader_epoch, m.end_offset = r.fixed(_hiiq)
    r.skip_tags()
    return m


def _write_epoch_end_offset(w: Writer, m: EpochEndOffset, v: int) -> None:
    w += _hiiq.pack(m.error_code, m.partition, m.leader_epoch, m.end_offset)
    w.tags()


def _read_offset_for_leader_topic_result(r: Reader, v: int) -> OffsetForLeaderTopicResult:
    m = OffsetForLeaderTopicResult.__new__(OffsetForLeaderTopicResult)
    m.topic = r.string()
    m.partitions = r.array(_read_epoch_end_offset, v, 18)
    r.skip_tags()
    return m


def _write_offset_for_leader_topic_result(w: Writer, m: OffsetForLeaderTopicResult, v: int) -> None:
    w.string(m.topic)
    w.array(_write_epoch_end_offset, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_offset_for_leader_topic_result, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_offset_for_leader_topic_result, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 4)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 4)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 4)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 4)
