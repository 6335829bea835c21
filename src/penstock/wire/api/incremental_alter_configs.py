"""IncrementalAlterConfigs (API key 44), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 44
NAME = "IncrementalAlterConfigs"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 1


class AlterableConfig(Message):
    __slots__ = ("name", "config_operation", "value")

    def __init__(self, *, name: str = "", config_operation: int = 0, value: str | None = "") -> None:
        self.name = name
        self.config_operation = config_operation
        self.value = value


class AlterConfigsResource(Message):
    __slots__ = ("resource_type", "resource_name", "configs")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] | tuple[AlterableConfig, ...] = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[AlterableConfig] = list(configs) if isinstance(configs, tuple) else configs


class Request(Message):
    __slots__ = ("resources", "validate_only")

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] | tuple[AlterConfigsResource, ...] = (),
        validate_only: bool = False,
    ) -> None:
        self.resources: list[AlterConfigsResource] = list(resources) if isinstance(resources, tuple) else resources
        self.validate_only = validate_only


def _read_alterable_config(r: Reader, v: int) -> AlterableConfig:
    m = AlterableConfig.__new__(AlterableConfig)
    m.name = r.string()
    m.config_operation = r.int8()
    m.value = r.string_nullable()
    r.skip_tags()
    return m


def _write_alterable_config(w: Writer, m: AlterableConfig, v: int) -> None:
    w.string(m.name)
    w.int8(m.config_operation)
    w.string_nullable(m.value)
    w.tags()


def _read_alter_configs_resource(r: Reader, v: int) -> AlterConfigsResource:
    m = AlterConfigsResource.__new__(AlterConfigsResource)
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.configs = r.array(_read_alterable_config, v, 4)
    r.skip_tags()
    return m


def _write_alter_configs_resource(w: Writer, m: AlterConfigsResource, v: int) -> None:
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.array(_write_alterable_config, m.configs, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.resources = r.array(_read_alter_configs_resource, v, 4)
    m.validate_only = r.boolean()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_alter_configs_resource, m.resources, v)
    w.boolean(m.validate_only)
    w.tags()


class AlterConfigsResourceResponse(Message):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name")
    ERROR_FIELD = "error_code"

    def __init__(
        self, *, error_code: int = 0, error_message: str | None = "", resource_type: int = 0, resource_name: str = ""
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name


class Response(Message):
    __slots__ = ("throttle_time_ms", "responses")
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResourceResponse] | tuple[AlterConfigsResourceResponse, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[AlterConfigsResourceResponse] = (
            list(responses) if isinstance(responses, tuple) else responses
        )


def _read_alter_configs_resource_response(r: Reader, v: int) -> AlterConfigsResourceResponse:
    m = AlterConfigsResourceResponse.__new__(AlterConfigsResourceResponse)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.resource_type = r.int8()
    m.resource_name = r.string()
    r.skip_tags()
    return m


def _write_alter_configs_resource_response(w: Writer, m: AlterConfigsResourceResponse, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.responses = r.array(_read_alter_configs_resource_response, v, 6)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_alter_configs_resource_response, m.responses, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 1)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 1)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 1)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 1)
