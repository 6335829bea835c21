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
"""The least size of a record: length, attributes, two deltas, two lengths and header count, a byte each."""

_HEADER_COUNT_MAX = 1 << 16
"""Headers of one record."""

_USUAL_HEAD_BYTES = 16
"""More than the fields before the key of a record on the fast path, which reads them without bounds checks."""

_USUAL_TAIL_BYTES = 2
"""The most bytes of the length of a value on the fast path."""

_RECORD_HEAD_BYTES = 21
"""The largest size of a record's length, attributes, timestamp delta and offset delta."""

_NULL = 1
"""A length of -1 on the wire."""

_BITS_32 = (1 << 32) - 1
_BITS_64 = (1 << 64) - 1


class Cursor:
    """A position in a buffer that reads advance."""

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
        """Skip a length and that many bytes; returns the length, -1 for null."""
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
        """Read a record's length; returns where the record ends."""
        size = self.varint()
        if size < _RECORD_BYTES_MIN - 1 or size > self.end - self.pos:
            raise Malformed(f"a record of {size} bytes at {self.pos}, {self.end - self.pos} remain")
        return self.pos + size

    def skip_headers(self) -> int:
        """Skip a record's headers; returns their count."""
        count = self.varint()
        if count < 0 or count > _HEADER_COUNT_MAX or count * 2 > self.end - self.pos:
            raise Malformed(f"{count} headers at {self.pos}")
        for _ in range(count):
            if self.span() < 0:
                raise Malformed(f"a header without a key at {self.pos}")
            self.span()
        return count


class Walk:
    """The state of a walk over a batch's records."""

    __slots__ = ("consecutive", "cursor", "delta_max", "delta_min", "index", "keyed")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.index = 0
        self.keyed = True
        self.consecutive = True
        self.delta_min = 0
        self.delta_max = 0

    def one(self) -> None:
        """Check the next record on the slow path."""
        cursor = self.cursor
        record_end = cursor.record_end()
        cursor.pos += 1
        self.note(self.index, cursor.varlong())
        if cursor.varint() != self.index:
            self.consecutive = False
        if cursor.span() < 0:
            self.keyed = False
        cursor.span()
        cursor.skip_headers()
        if cursor.pos != record_end:
            raise Malformed(f"record {self.index} ends at {cursor.pos}, its length says {record_end}")
        self.index += 1

    def note(self, index: int, delta: int) -> None:
        """The timestamp delta of a record."""
        if index == 0:
            self.delta_min = delta
            self.delta_max = delta
        elif delta < self.delta_min:
            self.delta_min = delta
        elif delta > self.delta_max:
            self.delta_max = delta

    def usual(self, count: int) -> None:
        """The fast path: check records up to the first with long numbers, null values, headers, or an error.

        All state is in local variables, thus in registers, and is stored only at the end.
        """
        data, pos, end = self.cursor.data, self.cursor.pos, self.cursor.end
        index = self.index
        while index < count and end - pos >= _USUAL_HEAD_BYTES:
            at = pos
            byte = data[at]
            size = byte & 0x7F
            if byte >= 0x80:
                at += 1
                byte = data[at]
                size |= byte << 7
            record_end = at + 1 + (size >> 1)
            if byte >= 0x80 or size & 1 or record_end > end:
                break
            at += 2
            byte = data[at]
            delta = byte & 0x7F
            if byte >= 0x80:
                at += 1
                byte = data[at]
                delta |= byte << 7
            if byte >= 0x80 or delta & 1:
                break
            at += 1
            byte = data[at]
            number = byte & 0x7F
            if byte >= 0x80:
                at += 1
                byte = data[at]
                number |= (byte & 0x7F) << 7
                if byte >= 0x80:
                    at += 1
                    byte = data[at]
                    number |= byte << 14
            key = data[at + 1]
            at += 2
            if key != _NULL:
                at += key >> 1
            if byte >= 0x80 or key >= 0x80 or (key & 1 and key != _NULL) or end - at < _USUAL_TAIL_BYTES:
                break
            byte = data[at]
            size = byte & 0x7F
            if byte >= 0x80:
                at += 1
                byte = data[at]
                size |= byte << 7
            at += 1 + (size >> 1)
            if byte >= 0x80 or size & 1 or at + 1 != record_end or data[at] != 0:
                break
            pos = record_end
            self.note(index, delta >> 1)
            self.keyed = self.keyed and key != _NULL
            self.consecutive = self.consecutive and number == index << 1
            index += 1
        self.cursor.pos = pos
        self.index = index


def check(data: Buffer, start: int, end: int, count: int) -> tuple[bool, bool, int, int]:
    """Walk ``count`` records that must fill ``start`` to ``end`` exactly.

    Returns whether every record has a key, whether offset deltas are 0, 1, 2 and so on, and the smallest and largest
    timestamp delta. Malformed if any length is wrong.
    """
    walk = Walk(Cursor(data, start, end))
    if count * _RECORD_BYTES_MIN > end - start:
        raise Malformed(f"{count} records in {end - start} bytes")
    while walk.index < count:
        walk.usual(count)
        if walk.index < count:
            walk.one()
    if walk.cursor.pos != end:
        raise Malformed(f"{end - walk.cursor.pos} bytes follow the last of {count} records")
    return walk.keyed, walk.consecutive, walk.delta_min, walk.delta_max


class Rows:
    """Columns to fill, a row for each record.

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
        pos = self.fill_some(data, start, end, count, at, base_time, base_offset)
        if pos != end:
            raise Malformed(f"{end - pos} bytes follow the last of {count} records")

    def fill_some(
        self, data: Buffer, start: int, end: int, count: int, at: int, base_time: int, base_offset: int
    ) -> int:
        """Like ``fill``, but more records may follow; returns where they begin."""
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
        return cursor.pos


def fill(data: Buffer, start: int, end: int, count: int, at: int, columns: Sequence[array[int]]) -> None:
    """Fill rows of :class:`Rows` with the timestamp and offset deltas of the records."""
    Rows(columns).fill(data, start, end, count, at, 0, 0)


class TimeSearch:
    """Searches the first record at or after a timestamp and an offset, in records that arrive in pieces.

    Both are deltas, as in the records. Only the head of a record is read, however long it is.
    """

    __slots__ = ("_left", "_offset_min", "_skip", "_time_min", "found", "offset_delta", "time_delta")

    def __init__(self, count: int, time_delta_min: int, offset_delta_min: int) -> None:
        self._left = count
        self._skip = 0
        self._time_min = time_delta_min
        self._offset_min = offset_delta_min
        self.found = False
        self.time_delta = 0
        self.offset_delta = 0

    def feed(self, data: Buffer, is_last: bool) -> int:
        """Search the next bytes; returns how many were consumed. The caller passes the others again, with more."""
        cursor = Cursor(data, 0, len(data))
        while True:
            step = cursor.end - cursor.pos
            if self._skip < step:
                step = self._skip
            cursor.pos += step
            self._skip -= step
            if self.found or self._left == 0 or self._skip > 0:
                break
            if cursor.end - cursor.pos < _RECORD_HEAD_BYTES and not is_last:
                break
            self.one(cursor)
        if is_last and not self.found and (self._left > 0 or self._skip > 0):
            raise Malformed("the records end early")
        return cursor.pos

    def one(self, cursor: Cursor) -> None:
        """The head of the next record."""
        size = cursor.varint()
        start = cursor.pos
        cursor.pos += 1
        time_delta = cursor.varlong()
        offset_delta = cursor.varint()
        if size < _RECORD_BYTES_MIN - 1 or size < cursor.pos - start:
            raise Malformed(f"a record of {size} bytes")
        self._skip = size - (cursor.pos - start)
        self._left -= 1
        if time_delta >= self._time_min and offset_delta >= self._offset_min:
            self.found = True
            self.time_delta = time_delta
            self.offset_delta = offset_delta


def read_headers(data: Buffer, start: int, end: int) -> list[tuple[str, bytes | None]]:
    """The headers of one record, beginning with their count at ``start``."""
    cursor = Cursor(data, start, end)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(cursor.varint()):
        size = cursor.span()
        name = str(data[cursor.pos - size : cursor.pos], "utf-8")
        size = cursor.span()
        headers.append((name, None if size < 0 else bytes(data[cursor.pos - size : cursor.pos])))
    return headers


def header_values(data: Buffer, start: int, end: int, count: int, name: bytes) -> list[tuple[int, bytes]]:
    """Offset delta and value of a header for each of ``count`` records that has it; the last one of several counts."""
    cursor = Cursor(data, start, end)
    values: list[tuple[int, bytes]] = []
    name_size = len(name)
    for _ in range(count):
        record_end = cursor.record_end()
        cursor.pos += 1
        cursor.varlong()
        delta = cursor.varint()
        cursor.span()
        cursor.span()
        headers = cursor.varint()
        at = -1
        found = 0
        for _ in range(headers):
            size = cursor.span()
            if size < 0:
                raise Malformed(f"a header without a key at {cursor.pos}")
            matches = size == name_size and bytes(data[cursor.pos - size : cursor.pos]) == name
            size = cursor.span()
            if matches:
                found = size
                at = cursor.pos - size
        if cursor.pos != record_end:
            raise Malformed(f"a record ends at {cursor.pos}, its length says {record_end}")
        if at >= 0 and found >= 0:
            values.append((delta, bytes(data[at : at + found])))
    return values


class Output:
    """Builds the body of a batch."""

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
        """Append a record."""
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
