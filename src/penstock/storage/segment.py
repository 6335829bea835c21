"""A segment of a log, and reads of finished segments."""

from penstock.model.batch import HEADER, HEADER_BYTES, PREFIX_BYTES
from penstock.model.ids import Offset
from penstock.storage import time_index
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.names import LOG, OFFSET_INDEX, TIME_INDEX, offset_name
from penstock.storage.offset_index import OffsetIndexFile, WouldBlock
from penstock.storage.slices import FileSlice
from penstock.storage.walk import find

NO_TIMESTAMP = -1
UNREAD_TIMESTAMP = -2
"""The greatest timestamp is in the time index, which has not been read yet."""


class Segment:
    """A segment of a log; the newest also has an `ActiveSegment` while its file is open for appends."""

    __slots__ = (
        "base",
        "entry_synced",
        "file",
        "index",
        "indexes_synced",
        "max_timestamp",
        "max_timestamp_offset",
        "modified_ms",
        "pooled",
        "read_to",
        "size",
        "timestamp_read",
        "touched",
    )

    def __init__(self, base: Offset, size: int, modified_ms: int) -> None:
        self.base = base
        self.size = size
        self.modified_ms = modified_ms
        self.max_timestamp = UNREAD_TIMESTAMP
        self.max_timestamp_offset = base
        """Last offset of the first batch that has the greatest timestamp."""
        self.timestamp_read = False
        """Whether the greatest timestamp is what the index file says: the log has not confirmed it."""
        self.file: DiskFile | None = None
        self.index: OffsetIndexFile | None = None
        self.read_to = 0
        """Where the last slice ended: a sequential reader finds its batch there, without a search."""
        self.touched = False
        self.pooled = False
        self.entry_synced = False
        """Whether the file's directory entry survives a power cut."""
        self.indexes_synced = True
        """Whether its indexes of offsets and times survive a power cut as they are."""

    def __repr__(self) -> str:
        return f"Segment(base={self.base}, size={self.size})"

    def path(self, directory: str, kind: str) -> str:
        return f"{directory}/{offset_name(self.base, kind)}"

    def open(self, disk: Disk, directory: str) -> DiskFile:
        """The open file, with its index beside it."""
        if self.file is None:
            self.file = disk.open_read(self.path(directory, LOG))
            try:
                index = disk.open_read(self.path(directory, OFFSET_INDEX))
                self.index = OffsetIndexFile(index, index.size())
            except FileNotFoundError:
                # Without an index the segment is searched from its start, which is slow and correct.
                self.index = None
        return self.file

    def release(self) -> bool:
        self.file = None
        self.index = None
        self.read_to = 0
        return True

    def greatest_timestamp(self, disk: Disk, directory: str) -> int:
        """The greatest timestamp of its records; -1 when they have none. Reads the end of the time index once."""
        if self.max_timestamp == UNREAD_TIMESTAMP:
            self.max_timestamp = NO_TIMESTAMP
            self.timestamp_read = True
            entry = read_last_time(disk, self.path(directory, TIME_INDEX))
            if entry is not None:
                self.max_timestamp = entry[0]
                self.max_timestamp_offset = Offset(self.base + entry[1])
        return self.max_timestamp

    def age_timestamp(self, disk: Disk, directory: str) -> int:
        """The timestamp that its age counts from: its newest record's, or the file's where records have none."""
        newest = self.greatest_timestamp(disk, directory)
        return newest if newest >= 0 else self.modified_ms


def read_last_time(disk: Disk, path: str) -> tuple[int, int] | None:
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        return None
    size = file.size() // time_index.ENTRY_BYTES * time_index.ENTRY_BYTES
    return time_index.last_entry(file.pread(time_index.ENTRY_BYTES, size - time_index.ENTRY_BYTES)) if size else None


class SegmentReader:
    """Reads an open, finished segment: without waiting for the disk on the loop, with waiting off it."""

    __slots__ = ("base", "file", "index", "segment", "size")

    def __init__(self, segment: Segment) -> None:
        assert segment.file is not None, "a reader needs an open segment"
        self.base = segment.base
        self.size = segment.size
        self.file = segment.file
        self.index = segment.index
        self.segment = segment

    def find(self, offset: Offset, *, wait: bool) -> tuple[int, int] | None:
        """Position and size of the first batch that ends at or beyond `offset`; None when the segment has none.

        Without `wait`, raises `WouldBlock` instead of reading from the disk.
        """
        resumed = self._resume(offset)
        if resumed is not None:
            return resumed
        start = self.index.floor(offset - self.base, wait=wait) if self.index else 0
        return find(self.file, start, self.size, offset, wait=wait)

    def _resume(self, offset: Offset) -> tuple[int, int] | None:
        """The batch where the last slice ended, if it is the one that holds `offset`."""
        position = self.segment.read_to
        if position == 0 or position + HEADER_BYTES > self.size:
            return None
        read = self.file.pread_nowait(HEADER_BYTES, position)
        if read is None:
            return None
        header = HEADER.unpack(read)
        if header[0] <= offset <= header[0] + header[6]:
            return position, header[1] + PREFIX_BYTES
        return None

    def slice(
        self, found: tuple[int, int], bytes_max: int, end: Offset | None, at_least_one: bool, *, wait: bool
    ) -> FileSlice | None:
        """Whole batches from the found one on, below offset `end`; None when none is below it or fits."""
        position, first_size = found
        beyond = None if end is None else self.find(end, wait=wait)
        limit = self.size if beyond is None else beyond[0]
        length = limit - position
        if length > bytes_max:
            cut = self.index.boundary(position + bytes_max, wait=wait) if self.index else 0
            length = max(cut - position, first_size if first_size <= bytes_max or at_least_one else 0)
        if length <= 0:
            return None
        if not wait:
            self.segment.read_to = position + length
        # A header that was found without waiting has its page in memory.
        return FileSlice(self.file, position, length, False, probed=not wait)

    def slice_at(self, offset: Offset, bytes_max: int, end: Offset | None, at_least_one: bool) -> FileSlice | None:
        """As `find` and `slice` together, waiting for the disk. Off the loop."""
        found = self.find(offset, wait=True)
        return None if found is None else self.slice(found, bytes_max, end, at_least_one, wait=True)

    def beyond(self, position: int) -> Offset | None:
        """An offset beyond all batches before `position`; None where the index cannot give one without waiting."""
        try:
            relative = None if self.index is None else self.index.beyond(position, wait=False)
        except WouldBlock:
            return None
        return None if relative is None else Offset(self.base + relative)
