"""Parsers: a column of bytes in, a typed column and a column of reasons out.

No value fails a query. Each row is decoded separately, and an exception is that row's reason. If a column cannot be
built of the rows, the values that do not fit are found one by one and their rows removed; if none is found, the rows
are split in halves until the failing ones are isolated. A value is parsed whole or not at all; a null value is null
without a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pyspark.sql import types as spark

from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.spark_internals import arrow_type
from pyspark_penstock.untyped import numpy, pyarrow
from pyspark_penstock.values.avro_rows import avro_decoder
from pyspark_penstock.values.avro_schema import AvroSchema
from pyspark_penstock.values.gather import Build, leaf
from pyspark_penstock.values.json_exact import check_defaults, exact_reader
from pyspark_penstock.values.json_fast import fast_decoder
from pyspark_penstock.values.json_scan import json_scan
from pyspark_penstock.values.misfit import Misfit, Unfit, reason_of
from pyspark_penstock.values.schema_text import JsonStruct, json_struct
from pyspark_penstock.values.utf8 import is_utf8


class ValueParser(Protocol):
    """Parses one column."""

    @property
    def spark_type(self) -> spark.DataType: ...

    def parse(self, values: Any) -> tuple[Any, Any]:
        """Convert a binary Arrow array to one of the type and one of reasons, null for rows without one."""
        ...


def value_type(wanted: ValueFormat) -> spark.DataType:
    """The Spark type of a column in this format; WrongOption if its schema is invalid."""
    match wanted.name:
        case "string":
            return spark.StringType()
        case "json":
            return _json_struct(wanted).spark_type
        case _:
            return AvroSchema.of(wanted.schema, wanted.option).spark_type


def value_parser(wanted: ValueFormat) -> ValueParser:
    """A parser for this format; WrongOption if its schema is invalid."""
    match wanted.name:
        case "string":
            return StringParser()
        case "json":
            return JsonParser(wanted)
        case _:
            return AvroParser(wanted)


def _json_struct(wanted: ValueFormat) -> JsonStruct:
    schema = json_struct(wanted.schema, wanted.option)
    try:
        check_defaults(schema.checked)
    except (Misfit, ValueError) as error:
        raise WrongOption(f"Option '{wanted.option}': {error}") from error
    return schema


class StringParser:
    """Values that are UTF-8."""

    @property
    def spark_type(self) -> spark.DataType:
        return spark.StringType()

    def parse(self, values: Any) -> tuple[Any, Any]:
        if is_utf8(values):
            return values.cast(pyarrow.string()), pyarrow.nulls(len(values), pyarrow.string())
        rows = Rows(values, pyarrow.string())
        rows.read_each(lambda raw: raw.decode())
        return rows.finished()


class JsonParser:
    """Values that are JSON objects.

    A compiled scanner fills Arrow's columns; if there is none for the schema, msgspec decodes straight to the fields of
    the schema, and Arrow converts whole columns. Both reject some valid rows, so the exact reader reads a rejected row
    again and decides.
    """

    def __init__(self, wanted: ValueFormat) -> None:
        schema = _json_struct(wanted)
        self._spark_type = schema.spark_type
        self._arrow_type: Any = arrow_type(schema.spark_type)
        self._scan = json_scan(schema.checked, self._arrow_type)
        self._fast = fast_decoder(schema.checked, self._arrow_type) if self._scan is None else None
        self._read = exact_reader(schema.checked)

    @property
    def spark_type(self) -> spark.DataType:
        return self._spark_type

    def parse(self, values: Any) -> tuple[Any, Any]:
        rows = Rows(values, self._arrow_type)
        if self._scan is not None and is_utf8(values):
            rows.take(*self._scan.parse(values))
        elif self._fast is not None:
            # msgspec does not check strings of fields that are not in the schema; Arrow checks all bytes at once.
            decode = self._fast.decode if is_utf8(values) else _of_utf8(self._fast.decode)
            rows.build_all(decode, self._fast.build)
        rows.read_each(self._read)
        return rows.finished()


class AvroParser:
    """Values that are Avro records, each the bare encoding of one."""

    def __init__(self, wanted: ValueFormat) -> None:
        schema = AvroSchema.of(wanted.schema, wanted.option)
        self._spark_type = schema.spark_type
        self._arrow_type: Any = arrow_type(schema.spark_type)
        self._decode = avro_decoder(schema)
        self._build = schema.builder(self._arrow_type)

    @property
    def spark_type(self) -> spark.DataType:
        return self._spark_type

    def parse(self, values: Any) -> tuple[Any, Any]:
        rows = Rows(values, self._arrow_type)
        rows.build_all(self._decode, self._build)
        return rows.finished()


def _of_utf8(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def checked(raw: bytes) -> Any:
        raw.decode()
        return decode(raw)

    return checked


class Rows:
    """The rows of one column while they are parsed."""

    def __init__(self, values: Any, arrow_type: Any) -> None:
        self._values = values
        self._arrow_type = arrow_type
        self._built: list[tuple[Sequence[int], Any]] = []
        """Arrays that are part of the result, and the rows that their elements belong to."""
        self._refused: dict[int, str] | None = None
        """The rows that the last step refused, and why; None before the first step."""

    def take(self, built: Any, rows: Sequence[int], refused: Sequence[int]) -> None:
        """First step: add an array of some rows. Other rows are refused, or null."""
        self._refused = dict.fromkeys(refused, "")
        if len(built):
            self._built.append((rows, built))

    def build_all(self, decode: Callable[[Any], Any], build: Build) -> None:
        """First step: decode every row, and build one array of those that decode. Null must not decode."""
        refused: dict[int, str] = {}
        decoded: list[Any] = []
        append = decoded.append
        raws: list[bytes | None] = self._values.to_pylist()
        for row, raw in enumerate(raws):
            try:
                append(decode(raw))
            except Exception as error:
                # A null is refused like any other row and removed here: checking each row would cost most of the time.
                if raw is not None:
                    refused[row] = reason_of(error)
        rows: Sequence[int] = range(len(raws))
        if len(decoded) < len(raws):
            rows = [row for row, raw in enumerate(raws) if raw is not None and row not in refused]
        self._refused = refused
        self._build(rows, decoded, build)

    def read_each(self, read: Callable[[bytes], Any]) -> None:
        """Read the remaining rows one by one, to Arrow's values for the type."""
        left = range(len(self._values)) if self._refused is None else sorted(self._refused)
        self._refused = {}
        rows: list[int] = []
        values: list[Any] = []
        for row in left:
            raw = self._values[row].as_py()
            if raw is None:
                continue
            try:
                values.append(read(raw))
                rows.append(row)
            except Exception as error:
                self._refused[row] = reason_of(error)
        self._build(rows, values, leaf(self._arrow_type))

    def _build(self, rows: Sequence[int], decoded: list[Any], build: Build) -> None:
        assert self._refused is not None, "no step has begun"
        if not rows:
            return
        try:
            self._built.append((rows, build(decoded)))
        except Unfit as error:
            self._refused.update((rows[place], reason) for place, reason in error.reasons.items())
            if error.reasons:
                left = [place for place in range(len(rows)) if place not in error.reasons]
                self._build([rows[place] for place in left], [decoded[place] for place in left], build)
            else:
                self._halve(rows, decoded, build, error)
        except Exception as error:
            self._halve(rows, decoded, build, error)

    def _halve(self, rows: Sequence[int], decoded: list[Any], build: Build, error: Exception) -> None:
        """Build two arrays where one cannot be built, for a reason that names no row."""
        assert self._refused is not None, "no step has begun"
        if len(rows) == 1:
            self._refused[rows[0]] = reason_of(error)
            return
        half = len(rows) // 2
        self._build(rows[:half], decoded[:half], build)
        self._build(rows[half:], decoded[half:], build)

    def finished(self) -> tuple[Any, Any]:
        """The column, and the reasons for its nulls."""
        count = len(self._values)
        if len(self._built) == 1 and len(self._built[0][0]) == count:
            return self._built[0][1], pyarrow.nulls(count, pyarrow.string())
        places: Any = numpy.full(count, -1, numpy.int64)
        begin = 0
        for rows, array in self._built:
            places[rows] = numpy.arange(begin, begin + len(array))
            begin += len(array)
        arrays = [array for _, array in self._built] or [pyarrow.nulls(0, self._arrow_type)]
        values = pyarrow.concat_arrays(arrays).take(pyarrow.array(places, mask=places < 0))
        refused = self._refused or {}
        return values, pyarrow.array([refused.get(row) for row in range(count)], pyarrow.string())
