"""GetTelemetrySubscriptions (API key 71), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 71
NAME = "GetTelemetrySubscriptions"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_iit = Struct(">ii?")


class Request(Message):
    __slots__ = ("client_instance_id",)

    def __init__(self, *, client_instance_id: bytes = ZERO_UUID) -> None:
        self.client_instance_id = client_instance_id


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.client_instance_id = r.uuid()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.uuid(m.client_instance_id)
    w.tags()


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "client_instance_id",
        "subscription_id",
        "accepted_compression_types",
        "push_interval_ms",
        "telemetry_max_bytes",
        "delta_temporality",
        "requested_metrics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: bytes = ZERO_UUID,
        subscription_id: int = 0,
        accepted_compression_types: list[int] | tuple[int, ...] = (),
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] | tuple[str, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.accepted_compression_types: list[int] = (
            list(accepted_compression_types)
            if isinstance(accepted_compression_types, tuple)
            else accepted_compression_types
        )
        self.push_interval_ms = push_interval_ms
        self.telemetry_max_bytes = telemetry_max_bytes
        self.delta_temporality = delta_temporality
        self.requested_metrics: list[str] = (
            list(requested_metrics) if isinstance(requested_metrics, tuple) else requested_metrics
        )


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.client_instance_id = r.uuid()
    m.subscription_id = r.int32()
    m.accepted_compression_types = r.integers("b", 1)
    m.push_interval_ms, m.telemetry_max_bytes, m.delta_temporality = r.fixed(_iit)
    m.requested_metrics = r.strings()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.uuid(m.client_instance_id)
    w.int32(m.subscription_id)
    w.integers("b", m.accepted_compression_types)
    w += _iit.pack(m.push_interval_ms, m.telemetry_max_bytes, m.delta_temporality)
    w.strings(m.requested_metrics)
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
