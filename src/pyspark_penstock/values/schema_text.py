"""The schema of JSON values, from the text of the option."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.values.ddl import parse_ddl


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonStruct:
    """The schema of JSON values."""

    checked: spark.StructType
    """The schema against which values are checked, with NOT NULL, char and varchar."""
    spark_type: spark.StructType
    """The schema for Spark. As with `from_json` every field may be null, and char and varchar are strings."""


def json_struct(text: str, option: str = "value.schema") -> JsonStruct:
    """Parse a schema: the columns of a CREATE TABLE, or Spark's JSON form of a struct. No session is needed."""
    try:
        given: Any = spark.StructType.fromJson(json.loads(text)) if text.startswith("{") else parse_ddl(text)
    except Exception as error:
        raise WrongOption(f"Option '{option}' is not a Spark schema: {error}") from error
    if not isinstance(given, spark.StructType) or not given.fields:
        raise WrongOption(f"Option '{option}' is not a struct with fields")
    plain = _plain(given, "", option)
    assert isinstance(plain, spark.StructType), "a struct stays a struct"
    return JsonStruct(checked=given, spark_type=plain)


def _plain(kind: spark.DataType, path: str, option: str) -> spark.DataType:
    match kind:
        case spark.StructType():
            if not kind.fields:
                raise WrongOption(f"Option '{option}': the struct {path} has no fields")
            if len(set(kind.names)) < len(kind.names):
                raise WrongOption(f"Option '{option}': {path or 'the schema'} has two fields of one name")
            return spark.StructType(
                [
                    spark.StructField(each.name, _plain(each.dataType, field_path(path, each.name), option))
                    for each in kind.fields
                ]
            )
        case spark.ArrayType():
            return spark.ArrayType(_plain(kind.elementType, f"{path}[]", option))
        case spark.MapType():
            if not isinstance(kind.keyType, spark.StringType):
                raise WrongOption(f"Option '{option}': the keys of the map {path} must be strings")
            return spark.MapType(spark.StringType(), _plain(kind.valueType, f"{path}{{}}", option))
        case spark.CharType() | spark.VarcharType() | spark.StringType():
            return spark.StringType()
        case (
            spark.BooleanType()
            | spark.ByteType()
            | spark.ShortType()
            | spark.IntegerType()
            | spark.LongType()
            | spark.FloatType()
            | spark.DoubleType()
            | spark.DecimalType()
            | spark.TimestampType()
            | spark.TimestampNTZType()
            | spark.DateType()
            | spark.BinaryType()
        ):
            return kind
        case _:
            raise WrongOption(f"Option '{option}': {path} is of type {kind.simpleString()}, which JSON is not read as")


def field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
