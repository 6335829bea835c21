"""Quarantine of damaged committed records: keep the file, serve the sound batches, never reuse an offset.

A single replica has no other to copy from. Truncating the log at the damage would drop sound records behind it and
assign their offsets to new records, which a consumer that had read further would never notice. So the damaged file is
kept under another name for the operator, its sound batches stay in the log, and the offsets between them stay missing.
"""

import contextlib
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, MAGIC, MAGIC_AT, PREFIX_BYTES, BatchHeader
from penstock.model.ids import Offset
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.names import CLEANED, LOG, QUARANTINED, offset_name
from penstock.storage.segment_files import remove_indexes, unlink_if_there
from penstock.storage.walk import LENGTH_MIN, BadBatch, walk

SEARCH_BYTES = 1024 * 1024
MAGIC_BYTE = bytes((MAGIC,))
COPY_BYTES = 1024 * 1024


def set_aside(disk: Disk, directory: str, base: Offset, offset_limit: Offset, gap_max: int) -> int:
    """Keep a damaged segment's file as `.quarantined` and replace it by its sound batches; returns the bytes left out.

    Offsets may be missing between them only where a batch is left out, or as far as `gap_max` allows: a base offset is
    outside the checksum, and one that bit rot has raised would leave out everything after it.

    A crash in between leaves either the damaged file or the repaired one, and the quarantined copy in both cases.
    """
    log = f"{directory}/{offset_name(base, LOG)}"
    keep(disk, log)
    size = disk.stat(log).size
    unlink_if_there(disk, log + CLEANED)
    target = disk.open(log + CLEANED, create=True)
    kept = copy_sound(disk.open_read(log), target, size, base, offset_limit, gap_max)
    target.sync()
    remove_indexes(disk, directory, base)
    disk.rename(log + CLEANED, log)
    disk.sync_directory(directory)
    return size - kept


def keep(disk: Disk, log: str) -> None:
    """Give a segment's file a second name, which is never removed."""
    # A file quarantined before, by an interrupted start or for earlier damage, is never overwritten.
    with contextlib.suppress(FileExistsError):
        disk.link(log, log + QUARANTINED)


def copy_sound(
    source: DiskFile, target: DiskFile, size: int, offset_min: Offset, offset_limit: Offset, gap_max: int
) -> int:
    """Copy every sound batch, in order; returns the bytes copied.

    Where offsets may be missing, a base offset that bit rot has raised looks like a gap, until a sound batch with a
    lower offset follows: then the batch before it is left out, and the others stay.
    """
    position = copied = 0
    last: Copied | None = None
    walk_from = offset_min
    while position < size:
        try:
            for batch in walk(source, position, size, offset_min=walk_from, bodies=True, gap_max=gap_max):
                header = batch.header
                if header.next_offset > offset_limit and header.base_offset > offset_min:
                    raise BadBatch(batch.position, offset_min, f"it reaches {header.next_offset}")
                write_whole(target, batch.data)
                copied += len(batch.data)
                last = Copied(header.base_offset, len(batch.data), offset_min)
                position = batch.position + len(batch.data)
                walk_from = offset_min = header.next_offset
        except BadBatch:
            if gap_max and last is not None and last.is_refuted_by(sound_base(source, position, size)):
                copied -= last.size
                target.truncate(copied)
                walk_from = offset_min = last.offset_min
                last = None
                continue
            found = next_sound(source, position + 1, size, offset_min, offset_limit)
            if found is None:
                break
            position, walk_from = found
    return copied


class Copied(NamedTuple):
    """The batch that was copied last."""

    base: Offset
    size: int
    offset_min: Offset
    """Where it would have begun without a gap."""

    def is_refuted_by(self, base: Offset | None) -> bool:
        """Whether the next sound batch begins in the gap before this one."""
        return base is not None and self.offset_min <= base <= self.base and self.base > self.offset_min


def sound_base(file: DiskFile, position: int, end: int) -> Offset | None:
    """The base offset of the batch at a position, if it is sound."""
    data = file.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack(data))
    whole = header.magic == MAGIC and LENGTH_MIN <= header.length <= end - position - PREFIX_BYTES
    return header.base_offset if whole and checksum_holds(file, position, header) else None


def write_whole(target: DiskFile, data: memoryview) -> None:
    """Append all of `data`. A full disk writes a part, and raises at the next attempt."""
    while data:
        data = data[target.append(data) :]


def next_sound(
    file: DiskFile, position: int, end: int, offset_min: Offset, offset_limit: Offset
) -> tuple[int, Offset] | None:
    """Position and base offset of the next sound batch, tried at every byte: damaged lengths cannot be trusted."""
    while position + HEADER_BYTES <= end:
        window = file.pread(min(SEARCH_BYTES + HEADER_BYTES, end - position), position)
        at = window.find(MAGIC_BYTE, MAGIC_AT)
        while at >= 0 and at - MAGIC_AT + HEADER_BYTES <= len(window):
            start = at - MAGIC_AT
            header = BatchHeader._make(HEADER.unpack_from(window, start))
            if (
                offset_min <= header.base_offset < offset_limit
                and header.last_offset_delta >= 0
                and LENGTH_MIN <= header.length <= end - position - start - PREFIX_BYTES
                and checksum_holds(file, position + start, header)
            ):
                return position + start, header.base_offset
            at = window.find(MAGIC_BYTE, at + 1)
        position += max(1, len(window) - HEADER_BYTES + 1)
    return None


def checksum_holds(file: DiskFile, position: int, header: BatchHeader) -> bool:
    body = file.pread(header.size - ATTRIBUTES_AT, position + ATTRIBUTES_AT)
    return crc32c(body) == header.crc
