"""Envelope (API key 58), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 58
NAME = "Envelope"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0


class Request(Message):
    __slots__ = ("request_data", "request_principal", "client_host_address")

    def __init__(
        self, *, request_data: bytes = b"", request_principal: bytes | None = b"", client_host_address: bytes = b""
    ) -> None:
        self.request_data = request_data
        self.request_principal = request_principal
        self.client_host_address = client_host_address


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.request_data = r.raw()
    m.request_principal = r.raw_nullable()
    m.client_host_address = r.raw()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.raw(m.request_data)
    w.raw_nullable(m.request_principal)
    w.raw(m.client_host_address)
    w.tags()


class Response(Message):
    __slots__ = ("response_data", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, response_data: bytes | None = None, error_code: int = 0) -> None:
        self.response_data = response_data
        self.error_code = error_code


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.response_data = r.raw_nullable()
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.raw_nullable(m.response_data)
    w.int16(m.error_code)
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
