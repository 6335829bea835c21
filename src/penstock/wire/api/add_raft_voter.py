"""AddRaftVoter (API key 80), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 80
NAME = "AddRaftVoter"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_ii = Struct(">ii")


class Listener(Message):
    __slots__ = ("name", "host", "port")

    def __init__(self, *, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port


class Request(Message):
    __slots__ = ("cluster_id", "timeout_ms", "voter_id", "voter_directory_id", "listeners", "ack_when_committed")

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        timeout_ms: int = 0,
        voter_id: int = 0,
        voter_directory_id: bytes = ZERO_UUID,
        listeners: list[Listener] | tuple[Listener, ...] = (),
        ack_when_committed: bool = True,
    ) -> None:
        self.cluster_id = cluster_id
        self.timeout_ms = timeout_ms
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.listeners: list[Listener] = list(listeners) if isinstance(listeners, tuple) else listeners
        self.ack_when_committed = ack_when_committed


def _read_listener(r: Reader, v: int) -> Listener:
    m = Listener.__new__(Listener)
    m.name = r.string()
    m.host = r.string()
    m.port = r.uint16()
    r.skip_tags()
    return m


def _write_listener(w: Writer, m: Listener, v: int) -> None:
    w.string(m.name)
    w.string(m.host)
    w.uint16(m.port)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.cluster_id = r.string_nullable()
    m.timeout_ms, m.voter_id = r.fixed(_ii)
    m.voter_directory_id = r.uuid()
    m.listeners = r.array(_read_listener, v, 5)
    if v >= 1:
        m.ack_when_committed = r.boolean()
    else:
        m.ack_when_committed = True
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string_nullable(m.cluster_id)
    w += _ii.pack(m.timeout_ms, m.voter_id)
    w.uuid(m.voter_directory_id)
    w.array(_write_listener, m.listeners, v)
    if v >= 1:
        w.boolean(m.ack_when_committed)
    else:
        if not m.ack_when_committed:
            absent(m, "ack_when_committed", v)
    w.tags()


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message")

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0, error_message: str | None = "") -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
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
