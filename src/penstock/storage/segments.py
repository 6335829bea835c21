"""The segments of one log: finds slices in them, and rolls, drops, replaces and truncates them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import overload

from penstock.model.batch import HEADER, HEADER_BYTES, BatchHeader
from penstock.model.clock import Clock, Randomness
from penstock.model.ids import Offset
from penstock.storage import txn_index
from penstock.storage.active_segment import HOT_TAIL_BYTES, ActiveSegment
from penstock.storage.names import LOG, OFFSET_INDEX, TIME_INDEX
from penstock.storage.offset_index import OffsetIndex, WouldBlock
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.scan import SegmentScan
from penstock.storage.segment import NO_TIMESTAMP, Segment, SegmentReader
from penstock.storage.segment_files import mark_deleted, read_or_empty, remove_segment
from penstock.storage.settings import LogSettings
from penstock.storage.slices import ColdSlice, FileSlice
from penstock.storage.time_index import TimeIndex
from penstock.storage.txn_index import TxnIndexDamaged


def segment_base(segment: Segment) -> Offset:
    return segment.base


class LogSegments(Sequence[Segment]):
    """Segments in the order of their offsets. Appends go to the newest, which is `active` while its file is open.

    The log's end is an argument where it is needed: the log assigns offsets, its segments only store them.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_directory",
        "_randomness",
        "_segments",
        "active",
        "pooled",
        "size_bytes",
        "touched",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogSettings,
        *,
        clock: Clock,
        randomness: Randomness,
        size_bytes: int = 0,
    ) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self._randomness = randomness
        self._segments: list[Segment] = []
        self.size_bytes = size_bytes
        """Size of all segments; before the log is opened, as of the last clean stop."""
        self.active: ActiveSegment | None = None
        self.touched = False
        self.pooled = False

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def config(self) -> LogSettings:
        return self._config

    @config.setter
    def config(self, config: LogSettings) -> None:
        self._config = config
        if self.active is not None:
            self.active.configure(config, self._jitter())

    def _jitter(self) -> int:
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return self._randomness.below(bound) if bound > 0 else 0

    def load(self, segments: list[Segment]) -> None:
        """Take over the segments that recovery found."""
        self._segments = segments
        self.size_bytes = sum(segment.size for segment in segments)

    def describe(self) -> Sequence[Segment]:
        """All segments, with size and timestamps of the active one brought up to date."""
        if self.active is not None:
            self.active.describe()
        return self._segments

    def dirty_from(self, recovery_point: Offset) -> list[Segment]:
        """The segment that the recovery point is in or at the end of, and those after it.

        A segment that ends there was flushed before it was finished: its indexes were written after that.
        """
        return self._segments[max(bisect_left(self._segments, recovery_point, key=segment_base) - 1, 0) :]

    # The active segment

    def open_active(self, log_end: Offset) -> ActiveSegment:
        """Open the newest segment for appends; a log without segments gets its first one."""
        if self.active is not None:
            return self.active
        directory = self._directory
        directory.log_directory.check()
        disk, path = directory.disk, directory.path
        try:
            if not self._segments:
                return self.start(log_end)
            segment = self._segments[-1]
            file = disk.open(segment.path(path, LOG))
            offsets = OffsetIndex.load(read_or_empty(disk, segment.path(path, OFFSET_INDEX)))
            times = TimeIndex.load(read_or_empty(disk, segment.path(path, TIME_INDEX)))
            segment.greatest_timestamp(disk, path)
            active = ActiveSegment(segment, file, offsets, times, log_end)
            if active.size:
                first = HEADER.unpack(file.pread(HEADER_BYTES, 0))
                active.begin(BatchHeader._make(first).max_timestamp, self._config)
        except OSError as error:
            raise directory.failed(error, f"opening the newest segment of {directory.tp}") from error
        return self._install(active)

    def start(self, base: Offset) -> ActiveSegment:
        """Create an empty segment and make it the active one. `OSError` when the disk refuses."""
        directory = self._directory
        directory.make()
        segment = Segment(base, 0, self._clock.now_ms())
        segment.max_timestamp = NO_TIMESTAMP
        file = directory.disk.open(segment.path(directory.path, LOG), create=True)
        assert file.size() == 0, f"{directory.tp}: a new segment at {base} is not empty"
        self._segments.append(segment)
        return self._install(ActiveSegment(segment, file, OffsetIndex(), TimeIndex(), base))

    def _install(self, active: ActiveSegment) -> ActiveSegment:
        active.configure(self._config, self._jitter())
        self.active = active
        self._directory.log_directory.files.admit(self)
        return active

    def roll(self, log_end: Offset) -> bool:
        """Finish the active segment and start another; False, and no change, when it is empty."""
        active = self.open_active(log_end)
        if active.size == 0:
            return False
        active.finish()
        self.save_indexes(active)
        active.describe()
        self.active = None
        try:
            self.start(log_end)
        except OSError as error:
            self.active = active
            directory = self._directory
            raise directory.log_directory.failed(error, f"creating a segment of {directory.tp}") from error
        return True

    def save_indexes(self, active: ActiveSegment) -> None:
        """Write new index entries. A full disk does not fail the append: searches become slower, not wrong."""
        directory = self._directory
        try:
            active.save_indexes(directory.disk, directory.path)
        except OSError as error:
            directory.log_directory.failed(error, f"saving an index of {directory.tp}")

    def release(self) -> bool:
        """Close the active segment's file to make room for another; False when its indexes could not be saved."""
        try:
            self._close_active()
        except OSError:
            return False
        return True

    def _close_active(self) -> None:
        active = self.active
        if active is not None:
            active.save_indexes(self._directory.disk, self._directory.path)
            active.describe()
            self.active = None

    def abandon(self) -> None:
        """Close every file without saving: the log directory failed, or everything is saved already."""
        self.describe()
        self.active = None
        for segment in self._segments:
            self.forget(segment)
        self._directory.log_directory.files.forget(self)

    def forget(self, segment: Segment) -> None:
        """Close a segment's files."""
        segment.release()
        self._directory.log_directory.files.forget(segment)

    # Reading

    def slice_from(
        self, active: ActiveSegment, offset: Offset, bytes_max: int, end: Offset, log_end: Offset, at_least_one: bool
    ) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, all below offset `end`. See `Log.slice`."""
        self.touched = True
        if offset < active.base:
            return self._slice_finished(active, offset, bytes_max, end, log_end, at_least_one)
        try:
            if offset >= active.tail_from:
                position = active.tail_positions[bisect_left(active.tail_lasts, offset)]
            else:
                position = active.find(offset, wait=False)
            limit = active.size if end >= log_end else active.find(end, wait=False)
            length = limit - position
            if length > bytes_max:
                length = active.cut(position, bytes_max, at_least_one)
        except WouldBlock:
            return active.cold_slice(offset, bytes_max, end, at_least_one)
        if length <= 0:
            return None
        return FileSlice(active.file, position, length, position >= active.size - HOT_TAIL_BYTES)

    def _slice_finished(
        self, active: ActiveSegment, offset: Offset, bytes_max: int, end: Offset, log_end: Offset, at_least_one: bool
    ) -> FileSlice | None:
        segments = self._segments
        at = bisect_right(segments, offset, key=segment_base) - 1
        while at < len(segments) - 1:
            reader = self._reader(segments[at])
            bound = end if end < segments[at + 1].base else None
            try:
                found = reader.find(offset, wait=False)
                if found is not None:
                    return reader.slice(found, bytes_max, bound, at_least_one, wait=False)
            except WouldBlock:
                return ColdSlice(bytes_max, partial(reader.slice_at, offset, bytes_max, bound, at_least_one))
            if bound is not None:
                return None
            # The rest of this segment is a gap: the next batch is in a later one.
            at += 1
            offset = segments[at].base
        if offset >= min(end, log_end):
            return None
        return self.slice_from(active, offset, bytes_max, end, log_end, at_least_one)

    def _reader(self, segment: Segment) -> SegmentReader:
        segment.touched = True
        if segment.file is None:
            directory = self._directory
            try:
                segment.open(directory.disk, directory.path)
            except OSError as error:
                raise directory.failed(error, f"opening a segment of {directory.tp}") from error
            directory.log_directory.files.admit(segment)
        return SegmentReader(segment)

    def beyond(self, offset: Offset, records: FileSlice, log_end: Offset) -> Offset:
        """An offset beyond all records of a slice from `offset`. See `Log.beyond`."""
        segments = self._segments
        at = bisect_right(segments, offset, key=segment_base) - 1
        if isinstance(records, ColdSlice):
            return segments[at + 1].base if at + 1 < len(segments) else log_end
        stop = records.position + len(records)
        for segment, later in pairwise(segments[at:]):
            if segment.file is records.file:
                known = SegmentReader(segment).beyond(stop)
                return later.base if known is None else known
        active = self.active
        if active is None or active.file is not records.file:
            return log_end
        relative = active.offsets.beyond(stop)
        return log_end if relative is None else Offset(active.base + relative)

    # Removing

    def drop_oldest(self, count: int) -> list[str]:
        """Rename the files of the oldest segments out of the log; returns the new names, to be removed later."""
        directory = self._directory
        assert count < len(self._segments), f"{directory.tp}: {count} of {len(self._segments)} segments"
        dropped = self._segments[:count]
        marked: list[str] = []
        try:
            for segment in dropped:
                self.forget(segment)
                marked += mark_deleted(directory.disk, directory.path, segment.base)
        except OSError as error:
            raise directory.log_directory.failed(error, f"dropping segments of {directory.tp}") from error
        self.size_bytes -= sum(segment.size for segment in dropped)
        del self._segments[:count]
        return marked

    def run_of(self, bases: Sequence[Offset]) -> list[Segment]:
        """The adjacent segments with these base offsets."""
        first = bisect_left(self._segments, bases[0], key=segment_base)
        run = self._segments[first : first + len(bases)]
        assert [segment.base for segment in run] == list(bases), f"{self._directory.tp}: {run} are not {bases}"
        return run

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace adjacent segments by one whose files are in place already."""
        first = self._segments.index(old[0])
        self._segments[first : first + len(old)] = [new]
        self.size_bytes += new.size - sum(segment.size for segment in old)

    def truncate_to(self, offset: Offset) -> Offset:
        """Remove everything from the batch that holds `offset` on; returns the offset after the last batch left."""
        self._close_active()
        keep = bisect_left(self._segments, offset, key=segment_base)
        self._remove(self._segments[keep:])
        del self._segments[keep:]
        reached = self._cut_newest(offset)
        self.size_bytes = sum(segment.size for segment in self._segments)
        return reached

    def _cut_newest(self, offset: Offset) -> Offset:
        segment = self._segments[-1]
        found = self._reader(segment).find(offset, wait=True)
        self.forget(segment)
        disk, path = self._directory.disk, self._directory.path
        file = disk.open(segment.path(path, LOG))
        if found is not None:
            file.truncate(found[0])
            file.sync()
        scan = SegmentScan(segment.base)
        scan.run(file, file.size(), self._config.index_interval_bytes, verify=False)
        if scan.bad is not None:
            raise self._directory.take_offline(f"{scan.bad} before the cut at {offset}")
        self._segments[-1] = scan.save(disk, path, segment.modified_ms, sync=True)
        # A damaged index is rebuilt with the producers, which have to be replayed too.
        with suppress(TxnIndexDamaged):
            txn_index.truncate_to(disk, txn_index.path_of(path, segment.base), offset)
        return scan.next_offset

    def clear(self) -> None:
        """Remove every segment."""
        self.active = None
        self._remove(self._segments)
        self._segments.clear()
        self.size_bytes = 0

    def _remove(self, segments: list[Segment]) -> None:
        # Newest first: a crash in between must leave no gap.
        for segment in reversed(segments):
            self.forget(segment)
            remove_segment(self._directory.disk, self._directory.path, segment.base)
