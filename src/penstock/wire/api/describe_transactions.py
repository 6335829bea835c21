"""DescribeTransactions (API key 65), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 65
NAME = "DescribeTransactions"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_iqqh = Struct(">iqqh")


class Request(Message):
    __slots__ = ("transactional_ids",)

    def __init__(self, *, transactional_ids: list[str] | tuple[str, ...] = ()) -> None:
        self.transactional_ids: list[str] = (
            list(transactional_ids) if isinstance(transactional_ids, tuple) else transactional_ids
        )


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.transactional_ids = r.strings()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.strings(m.transactional_ids)
    w.tags()


class TopicData(Message):
    __slots__ = ("topic", "partitions")

    def __init__(self, *, topic: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic = topic
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class TransactionState(Message):
    __slots__ = (
        "error_code",
        "transactional_id",
        "transaction_state",
        "transaction_timeout_ms",
        "transaction_start_time_ms",
        "producer_id",
        "producer_epoch",
        "topics",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TopicData] | tuple[TopicData, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.topics: list[TopicData] = list(topics) if isinstance(topics, tuple) else topics


class Response(Message):
    __slots__ = ("throttle_time_ms", "transaction_states")
    ERROR_LISTS = ("transaction_states",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        transaction_states: list[TransactionState] | tuple[TransactionState, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states: list[TransactionState] = (
            list(transaction_states) if isinstance(transaction_states, tuple) else transaction_states
        )


def _read_topic_data(r: Reader, v: int) -> TopicData:
    m = TopicData.__new__(TopicData)
    m.topic = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_data(w: Writer, m: TopicData, v: int) -> None:
    w.string(m.topic)
    w.integers("i", m.partitions)
    w.tags()


def _read_transaction_state(r: Reader, v: int) -> TransactionState:
    m = TransactionState.__new__(TransactionState)
    m.error_code = r.int16()
    m.transactional_id = r.string()
    m.transaction_state = r.string()
    m.transaction_timeout_ms, m.transaction_start_time_ms, m.producer_id, m.producer_epoch = r.fixed(_iqqh)
    m.topics = r.array(_read_topic_data, v, 3)
    r.skip_tags()
    return m


def _write_transaction_state(w: Writer, m: TransactionState, v: int) -> None:
    w.int16(m.error_code)
    w.string(m.transactional_id)
    w.string(m.transaction_state)
    w += _iqqh.pack(m.transaction_timeout_ms, m.transaction_start_time_ms, m.producer_id, m.producer_epoch)
    w.array(_write_topic_data, m.topics, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.transaction_states = r.array(_read_transaction_state, v, 28)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_transaction_state, m.transaction_states, v)
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
