"""ListTransactions (API key 66), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 66
NAME = "ListTransactions"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class Request(Message):
    __slots__ = ("state_filters", "producer_id_filters", "duration_filter", "transactional_id_pattern")

    def __init__(
        self,
        *,
        state_filters: list[str] | tuple[str, ...] = (),
        producer_id_filters: list[int] | tuple[int, ...] = (),
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters: list[str] = list(state_filters) if isinstance(state_filters, tuple) else state_filters
        self.producer_id_filters: list[int] = (
            list(producer_id_filters) if isinstance(producer_id_filters, tuple) else producer_id_filters
        )
        self.duration_filter = duration_filter
        self.transactional_id_pattern = transactional_id_pattern


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.state_filters = r.strings()
    m.producer_id_filters = r.integers("q", 8)
    if v >= 1:
        m.duration_filter = r.int64()
    else:
        m.duration_filter = -1
    if v >= 2:
        m.transactional_id_pattern = r.string_nullable()
    else:
        m.transactional_id_pattern = None
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.strings(m.state_filters)
    w.integers("q", m.producer_id_filters)
    if v >= 1:
        w.int64(m.duration_filter)
    else:
        if m.duration_filter != -1:
            absent(m, "duration_filter", v)
    if v >= 2:
        w.string_nullable(m.transactional_id_pattern)
    else:
        if m.transactional_id_pattern is not None:
            absent(m, "transactional_id_pattern", v)
    w.tags()


class TransactionState(Message):
    __slots__ = ("transactional_id", "producer_id", "transaction_state")

    def __init__(self, *, transactional_id: str = "", producer_id: int = 0, transaction_state: str = "") -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.transaction_state = transaction_state


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] | tuple[str, ...] = (),
        transaction_states: list[TransactionState] | tuple[TransactionState, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters: list[str] = (
            list(unknown_state_filters) if isinstance(unknown_state_filters, tuple) else unknown_state_filters
        )
        self.transaction_states: list[TransactionState] = (
            list(transaction_states) if isinstance(transaction_states, tuple) else transaction_states
        )


def _read_transaction_state(r: Reader, v: int) -> TransactionState:
    m = TransactionState.__new__(TransactionState)
    m.transactional_id = r.string()
    m.producer_id = r.int64()
    m.transaction_state = r.string()
    r.skip_tags()
    return m


def _write_transaction_state(w: Writer, m: TransactionState, v: int) -> None:
    w.string(m.transactional_id)
    w.int64(m.producer_id)
    w.string(m.transaction_state)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.unknown_state_filters = r.strings()
    m.transaction_states = r.array(_read_transaction_state, v, 11)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.strings(m.unknown_state_filters)
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
