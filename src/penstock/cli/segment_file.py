"""Reads segment files without a broker: their content, and the first bad byte."""

from __future__ import annotations

import mmap
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from penstock.model.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.records import check_records, crc_ok, parse_batch_header

LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
KNOWN = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
INDEX_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
UNREADABLE = (Malformed, UnsupportedCompression)
"""The exceptions of reading a damaged batch."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Bad(Exception):
    """A file is invalid from this byte on."""

    def __init__(self, path: Path, position: int, what: str) -> None:
        super().__init__(f"{path}: byte {position}: {what}")
        self.path = path
        self.position = position
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One whole batch and its position."""

    position: int
    header: BatchHeader
    data: memoryview

    @property
    def codec(self) -> str:
        return CODECS[self.header.codec] if self.header.codec < len(CODECS) else str(self.header.codec)


def base_offset_of(path: Path) -> int:
    """The first offset of a segment, from its file name."""
    if not path.stem.isascii() or not path.stem.isdigit():
        raise Bad(path, 0, "the name is not an offset: is this a segment file?")
    return int(path.stem)


@contextmanager
def mapped(path: Path) -> Generator[memoryview]:
    """The file's bytes without reading them all; an empty file cannot be mapped."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            yield memoryview(b"")
            return
        bytes_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        view = memoryview(bytes_)
        try:
            yield view
        finally:
            # The traceback of an error refers to parts of the view, and keeps the file mapped until it is deleted.
            with suppress(BufferError):
                view.release()
                bytes_.close()


def batches(path: Path, data: memoryview) -> Iterator[Batch]:
    """Each batch in order, with only its header checked. Raises `Bad` at an invalid one."""
    base = base_offset_of(path)
    position, next_offset = 0, base
    while position < len(data):
        if _zeros(data, position):
            return
        header = _header(path, data, position)
        if header.base_offset < next_offset:
            raise Bad(path, position, f"the batch has base offset {header.base_offset}, after {next_offset - 1}")
        with data[position : position + header.size] as content:
            yield Batch(position=position, header=header, data=content)
        position += header.size
        next_offset = header.next_offset


def _header(path: Path, data: memoryview, position: int) -> BatchHeader:
    left = len(data) - position
    if left < HEADER_BYTES:
        raise Bad(path, position, f"{left} bytes are left, a batch header has {HEADER_BYTES}")
    header = parse_batch_header(data, position)
    if header.magic != MAGIC:
        raise Bad(path, position, f"the batch has magic {header.magic}, not {MAGIC}")
    if header.length < HEADER_BYTES - PREFIX_BYTES:
        raise Bad(path, position, f"the batch has length {header.length}")
    if header.size > left:
        raise Bad(path, position, f"the batch has {header.size} bytes, but {left} are left: it was cut")
    if header.last_offset_delta < 0:
        raise Bad(path, position, f"the batch has last offset delta {header.last_offset_delta}")
    return header


def check_batch(path: Path, batch: Batch) -> None:
    """Check the checksum, and every record inside."""
    if not crc_ok(batch.data, 0, batch.header):
        raise Bad(path, batch.position, f"the checksum of the batch at offset {batch.header.base_offset} is wrong")
    try:
        check_records(batch.data, batch.header)
    except UNREADABLE as error:
        raise Bad(path, batch.position, f"the records at offset {batch.header.base_offset}: {error}") from error


def index_entries(path: Path, data: memoryview, entry: Struct) -> Iterator[tuple[int, int, int]]:
    """(position in the file, first field, second field). Trailing zeros of a preallocated file are skipped."""
    whole = len(data) - len(data) % entry.size
    for position in range(0, whole, entry.size):
        first, second = entry.unpack_from(data, position)
        if first == 0 and second == 0 and _zeros(data, position):
            return
        yield position, first, second
    if whole != len(data):
        raise Bad(path, whole, f"{len(data) - whole} bytes are left, an entry has {entry.size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The content of a valid segment."""

    path: Path
    batches: int
    records: int
    bytes: int
    start: int
    next_offset: int


def verify_segment(path: Path) -> Checked:
    """Check checksums, records and order of the log, and that its indexes, if they exist, point at its batches."""
    from penstock.cli.txn_index_file import SegmentAborts, verify_txn_index

    places: list[tuple[int, BatchHeader]] = []
    aborts = SegmentAborts()
    with mapped(path) as data:
        for batch in batches(path, data):
            check_batch(path, batch)
            places.append((batch.position, batch.header))
            aborts.see(batch)
        size = len(data)
    _verify_index(path.with_suffix(INDEX), places)
    _verify_time_index(path.with_suffix(TIME_INDEX), places)
    verify_txn_index(path.with_suffix(TXN_INDEX), aborts)
    return Checked(
        path=path,
        batches=len(places),
        records=sum(header.record_count for _, header in places),
        bytes=size,
        start=base_offset_of(path),
        next_offset=places[-1][1].next_offset if places else base_offset_of(path),
    )


def _verify_index(path: Path, places: Sequence[tuple[int, BatchHeader]]) -> None:
    """Check that each entry has an offset and the position of its batch, both increasing."""
    if not path.exists():
        return
    at = dict(places)
    base, before = base_offset_of(path), -1
    with mapped(path) as data:
        for position, relative, target in index_entries(path, data, INDEX_ENTRY):
            header = at.get(target)
            offset = base + relative
            if header is None:
                raise Bad(path, position, f"offset {offset} points at byte {target} of the log, where no batch begins")
            if not header.base_offset <= offset <= header.last_offset:
                held = f"{header.base_offset} to {header.last_offset}"
                raise Bad(path, position, f"offset {offset} points at the batch of {held}")
            if target <= before:
                raise Bad(path, position, f"byte {target} comes after byte {before}")
            before = target


def _verify_time_index(path: Path, places: Sequence[tuple[int, BatchHeader]]) -> None:
    """Check that records with a later timestamp than an entry's come after its offset, and that both increase."""
    if not path.exists():
        return
    base = base_offset_of(path)
    end = places[-1][1].next_offset if places else base
    rows = iter(places)
    latest_so_far, before, pending = -1, (-1, -1), next(rows, None)
    with mapped(path) as data:
        for position, timestamp_ms, relative in index_entries(path, data, TIME_ENTRY):
            offset = base + relative
            if not base <= offset < max(end, base + 1):
                raise Bad(path, position, f"offset {offset} is not in the segment, which ends at {end}")
            if (timestamp_ms, offset) < before:
                raise Bad(path, position, f"time {timestamp_ms} at offset {offset} comes after {before}")
            while pending is not None and pending[1].last_offset <= offset:
                latest_so_far = max(latest_so_far, pending[1].max_timestamp)
                pending = next(rows, None)
            if latest_so_far > timestamp_ms:
                raise Bad(path, position, f"time {timestamp_ms} at offset {offset}, but {latest_so_far} came before it")
            before = (timestamp_ms, offset)


def log_files(path: Path) -> list[Path]:
    """The segments of a file, a partition's directory or a whole data directory, in order."""
    if path.is_file():
        return [path]
    return sorted(path.rglob("*" + LOG), key=lambda each: (str(each.parent), each.name))


def _zeros(data: memoryview, position: int) -> bool:
    """Whether the rest of the file is zeros: preallocated space without a batch."""
    if data[position : position + HEADER_BYTES].tobytes().strip(b"\0"):
        return False
    step = 1 << 20
    return not any(data[begin : begin + step].tobytes().strip(b"\0") for begin in range(position, len(data), step))
