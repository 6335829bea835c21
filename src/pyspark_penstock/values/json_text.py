"""Encodes structs as JSON, by whole columns of text that Arrow joins.

The text is that of Spark's `to_json` (null fields are omitted, binary is base64, NaN is a string), except for times,
which have six digits and are in UTC. `json_exact` reads the text back as equal values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import types as spark

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.untyped import compute, pyarrow
from pyspark_penstock.values.schema_text import field_path
from pyspark_penstock.values.times import DAYS_MAX, DAYS_MIN, MOMENT_US_MAX, MOMENT_US_MIN, check_range
from pyspark_penstock.values.utf8 import is_utf8

Texts = Callable[[Any], Any]
"""From an Arrow array to an array of JSON texts; null stays null."""

_STRING: Any = pyarrow.string()
_ESCAPED = bytes([*range(32), ord('"'), ord("\\")])
"""Characters that a JSON string must escape."""


def json_texts(kind: spark.DataType, path: str = "value") -> Texts:
    """The encoder of a type; WrongOption for an unsupported type."""
    match kind:
        case spark.StructType():
            return _structs(kind, path)
        case spark.ArrayType():
            return _lists(json_texts(kind.elementType, f"{path}[]"))
        case spark.MapType():
            if not isinstance(kind.keyType, spark.StringType):
                raise WrongOption(f"the keys of the map {path} must be strings to be written as JSON")
            return _maps(json_texts(kind.valueType, f"{path}{{}}"))
        case spark.StringType() | spark.CharType() | spark.VarcharType():
            return _strings
        case spark.FloatType() | spark.DoubleType():
            return _floats
        case (
            spark.BooleanType()
            | spark.ByteType()
            | spark.ShortType()
            | spark.IntegerType()
            | spark.LongType()
            | spark.DecimalType()
        ):
            return lambda array: array.cast(_STRING)
        case spark.DateType():
            return lambda array: _joined('"', check_range(array, DAYS_MIN, DAYS_MAX).cast(_STRING), '"')
        case spark.TimestampType():
            return lambda array: _moments(array, 'Z"')
        case spark.TimestampNTZType():
            return lambda array: _moments(array, '"')
        case spark.BinaryType():
            return _binaries
        case _:
            raise WrongOption(f"{path} is of type {kind.simpleString()}, which is not written as JSON: cast it")


def _joined(*parts: Any) -> Any:
    """Concatenated texts; null if one of them is null."""
    return compute.binary_join_element_wise(*parts, "")


def _structs(kind: spark.StructType, path: str) -> Texts:
    if not kind.fields:
        raise WrongOption(f"{path} is a struct without fields")
    if len(set(kind.names)) < len(kind.names):
        raise WrongOption(f"{path} has two fields of one name")
    names = [json.dumps(name, ensure_ascii=False) for name in kind.names]
    writers = [json_texts(each.dataType, field_path(path, each.name)) for each in kind.fields]

    def texts(array: Any) -> Any:
        # Flattened, a field is null where its struct is.
        columns = [write(column) for write, column in zip(writers, array.flatten(), strict=True)]
        if not any(column.null_count for column in columns):
            parts: list[Any] = []
            for name, column in zip(names, columns, strict=True):
                parts += ["," if parts else "{", f"{name}:", column]
            return _joined(*parts, "}")
        pairs = [_joined(f",{name}:", column) for name, column in zip(names, columns, strict=True)]
        fields = compute.binary_join_element_wise(*pairs, "", null_handling="replace", null_replacement="")
        # The first comma becomes the bracket; without fields the bracket is inserted.
        whole = _joined(compute.binary_replace_slice(fields, 0, 1, "{"), "}")
        return (
            whole if not array.null_count else compute.if_else(array.is_valid(), whole, pyarrow.scalar(None, _STRING))
        )

    return texts


def _lists(element: Texts) -> Texts:
    def texts(array: Any) -> Any:
        return _joined("[", _inside(array, compute.fill_null(element(array.values), "null")), "]")

    return texts


def _maps(value: Texts) -> Texts:
    def texts(array: Any) -> Any:
        entries = _joined(_strings(array.keys), ":", compute.fill_null(value(array.items), "null"))
        return _joined("{", _inside(array, entries), "}")

    return texts


def _inside(array: Any, elements: Any) -> Any:
    """The texts of each row's elements with commas between them; null if the list or map is null."""
    offsets = array.offsets
    lists = pyarrow.ListArray.from_arrays(offsets, elements)
    joined = compute.binary_join(lists, ",")
    return compute.if_else(array.is_valid(), joined, pyarrow.scalar(None, _STRING)) if array.null_count else joined


def _strings(array: Any) -> Any:
    array = array.cast(_STRING)
    raw = _bytes_of(array)
    if len(raw.translate(None, _ESCAPED)) == len(raw) and (raw.isascii() or is_utf8(array.cast(pyarrow.binary()))):
        return _joined('"', array, '"')
    encode = msgspec.json.encode
    # Spark's strings may be invalid UTF-8, which JSON does not allow; Java replaces it by U+FFFD as well.
    return pyarrow.array(
        [
            None if each is None else encode(each.decode("utf-8", "replace"))
            for each in array.cast(pyarrow.binary()).to_pylist()
        ],
        _STRING,
    )


def _bytes_of(array: Any) -> bytes:
    """The bytes of all strings of an array."""
    _, ends, data = array.buffers()
    if data is None or not len(array):
        return b""
    places = memoryview(ends).cast("i")
    return memoryview(data).cast("B")[places[array.offset] : places[array.offset + len(array)]].tobytes()


def _floats(array: Any) -> Any:
    texts = array.cast(_STRING)
    if compute.all(compute.is_finite(array)).as_py() is not False:
        return texts
    for text, name in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = compute.if_else(compute.equal(texts, text), f'"{name}"', texts)
    return texts


def _moments(array: Any, end: str) -> Any:
    """2026-11-16T10:00:00.123456, of an instant in UTC or of a local time."""
    local = check_range(array, MOMENT_US_MIN, MOMENT_US_MAX).cast(pyarrow.int64()).cast(pyarrow.timestamp("us"))
    return _joined('"', compute.binary_replace_slice(local.cast(_STRING), 10, 11, "T"), end)


def _binaries(array: Any) -> Any:
    encode = base64.b64encode
    found = [None if each is None else b'"%s"' % encode(each) for each in array.to_pylist()]
    return pyarrow.array(found, _STRING)
