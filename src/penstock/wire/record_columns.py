"""Decodes many batches into columns: the positions of all keys and values, without an object for each record."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

from penstock.model.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from penstock.wire import record_loops
from penstock.wire.compression import NONE
from penstock.wire.primitives import Buffer, Malformed
from penstock.wire.records import RECORDS_BYTES_MAX, iter_batches, parse_batch_header, records_of

RECORDS_MAX = 1 << 24
"""Records of one call."""


class Columns:
    """For each record: offset, timestamp, and the positions of key, value and headers in ``data``; size -1 is null."""

    __slots__ = (
        "data",
        "header_counts",
        "headers_at",
        "key_at",
        "key_sizes",
        "offsets",
        "record_ends",
        "timestamps",
        "value_at",
        "value_sizes",
    )

    def __init__(self, data: Buffer, columns: list[array[int]]) -> None:
        self.data = data
        (
            _,
            self.record_ends,
            self.timestamps,
            self.offsets,
            self.key_at,
            self.key_sizes,
            self.value_at,
            self.value_sizes,
            self.headers_at,
            self.header_counts,
        ) = columns

    def __len__(self) -> int:
        return len(self.offsets)

    def headers(self, row: int) -> list[tuple[str, bytes | None]]:
        """One record's headers."""
        return record_loops.read_headers(self.data, self.headers_at[row], self.record_ends[row])


def decode_columns(buffer: Buffer, *, with_control: bool = False, limit_bytes: int = RECORDS_BYTES_MAX) -> Columns:
    """Every record of every complete batch; control batches only with ``with_control``.

    If no batch is compressed, the positions are those in ``buffer`` itself and nothing is copied.
    """
    batches = [(pos, header) for pos, header in iter_batches(buffer) if with_control or not header.is_control]
    total = sum(header.record_count for _, header in batches)
    if any(header.record_count < 0 for _, header in batches) or total > RECORDS_MAX:
        raise Malformed(f"{total} records, the most are {RECORDS_MAX}")
    data, spans = _gathered(buffer, batches, limit_bytes)
    if total > len(data):
        raise Malformed(f"{total} records in {len(data)} bytes")
    columns = [array("q", [0]) * total for _ in range(10)]
    rows = record_loops.Rows(columns)
    at = 0
    for (_, header), (start, end) in zip(batches, spans, strict=True):
        count = header.record_count
        rows.fill(data, start, end, count, at, header.base_timestamp, header.base_offset)
        if header.is_log_append_time:
            columns[2][at : at + count] = array("q", [header.max_timestamp]) * count
        at += count
    return Columns(data, columns)


def column_slices(batch: Buffer, records_max: int) -> Iterator[Columns]:
    """The records of one batch, at most ``records_max`` at a time: a small compressed batch may have millions.

    Raises Malformed before the first of them, if the batch is malformed.
    """
    header = parse_batch_header(batch)
    body = bytes(records_of(batch, header))
    record_loops.check(body, 0, len(body), header.record_count)
    return _column_slices(body, header, records_max)


def _column_slices(body: bytes, header: BatchHeader, records_max: int) -> Iterator[Columns]:
    start, left = 0, header.record_count
    while left:
        count = min(left, records_max)
        columns = [array("q", [0]) * count for _ in range(10)]
        rows = record_loops.Rows(columns)
        start = rows.fill_some(body, start, len(body), count, 0, header.base_timestamp, header.base_offset)
        if header.is_log_append_time:
            columns[2] = array("q", [header.max_timestamp]) * count
        yield Columns(body, columns)
        left -= count


def _gathered(
    buffer: Buffer, batches: list[tuple[int, BatchHeader]], limit_bytes: int
) -> tuple[Buffer, Iterator[tuple[int, int]] | list[tuple[int, int]]]:
    """One buffer with all records decompressed, and the position of each batch's records in it."""
    if all(header.attributes & CODEC_MASK == NONE for _, header in batches):
        return buffer, [(pos + HEADER_BYTES, pos + header.size) for pos, header in batches]
    view = memoryview(buffer)
    data = bytearray()
    bounds = [0]
    for pos, header in batches:
        data += records_of(view[pos : pos + header.size], header, limit_bytes - len(data))
        bounds.append(len(data))
    return bytes(data), pairwise(bounds)
