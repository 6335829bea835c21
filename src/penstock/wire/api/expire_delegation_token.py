"""ExpireDelegationToken (API key 40), versions 1 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 40
NAME = "ExpireDelegationToken"
VERSION_MIN = 1
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 2

_hqi = Struct(">hqi")


class Request(Message):
    __slots__ = ("hmac", "expiry_time_period_ms")

    def __init__(self, *, hmac: bytes = b"", expiry_time_period_ms: int = 0) -> None:
        self.hmac = hmac
        self.expiry_time_period_ms = expiry_time_period_ms


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.hmac = r.raw()
    m.expiry_time_period_ms = r.int64()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.raw(m.hmac)
    w.int64(m.expiry_time_period_ms)
    w.tags()


class Response(Message):
    __slots__ = ("error_code", "expiry_timestamp_ms", "throttle_time_ms")
    ERROR_FIELD = "error_code"

    def __init__(self, *, error_code: int = 0, expiry_timestamp_ms: int = 0, throttle_time_ms: int = 0) -> None:
        self.error_code = error_code
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.throttle_time_ms = throttle_time_ms


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code, m.expiry_timestamp_ms, m.throttle_time_ms = r.fixed(_hqi)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _hqi.pack(m.error_code, m.expiry_timestamp_ms, m.throttle_time_ms)
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
