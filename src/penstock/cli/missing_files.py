"""Detects missing segments: by their indexes, by their neighbours, and by the last clean stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.cli.segment_file import INDEX, LOG, TIME_INDEX, TXN_INDEX, Bad, Checked
from penstock.storage import completeness, summary
from penstock.storage.checkpoint import CheckpointDamaged
from penstock.storage.completeness import Contents
from penstock.storage.directories import CLEAN_SHUTDOWN
from penstock.storage.disk import RealDisk
from penstock.storage.names import GAPS, parse_offset_name, parse_partition_name, partition_name
from penstock.storage.notes import NoteDamaged
from penstock.storage.summary import SUMMARY


def check_order(before: Checked | None, found: Checked) -> None:
    """Raise `Bad` unless a segment begins where the previous one ends, or later in a log that may have gaps."""
    if before is None or before.path.parent != found.path.parent:
        return
    if before.next_offset > found.start:
        raise Bad(found.path, 0, f"it begins before offset {before.next_offset}, where the one before ends")
    if before.next_offset < found.start and not (found.path.parent / GAPS).exists():
        raise Bad(found.path, 0, f"offsets {before.next_offset} to {found.start - 1} before it are missing")


def missing_faults(path: Path) -> Iterator[Bad]:
    """The missing files of a partition's directory, or of all in a data directory."""
    for directory in sorted({path, *(each.parent for each in path.rglob("*") if each.is_file())}):
        yield from _indexes_of_nothing(directory)
        yield from _noted(directory)
        yield from _left_by_clean_stop(directory)
    if parse_partition_name(path.name) is not None:
        yield from _left_by_clean_stop(path.parent, only=path)


def _noted(directory: Path) -> Iterator[Bad]:
    """Files that an earlier start of the broker found missing."""
    try:
        noted = completeness.read_note(RealDisk(), str(directory))
    except NoteDamaged as damage:
        yield Bad(directory / completeness.NOTE, 0, str(damage))
    else:
        yield from _lacking(directory, noted)


def _indexes_of_nothing(directory: Path) -> Iterator[Bad]:
    for kind in (INDEX, TIME_INDEX, TXN_INDEX):
        for index in sorted(directory.glob(f"*{kind}")):
            if parse_offset_name(index.name) is not None and not index.with_suffix(LOG).exists():
                yield Bad(index, 0, "the segment it is the index of is missing")


def _left_by_clean_stop(data: Path, only: Path | None = None) -> Iterator[Bad]:
    """Missing files of the last clean stop; while a broker runs, or after a crash, they are not known."""
    if not (data / CLEAN_SHUTDOWN).exists():
        return
    try:
        left = summary.read(RealDisk(), str(data / SUMMARY))
    except CheckpointDamaged as damage:
        yield Bad(data / SUMMARY, 0, str(damage))
        return
    for tp, known in left.items():
        directory = data / partition_name(tp)
        if only in (None, directory):
            yield from _lacking(directory, known.contents())


def _lacking(directory: Path, expected: Contents | None) -> Iterator[Bad]:
    if expected is not None and not expected.given_up:
        for what in completeness.missing_in(RealDisk(), str(directory), expected):
            yield Bad(directory, 0, f"{what}, as the last broker left it")
