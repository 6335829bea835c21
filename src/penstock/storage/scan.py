"""Scan of a segment: finds its sound batches and builds their indexes."""

from bisect import bisect_right

from penstock.model.batch import HEADER, HEADER_BYTES, BatchHeader
from penstock.model.ids import LeaderEpoch, Offset
from penstock.storage.active_segment import INDEX_INTERVAL_BYTES_MAX
from penstock.storage.disk import Disk, DiskFile, replace_file
from penstock.storage.names import OFFSET_INDEX, TIME_INDEX, offset_name
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.time_index import TimeIndex
from penstock.storage.walk import GAP_MAX, BadBatch, walk


class SegmentScan:
    """The contents of a segment up to `size`; `bad` describes the damaged batch there, if any."""

    __slots__ = (
        "bad",
        "base",
        "epochs",
        "floor",
        "gap_at",
        "indexed",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "size",
        "times",
    )

    def __init__(self, base: Offset) -> None:
        self.base = base
        self.size = 0
        self.next_offset = base
        self.floor = base
        """Where the last batch would have begun without a gap before it."""
        self.gap_at: int | None = None
        """The position of the last batch if there is a gap before it."""
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base
        self.epochs: list[tuple[LeaderEpoch, Offset]] = []
        """Leader epochs in the order of the batches, each with its first offset."""
        self.bad: BadBatch | None = None
        self.indexed = False
        """Whether the index files are known to be right as they are."""

    def resume(self, file: DiskFile, position: int, offsets: OffsetIndex, times: TimeIndex) -> bool:
        """Start at the last indexed batch at or before `position`, trusting the indexes up to there.

        False when the log has no such batch at that position: then the indexes are useless.
        """
        kept = bisect_right(offsets.positions, max(position, 0))
        if kept == 0:
            return True
        start, relative = offsets.positions[kept - 1], offsets.offsets[kept - 1]
        header = file.pread(HEADER_BYTES, start)
        if len(header) < HEADER_BYTES:
            return False
        found = BatchHeader._make(HEADER.unpack(header))
        if found.last_offset != self.base + relative:
            return False
        offsets.truncate_to_size(start + 1)
        times.truncate_to_offset(relative + 1)
        self.offsets, self.times = offsets, times
        if len(times):
            self.max_timestamp = times.timestamps[-1]
            self.max_timestamp_offset = Offset(self.base + times.offsets[-1])
        self.size = start
        self.next_offset = self.floor = found.base_offset
        return True

    def run(
        self,
        file: DiskFile,
        end: int,
        interval: int,
        *,
        verify: bool,
        gap_max: int = GAP_MAX,
        offset_end: Offset | None = None,
    ) -> None:
        """Scan from the current position to `end`, indexing as an append would have.

        The next segment begins at `offset_end`: a batch after a gap that reaches it has a corrupt offset.
        """
        interval = min(interval, INDEX_INTERVAL_BYTES_MAX)
        unindexed = 0
        epoch = self.epochs[-1][0] if self.epochs else None
        try:
            for batch in walk(file, self.size, end, offset_min=self.next_offset, bodies=verify, gap_max=gap_max):
                header = batch.header
                last = header.last_offset
                if offset_end is not None and last >= offset_end and header.base_offset > self.next_offset:
                    raise BadBatch(batch.position, self.next_offset, f"it reaches {last}, beyond {offset_end}")
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp = header.max_timestamp
                    self.max_timestamp_offset = last
                if unindexed > interval:
                    self._index(last, batch.position)
                    unindexed = 0
                unindexed += header.size
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    self.epochs.append((epoch, header.base_offset))
                self.size = batch.position + header.size
                self.gap_at = batch.position if header.base_offset > self.next_offset else None
                self.floor, self.next_offset = self.next_offset, header.next_offset
        except BadBatch as bad:
            self.bad = bad

    def _index(self, last: Offset, position: int) -> None:
        self.offsets.append(last - self.base, position)
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)

    def _finish(self) -> None:
        """Add the greatest timestamp to the time index, and have both indexes written whole."""
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)
        self.offsets.saved = self.times.saved = 0

    def replace(self, disk: Disk, directory: str) -> None:
        """Replace the index files of a segment in use, durably: readers may have the old ones open."""
        self._finish()
        for index, kind in ((self.offsets, OFFSET_INDEX), (self.times, TIME_INDEX)):
            replace_file(disk, f"{directory}/{offset_name(self.base, kind)}", index.unsaved(), sync=True)

    def segment(self, modified_ms: int) -> Segment:
        """The segment, as far as it is sound."""
        segment = Segment(self.base, self.size, modified_ms)
        segment.max_timestamp = self.max_timestamp
        segment.max_timestamp_offset = self.max_timestamp_offset
        return segment

    def save(self, disk: Disk, directory: str, modified_ms: int, *, sync: bool = False) -> Segment:
        """Write the indexes whole, and describe the segment.

        With `sync`, as a segment needs that no flush visits, or that was cut: entries from before would point into
        later batches.
        """
        self._finish()
        segment = self.segment(modified_ms)
        segment.indexes_synced = sync
        disk.write_file(segment.path(directory, OFFSET_INDEX), self.offsets.unsaved(), sync=sync)
        disk.write_file(segment.path(directory, TIME_INDEX), self.times.unsaved(), sync=sync)
        return segment
