"""The active segment: its open file, its growing indexes, and the exact positions of the newest batches."""

import errno
from bisect import bisect_left, bisect_right
from functools import partial

from penstock.model.batch import HEADER, HEADER_BYTES, PREFIX_BYTES
from penstock.model.ids import OFFSET_ZERO, Offset
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.names import OFFSET_INDEX, TIME_INDEX
from penstock.storage.offset_index import OffsetIndex, WouldBlock
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.settings import LogSettings, segment_ms_effective
from penstock.storage.slices import ColdSlice, FileSlice
from penstock.storage.time_index import TimeIndex
from penstock.storage.walk import find, walk

RELATIVE_OFFSET_MAX = 2**31 - 1
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

INDEX_INTERVAL_BYTES_MAX = 256 * 1024
"""An index entry is made at least this often; the exact positions of the batches since the last one are kept."""

INDEX_SAVE_ENTRIES = 64
"""Index entries of the active segment that its files may lack; recovery scans the rest of the segment."""

HOT_TAIL_BYTES = 8 * 1024 * 1024
"""The newest bytes of the log that are taken to be in the page cache without probing."""

ROLL_AT_ONCE = -(2**63)


class ActiveSegment:
    """The segment that appends go to, with the state that an append needs.

    It exists while the segment's file is open for appends; opening the file again rebuilds it.
    """

    __slots__ = (
        "base",
        "file",
        "first_timestamp",
        "index_entries_max",
        "interval",
        "jitter_ms",
        "last_offset_max",
        "limit",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "roll_after",
        "segment",
        "size",
        "tail_from",
        "tail_lasts",
        "tail_positions",
        "times",
        "unindexed",
    )

    def __init__(
        self, segment: Segment, file: DiskFile, offsets: OffsetIndex, times: TimeIndex, tail_from: Offset
    ) -> None:
        self.segment = segment
        self.file = file
        self.base = segment.base
        self.size = segment.size
        self.offsets = offsets
        self.times = times
        self.max_timestamp = segment.max_timestamp
        self.max_timestamp_offset: int = segment.max_timestamp_offset
        """A plain number, as in `tail_lasts`: every append computes it."""
        self.first_timestamp = NO_TIMESTAMP
        """The greatest timestamp of the first batch: the age of a segment counts from it."""
        self.last_offset_max = segment.base + RELATIVE_OFFSET_MAX
        self.unindexed = 0
        """Bytes since the last index entry."""
        self.tail_from = tail_from
        """From this offset on, `tail_lasts` and `tail_positions` hold every batch's last offset and position."""
        self.tail_lasts: list[int] = []
        self.tail_positions: list[int] = []
        self.limit = 0
        """Greatest size of the segment; 0 once an index is full."""
        self.roll_after = ROLL_AT_ONCE
        """A batch with a later timestamp may roll the segment. An empty segment has no age, and checks every batch."""
        self.interval = 0
        self.jitter_ms = 0
        self.index_entries_max = 0

    def configure(self, settings: LogSettings, jitter_ms: int) -> None:
        """Apply a topic's settings, also to a segment that has batches already."""
        self.jitter_ms = jitter_ms
        self.interval = min(settings.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX)
        entries_max = settings.segment_index_bytes // OFFSET_ENTRY_BYTES
        # The time index keeps room for the entry that is made when the segment ends.
        self.index_entries_max = min(entries_max, settings.segment_index_bytes // TIME_ENTRY_BYTES - 1)
        self.limit = 0 if len(self.offsets) >= self.index_entries_max else settings.segment_bytes_effective
        if self.size and self.first_timestamp >= 0:
            self.roll_after = self.first_timestamp + segment_ms_effective(settings) - jitter_ms

    def begin(self, first_timestamp: int, settings: LogSettings) -> None:
        """The first batch is about to be written."""
        self.first_timestamp = first_timestamp
        if first_timestamp >= 0:
            self.roll_after = first_timestamp + segment_ms_effective(settings) - self.jitter_ms

    def is_full_for(self, size: int, timestamp: int, last_offset: Offset, now_ms: int, segment_ms: int) -> bool:
        """Whether a batch must go to a new segment: this one would become too large, too old or too long in offsets."""
        if self.size + size > self.limit or last_offset > self.last_offset_max:
            return True
        if self.first_timestamp >= 0:
            waited_ms = timestamp - self.first_timestamp
        else:
            waited_ms = now_ms - self.segment.modified_ms
        return waited_ms > segment_ms - self.jitter_ms

    def append_rest(self, batch: memoryview, written: int) -> None:
        """Append the rest of a batch that was written in part; raises the error of the disk."""
        while written < len(batch):
            more = self.file.append(batch[written:])
            if more == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written += more

    def index(self, last_offset: Offset, position: int) -> None:
        """Add index entries for a batch that was just written, and drop the exact positions before it."""
        self.offsets.append(last_offset - self.base, position)
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)
        self.unindexed = 0
        self.tail_lasts.clear()
        self.tail_positions.clear()
        if len(self.offsets) >= self.index_entries_max:
            self.limit = 0

    def find(self, offset: Offset, *, wait: bool) -> int:
        """Position of the first batch that ends at or beyond `offset`; the end of the segment when none does."""
        if offset >= self.tail_from:
            at = bisect_left(self.tail_lasts, offset)
            return self.tail_positions[at] if at < len(self.tail_positions) else self.size
        found = find(self.file, self.offsets.floor(offset - self.base), self.size, offset, wait=wait)
        return self.size if found is None else found[0]

    def cut(self, position: int, bytes_max: int, at_least_one: bool) -> int:
        """Length of a slice of at most `bytes_max`: up to the last batch boundary that is known, or the first batch."""
        boundary = self.offsets.boundary(position + bytes_max)
        if boundary > position:
            return boundary - position
        at = bisect_right(self.tail_positions, position + bytes_max) - 1
        if at >= 0 and self.tail_positions[at] > position:
            return self.tail_positions[at] - position
        header = self.file.pread_nowait(HEADER_BYTES, position)
        if header is None:
            raise WouldBlock
        first: int = HEADER.unpack(header)[1] + PREFIX_BYTES
        return first if first <= bytes_max or at_least_one else 0

    def cold_slice(self, offset: Offset, bytes_max: int, end: Offset, at_least_one: bool) -> ColdSlice:
        """A slice whose position is looked up off the loop, starting from the nearest index entries."""
        return ColdSlice(
            bytes_max,
            partial(
                locate,
                self.file,
                self.size,
                (offset, self.offsets.floor(offset - self.base)),
                (end, self.offsets.floor(end - self.base)),
                bytes_max,
                at_least_one,
            ),
        )

    def describe(self) -> Segment:
        """The segment, brought up to date."""
        segment = self.segment
        segment.size = self.size
        segment.max_timestamp = self.max_timestamp
        segment.max_timestamp_offset = Offset(self.max_timestamp_offset)
        segment.timestamp_read = False
        return segment

    def finish(self) -> None:
        """Add the greatest timestamp to the time index, so that it is known without reading the segment."""
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)

    def save_indexes(self, disk: Disk, directory: str) -> None:
        """Append new entries to the index files; entries that a full disk refuses are left to a later call."""
        for index, kind in ((self.offsets, OFFSET_INDEX), (self.times, TIME_INDEX)):
            path = self.segment.path(directory, kind)
            if index.saved == 0:
                self.segment.indexes_synced = False
                disk.write_file(path, index.unsaved())
            elif index.saved < len(index):
                file = disk.open(path, create=True)
                before = file.size()
                data = index.unsaved()
                self.segment.indexes_synced = False
                if file.append(data) != len(data):
                    file.truncate(before)
                    continue
            index.saved = len(index)


def locate(
    file: DiskFile,
    size: int,
    first: tuple[Offset, int],
    end: tuple[Offset, int],
    bytes_max: int,
    at_least_one: bool,
) -> FileSlice | None:
    """Whole batches between two offsets, each given with a batch start at or before it. Waits for the disk."""
    found = find(file, first[1], size, first[0], wait=True)
    if found is None:
        return None
    position, first_size = found
    beyond = find(file, end[1], size, end[0], wait=True)
    length = (size if beyond is None else beyond[0]) - position
    if length > bytes_max:
        length = first_size if first_size <= bytes_max or at_least_one else 0
        for batch in walk(file, position, size, offset_min=OFFSET_ZERO, bodies=False):
            reached = batch.position + batch.header.size - position
            if reached > bytes_max:
                break
            length = reached
    return FileSlice(file, position, length, False) if length > 0 else None
