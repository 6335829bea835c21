"""Merges small files of a table into larger ones, with rows in their order.

Only neighbours are merged: files of one topic's partition and one day whose offsets follow each other. So the files of
a partition never overlap, and a replay can read them in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from penstock.model.clock import Randomness, SystemRandomness
from pyspark_penstock.lake import Batch, DataFile, LakeTable
from pyspark_penstock.pipelines.data_files import close_file, open_file, path_in, take_rows, with_footer
from pyspark_penstock.pipelines.store import Store

_parquet: Any = import_module("pyarrow.parquet")

SMALL_BYTES_MAX = 32 << 20
"""A file below this size is small."""
MERGED_BYTES_MAX = 128 << 20
RUN_FILES_MIN = 8
"""The fewest small neighbours that are merged while the stream runs."""
READ_ROWS = 1 << 16


def compact(table: LakeTable, *, files_min: int = RUN_FILES_MIN, randomness: Randomness | None = None) -> int:
    """Merge runs of at least so many small files; returns the number of files removed."""
    gone = 0
    for group in _folders(table.files(), files_min):
        known = [with_footer(table.store, each) for each in group]
        for run in runs(known, files_min):
            for same in _same_schema(table.store, run):
                if len(same) < 2:
                    continue
                merged = _merge(table, same, (randomness or SystemRandomness()).uuid_bytes().hex())
                table.replace(same, merged)
                gone += len(same) - 1
    return gone


def _folders(files: Iterable[DataFile], files_min: int) -> list[list[DataFile]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for each in files:
        groups.setdefault(tuple(each.values.items()), []).append(each)
    return [group for group in groups.values() if sum(_is_small(each) for each in group) >= files_min]


def _is_small(file: DataFile) -> bool:
    return file.size < SMALL_BYTES_MAX


def runs(files: Sequence[DataFile], files_min: int) -> list[list[DataFile]]:
    """Neighbours that may become one file, in the order of their rows.

    Files without a span are ordered by name: other tables than archives have only such files.
    """
    spanned = [each for each in files if len(each.spans) == 1]
    chosen: list[list[DataFile]] = []
    ordered = sorted(spanned, key=lambda each: (each.spans[0].place, each.spans[0].offset_min))
    plain = sorted((each for each in files if not each.spans), key=lambda each: each.path)
    run: list[DataFile] = []
    size = 0
    for each in [*ordered, *plain]:
        if run and (size + each.size > MERGED_BYTES_MAX or not _neighbours(run[-1], each)):
            chosen.append(run)
            run, size = [], 0
        if _is_small(each):
            run.append(each)
            size += each.size
        else:
            # The files on its two sides are not neighbours.
            chosen.append(run)
            run, size = [], 0
    chosen.append(run)
    return [run for run in chosen if len(run) >= files_min]


def _neighbours(one: DataFile, other: DataFile) -> bool:
    if not one.spans or not other.spans:
        return not one.spans and not other.spans
    # Offsets have gaps at transaction markers, so only a larger file between two separates them.
    return one.spans[0].place == other.spans[0].place and one.spans[0].offset_max < other.spans[0].offset_min


def _same_schema(store: Store, run: Sequence[DataFile]) -> list[list[DataFile]]:
    """Split a run where its columns change: older files lack the later columns."""
    parts: list[list[DataFile]] = []
    last: Any = None
    for each in run:
        schema = _parquet.read_schema(store.full(each.path), filesystem=store.files)
        if last is None or not schema.equals(last):
            parts.append([])
        parts[-1].append(each)
        last = schema
    return parts


def _merge(table: LakeTable, run: Sequence[DataFile], unique: str) -> DataFile:
    store = table.store
    layout = table.layout(Batch(writer=f"merge-{unique}", number=0))
    first = run[0]
    place = first.spans[0].offset_min if first.spans else 0
    path = path_in(layout, first.values, f"merged-{place:020d}-{unique}.parquet")
    file = open_file(store, path, _parquet.read_schema(store.full(first.path), filesystem=store.files), first.values)
    for each in run:
        with store.files.open_input_file(store.full(each.path)) as source:
            for rows in _parquet.ParquetFile(source).iter_batches(batch_size=READ_ROWS):
                take_rows(file, rows, each.spans)
    return close_file(store, file)
