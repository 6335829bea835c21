"""SaslHandshake (API key 17), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 17
NAME = "SaslHandshake"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = None


class Request(Message):
    __slots__ = ("mechanism",)

    def __init__(self, *, mechanism: str = "") -> None:
        self.mechanism = mechanism


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.mechanism = r.string()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.mechanism)


class Response(Message):
    __slots__ = ("error_code", "mechanisms")
    ERROR_FIELD = "error_code"

    def __init__(self, *, error_code: int = 0, mechanisms: list[str] | tuple[str, ...] = ()) -> None:
        self.error_code = error_code
        self.mechanisms: list[str] = list(mechanisms) if isinstance(mechanisms, tuple) else mechanisms


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code = r.int16()
    m.mechanisms = r.strings()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int16(m.error_code)
    w.strings(m.mechanisms)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, False)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, False)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, False)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, False)
