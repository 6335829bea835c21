"""Encoders: a column of structs in, a column of bytes out, for the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import types as spark

from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values.avro_rows import avro_encoder
from pyspark_penstock.values.avro_schema import AvroSchema, avro_schema
from pyspark_penstock.values.json_text import json_texts

Encode = Callable[[Any], Any]
"""From an Arrow array of structs to one of bytes; a null row is null. Misfit if a row cannot be encoded."""


def value_encoder(part: str, kind: spark.DataType, wanted: ValueFormat) -> Encode:
    """The encoder of a column, ``key`` or ``value``; WrongOption if its type cannot be encoded."""
    if wanted.name == "string":
        if not isinstance(kind, spark.StringType):
            raise WrongOption(f"{part} is of type {kind.simpleString()}, and '{part}.format' string takes a string")
        return lambda array: array
    if not isinstance(kind, spark.StructType):
        raise WrongOption(
            f"{part} is of type {kind.simpleString()}, and '{part}.format' {wanted.name} takes a struct:"
            f" struct(...) makes one of columns; what is encoded already needs no '{part}.format'"
        )
    if wanted.name == "json":
        texts = json_texts(kind, part)
        return lambda array: texts(array).cast(pyarrow.binary())
    return _avro(part, kind, wanted)


def _avro(part: str, kind: spark.StructType, wanted: ValueFormat) -> Encode:
    schema = AvroSchema.of(wanted.schema or avro_schema(kind, part), wanted.option)
    _check_same(kind, schema.spark_type, part, wanted.option)
    encode = avro_encoder(schema)

    def encode_all(array: Any) -> Any:
        rows = schema.values(array)
        return pyarrow.array([None if row is None else encode(row) for row in rows], pyarrow.binary())

    return encode_all


def _check_same(given: spark.DataType, wanted: spark.DataType, path: str, option: str) -> None:
    """WrongOption unless a column has the fields of the schema, in any order, and their types; a small integer is an
    int."""
    match given, wanted:
        case spark.StructType(), spark.StructType():
            missing = [each for each in wanted.names if each not in given.names]
            unknown = [each for each in given.names if each not in wanted.names]
            if missing:
                raise WrongOption(f"Option '{option}' has fields that {path} does not have: {', '.join(missing)}")
            if unknown:
                raise WrongOption(f"{path} has fields that are not in the option '{option}': {', '.join(unknown)}")
            for each in wanted.fields:
                _check_same(given[each.name].dataType, each.dataType, f"{path}.{each.name}", option)
        case spark.ArrayType(), spark.ArrayType():
            _check_same(given.elementType, wanted.elementType, f"{path}[]", option)
        case spark.MapType(), spark.MapType():
            _check_same(given.keyType, wanted.keyType, f"{path}{{key}}", option)
            _check_same(given.valueType, wanted.valueType, f"{path}{{}}", option)
        case ((spark.ByteType() | spark.ShortType()), spark.IntegerType()):
            return
        case _ if given.simpleString() != wanted.simpleString():
            raise WrongOption(
                f"{path} is of type {given.simpleString()}, and the option '{option}' has it as"
                f" {wanted.simpleString()}: cast it"
            )
        case _:
            return


def batch_encoder(schema: spark.StructType, formats: Mapping[str, ValueFormat]) -> Callable[[Any], Any]:
    """Encodes the columns ``key`` and ``value`` of Arrow batches if they have a format."""
    kinds = {each.name.lower(): each.dataType for each in schema.fields}
    encoders = {part: value_encoder(part, kinds[part], each) for part, each in formats.items() if part in kinds}

    def encode(batch: Any) -> Any:
        arrays: list[Any] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found = encoders.get(name.lower())
            arrays.append(column if found is None else found(column))
        return pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    return encode
