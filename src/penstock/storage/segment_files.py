"""The files of a segment, handled together."""

import contextlib

from penstock.storage.disk import Disk
from penstock.storage.names import DELETED, GAPS, OFFSET_INDEX, SEGMENT_FILES, TIME_INDEX, offset_name


def read_or_empty(disk: Disk, path: str) -> bytes:
    """A file's contents; nothing when it is missing, which for an index means that it has no entries."""
    try:
        return disk.read_file(path)
    except FileNotFoundError:
        return b""


def unlink_if_there(disk: Disk, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)


def remove_segment(disk: Disk, directory: str, base: int) -> None:
    """Remove a segment at once. The log goes first: indexes without one are recognised as orphans."""
    for kind in SEGMENT_FILES:
        unlink_if_there(disk, f"{directory}/{offset_name(base, kind)}")


def mark_deleted(disk: Disk, directory: str, base: int) -> list[str]:
    """Take a segment out of the log by name, leaving the bytes for later removal; what to remove."""
    marked: list[str] = []
    for kind in SEGMENT_FILES:
        path = f"{directory}/{offset_name(base, kind)}"
        try:
            disk.rename(path, path + DELETED)
        except FileNotFoundError:
            continue
        marked.append(path + DELETED)
    return marked


def mark_gaps(disk: Disk, directory: str) -> None:
    """Say that offsets may be missing between batches; on the disk before the first gap can be."""
    path = f"{directory}/{GAPS}"
    if not disk.exists(path):
        disk.write_file(path, b"", sync=True)
        disk.sync_directory(directory)


def remove_indexes(disk: Disk, directory: str, base: int) -> None:
    """Remove what knows positions, before the log under it changes. Aborted transactions are known by their offsets."""
    for kind in (OFFSET_INDEX, TIME_INDEX):
        unlink_if_there(disk, f"{directory}/{offset_name(base, kind)}")
