"""Encodes requests from plain dicts and decodes responses to plain dicts, by the schemas of kio.

kio is generated from Kafka's own message definitions, so neither side of the comparison is read by penstock's codec.
A scenario writes one dict for all versions of an API: fields that a version lacks are left out, fields that the dict
lacks take the schema's default.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import typing
import uuid
from types import NoneType, UnionType

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue
from kio.static.constants import EntityType

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

API_KEYS: typing.Final = {name: key for key, name in api_key_map.items()}

Plain = typing.Any


def versions_of(api: str) -> range:
    """The versions of an API whose request and response kio can both read."""
    known = [number for number, parts in schema_name_map[api].items() if EntityType.request in parts]
    return range(min(known), max(known) + 1)


def encode_request(api: str, version: int, correlation_id: int, client_id: str | None, body: dict[str, Plain]) -> bytes:
    """One request with its header, without the frame's length."""
    unknown = _names_in(body) - _field_names(api)
    assert not unknown, f"no version of {api} has the fields {sorted(unknown)}"
    schema = load_request_schema(API_KEYS[api], version)
    out = io.BytesIO()
    out.write(encode_header(api, version, correlation_id, client_id))
    entity_writer(schema)(out, _build(schema, body))
    return out.getvalue()


def encode_header(api: str, version: int, correlation_id: int, client_id: str | None) -> bytes:
    schema = load_request_schema(API_KEYS[api], version)
    header = _build(
        schema.__header_schema__,
        {
            "request_api_key": API_KEYS[api],
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    out = io.BytesIO()
    entity_writer(schema.__header_schema__)(out, header)
    return out.getvalue()


def decode_response(api: str, version: int, payload: bytes) -> tuple[int, dict[str, Plain]]:
    """The correlation id and the body; bytes beyond the schema are shown, never dropped."""
    schema = load_response_schema(API_KEYS[api], version)
    header, header_size = entity_reader(schema.__header_schema__)(payload, 0)
    try:
        body, body_size = entity_reader(schema)(payload, header_size)
    except OutOfBoundValue:
        body, body_size = entity_reader(_with_times_or_none(schema))(payload, header_size)
    plain = _plain(body)
    rest = payload[header_size + body_size :]
    if rest:
        plain["bytes_left_over"] = rest.hex()
    return header.correlation_id, plain


@functools.cache
def _field_names(api: str) -> frozenset[str]:
    names: set[str] = set()
    for version in versions_of(api):
        pending = [load_request_schema(API_KEYS[api], version)]
        while pending:
            for field in dataclasses.fields(pending.pop()):
                names.add(field.name)
                inner = _inner(field.type)
                if dataclasses.is_dataclass(inner):
                    pending.append(inner)
    return frozenset(names)


def _names_in(value: Plain) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(_names_in(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(_names_in(item) for item in value))
    return set()


@functools.cache
def _with_times_or_none(schema: typing.Any) -> typing.Any:
    """The schema, with None where a time is -1: Kafka sends that as "none" in fields where kio rejects it."""
    fields: list[tuple[str, typing.Any, typing.Any]] = []
    for field in dataclasses.fields(schema):
        hint, nullable = _without_none(field.type)
        inner = _inner(hint)
        if dataclasses.is_dataclass(inner):
            changed = _with_times_or_none(inner)
            hint = tuple[changed, ...] if typing.get_origin(hint) is tuple else changed
        nullable = nullable or field.metadata.get("kafka_type") == "datetime_i64"
        declared = dataclasses.field(default=field.default, metadata=field.metadata)
        fields.append((field.name, hint | None if nullable else hint, declared))
    about = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    own = {name: getattr(schema, name) for name in about}
    return dataclasses.make_dataclass(schema.__name__, fields, frozen=True, slots=True, kw_only=True, namespace=own)


def _without_none(hint: typing.Any) -> tuple[typing.Any, bool]:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        arms = [arm for arm in typing.get_args(hint) if arm is not NoneType]
        assert len(arms) == 1, hint
        return arms[0], True
    return hint, False


def _inner(hint: typing.Any) -> typing.Any:
    """The type of a field, or of the items of an array field."""
    hint, _ = _without_none(hint)
    if typing.get_origin(hint) is tuple:
        hint, _ = _without_none(typing.get_args(hint)[0])
    return hint


def _build(schema: typing.Any, body: dict[str, Plain]) -> typing.Any:
    values: dict[str, Plain] = {}
    for field in dataclasses.fields(schema):
        if field.name in body:
            values[field.name] = _value(field, body[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _default(field)
    return schema(**values)


def _value(field: typing.Any, value: Plain) -> typing.Any:
    if value is None:
        return None
    inner = _inner(field.type)
    if isinstance(value, list | tuple):
        return tuple(_build(inner, item) if dataclasses.is_dataclass(inner) else item for item in value)
    if dataclasses.is_dataclass(inner):
        return _build(inner, value)
    match field.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "uuid":
            return uuid.UUID(value) if isinstance(value, str) else value
        case _:
            return value


def _default(field: typing.Any) -> typing.Any:
    hint, nullable = _without_none(field.type)
    if nullable:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return _build(hint, {})
    match field.metadata["kafka_type"]:
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(0)
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "bool":
            return False
        case _:
            return 0


def _plain(value: typing.Any) -> Plain:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    match value:
        case tuple():
            return [_plain(item) for item in value]
        case ErrorCode():
            return value.name
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case uuid.UUID():
            return str(value)
        case bool() | None:
            return value
        case int():
            return int(value)
        case str():
            return str(value)
        case _:
            return value
