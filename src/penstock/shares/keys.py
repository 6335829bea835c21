"""The keys of records, as hashes, for groups that are ordered by key (`share.order=key`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
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


def hashes_in(batch: Buffer) -> array[int]:
    """A hash of the key of each offset of a batch; 0 where there is no record, or no key.

    Keys of one hash are ordered as if they were one, which costs some parallelism and nothing else.
    """
    header = parse_batch_header(batch)
    hashes = array("Q", bytes(8 * (header.last_offset_delta + 1)))
    if header.is_control or not header.record_count:
        return hashes
    try:
        body = records_of(batch, header, RECORDS_BYTES_MAX)
        for rows, columns in row_slices(body, 0, header.record_count):
            offsets, key_at, key_sizes = columns[OFFSETS], columns[KEY_AT], columns[KEY_SIZES]
            for row in range(rows):
                size = key_sizes[row]
                if size >= 0:
                    at = key_at[row]
                    hashes[offsets[row]] = crc32(body[at : at + size]) + 1
    except (Malformed, UnsupportedCompression, IndexError):
        # The member that gets it finds out.
        pass
    return hashes


def keyed(parts: Iterable[ReadBatch], source: ReadBatches) -> Iterator[ReadBatch]:
    """Batches that are read from a source, or parts of them, with the hashes of their keys."""
    walked = base = 0
    hashes = array("Q")
    for part in parts:
        if source.walked != walked:
            walked, base = source.walked, part.base
            hashes = array("Q") if part.is_aborted else hashes_in(source.newest())
        yield part._replace(keys=hashes[part.base - base : part.last + 1 - base])


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
