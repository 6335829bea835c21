"""InitProducerId (API key 22), versions 0 to 6. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 22
NAME = "InitProducerId"
VERSION_MIN = 0
VERSION_MAX = 6
FLEXIBLE_FROM: int | None = 2

_tt = Struct(">??")
_ihqh = Struct(">ihqh")
_qh = Struct(">qh")


class Request(Message):
    __slots__ = (
        "transactional_id",
        "transaction_timeout_ms",
        "producer_id",
        "producer_epoch",
        "enable2_pc",
        "keep_prepared_txn",
    )

    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.enable2_pc = enable2_pc
        self.keep_prepared_txn = keep_prepared_txn


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.transactional_id = r.string_nullable()
    m.transaction_timeout_ms = r.int32()
    if v >= 3:
        m.producer_id, m.producer_epoch = r.fixed(_qh)
    else:
        m.producer_id = -1
        m.producer_epoch = -1
    if v >= 6:
        m.enable2_pc, m.keep_prepared_txn = r.fixed(_tt)
    else:
        m.enable2_pc = False
        m.keep_prepared_txn = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string_nullable(m.transactional_id)
    w.int32(m.transaction_timeout_ms)
    if v >= 3:
        w += _qh.pack(m.producer_id, m.producer_epoch)
    else:
        if m.producer_id != -1:
            absent(m, "producer_id", v)
        if m.producer_epoch != -1:
            absent(m, "producer_epoch", v)
    if v >= 6:
        w += _tt.pack(m.enable2_pc, m.keep_prepared_txn)
    else:
        if m.enable2_pc:
            absent(m, "enable2_pc", v)
        if m.keep_prepared_txn:
            absent(m, "keep_prepared_txn", v)
    w.tags()


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "producer_id",
        "producer_epoch",
        "ongoing_txn_producer_id",
        "ongoing_txn_producer_epoch",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code, m.producer_id, m.producer_epoch = r.fixed(_ihqh)
    if v >= 6:
        m.ongoing_txn_producer_id, m.ongoing_txn_producer_epoch = r.fixed(_qh)
    else:
        m.ongoing_txn_producer_id = -1
        m.ongoing_txn_producer_epoch = -1
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ihqh.pack(m.throttle_time_ms, m.error_code, m.producer_id, m.producer_epoch)
    if v >= 6:
        w += _qh.pack(m.ongoing_txn_producer_id, m.ongoing_txn_producer_epoch)
    else:
        if m.ongoing_txn_producer_id != -1:
            absent(m, "ongoing_txn_producer_id", v)
        if m.ongoing_txn_producer_epoch != -1:
            absent(m, "ongoing_txn_producer_epoch", v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 2)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 2)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 2)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 2)
