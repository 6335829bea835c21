"""Schemas as columns of a CREATE TABLE: ``id bigint, tags array<string>, at struct<x: double, y: double>``.

Spark parses them in its JVM, which the processes of a Python data source do not have.
"""

from __future__ import annotations

import re
from typing import NoReturn

from pyspark.sql import types as spark

DEPTH_MAX = 32
"""Types within types."""
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_0-9]+|[<>(),:])")
_SIMPLE: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "byte": spark.ByteType(),
    "smallint": spark.ShortType(),
    "short": spark.ShortType(),
    "int": spark.IntegerType(),
    "integer": spark.IntegerType(),
    "bigint": spark.LongType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "real": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
}


def parse_ddl(text: str) -> spark.StructType:
    """The struct of these columns; ValueError where they are none."""
    return _Parser(text).columns()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        pos = 0
        while text[pos:].strip():
            found = _TOKEN.match(text, pos)
            if found is None:
                raise ValueError(f"{text[pos:].strip()[:20]!r} is no column")
            self._tokens.append(found[1])
            pos = found.end()
        self._at = 0
        self._depth = 0

    def columns(self) -> spark.StructType:
        # The whole may stand in struct<...>, as Spark prints it.
        if self._peek().lower() == "struct" and self._peek(1) == "<":
            kind = self._type()
            assert isinstance(kind, spark.StructType), "a struct"
        else:
            kind = self._fields("")
        if self._at < len(self._tokens):
            self._fail()
        return kind

    def _fields(self, end: str) -> spark.StructType:
        fields: list[spark.StructField] = []
        while True:
            name = self._next()
            if not re.fullmatch(r"`.+`|\w+", name):
                self._fail()
            if self._peek() == ":":
                self._at += 1
            kind = self._type()
            nullable = not self._not_null()
            fields.append(spark.StructField(name.strip("`").replace("``", "`"), kind, nullable))
            if self._peek() != ",":
                break
            self._at += 1
        if end:
            self._expect(end)
        return spark.StructType(fields)

    def _not_null(self) -> bool:
        if [self._peek().lower(), self._peek(1).lower()] != ["not", "null"]:
            return False
        self._at += 2
        return True

    def _type(self) -> spark.DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"more than {DEPTH_MAX} types within each other")
        name = self._next().lower()
        match name:
            case "struct":
                self._expect("<")
                kind: spark.DataType = self._fields(">")
            case "array":
                self._expect("<")
                kind = spark.ArrayType(self._type())
                self._expect(">")
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                kind = spark.MapType(key, self._type())
                self._expect(">")
            case "decimal" | "dec" | "numeric":
                kind = self._decimal()
            case _:
                if name not in _SIMPLE:
                    raise ValueError(f"{name!r} is no type that is read here")
                kind = _SIMPLE[name]
        self._depth -= 1
        return kind

    def _decimal(self) -> spark.DecimalType:
        if self._peek() != "(":
            return spark.DecimalType()
        self._at += 1
        precision, scale = int(self._next()), 0
        if self._peek() == ",":
            self._at += 1
            scale = int(self._next())
        self._expect(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(f"decimal({precision},{scale}) is out of range")
        return spark.DecimalType(precision, scale)

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            self._fail()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            self._at -= 1
            self._fail()

    def _fail(self) -> NoReturn:
        raise ValueError(f"{self._peek() or 'its end'!r} was not expected in {self._text!r}")
