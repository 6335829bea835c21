"""A snapshot of a log, for reading off the loop: lookups by time, replay, scrubbing."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.batch import HEADER_BYTES, BatchHeader
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import OFFSET_ZERO, LeaderEpoch, Offset
from penstock.storage import time_index
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.names import LOG, OFFSET_INDEX, TIME_INDEX, offset_name
from penstock.storage.offset_index import OffsetIndexFile
from penstock.storage.segment import NO_TIMESTAMP, UNREAD_TIMESTAMP, Segment, read_last_time
from penstock.storage.walk import BadBatch, BatchAt, walk
from penstock.wire.compression import stream_bytes
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.records import first_record


class LogChanged(KafkaStorageError):
    """Files of the log were replaced, truncated or renamed since its view was made: make another view."""


class TimedOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A segment at the time of the view."""

    base: Offset
    size: int
    max_timestamp: int
    max_timestamp_offset: Offset
    modified_ms: int

    @classmethod
    def of(cls, segment: Segment) -> "SegmentView":
        return cls(
            base=segment.base,
            size=segment.size,
            max_timestamp=segment.max_timestamp,
            max_timestamp_offset=segment.max_timestamp_offset,
            modified_ms=segment.modified_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """An immutable snapshot of a log. It opens files by name, and skips segments that retention dropped since.

    Any other change of the files raises `LogChanged`: a file of the same name may be another one.
    """

    disk: Disk
    path: str
    log_start: Offset
    log_end: Offset
    segments: tuple[SegmentView, ...]
    rewrites: int = 0
    """The log's rewrite count when the view was made."""
    rewrites_now: Callable[[], int] = int

    def check(self) -> None:
        """Raise if the files may have changed since the view was made.

        The log counts a change before it makes it, so that a file opened before a check that passes is the right one.
        """
        if self.rewrites_now() != self.rewrites:
            raise LogChanged(f"The files in {self.path} have changed while they were read.")

    def file(self, segment: SegmentView, kind: str) -> DiskFile | None:
        try:
            found = self.disk.open_read(f"{self.path}/{offset_name(segment.base, kind)}")
        except FileNotFoundError:
            found = None
        self.check()
        return found

    def walk(
        self, file: DiskFile, start: int, segment: SegmentView, *, bodies: bool, control_bodies: bool = False
    ) -> Iterator[BatchAt]:
        """The batches of a segment from a position on, read as `walk` does; a truncated file raises `LogChanged`."""
        try:
            yield from walk(
                file, start, segment.size, offset_min=segment.base, bodies=bodies, control_bodies=control_bodies
            )
        except BadBatch:
            self.check()
            raise

    def floor(self, segment: SegmentView, offset: Offset) -> int:
        """A batch start at or before an offset, from the index on disk."""
        index = self.file(segment, OFFSET_INDEX)
        if index is None:
            return 0
        position = OffsetIndexFile(index, index.size()).floor(offset - segment.base, wait=True)
        return position if position < segment.size else 0

    def walk_from(self, offset: Offset, *, bodies: bool, control_bodies: bool = False) -> Iterator[BatchAt]:
        """Batches from the one that holds an offset to the end, read whole as `walk` does."""
        for at, segment in enumerate(self.segments):
            if at + 1 < len(self.segments) and self.segments[at + 1].base <= offset:
                continue
            file = self.file(segment, LOG)
            if file is None:
                continue
            start = self.floor(segment, offset) if offset > segment.base else 0
            for batch in self.walk(file, start, segment, bodies=bodies, control_bodies=control_bodies):
                if batch.header.last_offset >= offset:
                    yield batch

    def batches(self, from_offset: Offset) -> Iterator[BatchHeader]:
        return (batch.header for batch in self.walk_from(from_offset, bodies=False))

    def offset_for_time(self, timestamp: int, budget: DecompressionBudget | None = None) -> TimedOffset | None:
        """The first record, in order of offset, with a timestamp at or after `timestamp`."""
        for segment in self.segments:
            if self.newest(segment)[0] < timestamp:
                continue
            file = self.file(segment, LOG)
            if file is None:
                continue
            start = self.floor(segment, max(self._time_floor(segment, timestamp), self.log_start))
            for batch in self.walk(file, start, segment, bodies=True):
                if batch.header.max_timestamp >= timestamp and batch.header.last_offset >= self.log_start:
                    found = self._first_record(batch, timestamp, budget)
                    if found is not None:
                        return found
        return None

    def max_timestamp(self, budget: DecompressionBudget | None = None) -> TimedOffset | None:
        """The record with the greatest timestamp, the first of several."""
        newest, holder, last_offset = NO_TIMESTAMP, None, OFFSET_ZERO
        for segment in self.segments:
            timestamp, offset = self.newest(segment)
            if timestamp > newest:
                newest, holder, last_offset = timestamp, segment, offset
        if holder is None:
            return None
        return next(
            (
                found
                for batch in self.walk_from(max(last_offset, self.log_start), bodies=True)
                if batch.header.max_timestamp == newest
                for found in (self._first_record(batch, newest, budget),)
                if found is not None
            ),
            None,
        )

    def newest(self, segment: SegmentView) -> tuple[int, Offset]:
        """The greatest timestamp of a segment and the last offset of its batch; (-1, base) when records have none."""
        if segment.max_timestamp != UNREAD_TIMESTAMP:
            return segment.max_timestamp, segment.max_timestamp_offset
        entry = read_last_time(self.disk, f"{self.path}/{offset_name(segment.base, TIME_INDEX)}")
        return (NO_TIMESTAMP, segment.base) if entry is None else (entry[0], Offset(segment.base + entry[1]))

    def _time_floor(self, segment: SegmentView, timestamp: int) -> Offset:
        index = self.file(segment, TIME_INDEX)
        if index is None:
            return segment.base
        return Offset(segment.base + time_index.TimeIndex.load(index.pread(index.size(), 0)).floor(timestamp))

    def _first_record(self, batch: BatchAt, timestamp: int, budget: DecompressionBudget | None) -> TimedOffset | None:
        """The first record of a batch at or after a timestamp; decompresses only up to that record."""
        header, data = batch.header, batch.data
        with budget.hold(stream_bytes(header.codec, data[HEADER_BYTES:])) if budget is not None else nullcontext():
            found = first_record(data, header, timestamp, self.log_start)
        return None if found is None else TimedOffset(*found, header.leader_epoch)
