"""DescribeProducers (API key 61), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 61
NAME = "DescribeProducers"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_qiiqiq = Struct(">qiiqiq")


class TopicRequest(Message):
    __slots__ = ("name", "partition_indexes")

    def __init__(self, *, name: str = "", partition_indexes: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partition_indexes: list[int] = (
            list(partition_indexes) if isinstance(partition_indexes, tuple) else partition_indexes
        )


class Request(Message):
    __slots__ = ("topics",)

    def __init__(self, *, topics: list[TopicRequest] | tuple[TopicRequest, ...] = ()) -> None:
        self.topics: list[TopicRequest] = list(topics) if isinstance(topics, tuple) else topics


def _read_topic_request(r: Reader, v: int) -> TopicRequest:
    m = TopicRequest.__new__(TopicRequest)
    m.name = r.string()
    m.partition_indexes = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_request(w: Writer, m: TopicRequest, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partition_indexes)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_topic_request, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_topic_request, m.topics, v)
    w.tags()


class ProducerState(Message):
    __slots__ = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_start_offset",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        producer_epoch: int = 0,
        last_sequence: int = -1,
        last_timestamp: int = -1,
        coordinator_epoch: int = 0,
        current_txn_start_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_start_offset = current_txn_start_offset


class PartitionResponse(Message):
    __slots__ = ("partition_index", "error_code", "error_message", "active_producers")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        active_producers: list[ProducerState] | tuple[ProducerState, ...] = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.active_producers: list[ProducerState] = (
            list(active_producers) if isinstance(active_producers, tuple) else active_producers
        )


class TopicResponse(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self, *, name: str = "", partitions: list[PartitionResponse] | tuple[PartitionResponse, ...] = ()
    ) -> None:
        self.name = name
        self.partitions: list[PartitionResponse] = list(partitions) if isinstance(partitions, tuple) else partitions


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self, *, throttle_time_ms: int = 0, topics: list[TopicResponse] | tuple[TopicResponse, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TopicResponse] = list(topics) if isinstance(topics, tuple) else topics


def _read_producer_state(r: Reader, v: int) -> ProducerState:
    m = ProducerState.__new__(ProducerState)
    (
        m.producer_id,
        m.producer_epoch,
        m.last_sequence,
        m.last_timestamp,
        m.coordinator_epoch,
        m.current_txn_start_offset,
    ) = r.fixed(_qiiqiq)
    r.skip_tags()
    return m


def _write_producer_state(w: Writer, m: ProducerState, v: int) -> None:
    w += _qiiqiq.pack(
        m.producer_id,
        m.producer_epoch,
        m.last_sequence,
        m.last_timestamp,
        m.coordinator_epoch,
        m.current_txn_start_offset,
    )
    w.tags()


def _read_partition_response(r: Reader, v: int) -> PartitionResponse:
    m = PartitionResponse.__new__(PartitionResponse)
    m.partition_index, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.active_producers = r.array(_read_producer_state, v, 37)
    r.skip_tags()
    return m


def _write_partition_response(w: Writer, m: PartitionResponse, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_producer_state, m.active_producers, v)
    w.tags()


def _read_topic_response(r: Reader, v: int) -> TopicResponse:
    m = TopicResponse.__new__(TopicResponse)
    m.name = r.string()
    m.partitions = r.array(_read_partition_response, v, 9)
    r.skip_tags()
    return m


def _write_topic_response(w: Writer, m: TopicResponse, v: int) -> None:
    w.string(m.name)
    w.array(_write_partition_response, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_topic_response, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_topic_response, m.topics, v)
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
