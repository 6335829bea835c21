"""The options that choose the columns of a read and their types: ``columns``, ``key.format``, ``value.format``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_penstock.errors import WrongOption

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN = "headers"
KEY_ERROR_COLUMN = "key_error"
KEY_BYTES_COLUMN = "key_bytes"
VALUE_ERROR_COLUMN = "value_error"
VALUE_BYTES_COLUMN = "value_bytes"
ERROR_COLUMNS = {"key": KEY_ERROR_COLUMN, "value": VALUE_ERROR_COLUMN}
BYTES_COLUMNS = {"key": KEY_BYTES_COLUMN, "value": VALUE_BYTES_COLUMN}
FORMATS = ("string", "json", "avro")
HEADER_FORMATS = ("array", "map")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """How keys or values are parsed: ``json``, ``avro`` or ``string``, and the text of their schema."""

    name: str
    schema: str = ""
    option: str = "value.schema"
    """The name of the schema's option, for errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumns:
    """The columns of a read, in their order, and how typed ones are parsed."""

    names: tuple[str, ...]
    formats: Mapping[str, ValueFormat]
    """The formats of ``key`` and ``value``, if they are typed."""
    headers_as_map: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str], include_headers: bool) -> ReadColumns:
        """Parse the options, whose names are in lower case; WrongOption for a wrong one."""
        found = {part: value_format(given, part) for part in ("key", "value")}
        formats = {part: wanted for part, wanted in found.items() if wanted is not None}
        return cls(
            names=_names(given, include_headers, formats),
            formats=formats,
            headers_as_map=_choice(given, "headers.format", HEADER_FORMATS) == "map",
        )


def value_format(given: Mapping[str, str], part: str) -> ValueFormat | None:
    """The format of keys or of values; None for bytes."""
    name = _choice(given, f"{part}.format", ("binary", *FORMATS))
    schema = given.get(f"{part}.schema", "").strip()
    if name == "binary":
        if schema:
            raise WrongOption(f"Option '{part}.schema' needs '{part}.format': json or avro")
        return None
    if name == "string" and schema:
        raise WrongOption(f"Option '{part}.schema' has no meaning with '{part}.format' string")
    if name != "string" and not schema:
        raise WrongOption(f"Option '{part}.format' {name} needs '{part}.schema'")
    return ValueFormat(name=name, schema=schema, option=f"{part}.schema")


WRITE_OPTIONS = frozenset({"key.format", "key.schema", "value.format", "value.schema"})


def write_formats(given: Mapping[str, str]) -> dict[str, ValueFormat]:
    """The formats in which a sink encodes ``key`` and ``value``, unless they are bytes or strings."""
    formats: dict[str, ValueFormat] = {}
    for part in ("key", "value"):
        name = _choice(given, f"{part}.format", ("binary", *FORMATS))
        schema = given.get(f"{part}.schema", "").strip()
        if schema and name != "avro":
            raise WrongOption(f"Option '{part}.schema' of a writer is an Avro schema: it needs '{part}.format' avro")
        if name != "binary":
            formats[part] = ValueFormat(name=name, schema=schema, option=f"{part}.schema")
    return formats


def _choice(given: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    found = given.get(option, choices[0]).strip().lower()
    if found not in choices:
        raise WrongOption(f"Option '{option}' is one of {', '.join(choices)}, not {found!r}")
    return found


def _names(given: Mapping[str, str], include_headers: bool, formats: Mapping[str, ValueFormat]) -> tuple[str, ...]:
    """The columns that the option names, in its order; by default those of Spark's Kafka connector."""
    usual = COLUMNS + ((HEADERS_COLUMN,) if include_headers else ())
    usual += tuple(ERROR_COLUMNS[part] for part in formats)
    text = given.get("columns")
    if text is None:
        return usual
    known = {name.lower(): name for name in (*usual, HEADERS_COLUMN, *(BYTES_COLUMNS[part] for part in formats))}
    requested = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in requested if name.lower() not in known]
    if unknown or not requested:
        raise WrongOption(f"Option 'columns': {', '.join(unknown) or 'nothing'} is none of {', '.join(known.values())}")
    if len({name.lower() for name in requested}) < len(requested):
        raise WrongOption(f"Option 'columns' names a column twice: {text}")
    return tuple(known[name.lower()] for name in requested)
