"""AlterClientQuotas (API key 49), versions 0 to 1. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 49
NAME = "AlterClientQuotas"
VERSION_MIN = 0
VERSION_MAX = 1
FLEXIBLE_FROM: int | None = 1

_dt = Struct(">d?")


class EntityData(Message):
    __slots__ = ("entity_type", "entity_name")

    def __init__(self, *, entity_type: str = "", entity_name: str | None = "") -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class OpData(Message):
    __slots__ = ("key", "value", "remove")

    def __init__(self, *, key: str = "", value: float = 0.0, remove: bool = False) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class RequestEntryData(Message):
    __slots__ = ("entity", "ops")

    def __init__(
        self, *, entity: list[EntityData] | tuple[EntityData, ...] = (), ops: list[OpData] | tuple[OpData, ...] = ()
    ) -> None:
        self.entity: list[EntityData] = list(entity) if isinstance(entity, tuple) else entity
        self.ops: list[OpData] = list(ops) if isinstance(ops, tuple) else ops


class Request(Message):
    __slots__ = ("entries", "validate_only")

    def __init__(
        self, *, entries: list[RequestEntryData] | tuple[RequestEntryData, ...] = (), validate_only: bool = False
    ) -> None:
        self.entries: list[RequestEntryData] = list(entries) if isinstance(entries, tuple) else entries
        self.validate_only = validate_only


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


def _read_op_data(r: Reader, v: int) -> OpData:
    m = OpData.__new__(OpData)
    m.key = r.string()
    m.value, m.remove = r.fixed(_dt)
    r.skip_tags()
    return m


def _write_op_data(w: Writer, m: OpData, v: int) -> None:
    w.string(m.key)
    w += _dt.pack(m.value, m.remove)
    w.tags()


def _read_request_entry_data(r: Reader, v: int) -> RequestEntryData:
    m = RequestEntryData.__new__(RequestEntryData)
    m.entity = r.array(_read_entity_data, v, 3)
    m.ops = r.array(_read_op_data, v, 11)
    r.skip_tags()
    return m


def _write_request_entry_data(w: Writer, m: RequestEntryData, v: int) -> None:
    w.array(_write_entity_data, m.entity, v)
    w.array(_write_op_data, m.ops, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.entries = r.array(_read_request_entry_data, v, 3)
    m.validate_only = r.boolean()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_request_entry_data, m.entries, v)
    w.boolean(m.validate_only)
    w.tags()


class ResponseEntryData(Message):
    __slots__ = ("error_code", "error_message", "entity")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] | tuple[EntityData, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity: list[EntityData] = list(entity) if isinstance(entity, tuple) else entity


class Response(Message):
    __slots__ = ("throttle_time_ms", "entries")
    ERROR_LISTS = ("entries",)

    def __init__(
        self, *, throttle_time_ms: int = 0, entries: list[ResponseEntryData] | tuple[ResponseEntryData, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries: list[ResponseEntryData] = list(entries) if isinstance(entries, tuple) else entries


def _read_response_entry_data(r: Reader, v: int) -> ResponseEntryData:
    m = ResponseEntryData.__new__(ResponseEntryData)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.entity = r.array(_read_entity_data, v, 3)
    r.skip_tags()
    return m


def _write_response_entry_data(w: Writer, m: ResponseEntryData, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_entity_data, m.entity, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.entries = r.array(_read_response_entry_data, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_response_entry_data, m.entries, v)
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
