# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Encodes columns of keys and values as records, by partition, without an object for each record.

The same source runs as Python and, with the types of ``column_batches.pxd``, as C. A column of bytes has Arrow's
layout: one buffer, and the end of each row. Rows are not checked one by one: the columns' lengths are compared once,
when they are combined.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.wire.primitives import Buffer

STICKY_ROWS = 256
"""Consecutive rows without a key that go to one partition."""

_SLOT_BYTES_FIRST = 4096
_VARINTS_BYTES_MAX = 64
"""More than the size of the lengths and deltas of one record, without its headers."""
_BITS_32 = 0xFFFFFFFF
_BITS_64 = (1 << 64) - 1
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_HASH_FACTOR = 0xC6A4A7935BD1E995

NO_BYTES = b""


class BytesColumn:
    """Bytes for each row: row ``i`` is ``data[ends[i]:ends[i + 1]]``, or null where ``valid[i]`` is 0."""

    __slots__ = ("data", "ends", "is_null", "valid")

    def __init__(self, ends: Sequence[int] | Buffer, data: Buffer, valid: Buffer | None = None) -> None:
        assert len(ends) > 0, "a column has an end more than rows"
        assert valid is None or len(valid) >= len(ends) - 1, f"{len(valid)} marks for {len(ends) - 1} rows"
        assert ends[len(ends) - 1] <= len(data), f"rows to {ends[len(ends) - 1]} in {len(data)} bytes"
        self.ends = ends
        self.data = data
        self.is_null = valid is not None
        self.valid = NO_BYTES if valid is None else valid

    def size(self, row: int) -> int:
        """The length of a row; -1 if it is null."""
        if self.is_null and not self.valid[row]:
            return -1
        return self.ends[row + 1] - self.ends[row]


class HeaderColumns:
    """Headers of each row: those from ``ends[i]`` to ``ends[i + 1]`` of the names and contents."""

    __slots__ = ("contents", "ends", "names")

    def __init__(self, ends: Sequence[int] | Buffer, names: BytesColumn, contents: BytesColumn) -> None:
        self.ends = ends
        self.names = names
        self.contents = contents


def murmur2(data: Buffer, start: int, size: int) -> int:
    """The hash (murmur2) by which Kafka's producers choose the partition of a key."""
    hashed = (_MURMUR_SEED ^ size) & _BITS_32
    at = start
    for _ in range(size >> 2):
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        word = (word * _MURMUR_FACTOR) & _BITS_32
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _BITS_32
        hashed = ((hashed * _MURMUR_FACTOR) & _BITS_32) ^ word
        at += 4
    left = size & 3
    if left == 3:
        hashed ^= data[at + 2] << 16
    if left >= 2:
        hashed ^= data[at + 1] << 8
    if left >= 1:
        hashed ^= data[at]
        hashed = (hashed * _MURMUR_FACTOR) & _BITS_32
    hashed ^= hashed >> 13
    hashed = (hashed * _MURMUR_FACTOR) & _BITS_32
    return hashed ^ (hashed >> 15)


def hash64(data: Buffer, start: int, size: int, seed: int) -> int:
    """MurmurHash64A of some bytes."""
    hashed = (seed ^ (size * _HASH_FACTOR)) & _BITS_64
    at = start
    for _ in range(size >> 3):
        # Each byte is widened before it is shifted, so that a C compiler sees one load of eight bytes.
        b0, b1, b2, b3 = data[at], data[at + 1], data[at + 2], data[at + 3]
        b4, b5, b6, b7 = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
        word = b0 | b1 << 8 | b2 << 16 | b3 << 24 | b4 << 32 | b5 << 40 | b6 << 48 | b7 << 56
        word = (word * _HASH_FACTOR) & _BITS_64
        word = ((word ^ word >> 47) * _HASH_FACTOR) & _BITS_64
        hashed = ((hashed ^ word) * _HASH_FACTOR) & _BITS_64
        at += 8
    left = size & 7
    if left:
        word = 0
        for index in range(left):
            b0 = data[at + index]
            word |= b0 << (8 * index)
        hashed = ((hashed ^ word) * _HASH_FACTOR) & _BITS_64
    hashed = ((hashed ^ hashed >> 47) * _HASH_FACTOR) & _BITS_64
    return hashed ^ hashed >> 47


def sum_of_hashes(keys: BytesColumn | None, values: BytesColumn, topics: Buffer, seeds: array[int]) -> int:
    """The sum of a hash of each row's key and value, which does not depend on the order of rows.

    ``topics`` is the index of each row's seed in ``seeds``. Null and empty values differ.
    """
    rows = len(values.ends) - 1
    assert len(topics) >= rows, f"{len(topics)} topics for {rows} rows"
    total = 0
    for row in range(rows):
        hashed = seeds[topics[row]]
        size = -1 if keys is None else keys.size(row)
        if size >= 0:
            assert keys is not None, "a key without a column"
            hashed = hash64(keys.data, keys.ends[row], size, hashed)
        else:
            hashed = (hashed * _HASH_FACTOR + 1) & _BITS_64
        size = values.size(row)
        if size >= 0:
            hashed = hash64(values.data, values.ends[row], size, hashed)
        else:
            hashed = (hashed * _HASH_FACTOR + 2) & _BITS_64
        total = (total + hashed) & _BITS_64
    return total


def choose_partitions(
    chosen: array[int], keys: BytesColumn | None, topics: Buffer, counts: array[int], firsts: array[int], turn: int
) -> int:
    """Choose the partition of every row of ``chosen`` that has none (-1); returns the next turn.

    Keys go to the partition that Kafka's producers choose. Rows without a key go round robin, many at a time.
    ``topics`` is the index of each row's topic in ``counts``, its partition count, and ``firsts``, which is added.
    """
    rows = len(chosen)
    assert len(topics) >= rows, f"{len(topics)} topics for {rows} rows"
    taken = 0
    for row in range(rows):
        if chosen[row] >= 0:
            chosen[row] += firsts[topics[row]]
            continue
        count = counts[topics[row]]
        size = -1 if keys is None else keys.size(row)
        if size >= 0:
            assert keys is not None, "a key without a column"
            chosen[row] = firsts[topics[row]] + (murmur2(keys.data, keys.ends[row], size) & 0x7FFFFFFF) % count
        else:
            chosen[row] = firsts[topics[row]] + turn % count
            taken += 1
            if taken == STICKY_ROWS:
                taken = 0
                turn += 1
    return turn + 1 if taken else turn


class RecordsOfPartition:
    """Builds the body of a partition's next batch."""

    __slots__ = ("base_time", "count", "data", "size", "time_max")

    def __init__(self) -> None:
        self.data = bytearray(_SLOT_BYTES_FIRST)
        self.size = 0
        self.count = 0
        self.base_time = 0
        self.time_max = 0

    def take(self) -> bytes:
        """The records so far; the next one begins a new batch."""
        body = bytes(memoryview(self.data)[: self.size])
        self.size = 0
        self.count = 0
        return body

    def reserve(self, more: int) -> None:
        """Reserve space for this many more bytes."""
        if self.size + more > len(self.data):
            grown = bytearray(2 * len(self.data) + more)
            grown[: self.size] = memoryview(self.data)[: self.size]
            self.data = grown

    def add(
        self, row: int, time_ms: int, keys: BytesColumn | None, values: BytesColumn, headers: HeaderColumns | None
    ) -> None:
        """Append a record from a row of the columns."""
        if self.count == 0:
            self.base_time = time_ms
            self.time_max = time_ms
        elif time_ms > self.time_max:
            self.time_max = time_ms
        delta = time_ms - self.base_time
        key_size = -1 if keys is None else keys.size(row)
        value_size = values.size(row)
        length = 1 + varint_bytes(delta) + varint_bytes(self.count)
        length += varint_bytes(key_size) + (key_size if key_size > 0 else 0)
        length += varint_bytes(value_size) + (value_size if value_size > 0 else 0)
        length += 1 if headers is None else headers_bytes(headers, row)
        self.reserve(length + _VARINTS_BYTES_MAX)
        at = put_varint(self.data, self.size, length)
        self.data[at] = 0
        at = put_varint(self.data, at + 1, delta)
        at = put_varint(self.data, at, self.count)
        if keys is None:
            at = put_varint(self.data, at, -1)
        else:
            at = put_bytes(self.data, at, keys, row, key_size)
        at = put_bytes(self.data, at, values, row, value_size)
        if headers is None:
            self.data[at] = 0
            at += 1
        else:
            at = put_headers(self.data, at, headers, row)
        self.size = at
        self.count += 1


def varint_bytes(value: int) -> int:
    """How many bytes a signed varint takes."""
    zigzag = ((value << 1) ^ (value >> 63)) & _BITS_64
    size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


def put_varint(out: bytearray, at: int, value: int) -> int:
    """Write a signed varint; returns the position after it."""
    zigzag = ((value << 1) ^ (value >> 63)) & _BITS_64
    while zigzag > 0x7F:
        out[at] = (zigzag & 0x7F) | 0x80
        zigzag >>= 7
        at += 1
    out[at] = zigzag
    return at + 1


def put_bytes(out: bytearray, at: int, column: BytesColumn, row: int, size: int) -> int:
    """Write the length and the bytes of one row; returns the position after them."""
    at = put_varint(out, at, size)
    start = column.ends[row]
    for index in range(size):
        out[at + index] = column.data[start + index]
    return at + size if size > 0 else at


def headers_bytes(headers: HeaderColumns, row: int) -> int:
    """How many bytes the headers of a row take, their count included."""
    first = headers.ends[row]
    last = headers.ends[row + 1]
    total = varint_bytes(last - first)
    for each in range(first, last):
        size = headers.names.size(each)
        total += varint_bytes(size) + size
        size = headers.contents.size(each)
        total += varint_bytes(size) + (size if size > 0 else 0)
    return total


def put_headers(out: bytearray, at: int, headers: HeaderColumns, row: int) -> int:
    """Write the headers of a row; returns the position after them."""
    first = headers.ends[row]
    last = headers.ends[row + 1]
    at = put_varint(out, at, last - first)
    for each in range(first, last):
        at = put_bytes(out, at, headers.names, each, headers.names.size(each))
        at = put_bytes(out, at, headers.contents, each, headers.contents.size(each))
    return at


def add_rows(
    partitions: list[RecordsOfPartition],
    chosen: array[int],
    times: Buffer,
    keys: BytesColumn | None,
    values: BytesColumn,
    headers: HeaderColumns | None,
    first: int,
    bytes_max: int,
) -> int:
    """Append rows from ``first`` on to their partitions until one holds ``bytes_max``; returns the next row.

    ``chosen`` are indexes into ``partitions``.
    """
    rows = len(chosen)
    assert len(times) >= rows, f"{len(times)} times for {rows} rows"
    for row in range(first, rows):
        records = partitions[chosen[row]]
        records.add(row, times[row], keys, values, headers)
        if records.size >= bytes_max:
            return row + 1
    return rows
