# cython: annotation_typing=False, boundscheck=False, wraparound=False
"""The loops that touch every record.

The same source runs as Python and, with the types of ``record_loops.pxd`` beside it, as C. Bounds are therefore
checked here and not left to indexing: nothing is read at or after ``end``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.wire.primitives import Buffer, Malformed

_RECORD_BYTES_MIN = 7
"""A record's length, attributes, two deltas, two lengths and header count, a byte each."""

_HEADER_COUNT_MAX = 1 << 16
"""Headers of one record."""

_BITS_32 = (1 << 32) - 1
_BITS_64 = (1 << 64) - 1


class Cursor:
    """A place in a buffer, moved by what is read there."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: Buffer, pos: int, end: int) -> None:
        assert 0 <= pos <= end <= len(data), f"{pos}..{end} of {len(data)} bytes"
        self.data = data
        self.pos = pos
        self.end = end

    def varint(self) -> int:
        """A signed varint of 32 bits."""
        pos = self.pos
        end = self.end
        value = 0
        shift = 0
        while True:
            if pos >= end:
                raise Malformed(f"a varint at {self.pos} passes the end")
            byte = self.data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Malformed(f"the varint at {self.pos} is longer than 5 bytes")
        self.pos = pos
        value &= _BITS_32
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """A signed varint of 64 bits."""
        pos = self.pos
        end = self.end
        value = 0
        shift = 0
        while True:
            if pos >= end:
                raise Malformed(f"a varint at {self.pos} passes the end")
            byte = self.data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Malformed(f"the varint at {self.pos} is longer than 10 bytes")
        self.pos = pos
        value &= _BITS_64
        return (value >> 1) ^ -(value & 1)

    def span(self) -> int:
        """A length and that many bytes, stepped over; -1 for null."""
        size = self.varint()
        if size < 0:
            if size == -1:
                return -1
            raise Malformed(f"a length of {size} at {self.pos}")
        if size > self.end - self.pos:
            raise Malformed(f"{size} bytes are announced at {self.pos}, {self.end - self.pos} remain")
        self.pos += size
        return size

    def record_end(self) -> int:
        """A record's length, read; where it ends."""
        size = self.varint()
        if size < _RECORD_BYTES_MIN - 1 or size > self.end - self.pos:
            raise Malformed(f"a record of {size} bytes at {self.pos}, {self.end - self.pos} remain")
        return self.pos + size

    def skip_headers(self) -> int:
        """A record's headers, stepped over; how many they are."""
        count = self.varint()
        if count < 0 or count > _HEADER_COUNT_MAX or count * 2 > self.end - self.pos:
            raise Malformed(f"{count} headers at {self.pos}")
        for _ in range(count):
            if self.span() < 0:
                raise Malformed(f"a header without a key at {self.pos}")
            self.span()
        return count


def check(data: Buffer, start: int, end: int, count: int) -> tuple[bool, bool, int, int]:
    """Walk ``count`` records that must fill ``start`` to ``end`` exactly.

    Whether every record has a key, whether offset deltas are 0, 1, 2 and so on, and the least and the greatest
    timestamp delta. Malformed if any length is wrong.
    """
    cursor = Cursor(data, start, end)
    keyed = True
    consecutive = True
    delta_min = 0
    delta_max = 0
    if count * _RECORD_BYTES_MIN > end - start:
        raise Malformed(f"{count} records in {end - start} bytes")
    for index in range(count):
        record_end = cursor.record_end()
        cursor.pos += 1
        delta = cursor.varlong()
        if index == 0:
            delta_min = delta
            delta_max = delta
        elif delta < delta_min:
            delta_min = delta
        elif delta > delta_max:
            delta_max = delta
        if cursor.varint() != index:
            consecutive = False
        if cursor.span() < 0:
            keyed = False
        cursor.span()
        cursor.skip_headers()
        if cursor.pos != record_end:
            raise Malformed(f"record {index} ends at {cursor.pos}, its length says {record_end}")
    if cursor.pos != end:
        raise Malformed(f"{end - cursor.pos} bytes follow the last of {count} records")
    return keyed, consecutive, delta_min, delta_max


class Rows:
    """Columns to be filled, a row for each record.

    They are record start, record end, timestamp, offset, key position, key length, value position, value length,
    headers position and header count; a length of -1 is null.
    """

    __slots__ = (
        "ends",
        "header_counts",
        "headers_at",
        "key_at",
        "key_sizes",
        "offsets",
        "starts",
        "times",
        "value_at",
        "value_sizes",
    )

    def __init__(self, columns: Sequence[array[int]]) -> None:
        self.starts = columns[0]
        self.ends = columns[1]
        self.times = columns[2]
        self.offsets = columns[3]
        self.key_at = columns[4]
        self.key_sizes = columns[5]
        self.value_at = columns[6]
        self.value_sizes = columns[7]
        self.headers_at = columns[8]
        self.header_counts = columns[9]
        assert min(len(column) for column in columns) == len(self.starts), "columns of different lengths"

    def fill(self, data: Buffer, start: int, end: int, count: int, at: int, base_time: int, base_offset: int) -> None:
        """Write where the parts of ``count`` records are, from row ``at`` on; they must fill the span exactly."""
        cursor = Cursor(data, start, end)
        if count * _RECORD_BYTES_MIN > end - start:
            raise Malformed(f"{count} records in {end - start} bytes")
        assert 0 <= at <= len(self.starts) - count, f"rows {at} to {at + count} of {len(self.starts)}"
        for row in range(at, at + count):
            self.starts[row] = cursor.pos
            record_end = cursor.record_end()
            self.ends[row] = record_end
            cursor.pos += 1
            self.times[row] = base_time + cursor.varlong()
            self.offsets[row] = base_offset + cursor.varint()
            size = cursor.span()
            self.key_sizes[row] = size
            self.key_at[row] = cursor.pos - size if size > 0 else cursor.pos
            size = cursor.span()
            self.value_sizes[row] = size
            self.value_at[row] = cursor.pos - size if size > 0 else cursor.pos
            self.headers_at[row] = cursor.pos
            self.header_counts[row] = cursor.skip_headers()
            if cursor.pos != record_end:
                raise Malformed(f"a record ends at {cursor.pos}, its length says {record_end}")
        if cursor.pos != end:
            raise Malformed(f"{end - cursor.pos} bytes follow the last of {count} records")


def fill(data: Buffer, start: int, end: int, count: int, at: int, columns: Sequence[array[int]]) -> None:
    """Fill rows of :class:`Rows` with times and offsets as they stand in the records, which are deltas."""
    Rows(columns).fill(data, start, end, count, at, 0, 0)


def read_headers(data: Buffer, start: int, end: int) -> list[tuple[str, bytes | None]]:
    """The headers of one record, whose count stands at ``start``."""
    cursor = Cursor(data, start, end)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(cursor.varint()):
        size = cursor.span()
        name = str(data[cursor.pos - size : cursor.pos], "utf-8")
        size = cursor.span()
        headers.append((name, None if size < 0 else bytes(data[cursor.pos - size : cursor.pos])))
    return headers


class Output:
    """Records in the making."""

    __slots__ = ("body", "scratch")

    def __init__(self) -> None:
        self.body = bytearray()
        self.scratch = bytearray()

    def varint(self, out: bytearray, value: int) -> None:
        """A signed varint of up to 64 bits."""
        zigzag = ((value << 1) ^ (value >> 63)) & _BITS_64
        while zigzag > 0x7F:
            out.append((zigzag & 0x7F) | 0x80)
            zigzag >>= 7
        out.append(zigzag)

    def blob(self, out: bytearray, value: Buffer | None) -> None:
        if value is None:
            out.append(1)
            return
        self.varint(out, len(value))
        out += value

    def add(
        self,
        time_delta: int,
        offset_delta: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
    ) -> None:
        """One more record."""
        out = self.scratch
        out.clear()
        out.append(0)
        self.varint(out, time_delta)
        self.varint(out, offset_delta)
        self.blob(out, key)
        self.blob(out, value)
        self.varint(out, len(headers))
        for name, content in headers:
            self.blob(out, name.encode())
            self.blob(out, content)
        self.varint(self.body, len(out))
        self.body += out
