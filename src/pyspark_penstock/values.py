"""Typed values: strings, JSON and Avro become columns, and what does not parse becomes a reason.

A value is taken whole or not at all: one that does not fit its schema is null, and its reason stands in the column
``value_error``. A null value is null without a reason.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any, Protocol, cast

from pyspark.sql import types as spark

from pyspark_penstock.avro_schema import AvroSchema
from pyspark_penstock.options import ValueFormat
from pyspark_penstock.untyped import arrow_type, fastavro, pyarrow

REASON_CHARS_MAX = 300
"""What a reason may quote; values may hold what nobody wants in a log."""
_INTEGER_BITS = {spark.ByteType: 8, spark.ShortType: 16, spark.IntegerType: 32, spark.LongType: 64}

Convert = Callable[[Any], Any]


class Misfit(Exception):
    """A value that is not what its schema says."""


class ValueParser(Protocol):
    """Values in, typed values and reasons out, row by row."""

    @property
    def spark_type(self) -> spark.DataType: ...

    def parse(self, values: Any) -> tuple[Any, Any]:
        """An Arrow array of binary as an array of the type, and as many reasons, null where there is none."""
        ...


def value_parser(wanted: ValueFormat) -> ValueParser:
    """ValueError where the schema is not one."""
    match wanted.name:
        case "string":
            return StringParser()
        case "json":
            return _RecordParser(*_json_reader(wanted.schema))
        case _:
            schema = AvroSchema.of(wanted.schema)
            return _RecordParser(schema.spark_type, _avro_reader(schema))


class StringParser:
    """Values that are UTF-8."""

    @property
    def spark_type(self) -> spark.DataType:
        return spark.StringType()

    def parse(self, values: Any) -> tuple[Any, Any]:
        try:
            # Arrow checks a whole column at once, without an object for each row.
            return values.cast(pyarrow.string()), pyarrow.nulls(len(values), pyarrow.string())
        except pyarrow.ArrowInvalid:
            return _each(values, lambda raw: raw.decode(), pyarrow.string())


class _RecordParser:
    """Values that are records of a schema."""

    def __init__(self, spark_type: spark.DataType, read: Callable[[bytes], Any]) -> None:
        self._spark_type = spark_type
        self._read = read
        self._arrow_type: Any = arrow_type(spark_type)

    @property
    def spark_type(self) -> spark.DataType:
        return self._spark_type

    def parse(self, values: Any) -> tuple[Any, Any]:
        return _each(values, self._read, self._arrow_type)


def _each(values: Any, read: Callable[[bytes], Any], arrow_type: Any) -> tuple[Any, Any]:
    parsed: list[Any] = []
    reasons: list[str | None] = []
    for raw in values.to_pylist():
        value, reason = None, None
        if raw is not None:
            try:
                value = read(raw)
            except Misfit as error:
                reason = str(error)
            except (ValueError, RecursionError) as error:
                reason = f"{type(error).__name__}: {error}"
        parsed.append(value)
        reasons.append(None if reason is None else reason[:REASON_CHARS_MAX])
    return pyarrow.array(parsed, arrow_type), pyarrow.array(reasons, pyarrow.string())


# JSON


def _json_reader(text: str) -> tuple[spark.StructType, Callable[[bytes], Any]]:
    schema = _struct_of(text)
    convert = _converter(schema, "")

    def read(raw: bytes) -> Any:
        found = json.loads(raw.decode(), parse_float=Decimal, parse_constant=_no_constant)
        if not isinstance(found, dict):
            raise Misfit(f"a JSON object was expected, not {_kind(found)}")
        return convert(cast("dict[str, Any]", found))

    return schema, read


def _no_constant(name: str) -> Any:
    raise Misfit(f"{name} is no JSON")


def _struct_of(text: str) -> spark.StructType:
    """A schema as Spark writes it: its JSON form or the columns of a CREATE TABLE, without a session to parse it."""
    try:
        if text.startswith("{"):
            schema: Any = spark.StructType.fromJson(json.loads(text))
        else:
            schema = _ddl(text)
    except Exception as error:
        raise ValueError(f"Option 'value.schema' is no schema of Spark: {error}") from error
    if not isinstance(schema, spark.StructType) or not schema.fields:
        raise ValueError("Option 'value.schema' is no struct with fields")
    return schema


def _ddl(text: str) -> Any:
    from pyspark_penstock.ddl import parse_ddl

    return parse_ddl(text)


def _converter(kind: spark.DataType, path: str) -> Convert:
    """From what `json` makes of a text to what Arrow takes for this type; Misfit for anything else. Null is null."""
    match kind:
        case spark.StructType():
            return _struct_converter(kind, path)
        case spark.ArrayType():
            element = _converter(kind.elementType, f"{path}[]")
            return _checked(list, path, lambda items: [element(item) for item in items])
        case spark.MapType():
            if not isinstance(kind.keyType, spark.StringType):
                raise ValueError(f"Option 'value.schema': the keys of the map {path} must be strings")
            value = _converter(kind.valueType, f"{path}{{}}")
            return _checked(dict, path, lambda items: [(name, value(each)) for name, each in items.items()])
        case spark.StringType():
            return _string
        case spark.BooleanType():
            return _checked(bool, path, lambda value: value)
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            return _integer_converter(_INTEGER_BITS[type(kind)], path)
        case spark.FloatType() | spark.DoubleType():
            return _checked((int, Decimal), path, float)
        case spark.DecimalType():
            return _decimal_converter(kind, path)
        case spark.TimestampType():
            return _checked(str, path, lambda text: _moment(text, path))
        case spark.DateType():
            return _checked(str, path, lambda text: _parsed(datetime.date.fromisoformat, text, path))
        case spark.BinaryType():
            return _checked(str, path, lambda text: _parsed(_base64, text, path))
        case _:
            raise ValueError(f"Option 'value.schema': {path} is of type {kind.simpleString()}, which is not read here")


def _struct_converter(kind: spark.StructType, path: str) -> Convert:
    fields = [(each.name, _converter(each.dataType, f"{path}.{each.name}".lstrip("."))) for each in kind.fields]
    return _checked(dict, path, lambda items: {name: convert(items.get(name)) for name, convert in fields})


def _checked(python: type | tuple[type, ...], path: str, convert: Convert) -> Convert:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, python) or (isinstance(value, bool) and python is not bool):
            raise Misfit(f"{path or 'the value'} is {_kind(value)}")
        return convert(value)

    return check


def _integer_converter(bits: int, path: str) -> Convert:
    bound = 1 << (bits - 1)

    def convert(value: int) -> int:
        if not -bound <= value < bound:
            raise Misfit(f"{path} does not fit {bits} bits")
        return value

    return _checked(int, path, convert)


def _decimal_converter(kind: spark.DecimalType, path: str) -> Convert:
    unit = Decimal(1).scaleb(-kind.scale)
    bound = Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal:
        try:
            found = Decimal(value).quantize(unit)
        except DecimalException:
            raise Misfit(f"{path} is no number of {kind.simpleString()}") from None
        if not abs(found) < bound:
            raise Misfit(f"{path} does not fit {kind.simpleString()}")
        return found

    return _checked((int, Decimal, str), path, convert)


def _string(value: Any) -> str | None:
    """Spark takes the JSON of what is no string."""
    return value if value is None or isinstance(value, str) else json.dumps(value, default=_decimal_text)


def _decimal_text(value: Any) -> Any:
    return float(value)


def _moment(text: str, path: str) -> datetime.datetime:
    found: datetime.datetime = _parsed(datetime.datetime.fromisoformat, text, path)
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _parsed(parse: Callable[[str], Any], text: str, path: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise Misfit(f"{path} does not parse") from None


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | Decimal():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


# Avro


def _avro_reader(schema: AvroSchema) -> Callable[[bytes], Any]:
    schemaless_reader = fastavro().schemaless_reader

    def read(raw: bytes) -> Any:
        stream = io.BytesIO(raw)
        try:
            found: Any = schemaless_reader(stream, schema.parsed, None)
        except Exception as error:
            raise Misfit(f"no such Avro: {type(error).__name__}: {error}") from error
        if stream.tell() != len(raw):
            raise Misfit(f"{len(raw) - stream.tell()} bytes follow the Avro record")
        return found

    return read
