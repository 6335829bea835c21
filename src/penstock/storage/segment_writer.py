"""Writes a segment with its indexes under temporary names, to be swapped in later."""

from penstock.model.batch import BatchHeader
from penstock.model.ids import Offset
from penstock.storage import txn_index
from penstock.storage.active_segment import INDEX_INTERVAL_BYTES_MAX
from penstock.storage.disk import Buffer, Disk
from penstock.storage.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_FILES, SWAP, TIME_INDEX, TXN_INDEX, offset_name
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.quarantine import write_whole
from penstock.storage.segment import NO_TIMESTAMP
from penstock.storage.segment_files import unlink_if_there
from penstock.storage.time_index import TimeIndex
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.view import SegmentView

BUFFER_BYTES = 1024 * 1024
"""Bytes written at once."""


class SegmentWriter:
    """A segment that is being written, under names that the log ignores. Off the loop."""

    def __init__(self, disk: Disk, directory: str, base: Offset, interval: int) -> None:
        self._disk = disk
        self._directory = directory
        self._interval = min(interval, INDEX_INTERVAL_BYTES_MAX)
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self._unindexed = 0
        self._buffer = bytearray()
        self._aborted: list[AbortedTxn] = []
        self.base = base
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base
        self.discard()
        self._file = disk.open(self._path(LOG, CLEANED), create=True)

    def _path(self, kind: str, suffix: str) -> str:
        return f"{self._directory}/{offset_name(self.base, kind)}{suffix}"

    def add(self, header: BatchHeader, data: Buffer) -> None:
        """Append a batch, indexed as an append would have."""
        last = header.last_offset
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last
        if self._unindexed > self._interval:
            self._offsets.append(last - self.base, self.size)
            self._note_time()
            self._unindexed = 0
        self._unindexed += len(data)
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._drain()

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """Keep an aborted transaction's entry: its marker is in this segment."""
        self._aborted.append(aborted)

    def _note_time(self) -> None:
        if self.max_timestamp >= 0:
            self._times.append(self.max_timestamp, self.max_timestamp_offset - self.base)

    def _drain(self) -> None:
        write_whole(self._file, memoryview(bytes(self._buffer)))
        self._buffer.clear()

    def finish(self, modified_ms: int) -> SegmentView:
        """Sync everything and rename the files for the swap: recovery finishes it after a crash from here on."""
        self._drain()
        self._note_time()
        self._file.sync()
        self._disk.write_file(self._path(OFFSET_INDEX, CLEANED), self._offsets.unsaved(), sync=True)
        self._disk.write_file(self._path(TIME_INDEX, CLEANED), self._times.unsaved(), sync=True)
        if self._aborted:
            self._disk.write_file(self._path(TXN_INDEX, CLEANED), txn_index.encode(self._aborted), sync=True)
        # The log comes last: its name makes the swap valid.
        for kind in reversed(SEGMENT_FILES):
            if kind != TXN_INDEX or self._aborted:
                self._disk.rename(self._path(kind, CLEANED), self._path(kind, SWAP))
        self._disk.sync_directory(self._directory)
        return SegmentView(
            base=self.base,
            size=self.size,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            modified_ms=modified_ms,
        )

    def discard(self) -> None:
        """Remove the written files; the log is unchanged."""
        discard_swap(self._disk, self._directory, self.base)


def discard_swap(disk: Disk, directory: str, base: Offset) -> None:
    """Remove a segment that was not swapped in, its log first, so that the rest does not look complete."""
    for suffix in (SWAP, CLEANED):
        for kind in SEGMENT_FILES:
            unlink_if_there(disk, f"{directory}/{offset_name(base, kind)}{suffix}")
