"""The files of a segment, handled together."""

import contextlib

from penstock.model.ids import Offset
from penstock.storage.disk import Disk
from penstock.storage.names import DELETED, GAPS, OFFSET_INDEX, SEGMENT_FILES, TIME_INDEX, offset_name


def read_or_empty(disk: Disk, path: str) -> bytes:
    """A file's contents; empty when it is missing, which for an index means no entries."""
    try:
        return disk.read_file(path)
    except FileNotFoundError:
        return b""


def unlink_if_there(disk: Disk, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)


def remove_segment(disk: Disk, directory: str, base: Offset) -> None:
    """Remove a segment's files, the log first: recovery removes indexes without one."""
    for kind in SEGMENT_FILES:
        unlink_if_there(disk, f"{directory}/{offset_name(base, kind)}")


def mark_deleted(disk: Disk, directory: str, base: Offset) -> list[str]:
    """Rename a segment's files out of the log; returns the new names, to be removed later."""
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
    """Create the file that allows offsets to be missing between batches, synced before the first gap is written."""
    path = f"{directory}/{GAPS}"
    if not disk.exists(path):
        disk.write_file(path, b"", sync=True)
        disk.sync_directory(directory)


def remove_indexes(disk: Disk, directory: str, base: Offset) -> None:
    """Remove the indexes of positions before the log changes; the transaction index has offsets only, and stays."""
    for kind in (OFFSET_INDEX, TIME_INDEX):
        unlink_if_there(disk, f"{directory}/{offset_name(base, kind)}")
