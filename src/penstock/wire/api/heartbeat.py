"""Heartbeat (API key 12), versions 0 to 4. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 12
NAME = "Heartbeat"
VERSION_MIN = 0
VERSION_MAX = 4
FLEXIBLE_FROM: int | None = 4


class Request(Message):
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id")

    def __init__(
        self, *, group_id: str = "", generation_id: int = 0, member_id: str = "", group_instance_id: str | None = None
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.generation_id = r.int32()
    m.member_id = r.string()
    if v >= 3:
        m.group_instance_id = r.string_nullable()
    else:
        m.group_instance_id = None
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.int32(m.generation_id)
    w.string(m.member_id)
    if v >= 3:
        w.string_nullable(m.group_instance_id)
    else:
        if m.group_instance_id is not None:
            absent(m, "group_instance_id", v)
    w.tags()


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 1:
        w.int32(m.throttle_time_ms)
    w.int16(m.error_code)
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
