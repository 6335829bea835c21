"""ListConfigResources (API key 74), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 74
NAME = "ListConfigResources"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class Request(Message):
    __slots__ = ("resource_types",)

    def __init__(self, *, resource_types: list[int] | tuple[int, ...] = ()) -> None:
        self.resource_types: list[int] = list(resource_types) if isinstance(resource_types, tuple) else resource_types


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 1:
        m.resource_types = r.integers("b", 1)
    else:
        m.resource_types = []
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 1:
        w.integers("b", m.resource_types)
    else:
        if m.resource_types:
            absent(m, "resource_types", v)
    w.tags()


class ConfigResource(Message):
    __slots__ = ("resource_name", "resource_type")

    def __init__(self, *, resource_name: str = "", resource_type: int = 16) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "config_resources")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] | tuple[ConfigResource, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources: list[ConfigResource] = (
            list(config_resources) if isinstance(config_resources, tuple) else config_resources
        )


def _read_config_resource(r: Reader, v: int) -> ConfigResource:
    m = ConfigResource.__new__(ConfigResource)
    m.resource_name = r.string()
    if v >= 1:
        m.resource_type = r.int8()
    else:
        m.resource_type = 16
    r.skip_tags()
    return m


def _write_config_resource(w: Writer, m: ConfigResource, v: int) -> None:
    w.string(m.resource_name)
    if v >= 1:
        w.int8(m.resource_type)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.config_resources = r.array(_read_config_resource, v, 2)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.array(_write_config_resource, m.config_resources, v)
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
