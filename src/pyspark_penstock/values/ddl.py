"""Parses schemas in the syntax of CREATE TABLE: ``id bigint NOT NULL, at struct<x: double> COMMENT 'where'``.

Spark parses them in its JVM, which the processes of a Python data source do not have. A test compares the two.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from pyspark.sql import types as spark

DEPTH_MAX = 32
"""The deepest nesting of types."""
DEFAULT = "CURRENT_DEFAULT"
"""Where Spark keeps the text of a column's default, in the metadata of its field."""
_TOKEN = re.compile(
    r"""(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*
    (?: `(?P<quoted>(?:[^`]|``)+)`
      | '(?P<single>(?:[^'\\]|\\.|'')*)'
      | "(?P<double>(?:[^"\\]|\\.|"")*)"
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?!\w))
      | (?P<word>\w+)
      | (?P<sign>[<>(),:+-])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
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
    "timestamp_ltz": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
}
_REFUSED = {
    "interval": "values have no intervals: read a string or a number",
    "void": "a column without a type holds nothing",
    "variant": "read a string, and use parse_json",
    "time": "read a string",
    "geometry": "read binary",
    "geography": "read binary",
    "object": "read a string",
}


def parse_ddl(text: str) -> spark.StructType:
    """The struct of these columns; ValueError if they do not parse."""
    return _Parser(text).columns()


def literal_json(text: str, name: str = "the column") -> str:
    """An SQL literal as the text of a JSON value; ValueError if it is not a literal."""
    return _Parser(text).literal(name)


class _Token:
    """A token: its kind, its text, and where it begins and ends."""

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        self.kind = kind
        self.text = text
        self.start = start
        self.end = end

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign


_END = _Token("end", "its end", 0, 0)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        pos = 0
        while True:
            found = _TOKEN.match(text, pos)
            if found is None:
                raise ValueError(f"{text[pos:].strip()[:20]!r} is not a column")
            kind = found.lastgroup
            assert kind is not None, "one of the groups has matched"
            if kind == "end":
                break
            self._tokens.append(_Token(kind, _unquoted(kind, found[kind]), found.start(kind), found.end()))
            pos = found.end()
        self._at = 0
        self._depth = 0

    def columns(self) -> spark.StructType:
        # Spark prints the whole schema in struct<...>.
        if self._peek().is_word("struct") and self._peek(1).is_sign("<"):
            kind = self._type()
            assert isinstance(kind, spark.StructType), "a struct"
        else:
            kind = spark.StructType(self._fields())
        if self._peek() is not _END:
            self._fail()
        return kind

    def _fields(self) -> list[spark.StructField]:
        fields = [self._field()]
        while self._peek().is_sign(","):
            self._at += 1
            fields.append(self._field())
        return fields

    def _field(self) -> spark.StructField:
        name = self._next()
        if name.kind not in ("word", "quoted"):
            self._at -= 1
            self._fail()
        if self._peek().is_sign(":"):
            self._at += 1
        kind = self._type()
        nullable, metadata = self._clauses(name.text)
        return spark.StructField(name.text, kind, nullable, metadata or None)

    def _clauses(self, name: str) -> tuple[bool, dict[str, Any]]:
        """The clauses after a column's type: each at most once, in any order."""
        nullable = True
        metadata: dict[str, Any] = {}
        while (token := self._peek()).kind == "word":
            self._at += 1
            match token.text.lower():
                case "not" if nullable and self._peek().is_word("null"):
                    self._at += 1
                    nullable = False
                case "comment" if "comment" not in metadata and self._peek().kind in ("single", "double"):
                    metadata["comment"] = self._next().text
                case "default" if DEFAULT not in metadata:
                    begin = self._at
                    self._literal(name)
                    first, last = self._tokens[begin], self._tokens[self._at - 1]
                    is_quoted = first.kind in ("single", "double")
                    metadata[DEFAULT] = self._text[first.start - is_quoted : last.end]
                case "generated":
                    raise ValueError(f"{name} is GENERATED: a value is read as it is, compute the column in the query")
                case "collate":
                    raise ValueError(f"{name} has a COLLATE: give it in the query, where strings are compared")
                case "primary" | "references" | "check" | "constraint" | "unique" | "foreign":
                    raise ValueError(f"{name} has a constraint, which is not checked here: only NOT NULL is")
                case _:
                    self._at -= 1
                    self._fail()
        return nullable, metadata

    def literal(self, name: str) -> str:
        found = self._literal(name)
        if self._peek() is not _END:
            self._fail()
        return found

    def _literal(self, name: str) -> str:
        """A literal, as the text of a JSON value."""
        token = self._next()
        sign = ""
        if token.kind == "sign" and token.text in "+-":
            sign, token = token.text.strip("+"), self._next()
        following = self._peek()
        is_last = following is _END or following.kind == "word" or (following.kind == "sign" and following.text in ",>")
        if token.kind == "number" and is_last:
            return sign + _json_number(token.text)
        if not sign and token.kind in ("single", "double") and is_last:
            return json.dumps(token.text)
        if not sign and token.kind == "word":
            if token.text.lower() in ("true", "false", "null") and is_last:
                return token.text.lower()
            if token.text.lower() in ("date", "timestamp", "timestamp_ntz") and following.kind in ("single", "double"):
                return json.dumps(self._next().text)
        raise ValueError(
            f"the DEFAULT of {name} is not a literal: a number, a string, a date, a timestamp, true, false, null"
        )

    def _type(self) -> spark.DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"more than {DEPTH_MAX} types within each other")
        kind = self._type_named(self._next())
        self._depth -= 1
        return kind

    def _type_named(self, token: _Token) -> spark.DataType:
        name = token.text.lower() if token.kind == "word" else ""
        match name:
            case "struct":
                return self._struct()
            case "array":
                self._expect("<")
                kind = spark.ArrayType(self._type())
                self._expect(">")
                return kind
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return spark.MapType(key, value)
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "char" | "character":
                return spark.CharType(self._length(name))
            case "varchar":
                return spark.VarcharType(self._length(name))
            case _ if name in _SIMPLE:
                return _SIMPLE[name]
            case _ if name in _REFUSED:
                raise ValueError(f"{name!r} is not a supported type: {_REFUSED[name]}")
            case _:
                self._at -= 1
                if not name:
                    self._fail()
                raise ValueError(f"{name!r} is not a supported type")

    def _struct(self) -> spark.StructType:
        self._expect("<")
        if self._peek().is_sign(">"):
            self._at += 1
            return spark.StructType([])
        kind = spark.StructType(self._fields())
        self._expect(">")
        return kind

    def _decimal(self) -> spark.DecimalType:
        if not self._peek().is_sign("("):
            return spark.DecimalType()
        self._at += 1
        precision, scale = self._number(), 0
        if self._peek().is_sign(","):
            self._at += 1
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(f"decimal({precision},{scale}) is out of range")
        return spark.DecimalType(precision, scale)

    def _length(self, name: str) -> int:
        if not self._peek().is_sign("("):
            raise ValueError(f"{name} needs a length, such as {name}(10)")
        self._at += 1
        length = self._number()
        self._expect(")")
        if length < 1:
            raise ValueError(f"{name}({length}) is too short")
        return length

    def _number(self) -> int:
        token = self._next()
        if token.kind != "number" or not token.text.isdecimal():
            self._at -= 1
            self._fail()
        return int(token.text[:10])

    def _peek(self, ahead: int = 0) -> _Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _next(self) -> _Token:
        token = self._peek()
        if token is _END:
            self._fail()
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if not self._next().is_sign(sign):
            self._at -= 1
            self._fail()

    def _fail(self) -> NoReturn:
        raise ValueError(f"{self._peek().text!r} was not expected in {self._text!r}")


def _json_number(text: str) -> str:
    """Add the digits to .5 and 1. that JSON requires and SQL does not."""
    whole, point, rest = text.partition(".")
    if not point:
        return whole.lstrip("0") or "0"
    fraction, exponent = re.fullmatch(r"(\d*)(.*)", rest).groups()  # type: ignore[union-attr]
    return f"{whole.lstrip('0') or '0'}.{fraction or '0'}{exponent}"


def _unquoted(kind: str, text: str) -> str:
    match kind:
        case "quoted":
            return text.replace("``", "`")
        case "single":
            return _unescaped(text.replace("''", "'"))
        case "double":
            return _unescaped(text.replace('""', '"'))
        case _:
            return text


def _unescaped(text: str) -> str:
    """Backslashes as Spark reads them: before % and _ they stay, for LIKE."""

    def plain(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        mark = found[2]
        return f"\\{mark}" if mark in "%_" else _ESCAPES.get(mark, mark)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text, flags=re.DOTALL)
