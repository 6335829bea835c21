"""Reusable memory of Arrow batches into which records are copied.

The first write to new pages costs as much as the copy that fills them. So a room is reused as soon as no Arrow object
made of it exists: Arrow's buffers hold a `Lease` of their room, and a room whose lease has been deleted is free.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.model.batch import BatchHeader
from penstock.wire.primitives import Buffer
from penstock.wire.record_blobs import BlobRows, Blobs, Headers
from pyspark_penstock.column_options import HEADERS_COLUMN
from pyspark_penstock.untyped import numpy, pyarrow

_LOG_APPEND_TIME = 1
_BINARY: Any = pyarrow.binary()
_INT64: Any = pyarrow.int64()
_TIMESTAMP: Any = pyarrow.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The uncompressed records of one batch: their position and fields of their header."""

    data: Buffer
    start: int
    end: int
    header: BatchHeader


class Repeated:
    """Constant columns of one range: created once, as long as the longest chunk so far."""

    def __init__(self, *, topic: str, partition: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._made: dict[str, Any] = {}

    def topics(self, rows: int) -> Any:
        return self._column("topic", rows, self._make_topics)

    def partitions(self, rows: int) -> Any:
        return self._column("partition", rows, lambda count: _integers(self._partition, count))

    def timestamp_types(self, kind: int, rows: int) -> Any:
        return self._column(f"timestampType {kind}", rows, lambda count: _integers(kind, count))

    def _column(self, name: str, rows: int, make: Callable[[int], Any]) -> Any:
        made = self._made.get(name)
        if made is None or len(made) < rows:
            made = self._made[name] = make(rows)
        return made.slice(0, rows)

    def _make_topics(self, rows: int) -> Any:
        size = len(self._topic)
        ends = numpy.arange(0, (rows + 1) * size, size, numpy.int32)[: rows + 1]
        return pyarrow.StringArray.from_buffers(rows, pyarrow.py_buffer(ends), pyarrow.py_buffer(self._topic * rows))


def _integers(number: int, rows: int) -> Any:
    return _int32(numpy.full(rows, number, numpy.int32))


def _int32(numbers: Any) -> Any:
    return pyarrow.Array.from_buffers(pyarrow.int32(), len(numbers), [None, pyarrow.py_buffer(numbers)], 0)


class Room:
    """Buffers for a number of rows, and for so many bytes of keys and as many of values."""

    def __init__(self, *, rows: int, size: int, headers_max: int | None) -> None:
        self.offsets: Any = numpy.empty(rows, numpy.int64)
        self.times: Any = numpy.empty(rows, numpy.int64)
        self.keys = _Bytes(rows, size)
        self.values = _Bytes(rows, size)
        self.headers = None if headers_max is None else _Headers(rows, headers_max, size)
        self._arrays = [self.offsets, self.times, *self.keys.arrays, *self.values.arrays]
        if self.headers is not None:
            self._arrays += self.headers.arrays
        self._lent: weakref.ref[Lease] | None = None

    def is_free(self) -> bool:
        """Whether no Arrow object made of it exists any more, not even a slice of a column."""
        return self._lent is None or self._lent() is None

    def lease(self) -> Lease:
        """Lease the room for one chunk."""
        assert self.is_free(), "the room's last lease is still held"
        made = Lease(self._arrays)
        self._lent = weakref.ref(made)
        return made


class Lease:
    """The right to use a room: every Arrow buffer made of the room holds it, and it holds the memory."""

    __slots__ = ("__weakref__", "_arrays")

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays

    def buffer(self, array: Any, count: int | None = None) -> Any:
        """An Arrow buffer of the first elements of one of the room's arrays, without a copy."""
        part = array[:count]
        return pyarrow.foreign_buffer(part.__array_interface__["data"][0], part.nbytes, base=self)


class _Bytes:
    """Memory of one column of byte strings."""

    def __init__(self, rows: int, size: int) -> None:
        self._ends: Any = numpy.empty(rows + 1, numpy.int32)
        self._data: Any = numpy.empty(size, numpy.uint8)
        self._valid: Any = numpy.zeros((rows + 7) // 8, numpy.uint8)

    @property
    def arrays(self) -> list[Any]:
        return [self._ends, self._data, self._valid]

    def emptied(self) -> Blobs:
        self._valid.fill(0)
        return Blobs(self._ends, self._data, self._valid)

    def array(self, lease: Lease, blobs: Blobs, kind: Any) -> Any:
        valid = lease.buffer(self._valid) if blobs.nulls else None
        ends = lease.buffer(self._ends, blobs.count + 1)
        data = lease.buffer(self._data, blobs.size)
        return pyarrow.Array.from_buffers(kind, blobs.count, [valid, ends, data], null_count=blobs.nulls)


class _Headers:
    """Memory of the column of headers."""

    def __init__(self, rows: int, headers_max: int, size: int) -> None:
        self._ends: Any = numpy.empty(rows + 1, numpy.int32)
        self._valid: Any = numpy.zeros((rows + 7) // 8, numpy.uint8)
        self._names = _Bytes(headers_max, size)
        self._values = _Bytes(headers_max, size)
        self._headers_max = headers_max

    @property
    def arrays(self) -> list[Any]:
        return [self._ends, self._valid, *self._names.arrays, *self._values.arrays]

    def emptied(self) -> Headers:
        self._valid.fill(0)
        return Headers(self._ends, self._valid, self._names.emptied(), self._values.emptied(), self._headers_max)

    def array(self, lease: Lease, headers: Headers, rows: int) -> Any:
        names = self._names.array(lease, headers.names, pyarrow.string())
        values = self._values.array(lease, headers.values, _BINARY)
        pairs = pyarrow.StructArray.from_arrays([names, values], names=["key", "value"])
        valid = lease.buffer(self._valid) if headers.nulls else None
        ends = lease.buffer(self._ends, rows + 1)
        kind = pyarrow.list_(pairs.type)
        return pyarrow.Array.from_buffers(kind, rows, [valid, ends], null_count=headers.nulls, children=[pairs])


class Chunk:
    """One Arrow batch while it is filled."""

    def __init__(self, room: Room, repeated: Repeated, *, first: int, last: int) -> None:
        self._room = room
        self._lease = room.lease()
        self._repeated = repeated
        self._keys = room.keys.emptied()
        self._values = room.values.emptied()
        self._headers = None if room.headers is None else room.headers.emptied()
        self._filled = BlobRows(room.offsets, room.times, self._keys, self._values, self._headers, first, last)
        self._time_types: list[tuple[int, int]] = []
        """The row from which on each timestamp type applies."""

    @property
    def rows(self) -> int:
        return self._filled.rows

    def take(self, span: Span, pos: int, count: int) -> tuple[int, int]:
        header = span.header
        kind = _LOG_APPEND_TIME if header.is_log_append_time else 0
        if not self._time_types or self._time_types[-1][1] != kind:
            self._time_types.append((self.rows, kind))
        return self._filled.fill(
            span.data,
            pos,
            span.end,
            count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.is_log_append_time,
        )

    def values(self) -> Any:
        return self._room.values.array(self._lease, self._values, _BINARY)

    def column(self, name: str) -> Any:
        """A column of the chunk, by its name."""
        match name:
            case "value" | "value_bytes":
                return self.values()
            case "key":
                return self._room.keys.array(self._lease, self._keys, _BINARY)
            case "topic":
                return self._repeated.topics(self.rows)
            case "partition":
                return self._repeated.partitions(self.rows)
            case "offset":
                return self._numbers(_INT64, self._room.offsets)
            case "timestamp":
                return self._numbers(_TIMESTAMP, self._room.times)
            case "timestampType":
                return self._timestamp_types()
            case _:
                assert name == HEADERS_COLUMN, f"{name} is not a column of a chunk"
                return self._header_lists()

    def _numbers(self, kind: Any, numbers: Any) -> Any:
        return pyarrow.Array.from_buffers(kind, self.rows, [None, self._lease.buffer(numbers, self.rows)], 0)

    def _timestamp_types(self) -> Any:
        if len(self._time_types) == 1:
            return self._repeated.timestamp_types(self._time_types[0][1], self.rows)
        kinds: Any = numpy.empty(self.rows, numpy.int32)
        for row, kind in self._time_types:
            kinds[row:] = kind
        return _int32(kinds)

    def _header_lists(self) -> Any:
        assert self._headers is not None, "headers were not requested"
        assert self._room.headers is not None, "there is no room for headers"
        return self._room.headers.array(self._lease, self._headers, self.rows)
