"""FindCoordinator (API key 10), versions 0 to 6. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 10
NAME = "FindCoordinator"
VERSION_MIN = 0
VERSION_MAX = 6
FLEXIBLE_FROM: int | None = 3

_ih = Struct(">ih")


class Request(Message):
    __slots__ = ("key", "key_type", "coordinator_keys")

    def __init__(self, *, key: str = "", key_type: int = 0, coordinator_keys: list[str] | tuple[str, ...] = ()) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys: list[str] = (
            list(coordinator_keys) if isinstance(coordinator_keys, tuple) else coordinator_keys
        )


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v <= 3:
        m.key = r.string()
    else:
        m.key = ""
    if v >= 1:
        m.key_type = r.int8()
    else:
        m.key_type = 0
    if v >= 4:
        m.coordinator_keys = r.strings()
    else:
        m.coordinator_keys = []
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v <= 3:
        w.string(m.key)
    else:
        if m.key:
            absent(m, "key", v)
    if v >= 1:
        w.int8(m.key_type)
    else:
        if m.key_type != 0:
            absent(m, "key_type", v)
    if v >= 4:
        w.strings(m.coordinator_keys)
    else:
        if m.coordinator_keys:
            absent(m, "coordinator_keys", v)
    w.tags()


class Coordinator(Message):
    __slots__ = ("key", "node_id", "host", "port", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "node_id", "host", "port", "coordinators")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("coordinators",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] | tuple[Coordinator, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators: list[Coordinator] = list(coordinators) if isinstance(coordinators, tuple) else coordinators


def _read_coordinator(r: Reader, v: int) -> Coordinator:
    m = Coordinator.__new__(Coordinator)
    m.key = r.string()
    m.node_id = r.int32()
    m.host = r.string()
    m.port, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_coordinator(w: Writer, m: Coordinator, v: int) -> None:
    w.string(m.key)
    w.int32(m.node_id)
    w.string(m.host)
    w += _ih.pack(m.port, m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    if v <= 3:
        m.error_code = r.int16()
    else:
        m.error_code = 0
    if 1 <= v <= 3:
        m.error_message = r.string_nullable()
    else:
        m.error_message = ""
    if v <= 3:
        m.node_id = r.int32()
        m.host = r.string()
        m.port = r.int32()
    else:
        m.node_id = 0
        m.host = ""
        m.port = 0
    if v >= 4:
        m.coordinators = r.array(_read_coordinator, v, 14)
    else:
        m.coordinators = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 1:
        w.int32(m.throttle_time_ms)
    if v <= 3:
        w.int16(m.error_code)
    else:
        if m.error_code != 0:
            absent(m, "error_code", v)
    if 1 <= v <= 3:
        w.string_nullable(m.error_message)
    if v <= 3:
        w.int32(m.node_id)
        w.string(m.host)
        w.int32(m.port)
    else:
        if m.node_id != 0:
            absent(m, "node_id", v)
        if m.host:
            absent(m, "host", v)
        if m.port != 0:
            absent(m, "port", v)
    if v >= 4:
        w.array(_write_coordinator, m.coordinators, v)
    else:
        if m.coordinators:
            absent(m, "coordinators", v)
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
