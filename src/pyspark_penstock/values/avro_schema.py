"""Converts Avro schemas to Spark's types.

The codec gets a *plain* schema: names are resolved, logical types are their underlying numbers and bytes, and an enum
is the index of its symbol. The encoding is the same, and our own conversions work on whole columns and check what a
codec leaves to its caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self, cast

from pyspark.sql import types as spark

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.untyped import fastavro
from pyspark_penstock.values import avro_columns as columns
from pyspark_penstock.values import gather
from pyspark_penstock.values.schema_text import field_path

DEPTH_MAX = 32
"""The deepest nesting of records; a recursive schema has no end."""
DECIMAL_DIGITS_MAX = 38
_PRIMITIVES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "bytes": spark.BinaryType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """One node of a schema."""

    spark_type: spark.DataType
    plain: Any
    """The plain schema for the codec."""
    builder: columns.Builder
    values: columns.Values
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """The schema of a record, for the codec and for Spark."""

    text: str
    plain: Any
    spark_type: spark.StructType
    builder: columns.Builder
    values: columns.Values

    @classmethod
    def of(cls, text: str, option: str = "value.schema") -> Self:
        """Parse a schema; WrongOption if it is not an Avro schema, or has a type that Spark lacks."""
        try:
            parsed: Any = fastavro().parse_schema(json.loads(text))
        except Exception as error:
            raise WrongOption(f"Option '{option}' is not an Avro schema: {error}") from error
        found = _Walk(option).of(parsed, "", 0)
        if not isinstance(found.spark_type, spark.StructType):
            raise WrongOption(f"Option '{option}' is not an Avro record")
        return cls(
            text=text,
            plain=fastavro().parse_schema(found.plain),
            spark_type=found.spark_type,
            builder=found.builder,
            values=found.values,
        )


class _Walk:
    """A walk through a schema, which remembers named types for later references."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._named: dict[str, Any] = {}
        self._names_given = 0

    def of(self, schema: Any, path: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise self._wrong(f"{path} is nested more than {DEPTH_MAX} deep, or recursive")
        if isinstance(schema, list):
            return self._union(list(cast("Any", schema)), path, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _leaf(_PRIMITIVES[schema], schema, path)
            if schema in self._named:
                return self.of(self._named[schema], path, depth + 1)
            raise self._wrong(f"{path} is of type {schema}, which is not read here")
        return self._complex(cast("dict[str, Any]", schema), path, depth)

    def _wrong(self, message: str) -> WrongOption:
        return WrongOption(f"Option '{self._option}': {message}")

    def _union(self, branches: list[Any], path: str, depth: int) -> AvroType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            raise self._wrong(f"{path} is a union of several types, which is not read here")
        found = self.of(others[0], path, depth)
        plain = [branch if branch == "null" else found.plain for branch in branches]
        return AvroType(
            spark_type=found.spark_type,
            plain=plain,
            builder=found.builder,
            values=found.values,
            is_nullable="null" in branches,
        )

    def _complex(self, schema: dict[str, Any], path: str, depth: int) -> AvroType:
        kind = schema["type"]
        if kind in ("record", "enum", "fixed"):
            self._named[schema["name"]] = schema
        logical = self._logical(schema, path)
        if logical is not None:
            return logical
        match kind:
            case "record":
                return self._record(schema, path, depth)
            case "enum":
                names = [str(each) for each in schema["symbols"]]
                return AvroType(
                    spark_type=spark.StringType(),
                    plain="int",
                    builder=columns.symbols(names, path),
                    values=columns.symbol_indexes(names),
                )
            case "fixed":
                return _leaf(spark.BinaryType(), self._fixed(schema, path), path)
            case "array":
                return self._array(schema, path, depth)
            case "map":
                return self._map(schema, path, depth)
            case _:
                return self.of(kind, path, depth + 1)

    def _logical(self, schema: dict[str, Any], path: str) -> AvroType | None:
        """A logical type; None if there is none, or one that does not fit its type, which Avro ignores."""
        match schema["type"], schema.get("logicalType"):
            case ("bytes" | "fixed") as kind, "decimal":
                precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
                if not 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
                    raise self._wrong(
                        f"{path} is decimal({precision},{scale}), and Spark has {DECIMAL_DIGITS_MAX} digits"
                    )
                size = int(schema["size"]) if kind == "fixed" else None
                return AvroType(
                    spark_type=spark.DecimalType(precision, scale),
                    plain=self._fixed(schema, path) if kind == "fixed" else "bytes",
                    builder=columns.decimals(path),
                    values=columns.decimal_bytes(size),
                )
            case "int", "date":
                return AvroType(
                    spark_type=spark.DateType(),
                    plain="int",
                    builder=columns.dates(path),
                    values=columns.integers(32, 1),
                )
            case "long", ("timestamp-millis" | "local-timestamp-millis") as name:
                return _moments(name, 1_000, path)
            case "long", ("timestamp-micros" | "local-timestamp-micros") as name:
                return _moments(name, 1, path)
            case _:
                return None

    def _fixed(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        if int(schema["size"]) < 1:
            # An array of these could have any number of elements in no bytes.
            raise self._wrong(f"{path} is fixed of no bytes")
        return {"type": "fixed", "name": self._name(), "size": int(schema["size"])}

    def _name(self) -> str:
        """A unique name; names are not encoded."""
        self._names_given += 1
        return f"n{self._names_given}"

    def _array(self, schema: dict[str, Any], path: str, depth: int) -> AvroType:
        element = self.of(schema["items"], f"{path}[]", depth + 1)
        return AvroType(
            spark_type=spark.ArrayType(element.spark_type, element.is_nullable),
            plain={"type": "array", "items": element.plain},
            builder=lambda arrow_type: gather.lists(arrow_type, element.builder(arrow_type.value_type)),
            values=columns.lists(element.values),
        )

    def _map(self, schema: dict[str, Any], path: str, depth: int) -> AvroType:
        value = self.of(schema["values"], f"{path}{{}}", depth + 1)
        return AvroType(
            spark_type=spark.MapType(spark.StringType(), value.spark_type, value.is_nullable),
            plain={"type": "map", "values": value.plain},
            builder=lambda arrow_type: gather.maps(arrow_type, value.builder(arrow_type.item_type)),
            values=columns.maps(value.values),
        )

    def _record(self, schema: dict[str, Any], path: str, depth: int) -> AvroType:
        if not schema["fields"]:
            raise self._wrong(f"the record {path or schema.get('name')} has no fields")
        name = self._name()
        fields = [
            (str(each["name"]), self.of(each["type"], field_path(path, each["name"]), depth + 1))
            for each in schema["fields"]
        ]
        return AvroType(
            spark_type=spark.StructType([spark.StructField(each, kind.spark_type) for each, kind in fields]),
            plain={
                "type": "record",
                "name": name,
                "fields": [{"name": each, "type": kind.plain} for each, kind in fields],
            },
            builder=lambda arrow_type: gather.structs(
                arrow_type,
                [
                    (itemgetter(each), kind.builder(arrow_type.field(index).type))
                    for index, (each, kind) in enumerate(fields)
                ],
            ),
            values=columns.records([(each, kind.values) for each, kind in fields]),
        )


def _leaf(kind: spark.DataType, plain: Any, path: str) -> AvroType:
    return AvroType(spark_type=kind, plain=plain, builder=columns.leaves(path), values=columns.as_they_are)


def _moments(logical: str, unit_us: int, path: str) -> AvroType:
    local = logical.startswith("local-")
    return AvroType(
        spark_type=spark.TimestampNTZType() if local else spark.TimestampType(),
        plain="long",
        builder=columns.moments(unit_us, path),
        values=columns.integers(64, unit_us),
    )


# From Spark's types to Avro

_OF_SPARK: dict[type[spark.DataType], Any] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.BinaryType: "bytes",
    spark.DateType: {"type": "int", "logicalType": "date"},
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema(struct: spark.StructType, name: str = "value") -> str:
    """The Avro schema that a sink derives from a struct, as JSON.

    Every field, element and value may be null in it, whether or not Spark's schema says so: that changes with the
    query's plan, and the encoding must not.
    """
    return json.dumps(_record_of(struct, name, ""))


def _record_of(struct: spark.StructType, name: str, path: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for each in struct.fields:
        inner = field_path(path, each.name)
        if not (each.name.isascii() and each.name.isidentifier()):
            raise WrongOption(f"{inner} is not a name in Avro: letters, digits and '_', and no digit first")
        fields.append({"name": each.name, "type": ["null", _of_spark(each.dataType, f"{name}_{each.name}", inner)]})
        fields[-1]["default"] = None
    return {"type": "record", "name": name, "fields": fields}


def _of_spark(kind: spark.DataType, name: str, path: str) -> Any:
    match kind:
        case spark.StructType():
            return _record_of(kind, name, path)
        case spark.ArrayType():
            return {"type": "array", "items": ["null", _of_spark(kind.elementType, name, f"{path}[]")]}
        case spark.MapType() if isinstance(kind.keyType, spark.StringType):
            return {"type": "map", "values": ["null", _of_spark(kind.valueType, name, f"{path}{{}}")]}
        case spark.DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case _ if type(kind) in _OF_SPARK:
            return _OF_SPARK[type(kind)]
        case _:
            raise WrongOption(f"{path} is of type {kind.simpleString()}, which has no type in Avro")
