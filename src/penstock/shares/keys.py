"""The keys of records, as hashes, for groups that are ordered by key (`share.order=key`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from zlib import crc32

from penstock.model.batch import CODEC_MASK
from penstock.model.ids import Offset
from penstock.shares.batches import ReadBatches
from penstock.shares.share_partition import ReadBatch
from penstock.storage.view import LogView
from penstock.wire.compression import NONE, UnsupportedCompression
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.primitives import Buffer, Malformed
from penstock.wire.records import RECORDS_BYTES_MAX, parse_batch_header, records_of, row_slices

OFFSETS, KEY_AT, KEY_SIZES = 3, 4, 5
"""Columns of `record_loops.Rows`."""


NO_RECORD = (1 << 64) - 1
"""In place of a hash, where a batch has no record any more."""


def hashes_in(batch: Buffer) -> array[int]:
    """A hash of the key of each offset of a batch; 0 where there is no record, or no key.

    Keys of one hash are ordered as if they were one, which costs some parallelism and nothing else.
    """
    return array("Q", (0 if each == NO_RECORD else each for each in hashes_and_gaps(batch)))


def hashes_and_gaps(batch: Buffer) -> array[int]:
    """As `hashes_in`, with NO_RECORD where there is no record; only 0 where the batch cannot be read."""
    header = parse_batch_header(batch)
    offsets_all = header.last_offset_delta + 1
    unknown = array("Q", bytes(8 * offsets_all))
    if header.is_control or not header.record_count:
        return unknown
    hashes = array("Q", (NO_RECORD,)) * offsets_all if header.record_count < offsets_all else unknown[:]
    try:
        body = records_of(batch, header, RECORDS_BYTES_MAX)
        for rows, columns in row_slices(body, 0, header.record_count):
            offsets, key_at, key_sizes = columns[OFFSETS], columns[KEY_AT], columns[KEY_SIZES]
            for row in range(rows):
                size, at = key_sizes[row], key_at[row]
                hashes[offsets[row]] = crc32(body[at : at + size]) + 1 if size >= 0 else 0
    except (Malformed, UnsupportedCompression, IndexError):
        # The member that gets it finds out.
        return unknown
    return hashes


def keyed(parts: Iterable[ReadBatch], source: ReadBatches) -> Iterator[ReadBatch]:
    """Batches that are read from a source, or parts of them, with the hashes of their keys.

    Offsets without a record are parts of their own: a member that got these alone would not acknowledge them.
    """
    walked = base = 0
    hashes = array("Q")
    for part in parts:
        if source.walked != walked:
            walked, base = source.walked, part.base
            hashes = array("Q") if part.is_aborted else hashes_and_gaps(source.newest())
        keys = hashes[part.base - base : part.last + 1 - base]
        if NO_RECORD not in keys:
            yield part._replace(keys=keys)
            continue
        for first, until, is_gap in gaps_and_records(keys):
            yield part._replace(
                base=part.base + first,
                last=part.base + until - 1,
                keys=array("Q", bytes(8 * (until - first))) if is_gap else keys[first:until],
                is_empty=part.is_empty or is_gap,
            )


def gaps_and_records(hashes: array[int]) -> Iterator[tuple[int, int, bool]]:
    """The runs of offsets with a record and without: begin, end, and whether there is none."""
    first = 0
    for is_gap, run in groupby(hashes, NO_RECORD.__eq__):
        until = first + sum(1 for _ in run)
        yield first, until, is_gap
        first = until


def hashes_between(
    view: LogView, first: Offset, until: Offset, budget: DecompressionBudget
) -> list[tuple[Offset, array[int]]]:
    """The hashes of the keys in a part of a log, by the first offset of each batch. Runs in a thread."""
    found: list[tuple[Offset, array[int]]] = []
    for batch in view.walk_from(first, bodies=True):
        header = batch.header
        if header.base_offset >= until:
            break
        with budget.hold(0 if header.attributes & CODEC_MASK == NONE else RECORDS_BYTES_MAX):
            found.append((header.base_offset, hashes_in(batch.data)))
    return found
