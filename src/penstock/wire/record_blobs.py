# cython: annotation_typing=False, boundscheck=False, wraparound=False
"""Gathers records into columns: all values concatenated in one buffer, all keys in another.

Columnar formats have this layout, so the buffers are passed on without another copy. The caller provides the buffers
and thereby bounds the memory; filling stops at the first record that does not fit.
"""

from __future__ import annotations

from collections.abc import MutableSequence

from penstock.wire import bytes_copy
from penstock.wire.primitives import Buffer, Malformed
from penstock.wire.record_loops import Cursor

MICROS = 1000


class Blobs:
    """Concatenated byte strings: their ends, their bytes, and a validity bit for each.

    ``ends`` has one element more than there are strings and begins with 0; ``valid`` is all zeros at first.
    """

    __slots__ = ("count", "count_max", "data", "ends", "nulls", "room", "size", "valid")

    def __init__(self, ends: MutableSequence[int], data: bytearray | memoryview, valid: bytearray | memoryview) -> None:
        assert len(ends) <= len(valid) * 8 + 1, f"{len(ends)} ends, {len(valid)} bytes of bits"
        self.ends = ends
        self.data = data
        self.valid = valid
        self.room = len(data)
        self.count_max = len(ends) - 1
        self.count = 0
        self.size = 0
        self.nulls = 0
        self.ends[0] = 0

    def put(self, data: Buffer, pos: int, size: int) -> None:
        """Append a string; a size of -1 is null. It must fit."""
        if size < 0:
            self.nulls += 1
        else:
            if size > 0:
                bytes_copy.copied(self.data, self.size, data, pos, size)
                self.size += size
            self.valid[self.count >> 3] = self.valid[self.count >> 3] | (1 << (self.count & 7))
        self.count += 1
        self.ends[self.count] = self.size


class Headers:
    """The headers of every record; a record without headers is null."""

    __slots__ = ("count", "ends", "names", "nulls", "room", "valid", "values")

    def __init__(
        self, ends: MutableSequence[int], valid: bytearray | memoryview, names: Blobs, values: Blobs, room: int
    ) -> None:
        assert room <= min(names.count_max, values.count_max), f"room for {room} headers is claimed"
        self.ends = ends
        self.valid = valid
        self.names = names
        self.values = values
        self.room = room
        self.count = 0
        self.nulls = 0
        self.ends[0] = 0

    def left(self) -> int:
        """The size of the largest record whose headers fit in every case."""
        names = self.names.room - self.names.size
        values = self.values.room - self.values.size
        return min(names, values, self.room - self.count)

    def put(self, cursor: Cursor, row: int) -> None:
        """Append the headers at the cursor to this row. They must fit, at most one for each byte left."""
        count = cursor.varint()
        if count < 0 or count * 2 > cursor.end - cursor.pos:
            raise Malformed(f"{count} headers at {cursor.pos}")
        for _ in range(count):
            size = cursor.span()
            if size < 0:
                raise Malformed(f"a header without a key at {cursor.pos}")
            self.names.put(cursor.data, cursor.pos - size, size)
            size = cursor.span()
            self.values.put(cursor.data, cursor.pos - size if size > 0 else cursor.pos, size)
        self.count += count
        if count:
            self.valid[row >> 3] = self.valid[row >> 3] | (1 << (row & 7))
        else:
            self.nulls += 1
        self.ends[row + 1] = self.count


class BlobRows:
    """Columns to fill, a row for each record of a range of offsets."""

    __slots__ = ("first", "headers", "keys", "last", "offsets", "room", "rows", "times_us", "values")

    def __init__(
        self,
        offsets: MutableSequence[int],
        times_us: MutableSequence[int],
        keys: Blobs,
        values: Blobs,
        headers: Headers | None,
        first: int,
        last: int,
    ) -> None:
        self.offsets = offsets
        self.times_us = times_us
        self.keys = keys
        self.values = values
        self.headers = headers
        self.first = first
        self.last = last
        self.rows = 0
        self.room = len(offsets)
        assert self.room <= min(keys.count_max, values.count_max), "columns of different lengths"

    def fill(
        self,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_time_ms: int,
        append_time_ms: int,
        is_append_time: bool,
    ) -> tuple[int, int]:
        """Read up to ``count`` records from ``start``; returns how many were processed, and where the next begins.

        Reads fewer if the columns are full. Records outside the range of offsets are skipped.
        """
        cursor = Cursor(data, start, end)
        headers = self.headers
        for index in range(count):
            begin = cursor.pos
            record_end = cursor.record_end()
            # No part of a record is longer than the record, so a record that fits has parts that fit.
            size = record_end - cursor.pos
            if (
                self.rows >= self.room
                or size > self.keys.room - self.keys.size
                or size > self.values.room - self.values.size
                or (headers is not None and size > headers.left())
            ):
                return index, begin
            cursor.pos += 1
            time_ms = base_time_ms + cursor.varlong()
            offset = base_offset + cursor.varint()
            if offset < self.first or offset >= self.last:
                cursor.pos = record_end
                continue
            size = cursor.span()
            self.keys.put(cursor.data, cursor.pos - size if size > 0 else cursor.pos, size)
            size = cursor.span()
            self.values.put(cursor.data, cursor.pos - size if size > 0 else cursor.pos, size)
            if headers is None:
                cursor.skip_headers()
            else:
                headers.put(cursor, self.rows)
            if cursor.pos != record_end:
                raise Malformed(f"a record ends at {cursor.pos}, its length says {record_end}")
            self.offsets[self.rows] = offset
            self.times_us[self.rows] = (append_time_ms if is_append_time else time_ms) * MICROS
            self.rows += 1
        return count, cursor.pos
