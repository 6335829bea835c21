"""AllocateProducerIds (API key 67), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 67
NAME = "AllocateProducerIds"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ihqi = Struct(">ihqi")
_iq = Struct(">iq")


class Request(Message):
    __slots__ = ("broker_id", "broker_epoch")

    def __init__(self, *, broker_id: int = 0, broker_epoch: int = -1) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.broker_id, m.broker_epoch = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w += _iq.pack(m.broker_id, m.broker_epoch)
    w.tags()


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "producer_id_start", "producer_id_len")
    ERROR_FIELD = "error_code"

    def __init__(
        self, *, throttle_time_ms: int = 0, error_code: int = 0, producer_id_start: int = 0, producer_id_len: int = 0
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id_start = producer_id_start
        self.producer_id_len = producer_id_len


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code, m.producer_id_start, m.producer_id_len = r.fixed(_ihqi)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ihqi.pack(m.throttle_time_ms, m.error_code, m.producer_id_start, m.producer_id_len)
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
