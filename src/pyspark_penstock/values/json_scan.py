"""JSON scanned to Arrow without an object for each value, by the compiled `penstock.wire.json_columns`.

A value that it accepts has the result of `json_exact`, which a property test checks; other values are read there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import types as spark

from penstock.wire import build
from penstock.wire import json_columns as scan
from pyspark_penstock.untyped import numpy, pyarrow
from pyspark_penstock.values.json_exact import FLOAT_MAX, INTEGER_BITS, default_of
from pyspark_penstock.values.times import DAYS_MAX, DAYS_MIN, MOMENT_US_MAX, MOMENT_US_MIN

_DECIMAL_MAX = 10**18 - 1


def json_scan(schema: spark.StructType, arrow_type: Any) -> JsonScan | None:
    """None if the scanner is not compiled, or does not support a type of the schema."""
    if not build.is_compiled(scan.__name__) or not can_scan(schema):
        return None
    return JsonScan(schema, arrow_type)


def can_scan(kind: spark.DataType) -> bool:
    match kind:
        case spark.StructType():
            plain = all(default_of(each) == b"null" and can_scan(each.dataType) for each in kind.fields)
            return plain and len(kind.fields) <= scan.FIELDS_MAX
        case spark.ArrayType():
            return can_scan(kind.elementType)
        case spark.MapType() | spark.CharType() | spark.VarcharType() | spark.BinaryType():
            return False
        case _:
            return True


class JsonScan:
    """A scanner of one schema, with its reused memory."""

    def __init__(self, schema: spark.StructType, arrow_type: Any) -> None:
        self._scanner = scan.JsonScanner()
        self._root = _node(schema, arrow_type, is_nullable=False)

    def parse(self, values: Any) -> tuple[Any, Any, Any]:
        """Scan a binary array of UTF-8: returns an array of the accepted rows, their indexes, and those of rejected
        rows."""
        count = len(values)
        valid, ends, data = values.buffers()
        assert values.offset == 0, "a chunk's own array"
        ends = numpy.frombuffer(ends, numpy.int32, count + 1)
        size = int(ends[count])
        self._root.prepare(count, size // 2 + count + 1, size, is_in_list=False)
        outcomes: Any = numpy.empty(count, numpy.uint8)
        self._scanner.scan(
            self._root.column,
            numpy.frombuffer(data, numpy.uint8, size) if size else b" ",
            ends,
            None if valid is None or not values.null_count else numpy.frombuffer(valid, numpy.uint8),
            outcomes,
        )
        taken = numpy.flatnonzero(outcomes == scan.TAKEN)
        refused = numpy.flatnonzero(outcomes == scan.REFUSED)
        return self._root.array(), taken, refused


Export = Callable[["_Node", int], Any]
"""Makes an Arrow array of the first entries of a node's memory."""


class _Node:
    """A column of the scanner, its memory, and how it becomes an Arrow array."""

    def __init__(
        self, kind: str, arrow_type: Any, export: Export, children: tuple[_Node, ...] = (), **more: Any
    ) -> None:
        self.column = scan.JsonColumn(kind, **more)
        self._kind = kind
        self.arrow_type = arrow_type
        self.children = children
        self._export = export
        self._room = -1
        self._text_room = -1
        self._memory: dict[str, Any] = {}

    def prepare(self, rows: int, elements: int, size: int, *, is_in_list: bool) -> None:
        """Allocate memory for so many rows, elements of lists, and bytes of strings."""
        room = elements if is_in_list else rows
        kind = self._kind
        if room > self._room:
            self._room = room
            self._memory["valid"] = numpy.empty(room, numpy.uint8)
            if kind in ("string", "list"):
                self._memory["ends"] = numpy.empty(room + 1, numpy.int32)
            elif kind == "double":
                self._memory["doubles"] = numpy.empty(room, numpy.float64)
            elif kind != "struct":
                self._memory["integers"] = numpy.empty(room, numpy.int64)
        if kind == "string" and size > self._text_room:
            self._text_room = size
            self._memory["text"] = numpy.empty(size, numpy.uint8)
        self.column.use(**self._memory)
        for child in self.children:
            child.prepare(rows, elements, size, is_in_list=is_in_list or kind == "list")

    def array(self) -> Any:
        return self._export(self, self.column.count)

    def filled(self, name: str, count: int) -> Any:
        """The first entries of the memory of this name, which the next scan overwrites."""
        return self._memory[name][:count]

    def built(self, count: int, buffers: list[Any], children: list[Any] | None = None) -> Any:
        valid = self.filled("valid", count)
        nulls = count - int(numpy.count_nonzero(valid))
        bits = _bits(valid) if nulls else None
        return pyarrow.Array.from_buffers(self.arrow_type, count, [bits, *buffers], nulls, children=children)


def _buffer(numbers: Any, kind: Any) -> Any:
    """An Arrow buffer with a copy, as the memory is reused."""
    return pyarrow.py_buffer(numbers.astype(kind, copy=True))


def _bits(flags: Any) -> Any:
    return pyarrow.py_buffer(numpy.packbits(flags, bitorder="little"))


def _integers(kind: Any) -> Export:
    return lambda node, count: node.built(count, [_buffer(node.filled("integers", count), kind)])


def _doubles(kind: Any) -> Export:
    return lambda node, count: node.built(count, [_buffer(node.filled("doubles", count), kind)])


def _booleans(node: _Node, count: int) -> Any:
    return node.built(count, [_bits(node.filled("integers", count).astype(numpy.uint8))])


def _decimals(node: _Node, count: int) -> Any:
    """Little-endian integers of 128 bits."""
    assert sys.byteorder == "little", "Arrow's buffers are"
    wide: Any = numpy.empty((count, 2), numpy.int64)
    wide[:, 0] = node.filled("integers", count)
    wide[:, 1] = node.filled("integers", count) >> 63
    return node.built(count, [pyarrow.py_buffer(wide)])


def _strings(node: _Node, count: int) -> Any:
    text = node.filled("text", node.column.text_size)
    return node.built(count, [_buffer(node.filled("ends", count + 1), numpy.int32), _buffer(text, numpy.uint8)])


def _lists(node: _Node, count: int) -> Any:
    return node.built(count, [_buffer(node.filled("ends", count + 1), numpy.int32)], [node.children[0].array()])


def _structs(node: _Node, count: int) -> Any:
    return node.built(count, [], [child.array() for child in node.children])


def _node(kind: spark.DataType, arrow_type: Any, *, is_nullable: bool) -> _Node:
    match kind:
        case spark.StructType():
            children = tuple(
                _node(each.dataType, arrow_type.field(index).type, is_nullable=each.nullable)
                for index, each in enumerate(kind.fields)
            )
            names = [each.name.encode() for each in kind.fields]
            fields = [(name, child.column) for name, child in zip(names, children, strict=True)]
            return _Node("struct", arrow_type, _structs, children, is_nullable=is_nullable, fields=fields)
        case spark.ArrayType():
            element = _node(kind.elementType, arrow_type.value_type, is_nullable=kind.containsNull)
            return _Node("list", arrow_type, _lists, (element,), is_nullable=is_nullable, element=element.column)
        case spark.StringType():
            return _Node("string", arrow_type, _strings, is_nullable=is_nullable)
        case spark.FloatType():
            return _Node("double", arrow_type, _doubles(numpy.float32), is_nullable=is_nullable, bound=FLOAT_MAX)
        case spark.DoubleType():
            bound = sys.float_info.max
            return _Node("double", arrow_type, _doubles(numpy.float64), is_nullable=is_nullable, bound=bound)
        case _:
            return _integer_node(kind, arrow_type, is_nullable=is_nullable)


def _integer_node(kind: spark.DataType, arrow_type: Any, *, is_nullable: bool) -> _Node:
    """Types whose values the scanner holds as integers."""

    def node(name: str, low: int, high: int, export: Export, scale: int = 0) -> _Node:
        return _Node(name, arrow_type, export, is_nullable=is_nullable, low=low, high=high, scale=scale)

    match kind:
        case spark.BooleanType():
            return node("boolean", 0, 1, _booleans)
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType():
            bits = INTEGER_BITS[type(kind)]
            bound = 1 << (bits - 1)
            return node("integer", -bound, bound - 1, _integers(f"int{bits}"))
        case spark.DecimalType():
            bound = min(10**kind.precision - 1, _DECIMAL_MAX)
            return node("decimal", -bound, bound, _decimals, scale=kind.scale)
        case spark.DateType():
            return node("date", DAYS_MIN, DAYS_MAX, _integers(numpy.int32))
        case spark.TimestampType():
            return node("timestamp", MOMENT_US_MIN, MOMENT_US_MAX, _integers(numpy.int64))
        case _:
            assert isinstance(kind, spark.TimestampNTZType), f"{kind} is not scanned"
            return node("timestamp_ntz", MOMENT_US_MIN, MOMENT_US_MAX, _integers(numpy.int64))
