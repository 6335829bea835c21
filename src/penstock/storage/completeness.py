"""Whether a log still has the segments that the last broker left.

A clean stop lists every segment; after an unclean one, the checkpoint knows which logs had any. A crash does not remove
or shorten such a file, so a log that lacks one must not continue at a lower end: it would assign used offsets to new
records. The partition stays offline until the files are back, or until an operator accepts the loss. A note in the
partition's directory (`records-missing.json`) preserves this over further starts, clean or not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.model.ids import Offset, TopicId
from penstock.storage import notes, partition_metadata
from penstock.storage.disk import Disk, replace_file
from penstock.storage.names import LOG, PARTITION_METADATA, offset_name
from penstock.storage.notes import NoteDamaged
from penstock.storage.segment_files import unlink_if_there

NOTE = "records-missing.json"

SegmentSizes = tuple[tuple[Offset, int], ...]
"""Base offset and bytes of every segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A log as the last broker left it."""

    segments: SegmentSizes
    """Empty where only the end is known: then the log must have at least one segment."""
    log_start: Offset
    log_end: Offset
    given_up: bool = False
    """Whether an operator accepted the loss of the missing records. The log keeps its end."""


def missing_in(disk: Disk, path: str, expected: Contents) -> list[str]:
    """Descriptions of the missing files; empty when the log is complete."""
    if expected.segments or not expected.log_end:
        return missing_of(disk, path, expected.segments)
    try:
        names = disk.list_directory(path)
    except FileNotFoundError:
        names = []
    return [] if any(name.endswith(LOG) for name in names) else ["every segment is missing"]


def missing_of(disk: Disk, path: str, segments: SegmentSizes) -> list[str]:
    """Descriptions of the segments that are missing or short."""
    found: list[str] = []
    for base, size in segments:
        name = offset_name(base, LOG)
        try:
            bytes_found = disk.stat(f"{path}/{name}").size
        except FileNotFoundError:
            found.append(f"{name} with {size} bytes is missing")
        else:
            if bytes_found < size:
                found.append(f"{name} has {bytes_found} of {size} bytes")
    return found


def in_words(missing: list[str], path: str, expected: Contents) -> str:
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return (
        f"the last broker left it with offsets up to {expected.log_end}, and now {missing[0]}{more}. Put the files "
        f"back, or give their records up with 'penstock log accept-loss {path}'"
    )


def note_missing(disk: Disk, path: str, topic_id: TopicId, expected: Contents) -> None:
    """Write down which files the log should have, for later starts; creates the directory if it is missing."""
    if not disk.exists(path):
        disk.make_directory(path)
        disk.write_file(f"{path}/{PARTITION_METADATA}", partition_metadata.encode(topic_id), sync=True)
        disk.sync_directory(path.rpartition("/")[0])
    write_note(disk, path, expected)


def write_note(disk: Disk, path: str, expected: Contents) -> None:
    note = {
        "version": 1,
        "segments": [list(segment) for segment in expected.segments],
        "log_start": expected.log_start,
        "log_end": expected.log_end,
        "given_up": expected.given_up,
    }
    replace_file(disk, f"{path}/{NOTE}", notes.encode(note), sync=True)


def read_note(disk: Disk, path: str) -> Contents | None:
    """The note of an earlier start that found files missing; None without one, `NoteDamaged` when it is unreadable."""
    try:
        note = notes.decode(disk.read_file(f"{path}/{NOTE}"))
    except FileNotFoundError:
        return None
    try:
        return Contents(
            segments=tuple((base, size) for base, size in note["segments"]),
            log_start=note["log_start"],
            log_end=note["log_end"],
            given_up=note["given_up"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NoteDamaged(f"{type(error).__name__}: {error}") from error


def forget_note(disk: Disk, path: str) -> None:
    unlink_if_there(disk, f"{path}/{NOTE}")


def give_up(disk: Disk, path: str) -> Contents | None:
    """Accept the loss of missing records from the next start on; returns the former contents, None without a loss."""
    expected = read_note(disk, path)
    if expected is not None:
        expected = replace(expected, given_up=True)
        write_note(disk, path, expected)
    return expected


def encode_segments(segments: Iterable[tuple[Offset, int]]) -> str:
    """Segments as one word of a summary's line."""
    return ",".join(f"{base}:{size}" for base, size in segments) or "-"


def decode_segments(text: str) -> SegmentSizes:
    if text == "-":
        return ()
    pairs = (part.split(":") for part in text.split(","))
    return tuple((Offset(int(base)), int(size)) for base, size in pairs)
