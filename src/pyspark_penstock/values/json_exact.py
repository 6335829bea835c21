"""The exact JSON reader: the definition of what a value means, for the rows that the fast readers reject.

Each field is cut out as the text it was written in, and the text is converted. So a number in a string column keeps its
digits, and an object or an array its spelling, as with Spark's `from_json`. The differences from `from_json` are values
that it silently changes and we refuse; docs/spark.md has the list.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any, cast

import msgspec
from pyspark.sql import types as spark

from pyspark_penstock.values.ddl import DEFAULT, literal_json
from pyspark_penstock.values.misfit import Misfit
from pyspark_penstock.values.schema_text import field_path
from pyspark_penstock.values.times import day_number, epoch_us, local_moment_us, moment_us

Convert = Callable[[bytes], Any]
"""From the text of one JSON value to Arrow's value for a type. Null becomes None; Misfit if it does not fit."""

FLOAT_MAX = 3.4028234663852886e38
_FLOAT_END = 3.4028235677973366e38
"""From here on a number rounds to infinity; the largest float is written as 3.4028235e38, which is larger than it."""
INTEGER_BITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
_INTEGER_CHARS_MAX = 20
"""Characters of the longest 64-bit integer, with its sign; longer ones are refused without conversion."""
_NOT_FINITE = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "INF": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
"""Strings that Spark takes for numbers, and `to_json` writes."""
_DECIMALS = Context(prec=100, rounding=ROUND_HALF_UP)
_SPACE = b" \t\n\r"
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_HIGH = range(0xD800, 0xDC00)
_LOW = range(0xDC00, 0xE000)
_KINDS = {
    ord('"'): "a string",
    ord("{"): "an object",
    ord("["): "an array",
    ord("t"): "a boolean",
    ord("f"): "a boolean",
    ord("n"): "null",
}
_KINDS_OF_OTHERS = (b"n", b"t", b"f", b'"', b"[")
_NULL = msgspec.Raw(b"null")

_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
_items: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_entries: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def check_defaults(kind: spark.DataType, path: str = "") -> None:
    """Misfit or ValueError if a DEFAULT does not fit its column."""
    match kind:
        case spark.StructType():
            for each in kind.fields:
                inner = field_path(path, each.name)
                if DEFAULT in (each.metadata or {}):
                    _converter(each.dataType, f"the DEFAULT of {inner}")(default_of(each))
                check_defaults(each.dataType, inner)
        case spark.ArrayType():
            check_defaults(kind.elementType, f"{path}[]")
        case spark.MapType():
            check_defaults(kind.valueType, f"{path}{{}}")
        case _:
            return


def exact_reader(schema: spark.StructType) -> Callable[[bytes], Any]:
    """Read one value to a dictionary of fields for Arrow, or raise an exception that says what does not fit."""
    convert = _struct(schema, "")

    def read(raw: bytes) -> Any:
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise Misfit(f"no UTF-8: {error.reason} at byte {error.start}") from None
        try:
            return _read_object(raw, convert)
        except msgspec.DecodeError as error:
            paired = _without_lone_surrogates(raw)
            if paired == raw:
                raise Misfit(_no_json(error)) from None
        try:
            return _read_object(paired, convert)
        except msgspec.DecodeError as error:
            raise Misfit(_no_json(error)) from None

    return read


def _no_json(error: msgspec.DecodeError) -> str:
    return f"no JSON: {str(error).removeprefix('JSON is malformed: ')}"


def _read_object(raw: bytes, convert: Convert) -> Any:
    begin = raw.lstrip(_SPACE)[:1]
    if begin in _KINDS_OF_OTHERS or begin.isdigit() or begin == b"-":
        _check(raw)
        raise Misfit(f"a JSON object was expected, not {_kind(begin)}")
    return convert(raw)


def _check(raw: bytes) -> None:
    msgspec.json.decode(raw, type=msgspec.Raw)


def _without_lone_surrogates(raw: bytes) -> bytes:
    """Replace unpaired surrogates by U+FFFD: UTF-8 cannot encode them."""
    found = list(_ESCAPE.finditer(raw))
    codes = [int(each[1], 16) if each[1] else -1 for each in found]
    pieces: list[bytes] = []
    end = 0
    at = 0
    while at < len(found):
        here = found[at]
        is_pair = (
            codes[at] in _HIGH and at + 1 < len(found) and codes[at + 1] in _LOW and found[at + 1].start() == here.end()
        )
        if is_pair:
            at += 2
            continue
        if codes[at] in _HIGH or codes[at] in _LOW:
            pieces += [raw[end : here.start()], b"\\ufffd"]
            end = here.end()
        at += 1
    return b"".join([*pieces, raw[end:]])


def _kind(raw: bytes) -> str:
    return _KINDS.get(raw[0], "a number")


def _converter(kind: spark.DataType, path: str) -> Convert:
    match kind:
        case spark.StructType():
            return _struct(kind, path)
        case spark.ArrayType():
            element = _nullable(_converter(kind.elementType, f"{path}[]"), f"{path}[]", kind.containsNull)
            return _of(b"[", path, lambda raw: [element(bytes(item)) for item in _items(raw)])
        case spark.MapType():
            value = _nullable(_converter(kind.valueType, f"{path}{{}}"), f"{path}{{}}", kind.valueContainsNull)
            return _of(b"{", path, lambda raw: [(name, value(bytes(each))) for name, each in _entries(raw).items()])
        case spark.CharType() | spark.VarcharType():
            return _bounded_string(kind.length, kind.simpleString(), path)
        case spark.StringType():
            return _string
        case spark.BooleanType():
            return _of(b"tf", path, lambda raw: raw == b"true")
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return _integer(INTEGER_BITS[type(kind)], path)
        case spark.FloatType():
            return _floating(_FLOAT_END, "float", path)
        case spark.DoubleType():
            return _floating(math.inf, "double", path)
        case spark.DecimalType():
            return _decimal(kind, path)
        case spark.TimestampType():
            return _moment(path)
        case spark.TimestampNTZType():
            return _of(b'"', path, lambda raw: local_moment_us(_text(raw), path))
        case spark.DateType():
            return _of(b'"', path, lambda raw: day_number(_text(raw), path))
        case _:
            assert isinstance(kind, spark.BinaryType), f"{kind} is not supported"
            return _of(b'"', path, lambda raw: _base64(_text(raw), path))


def _of(begins: bytes, path: str, convert: Convert) -> Convert:
    """A value that begins with one of these, or null."""

    def check(raw: bytes) -> Any:
        if raw[0] in begins:
            return convert(raw)
        if raw == b"null":
            return None
        raise Misfit(f"{path or 'the value'} is {_kind(raw)}")

    return check


def _nullable(convert: Convert, path: str, is_nullable: bool) -> Convert:
    if is_nullable:
        return convert

    def check(raw: bytes) -> Any:
        if raw == b"null":
            raise Misfit(f"{path} is null or missing, and its schema says NOT NULL")
        return convert(raw)

    return check


def can_be_renamed(name: str) -> bool:
    """Whether msgspec can decode a field of this name to an attribute of a struct."""
    return not any(each in '\\"' or each < " " for each in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    convert: Convert
    missing: msgspec.Raw
    """A field and its value if it is missing."""


def default_of(field: spark.StructField) -> bytes:
    """The JSON of a missing field: its DEFAULT, or null."""
    text = (field.metadata or {}).get(DEFAULT)
    return b"null" if text is None else literal_json(str(text), field.name).encode()


def _field(each: spark.StructField, path: str) -> _Field:
    inner = field_path(path, each.name)
    convert = _nullable(_converter(each.dataType, inner), inner, each.nullable)
    return _Field(name=each.name, convert=convert, missing=msgspec.Raw(default_of(each)))


def _struct(kind: spark.StructType, path: str) -> Convert:
    fields = [_field(each, path) for each in kind.fields]
    if not all(can_be_renamed(each.name) for each in fields):

        def from_entries(raw: bytes) -> Any:
            found = _entries(raw)
            return {each.name: each.convert(bytes(found.get(each.name, each.missing))) for each in fields}

        return _object(path, from_entries)

    cut = msgspec.defstruct(
        "Cut",
        [(f"f{index}", msgspec.Raw, each.missing) for index, each in enumerate(fields)],
        rename={f"f{index}": each.name for index, each in enumerate(fields)},
    )
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(cut).decode

    def from_fields(raw: bytes) -> Any:
        found = decode(raw)
        return {each.name: each.convert(bytes(getattr(found, f"f{index}"))) for index, each in enumerate(fields)}

    return _object(path, from_fields)


def _object(path: str, convert: Convert) -> Convert:
    # Spaces may surround the whole value, and the decoder reports invalid JSON.
    return convert if not path else _of(b"{", path, convert)


def _string(raw: bytes) -> str | None:
    if raw[0] == ord('"'):
        return _text(raw)
    return None if raw == b"null" else raw.decode()


def _bounded_string(length: int, type_name: str, path: str) -> Convert:
    def convert(raw: bytes) -> str | None:
        text = _string(raw)
        if text is None or len(text) <= length:
            return text
        # As in Spark, only trailing spaces may be cut off.
        if len(text.rstrip(" ")) > length:
            raise Misfit(f"{path} is longer than {type_name}")
        return text[:length]

    return convert


def _integer(bits: int, path: str) -> Convert:
    bound = 1 << (bits - 1)

    def convert(raw: bytes) -> int:
        if any(each in raw for each in (b".", b"e", b"E")):
            raise Misfit(f"{path} is a number with a fraction or an exponent")
        if len(raw) > _INTEGER_CHARS_MAX or not -bound <= int(raw) < bound:
            raise Misfit(f"{path} does not fit {bits} bits")
        return int(raw)

    return _of(b"-0123456789", path, convert)


def _floating(bound: float, type_name: str, path: str) -> Convert:
    def convert(raw: bytes) -> float:
        if raw[0] == ord('"'):
            named = _NOT_FINITE.get(_text(raw))
            if named is None:
                raise Misfit(f"{path} is a string")
            return named
        # The integer -0 is the integer 0.
        found = 0.0 if raw == b"-0" else float(raw)
        if abs(found) >= bound:
            raise Misfit(f"{path} does not fit {type_name}")
        return found

    return _of(b'"-0123456789', path, convert)


def decimal_of(value: Decimal, kind: spark.DecimalType, path: str) -> Decimal:
    """Rounded half up to the scale, as Spark does; Misfit if it has too many digits before the point."""
    if not value.is_finite():
        raise Misfit(f"{path} is not a number of {kind.simpleString()}")
    if value and value.adjusted() > kind.precision - kind.scale:
        raise Misfit(f"{path} does not fit {kind.simpleString()}")
    rounded = value.quantize(Decimal((0, (1,), -kind.scale)), context=_DECIMALS)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise Misfit(f"{path} does not fit {kind.simpleString()}")
    return rounded


def _decimal(kind: spark.DecimalType, path: str) -> Convert:
    def convert(raw: bytes) -> Decimal:
        text = _text(raw) if raw[0] == ord('"') else raw.decode()
        try:
            found = Decimal(text)
        except DecimalException:
            raise Misfit(f"{path} is not a number of {kind.simpleString()}") from None
        return decimal_of(found, kind, path)

    return _of(b'"-0123456789', path, convert)


def _moment(path: str) -> Convert:
    seconds = _integer(64, path)

    def convert(raw: bytes) -> int:
        return moment_us(_text(raw), path) if raw[0] == ord('"') else epoch_us(cast("int", seconds(raw)), path)

    return _of(b'"-0123456789', path, convert)


def _base64(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Misfit(f"{path} is not base64") from None
