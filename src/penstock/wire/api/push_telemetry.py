"""PushTelemetry (API key 72), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 72
NAME = "PushTelemetry"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_itb = Struct(">i?b")
_ih = Struct(">ih")


class Request(Message):
    __slots__ = ("client_instance_id", "subscription_id", "terminating", "compression_type", "metrics")

    def __init__(
        self,
        *,
        client_instance_id: bytes = ZERO_UUID,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.client_instance_id = r.uuid()
    m.subscription_id, m.terminating, m.compression_type = r.fixed(_itb)
    m.metrics = r.raw()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.uuid(m.client_instance_id)
    w += _itb.pack(m.subscription_id, m.terminating, m.compression_type)
    w.raw(m.metrics)
    w.tags()


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code")

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
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
