"""The batches of what was read from a log, walked header by header, as far as the walk is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.model.batch import CONTROL_FLAG, HEADER, HEADER_BYTES, PREFIX_BYTES, TRANSACTIONAL_FLAG
from penstock.shares.share_partition import ReadBatch
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn

WINDOW_BYTES = 4096
"""Bytes read at once where batches are small; of larger ones only the header is read."""


RECORD_COUNT = 12
"""The number of records in an unpacked header."""


class ReadBatches:
    """Whole batches in a slice that is in memory: what they hold, and the part of the slice with some of them."""

    __slots__ = ("_aborted", "_records", "_spans")

    def __init__(self, records: FileSlice | bytes, aborted: Sequence[AbortedTxn] | None) -> None:
        self._records = records
        self._aborted = aborted
        self._spans: list[tuple[int, int, int]] = []
        """First offset, last offset and end position of each batch so far."""

    def __iter__(self) -> Iterator[ReadBatch]:
        """Each batch; the walk reads no further than it is asked."""
        records = self._records
        spans, aborted = self._spans, self._aborted
        unpack, size = HEADER.unpack_from, len(records)
        window, start, position, wanted = b"", 0, 0, WINDOW_BYTES
        while position + HEADER_BYTES <= size:
            at = position - start
            if at + HEADER_BYTES > len(window):
                window, start, at = self._read(position, min(wanted, size - position)), position, 0
                if len(window) < HEADER_BYTES:
                    return
            header = unpack(window, at)
            base, length, attributes, delta, producer_id = header[0], header[1] + PREFIX_BYTES, *header[5:7], header[9]
            position += length
            wanted = WINDOW_BYTES if length < WINDOW_BYTES else HEADER_BYTES
            last = base + delta
            spans.append((base, last, position))
            if aborted and attributes & TRANSACTIONAL_FLAG and not attributes & CONTROL_FLAG:
                skipped = any(
                    txn.producer_id == producer_id and txn.first_offset <= base <= txn.last_offset for txn in aborted
                )
                yield ReadBatch(base, last, skipped, is_empty=not header[RECORD_COUNT])
            else:
                yield ReadBatch(base, last, is_empty=not header[RECORD_COUNT] or bool(attributes & CONTROL_FLAG))

    def _read(self, position: int, size: int) -> bytes:
        records = self._records
        if isinstance(records, FileSlice):
            return records.read(records.position + position, size)
        return records[position : position + size]

    @property
    def walked(self) -> int:
        """Batches that the walk has come to."""
        return len(self._spans)

    def newest(self) -> bytes:
        """All of the batch that the walk came to last, to look at its records."""
        begin, end = (self._spans[-2][2] if len(self._spans) > 1 else 0), self._spans[-1][2]
        return bytes(self._read(begin, end - begin))

    def cut(self, first: int, last: int) -> FileSlice | bytes:
        """The part from the batch that has the first offset to the one that has the last; both were walked."""
        begin = end = 0
        for base, until, position in self._spans:
            if until < first:
                begin = position
            elif base <= last:
                end = position
            else:
                break
        records = self._records
        if begin == 0 and end == len(records):
            return records
        if isinstance(records, FileSlice):
            return FileSlice(records.file, records.position + begin, end - begin, True)
        return records[begin:end]
