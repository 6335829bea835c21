"""DescribeConfigs (API key 32), versions 1 to 4. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 32
NAME = "DescribeConfigs"
VERSION_MIN = 1
VERSION_MAX = 4
FLEXIBLE_FROM: int | None = 4

_tbt = Struct(">?b?")


class DescribeConfigsResource(Message):
    __slots__ = ("resource_type", "resource_name", "configuration_keys")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | tuple[str, ...] | None = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys: list[str] | None = (
            list(configuration_keys) if isinstance(configuration_keys, tuple) else configuration_keys
        )


class Request(Message):
    __slots__ = ("resources", "include_synonyms", "include_documentation")

    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] | tuple[DescribeConfigsResource, ...] = (),
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources: list[DescribeConfigsResource] = list(resources) if isinstance(resources, tuple) else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation


def _read_describe_configs_resource(r: Reader, v: int) -> DescribeConfigsResource:
    m = DescribeConfigsResource.__new__(DescribeConfigsResource)
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.configuration_keys = r.strings_nullable()
    r.skip_tags()
    return m


def _write_describe_configs_resource(w: Writer, m: DescribeConfigsResource, v: int) -> None:
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.strings_nullable(m.configuration_keys)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.resources = r.array(_read_describe_configs_resource, v, 4)
    m.include_synonyms = r.boolean()
    if v >= 3:
        m.include_documentation = r.boolean()
    else:
        m.include_documentation = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_describe_configs_resource, m.resources, v)
    w.boolean(m.include_synonyms)
    if v >= 3:
        w.boolean(m.include_documentation)
    else:
        if m.include_documentation:
            absent(m, "include_documentation", v)
    w.tags()


class DescribeConfigsSynonym(Message):
    __slots__ = ("name", "value", "source")

    def __init__(self, *, name: str = "", value: str | None = "", source: int = 0) -> None:
        self.name = name
        self.value = value
        self.source = source


class DescribeConfigsResourceResult(Message):
    __slots__ = (
        "name",
        "value",
        "read_only",
        "config_source",
        "is_sensitive",
        "synonyms",
        "config_type",
        "documentation",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
        synonyms: list[DescribeConfigsSynonym] | tuple[DescribeConfigsSynonym, ...] = (),
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive
        self.synonyms: list[DescribeConfigsSynonym] = list(synonyms) if isinstance(synonyms, tuple) else synonyms
        self.config_type = config_type
        self.documentation = documentation


class DescribeConfigsResult(Message):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "configs")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[DescribeConfigsResourceResult] | tuple[DescribeConfigsResourceResult, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[DescribeConfigsResourceResult] = list(configs) if isinstance(configs, tuple) else configs


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResult] | tuple[DescribeConfigsResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DescribeConfigsResult] = list(results) if isinstance(results, tuple) else results


def _read_describe_configs_synonym(r: Reader, v: int) -> DescribeConfigsSynonym:
    m = DescribeConfigsSynonym.__new__(DescribeConfigsSynonym)
    m.name = r.string()
    m.value = r.string_nullable()
    m.source = r.int8()
    r.skip_tags()
    return m


def _write_describe_configs_synonym(w: Writer, m: DescribeConfigsSynonym, v: int) -> None:
    w.string(m.name)
    w.string_nullable(m.value)
    w.int8(m.source)
    w.tags()


def _read_describe_configs_resource_result(r: Reader, v: int) -> DescribeConfigsResourceResult:
    m = DescribeConfigsResourceResult.__new__(DescribeConfigsResourceResult)
    m.name = r.string()
    m.value = r.string_nullable()
    m.read_only, m.config_source, m.is_sensitive = r.fixed(_tbt)
    m.synonyms = r.array(_read_describe_configs_synonym, v, 4)
    if v >= 3:
        m.config_type = r.int8()
        m.documentation = r.string_nullable()
    else:
        m.config_type = 0
        m.documentation = ""
    r.skip_tags()
    return m


def _write_describe_configs_resource_result(w: Writer, m: DescribeConfigsResourceResult, v: int) -> None:
    w.string(m.name)
    w.string_nullable(m.value)
    w += _tbt.pack(m.read_only, m.config_source, m.is_sensitive)
    w.array(_write_describe_configs_synonym, m.synonyms, v)
    if v >= 3:
        w.int8(m.config_type)
        w.string_nullable(m.documentation)
    w.tags()


def _read_describe_configs_result(r: Reader, v: int) -> DescribeConfigsResult:
    m = DescribeConfigsResult.__new__(DescribeConfigsResult)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.configs = r.array(_read_describe_configs_resource_result, v, 9)
    r.skip_tags()
    return m


def _write_describe_configs_result(w: Writer, m: DescribeConfigsResult, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.array(_write_describe_configs_resource_result, m.configs, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_describe_configs_result, v, 7)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_describe_configs_result, m.results, v)
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
