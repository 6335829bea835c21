"""Reads the index of a segment's aborted transactions, and compares it with the segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.cli.segment_file import UNREADABLE, Bad, Batch, mapped
from penstock.storage.txn_index import ENTRY, ENTRY_BYTES, VERSION, AbortedTxn
from penstock.wire.records import ABORT_MARKER, COMMIT_MARKER, decode_records, parse_marker


def txn_entries(path: Path, data: memoryview) -> Iterator[tuple[int, AbortedTxn]]:
    """Each entry with its position in the file."""
    whole = len(data) - len(data) % ENTRY_BYTES
    for position in range(0, whole, ENTRY_BYTES):
        version, *fields = ENTRY.unpack_from(data, position)
        if version != VERSION:
            raise Bad(path, position, f"the entry has version {version}, not {VERSION}")
        yield position, AbortedTxn._make(fields)
    if whole != len(data):
        raise Bad(path, whole, f"{len(data) - whole} bytes are left, an entry has {ENTRY_BYTES}")


class SegmentAborts:
    """The aborted transactions in the batches of a segment, which are passed in order."""

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}
        self.markers: dict[int, int] = {}
        """Offset of each abort marker -> its producer."""
        self.needed: dict[int, int] = {}
        """Offset of each abort marker with records in the segment -> the first of these records."""

    def see(self, batch: Batch) -> None:
        header = batch.header
        if header.is_control:
            self._end(batch)
        elif header.is_transactional and header.record_count:
            self._begun.setdefault(header.producer_id, header.base_offset)

    def _end(self, batch: Batch) -> None:
        header = batch.header
        try:
            # Compaction leaves a producer's last batch without its records.
            kind = parse_marker(decode_records(batch.data)[0])[0] if header.record_count else COMMIT_MARKER
        except UNREADABLE:
            return
        first = self._begun.pop(header.producer_id, None)
        if kind == ABORT_MARKER:
            self.markers[header.base_offset] = header.producer_id
            if first is not None:
                self.needed[header.base_offset] = first


def verify_txn_index(path: Path, aborts: SegmentAborts) -> None:
    """Raise `Bad` unless each entry ends at an abort marker, and each aborted transaction with records here has one."""
    entries: Sequence[tuple[int, AbortedTxn]] = ()
    size = 0
    if path.exists():
        with mapped(path) as data:
            entries = list(txn_entries(path, data))
            size = len(data)
    before = -1
    for position, entry in entries:
        if aborts.markers.get(entry.last_offset) != entry.producer_id:
            raise Bad(path, position, f"producer {entry.producer_id} has aborted nothing at offset {entry.last_offset}")
        if entry.last_offset <= before:
            raise Bad(path, position, f"offset {entry.last_offset} comes after {before}")
        first = aborts.needed.get(entry.last_offset, entry.first_offset)
        if not entry.first_offset <= first:
            raise Bad(path, position, f"the transaction begins at offset {first}, not at {entry.first_offset}")
        before = entry.last_offset
    missing = aborts.needed.keys() - {entry.last_offset for _, entry in entries}
    if missing:
        offset = min(missing)
        what = f"the transaction that producer {aborts.markers[offset]} aborted at offset {offset} is missing"
        raise Bad(path, size, f"{what}: readers of committed records are shown it")
