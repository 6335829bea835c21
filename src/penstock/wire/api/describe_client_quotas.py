"""DescribeClientQuotas (API key 48), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 48
NAME = "DescribeClientQuotas"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 1

_ih = Struct(">ih")


class ComponentData(Message):
    __slots__ = ("entity_type", "match_type", "match")

    def __init__(self, *, entity_type: str = "", match_type: int = 0, match: str | None = "") -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match


class Request(Message):
    __slots__ = ("components", "strict")

    def __init__(
        self, *, components: list[ComponentData] | tuple[ComponentData, ...] = (), strict: bool = False
    ) -> None:
        self.components: list[ComponentData] = list(components) if isinstance(components, tuple) else components
        self.strict = strict


def _read_component_data(r: Reader, v: int) -> ComponentData:
    m = ComponentData.__new__(ComponentData)
    m.entity_type = r.string()
    m.match_type = r.int8()
    m.match = r.string_nullable()
    r.skip_tags()
    return m


def _write_component_data(w: Writer, m: ComponentData, v: int) -> None:
    w.string(m.entity_type)
    w.int8(m.match_type)
    w.string_nullable(m.match)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.components = r.array(_read_component_data, v, 4)
    m.strict = r.boolean()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_component_data, m.components, v)
    w.boolean(m.strict)
    w.tags()


class EntityData(Message):
    __slots__ = ("entity_type", "entity_name")

    def __init__(self, *, entity_type: str = "", entity_name: str | None = "") -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class ValueData(Message):
    __slots__ = ("key", "value")

    def __init__(self, *, key: str = "", value: float = 0.0) -> None:
        self.key = key
        self.value = value


class EntryData(Message):
    __slots__ = ("entity", "values")

    def __init__(
        self,
        *,
        entity: list[EntityData] | tuple[EntityData, ...] = (),
        values: list[ValueData] | tuple[ValueData, ...] = (),
    ) -> None:
        self.entity: list[EntityData] = list(entity) if isinstance(entity, tuple) else entity
        self.values: list[ValueData] = list(values) if isinstance(values, tuple) else values


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "entries")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | tuple[EntryData, ...] | None = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries: list[EntryData] | None = list(entries) if isinstance(entries, tuple) else entries


def _read_entity_data(r: Reader, v: int) -> EntityData:
    m = EntityData.__new__(EntityData)
    m.entity_type = r.string()
    m.entity_name = r.string_nullable()
    r.skip_tags()
    return m


def _write_entity_data(w: Writer, m: EntityData, v: int) -> None:
    w.string(m.entity_type)
    w.string_nullable(m.entity_name)
    w.tags()


def _read_value_data(r: Reader, v: int) -> ValueData:
    m = ValueData.__new__(ValueData)
    m.key = r.string()
    m.value = r.float64()
    r.skip_tags()
    return m


def _write_value_data(w: Writer, m: ValueData, v: int) -> None:
    w.string(m.key)
    w.float64(m.value)
    w.tags()


def _read_entry_data(r: Reader, v: int) -> EntryData:
    m = EntryData.__new__(EntryData)
    m.entity = r.array(_read_entity_data, v, 3)
    m.values = r.array(_read_value_data, v, 10)
    r.skip_tags()
    return m


def _write_entry_data(w: Writer, m: EntryData, v: int) -> None:
    w.array(_write_entity_data, m.entity, v)
    w.array(_write_value_data, m.values, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.entries = r.array_nullable(_read_entry_data, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array_nullable(_write_entry_data, m.entries, v)
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
