"""A fast JSON reader: msgspec decodes a value straight to the fields of the schema, Arrow converts whole columns.

A value that it accepts has the result of `json_exact`, which a property test checks; other values are read there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from pyspark.sql import types as spark

from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import gather
from pyspark_penstock.values.gather import Build
from pyspark_penstock.values.json_exact import FLOAT_MAX, INTEGER_BITS, can_be_renamed, decimal_of, default_of
from pyspark_penstock.values.misfit import Misfit
from pyspark_penstock.values.times import (
    DAYS_MAX,
    DAYS_MIN,
    MOMENT_US_MAX,
    MOMENT_US_MIN,
    check_range,
    day_number,
    epoch_us,
    local_moment_us,
    moment_us,
)

_INT64: Any = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_ASK = object()
"""The place holder in a column for a value that fits no type, so that its row is refused."""
_FLOAT32: Any = Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastJson:
    """Decodes rows one by one, and builds one array of many."""

    decode: Callable[[bytes], Any]
    build: Build


def fast_decoder(schema: spark.StructType, arrow_type: Any) -> FastJson | None:
    """None if msgspec cannot decode a field's name."""
    if not _has_plain_names(schema):
        return None
    python, build = _struct(schema, arrow_type)
    return FastJson(decode=msgspec.json.Decoder(python).decode, build=build)


def _has_plain_names(kind: spark.DataType) -> bool:
    match kind:
        case spark.StructType():
            return all(can_be_renamed(each.name) and _has_plain_names(each.dataType) for each in kind.fields)
        case spark.ArrayType():
            return _has_plain_names(kind.elementType)
        case spark.MapType():
            return _has_plain_names(kind.valueType)
        case _:
            return True


def _struct(kind: spark.StructType, arrow_type: Any) -> tuple[Any, Build]:
    fields: list[Any] = []
    gathered: list[tuple[gather.Get, Build]] = []
    for index, each in enumerate(kind.fields):
        python, build = _typed(each.dataType, arrow_type.field(index).type)
        name = f"f{index}"
        python = python | None if each.nullable else python
        missing = default_of(each)
        # A field that is NOT NULL and has no DEFAULT must be there.
        is_required = not each.nullable and missing == b"null"
        fields.append((name, python) if is_required else (name, python, _default(missing, python)))
        gathered.append((attrgetter(name), build))
    # Fields without a default come first, as in Python's classes; the order does not matter.
    fields.sort(key=len)
    rename = {f"f{index}": each.name for index, each in enumerate(kind.fields)}
    return msgspec.defstruct("Row", fields, rename=rename, gc=False), gather.structs(arrow_type, gathered)


def _default(missing: bytes, python: Any) -> Any:
    if missing == b"null":
        return None
    try:
        return msgspec.json.decode(missing, type=python)
    except msgspec.DecodeError:
        # A default that only the exact reader accepts, which reads all rows without the field.
        return _ASK


def _typed(kind: spark.DataType, arrow_type: Any) -> tuple[Any, Build]:
    """The type that msgspec decodes to, and how a column of it is built."""
    match kind:
        case spark.StructType():
            return _struct(kind, arrow_type)
        case spark.ArrayType():
            python, build = _typed(kind.elementType, arrow_type.value_type)
            element = python | None if kind.containsNull else python
            return GenericAlias(list, (element,)), gather.lists(arrow_type, build)
        case spark.MapType():
            python, build = _typed(kind.valueType, arrow_type.item_type)
            value = python | None if kind.valueContainsNull else python
            return GenericAlias(dict, (str, value)), gather.maps(arrow_type, build)
        case spark.CharType() | spark.VarcharType():
            return Annotated[str, msgspec.Meta(max_length=kind.length)], gather.leaf(arrow_type)
        case spark.StringType():
            return str, gather.leaf(arrow_type)
        case spark.BooleanType():
            return bool, gather.leaf(arrow_type)
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            bound = 1 << (INTEGER_BITS[type(kind)] - 1)
            return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)], gather.leaf(arrow_type)
        case spark.FloatType():
            return _FLOAT32, gather.leaf(arrow_type)
        case spark.DoubleType():
            return float, gather.leaf(arrow_type)
        case spark.DecimalType():
            return Decimal, _decimals(kind, arrow_type)
        case spark.TimestampType():
            return str | _INT64, _moments(arrow_type)
        case spark.TimestampNTZType():
            return str, _texts(arrow_type, local_moment_us, MOMENT_US_MIN, MOMENT_US_MAX)
        case spark.DateType():
            return str, _texts(arrow_type, day_number, DAYS_MIN, DAYS_MAX)
        case _:
            assert isinstance(kind, spark.BinaryType), f"{kind} is not supported"
            return bytes, gather.leaf(arrow_type)


def _texts(arrow_type: Any, convert: Callable[[str, str], int], low: int, high: int) -> Build:
    """Texts that Arrow parses as a whole, or else one by one."""
    one_by_one = gather.each(arrow_type, lambda text: convert(text, ""))

    def build(values: list[Any]) -> Any:
        try:
            return check_range(pyarrow.array(values, pyarrow.string()).cast(arrow_type), low, high)
        except (pyarrow.ArrowInvalid, Misfit):
            return one_by_one(values)

    return build


def _moments(arrow_type: Any) -> Build:
    """Timestamps: Arrow parses a column in which all have a time zone, or none has."""
    local = pyarrow.timestamp("us")
    one_by_one = gather.each(
        arrow_type, lambda value: epoch_us(value, "") if isinstance(value, int) else moment_us(value, "")
    )

    def build(values: list[Any]) -> Any:
        for kind in (arrow_type, local):
            try:
                texts = pyarrow.array(values, pyarrow.string())
                return check_range(texts.cast(kind).cast(arrow_type), MOMENT_US_MIN, MOMENT_US_MAX)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, Misfit):
                continue
        return one_by_one(values)

    return build


def _decimals(kind: spark.DecimalType, arrow_type: Any) -> Build:
    """Decimals: Arrow converts those with no more digits than the type, others are rounded one by one."""
    one_by_one = gather.each(arrow_type, lambda value: decimal_of(value, kind, ""))

    def build(values: list[Any]) -> Any:
        try:
            return pyarrow.array(values, arrow_type)
        except pyarrow.ArrowInvalid:
            return one_by_one(values)

    return build
