"""Walking through the batches of a segment's file, header by header.

Used off the hot paths: finding an offset, recovery, replay, compaction, scrubbing. The window is bounded,
also for a damaged length; a damaged batch ends the walk with `BadBatch`.
"""

from collections.abc import Iterator

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.batch import ATTRIBUTES_AT, CONTROL_FLAG, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import Offset
from penstock.storage.disk import DiskFile
from penstock.storage.offset_index import WouldBlock

WINDOW_BYTES = 1024 * 1024
"""Bytes read at once; a larger batch is read whole, so the greatest batch bounds the memory of a walk."""

PROBE_BYTES = 4096
GAP_MAX = 2**31
"""Offsets that may be missing between two batches of a segment: more would not fit its index."""
LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES


class BadBatch(KafkaStorageError):
    """A damaged batch.

    Everything before `position` is sound; `offset` is where the batch would have started.
    """

    def __init__(self, position: int, offset: Offset, reason: str) -> None:
        super().__init__(f"bad batch at position {position}, offset {offset}: {reason}")
        self.position = position
        self.offset = offset
        self.reason = reason


class BatchAt:
    """A batch and where it starts.

    `data` is the whole batch where the walk reads bodies, and valid until the next step.
    """

    __slots__ = ("data", "header", "position")

    def __init__(self, position: int, header: BatchHeader, data: memoryview) -> None:
        self.position = position
        self.header = header
        self.data = data


def fault_of(header: BatchHeader, position: int, end: int, offset_min: Offset, offset_max: Offset) -> str | None:
    """Why a header is invalid, as far as it shows without the body. A batch must begin between the two offsets."""
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if header.length < LENGTH_MIN or position + PREFIX_BYTES + header.length > end:
        return f"length {header.length}, {end - position} bytes left"
    if not offset_min <= header.base_offset <= offset_max:
        return f"offset {header.base_offset} where {offset_min} should follow"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    return None


def walk(
    file: DiskFile,
    position: int,
    end: int,
    *,
    offset_min: Offset,
    bodies: bool,
    control_bodies: bool = False,
    gap_max: int = GAP_MAX,
) -> Iterator[BatchAt]:
    """Every batch from `position` to `end`, which must both be where a batch starts or ends.

    With `bodies` each batch is read whole and its checksum verified, with `control_bodies` each control batch; other
    bodies are skipped where that saves reading. At most `gap_max` offsets are missing before each batch.
    """
    window = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        if at + HEADER_BYTES > len(window):
            window, start, at = memoryview(file.pread(min(WINDOW_BYTES, end - position), position)), position, 0
        if len(window) - at < HEADER_BYTES:
            raise BadBatch(position, offset_min, f"{end - position} bytes are less than a header")
        header = BatchHeader._make(HEADER.unpack_from(window, at))
        fault = fault_of(header, position, end, offset_min, Offset(offset_min + gap_max))
        if fault is not None:
            raise BadBatch(position, offset_min, fault)
        size = header.length + PREFIX_BYTES
        if bodies or (control_bodies and header.attributes & CONTROL_FLAG):
            if at + size > len(window):
                wanted = min(max(WINDOW_BYTES, size), end - position)
                window, start, at = memoryview(file.pread(wanted, position)), position, 0
                if len(window) < size:
                    raise BadBatch(position, offset_min, "the file ended inside it")
            if crc32c(window[at + ATTRIBUTES_AT : at + size]) != header.crc:
                raise BadBatch(position, offset_min, "wrong checksum")
        yield BatchAt(position, header, window[at : at + size])
        position += size
        offset_min = header.next_offset


def find(file: DiskFile, position: int, end: int, offset: Offset, *, wait: bool) -> tuple[int, int] | None:
    """Position and size of the first batch that ends at or beyond `offset`, looking from a known batch start.

    None when no batch does. Without `wait`, `WouldBlock` when a header is not in memory.
    """
    window = b""
    start = position
    while position + HEADER_BYTES <= end:
        at = position - start
        if at + HEADER_BYTES > len(window):
            wanted = min(PROBE_BYTES, end - position)
            read = file.pread(wanted, position) if wait else file.pread_nowait(wanted, position)
            if read is None:
                # The header's page may be in memory without the next one: read the header alone.
                read = file.pread_nowait(HEADER_BYTES, position)
            if read is None:
                raise WouldBlock
            window, start, at = read, position, 0
            if len(window) < HEADER_BYTES:
                return None
        found = HEADER.unpack_from(window, at)
        size = found[1] + PREFIX_BYTES
        if found[0] + found[6] >= offset:
            return position, size
        if size < HEADER_BYTES:
            raise BadBatch(position, found[0], f"length {found[1]}")
        position += size
    return None
