"""Avro schemas as Spark's types, for those that have one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self, cast

from pyspark.sql import types as spark

from pyspark_penstock.untyped import fastavro

DEPTH_MAX = 32
"""Records within records; a schema that names itself has no end."""
_PRIMITIVES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "bytes": spark.BinaryType(),
}
_LOGICAL: dict[str, spark.DataType] = {
    "date": spark.DateType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "local-timestamp-millis": spark.TimestampNTZType(),
    "local-timestamp-micros": spark.TimestampNTZType(),
    "uuid": spark.StringType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A record's schema, as its reader wants it and as Spark sees it."""

    parsed: object
    spark_type: spark.StructType

    @classmethod
    def of(cls, text: str) -> Self:
        """ValueError where it is no Avro schema, or one without a type in Spark."""
        try:
            given: Any = json.loads(text)
            parsed: Any = fastavro().parse_schema(given)
        except Exception as error:
            raise ValueError(f"Option 'value.schema' is no Avro schema: {error}") from error
        kind, _ = _Types().of(given, "", 0)
        if not isinstance(kind, spark.StructType):
            raise ValueError("Option 'value.schema' is no Avro record")
        return cls(parsed=parsed, spark_type=kind)


class _Types:
    """Names that were defined on the way, as Avro lets later fields refer to them."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, path: str, depth: int) -> tuple[spark.DataType, bool]:
        """Spark's type, and whether it may be null."""
        if depth > DEPTH_MAX:
            raise ValueError(f"Option 'value.schema': {path} is nested more than {DEPTH_MAX} deep, or without an end")
        if isinstance(schema, list):
            return self._union(list(cast("Any", schema)), path, depth), True
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], False
            if schema in self._named:
                return self.of(self._named[schema], path, depth + 1)
            raise ValueError(f"Option 'value.schema': {path} is of type {schema}, which is not read here")
        return self._complex(cast("dict[str, Any]", schema), path, depth), False

    def _union(self, branches: list[Any], path: str, depth: int) -> spark.DataType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise ValueError(f"Option 'value.schema': {path} is a union of several types, which is not read here")
        return self.of(others[0], path, depth)[0]

    def _complex(self, schema: dict[str, Any], path: str, depth: int) -> spark.DataType:
        kind = schema["type"]
        if "name" in schema and kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = schema
            if "namespace" in schema:
                self._named[f"{schema['namespace']}.{schema['name']}"] = schema
        logical = schema.get("logicalType")
        if logical == "decimal":
            return spark.DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
        if logical in _LOGICAL and kind in ("int", "long", "string"):
            return _LOGICAL[logical]
        match kind:
            case "record":
                return self._record(schema, path, depth)
            case "enum":
                return spark.StringType()
            case "fixed":
                return spark.BinaryType()
            case "array":
                element, nullable = self.of(schema["items"], f"{path}[]", depth + 1)
                return spark.ArrayType(element, nullable)
            case "map":
                value, nullable = self.of(schema["values"], f"{path}{{}}", depth + 1)
                return spark.MapType(spark.StringType(), value, nullable)
            case _:
                return self.of(kind, path, depth + 1)[0]

    def _record(self, schema: dict[str, Any], path: str, depth: int) -> spark.DataType:
        if not schema["fields"]:
            raise ValueError(f"Option 'value.schema': the record {path or schema.get('name')} has no fields")
        fields: list[spark.StructField] = []
        for field in schema["fields"]:
            kind, _ = self.of(field["type"], f"{path}.{field['name']}".lstrip("."), depth + 1)
            fields.append(spark.StructField(field["name"], kind))
        return spark.StructType(fields)
