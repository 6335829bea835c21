"""Records gathered into buffers: all within the range, none outside it, and never past the buffers' capacity."""

from __future__ import annotations

from array import array

import pytest

from penstock.model.batch import HEADER_BYTES
from penstock.wire.primitives import Malformed
from penstock.wire.record_blobs import BlobRows, Blobs, Headers
from penstock.wire.records import Record, build_batch, parse_batch_header

ALL = 1 << 40


class Filled:
    """Rows with this capacity, and their contents."""

    def __init__(self, *, rows: int, room: int, first: int = 0, last: int = ALL) -> None:
        self.offsets = array("q", [0]) * rows
        self.times = array("q", [0]) * rows
        self.ends = [array("i", [0]) * (rows + 1) for _ in range(3)]
        self.header_ends = [array("i", [0]) * (room + 1) for _ in range(2)]
        self.data = [bytearray(room) for _ in range(4)]
        self.valid = [bytearray(room + rows) for _ in range(5)]
        keys = Blobs(self.ends[0], self.data[0], self.valid[0])
        values = Blobs(self.ends[1], self.data[1], self.valid[1])
        names = Blobs(self.header_ends[0], self.data[2], self.valid[2])
        contents = Blobs(self.header_ends[1], self.data[3], self.valid[3])
        self.headers = Headers(self.ends[2], self.valid[4], names, contents, room)
        self.rows = BlobRows(self.offsets, self.times, keys, values, self.headers, first, last)

    def take(self, batch: bytearray, count: int | None = None, at: int = HEADER_BYTES) -> tuple[int, int]:
        header = parse_batch_header(batch)
        wanted = header.record_count if count is None else count
        base = header.base_offset, header.base_timestamp, header.max_timestamp
        taken: tuple[int, int] = self.rows.fill(batch, at, len(batch), wanted, *base, header.is_log_append_time)
        return taken

    def column(self, which: int) -> list[bytes | None]:
        ends, data, valid = self.ends[which], self.data[which], self.valid[which]
        return [
            bytes(data[ends[row] : ends[row + 1]]) if valid[row >> 3] >> (row & 7) & 1 else None
            for row in range(self.rows.rows)
        ]


def made(*values: bytes | None) -> bytearray:
    return build_batch([Record(index, 50 + index, b"k", value, [("h", b"x")]) for index, value in enumerate(values)])


def test_records_are_gathered_column_by_column() -> None:
    filled = Filled(rows=5, room=100)
    batch = made(b"one", None, b"", b"four")
    assert filled.take(batch) == (4, len(batch))
    assert filled.column(0) == [b"k"] * 4
    assert filled.column(1) == [b"one", None, b"", b"four"]
    assert list(filled.offsets[:4]) == [0, 1, 2, 3]
    assert list(filled.times[:4]) == [50_000, 51_000, 52_000, 53_000]
    assert list(filled.ends[2][:5]) == [0, 1, 2, 3, 4]
    assert bytes(filled.data[3][:4]) == b"xxxx"


def test_records_outside_the_range_are_skipped() -> None:
    filled = Filled(rows=5, room=100, first=1, last=3)
    assert filled.take(made(b"0", b"1", b"2", b"3"))[0] == 4
    assert filled.column(1) == [b"1", b"2"]


def test_filling_stops_at_the_end_of_rows_or_bytes_and_continues() -> None:
    batch = made(b"0" * 30, b"1" * 30, b"2" * 30)
    by_rows = Filled(rows=2, room=200)
    assert by_rows.take(batch)[0] == 2
    by_bytes = Filled(rows=9, room=80)
    taken, at = by_bytes.take(batch)
    assert taken == 2
    rest = Filled(rows=9, room=80)
    assert rest.take(batch, 1, at) == (1, len(batch))
    assert by_bytes.column(1) + rest.column(1) == [b"0" * 30, b"1" * 30, b"2" * 30]


@pytest.mark.parametrize("at", range(HEADER_BYTES, HEADER_BYTES + 12))
def test_a_damaged_record_is_never_read_past_its_end(at: int) -> None:
    for changed in (0x00, 0x7F, 0x80, 0xFF):
        batch = made(b"abc")
        batch[at] = changed
        filled = Filled(rows=3, room=30)
        try:
            filled.take(batch)
        except Malformed:
            continue
        assert all(value is None or len(value) <= len(batch) for value in filled.column(1))
