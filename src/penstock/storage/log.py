"""The log of one partition: batches in the order of their offsets, in segments.

Used on the loop thread only. Work that may wait for the disk is handed out as a snapshot (`view`, `begin_flush`), done
off the loop, and its result applied here.
"""

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import NoReturn

from penstock.model.batch import HEADER, PREFIX_BYTES, BatchHeader
from penstock.model.generated_errors import OffsetOutOfRange, RecordListTooLarge
from penstock.storage import producer_snapshot, txn_index
from penstock.storage.active_segment import HOT_TAIL_BYTES, INDEX_SAVE_ENTRIES, ActiveSegment
from penstock.storage.disk import DiskFile
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.flush import FlushJob
from penstock.storage.names import EPOCHS, LOG, PARTITION_METADATA, SEGMENT_FILES, TXN_INDEX
from penstock.storage.offset_index import WouldBlock
from penstock.storage.scan import SegmentScan
from penstock.storage.segment import Segment, SegmentReader
from penstock.storage.segment_files import mark_deleted, mark_gaps, remove_segment
from penstock.storage.segmented_log import SegmentedLog
from penstock.storage.settings import segment_ms_effective
from penstock.storage.slices import ColdSlice, FileSlice
from penstock.storage.summary import LogSummary
from penstock.storage.txn_index import TxnIndexDamaged
from penstock.storage.view import LogView, SegmentView, TimedOffset

STAMP = Struct(">qii")
"""Base offset, length and leader epoch: the 16 bytes that a broker writes into a batch."""


def segment_base(segment: Segment) -> int:
    return segment.base


class Log(SegmentedLog):
    """A partition's log."""

    __slots__ = ()

    # Writing

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int) -> int:
        """Stamp a batch with its offset and epoch, write it at the end, and give its base offset.

        `header` is the batch's own, with its timestamps as they are to be stored. A batch that cannot be written whole
        leaves nothing behind.
        """
        active = self.active
        if active is None:
            active = self.open_active()
        size = len(batch)
        timestamp = header.max_timestamp
        base = self.log_end
        last = base + header.last_offset_delta
        position = active.size
        if position + size > active.limit or timestamp > active.roll_after or last > active.last_offset_max:
            active = self._active_for(size, timestamp, last)
            position = active.size
        if leader_epoch != self.leader_epoch:
            self._begin_epoch(leader_epoch)
        STAMP.pack_into(batch, 0, base, size - PREFIX_BYTES, leader_epoch)
        try:
            written = active.file.append(batch)
            if written != size:
                self._append_rest(active, batch, written)
        except OSError as error:
            self._take_back(active, error)
        if timestamp > active.max_timestamp:
            active.max_timestamp = timestamp
            active.max_timestamp_offset = last
        active.size = position + size
        self.size_bytes += size
        self.log_end = last + 1
        self.touched = True
        if active.unindexed > active.interval:
            active.index(last, position)
            active.tail_from = base
            if len(active.offsets) - active.offsets.saved >= INDEX_SAVE_ENTRIES:
                self.save_indexes_softly(active)
        active.unindexed += size
        active.tail_lasts.append(last)
        active.tail_positions.append(position)
        return base

    def append_stamped(self, batches: memoryview, appended: Callable[[BatchHeader, memoryview], None]) -> None:
        """Write batches that have their offsets already, as a follower does. They may leave gaps and never go back.

        `appended` is called after each one: a segment may end before the next, and the snapshot beside it has the
        producers of exactly what precedes it.
        """
        position = 0
        while position < len(batches):
            header = BatchHeader._make(HEADER.unpack_from(batches, position))
            assert header.base_offset >= self.log_end, f"offset {header.base_offset} before the end {self.log_end}"
            before, self.log_end = self.log_end, header.base_offset
            if header.base_offset > before and self.size_bytes:
                self._allow_gaps()
            batch = batches[position : position + header.size]
            try:
                self.append(batch, header, header.leader_epoch)
            except BaseException:
                self.log_end = before
                raise
            appended(header, batch)
            position += header.size

    def _allow_gaps(self) -> None:
        try:
            mark_gaps(self.directory.disk, self.path)
        except OSError as error:
            raise self.directory.failed(error, f"noting a gap in {self.tp}") from error

    def _active_for(self, size: int, timestamp: int, last: int) -> ActiveSegment:
        """The active segment that takes a batch the usual checks stopped at: this one, or a new one."""
        config = self._config
        if size > config.segment_bytes_effective:
            raise RecordListTooLarge(
                f"Message batch size is {size} bytes in append to partition {self.tp}, which exceeds the maximum "
                f"configured segment size of {config.segment_bytes_effective}."
            )
        active = self.active
        assert active is not None
        if active.size and self._is_over(active, size, timestamp, last):
            self.roll()
            active = self.open_active()
        if active.size == 0:
            active.begin(timestamp, config)
        return active

    def _is_over(self, active: ActiveSegment, size: int, timestamp: int, last: int) -> bool:
        if active.size + size > active.limit or last > active.last_offset_max:
            return True
        if active.first_timestamp >= 0:
            waited_ms = timestamp - active.first_timestamp
        else:
            waited_ms = self.clock.now_ms() - active.segment.modified_ms
        return waited_ms > segment_ms_effective(self._config) - active.jitter_ms

    def _append_rest(self, active: ActiveSegment, batch: memoryview, written: int) -> None:
        """The disk took a part: ask again, so that it either takes the rest or says why not."""
        while written < len(batch):
            more = active.file.append(batch[written:])
            if more == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written += more

    def _take_back(self, active: ActiveSegment, error: OSError) -> NoReturn:
        """Leave nothing of a batch that could not be written whole, and say why it was refused."""
        try:
            if active.file.size() > active.size:
                active.file.truncate(active.size)
        except OSError as worse:
            raise self.directory.failed(worse, f"taking back a part of a batch of {self.tp}") from error
        raise self.directory.failed(error, f"appending to {self.tp}") from error

    def _begin_epoch(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.log_end)
        if self.epochs.changed:
            try:
                self.epochs.save(self.directory.disk, f"{self.path}/{EPOCHS}", sync=False)
            except OSError as error:
                # The file can be made from the log, so a full disk here does not refuse the batch by itself.
                refusal = self.directory.failed(error, f"noting the leader epoch of {self.tp}")
                if self.directory.offline is not None:
                    raise refusal from error
        self.leader_epoch = leader_epoch

    # Reading

    def slice(self, offset: int, bytes_max: int, *, end: int, at_least_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, all below offset `end`; None when there is nothing to send.

        At most `bytes_max`, except that with `at_least_one` the first batch is given whole, however large.
        """
        log_end = self.log_end
        if offset < self.log_start or offset > log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.tp}, but we only have log segments "
                f"in the range {self.log_start} to {log_end}."
            )
        if offset >= end or offset == log_end:
            return None
        active = self.active
        if active is None:
            active = self.open_active()
        self.touched = True
        if offset < active.base:
            return self._slice_finished(offset, bytes_max, end, at_least_one)
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

    def _slice_finished(self, offset: int, bytes_max: int, end: int, at_least_one: bool) -> FileSlice | None:
        segments = self.segments
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
            # What is left of this segment is a gap: the next batch is in a later one.
            at += 1
            offset = segments[at].base
        return self.slice(offset, bytes_max, end=end, at_least_one=at_least_one)

    def beyond(self, offset: int, records: FileSlice) -> int:
        """An offset that nothing in a slice from `offset` reaches: near its end where an index tells, as Kafka has it.

        Ask in the turn that made the slice.
        """
        segments = self.segments
        at = bisect_right(segments, offset, key=segment_base) - 1
        if isinstance(records, ColdSlice):
            return segments[at + 1].base if at + 1 < len(segments) else self.log_end
        stop = records.position + len(records)
        for segment, later in pairwise(segments[at:]):
            if segment.file is records.file:
                known = SegmentReader(segment).beyond(stop)
                return later.base if known is None else known
        active = self.active
        known = active.offsets.beyond(stop) if active is not None and active.file is records.file else None
        return self.log_end if active is None or known is None else active.base + known

    def _reader(self, segment: Segment) -> SegmentReader:
        segment.touched = True
        if segment.file is None:
            try:
                segment.open(self.directory.disk, self.path)
            except OSError as error:
                raise self.failed(error, f"opening a segment of {self.tp}") from error
            self.directory.files.admit(segment)
        return SegmentReader(segment)

    def view(self) -> LogView:
        """The log as it is now, for reading off the loop. Segments deleted meanwhile are missing there."""
        self.open()
        self.directory.check()
        if self.active is not None:
            self.active.describe()
        return LogView(
            disk=self.directory.disk,
            path=self.path,
            log_start=self.log_start,
            log_end=self.log_end,
            segments=tuple(SegmentView.of(segment) for segment in self.segments),
            rewrites=self.rewrites,
            rewrites_now=lambda: self.rewrites,
        )

    def batches(self, from_offset: int) -> Iterator[BatchHeader]:
        """Headers of the batches from the one that holds `from_offset`, for replay; reads the disk."""
        return self.view().batches(from_offset)

    def offset_for_time(self, timestamp: int) -> TimedOffset | None:
        """The first record at or after a time; reads the disk. Off the loop: `view().offset_for_time`."""
        return self.view().offset_for_time(timestamp)

    def max_timestamp(self) -> TimedOffset | None:
        """The record with the greatest timestamp, the first of several; reads the disk."""
        return self.view().max_timestamp()

    # Shortening

    def delete_before(self, offset: int) -> None:
        """Nobody reads below `offset` any more; segments that end before it are dropped by retention."""
        assert offset <= self.log_end, f"{self.tp}: delete before {offset} beyond the end {self.log_end}"
        if offset > self.log_start:
            self.open()
            self.log_start = offset
            # Only committed records are deleted: a checkpoint that says otherwise is damaged.
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.delete_before(offset)

    def drop_oldest(self, count: int) -> list[str]:
        """Take the oldest segments out of the log; files that may be removed once nobody has them open."""
        assert count < len(self.segments), f"{self.tp}: {count} of {len(self.segments)} segments"
        marked: list[str] = []
        try:
            for segment in self.segments[:count]:
                self.forget(segment)
                marked += mark_deleted(self.directory.disk, self.path, segment.base)
        except OSError as error:
            raise self.directory.failed(error, f"dropping segments of {self.tp}") from error
        self.size_bytes -= sum(segment.size for segment in self.segments[:count])
        del self.segments[:count]
        self.delete_before(self.segments[0].base)
        return marked

    def forget(self, segment: Segment) -> None:
        """Let go of a segment's files."""
        segment.release()
        self.directory.files.forget(segment)

    def lower_marks(self, offset: int) -> None:
        """Nothing from `offset` on is durable or committed any more: it is about to be cut off."""
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def truncate_to(self, offset: int) -> None:
        """Cut the log's end off, from the batch that holds `offset` on. Appends go on at `offset`.

        `LogStore.truncate` does it in the order that a crash demands.
        """
        self.open()
        if offset >= self.log_end:
            return
        assert self.cleaning is None or offset >= self.cleaning.end, f"{self.tp}: committed records are cut at {offset}"
        if offset <= self.log_start:
            self.restart_at(offset)
            return
        try:
            self._truncate(offset)
        except OSError as error:
            raise self.directory.failed(error, f"truncating {self.tp} to {offset}") from error

    def _truncate(self, offset: int) -> None:
        self.rewrites += 1
        active = self.active
        if active is not None:
            active.save_indexes(self.directory.disk, self.path)
            active.describe()
            self.active = None
        self.txn_notes.truncate_to(offset)
        keep = bisect_left(self.segments, offset, key=segment_base)
        # Newest first: a crash in between must leave no hole.
        for segment in reversed(self.segments[keep:]):
            self.forget(segment)
            remove_segment(self.directory.disk, self.path, segment.base)
        del self.segments[keep:]
        reached = self._cut_newest(offset)
        self.log_end = offset
        self.truncations += 1
        if reached < offset:
            # The batch that held the offset is gone whole: the files must still say where the log goes on.
            mark_gaps(self.directory.disk, self.path)
            self.new_active()
        self.size_bytes = sum(segment.size for segment in self.segments)
        self.lower_marks(offset)
        self.epochs.truncate_to(offset)
        self.epochs.save(self.directory.disk, f"{self.path}/{EPOCHS}", sync=False)
        self.leader_epoch = self.epochs.latest
        producer_snapshot.prune(self.directory.disk, self.path, log_end=offset)
        # What was cut off must not come back after a power cut, behind what is appended from here on.
        self.directory.disk.sync_directory(self.path)

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on, empty, at an offset: a follower whose leader begins later does that."""
        self.open()
        assert self.cleaning is None, f"{self.tp} starts over while it is compacted"
        self.rewrites += 1
        self.active = None
        self.txn_notes.truncate_to(0)
        for segment in reversed(self.segments):
            self.forget(segment)
            remove_segment(self.directory.disk, self.path, segment.base)
        self.segments.clear()
        self.truncations += 1
        self.size_bytes = 0
        self.log_start = self.log_end = self.recovery_point = self.high_watermark = offset
        self.epochs = LeaderEpochs()
        self.leader_epoch = self.epochs.latest
        try:
            self.epochs.save(self.directory.disk, f"{self.path}/{EPOCHS}", sync=False)
            producer_snapshot.prune(self.directory.disk, self.path, log_end=-1)
            self.new_active()
            self.directory.disk.sync_directory(self.path)
        except OSError as error:
            raise self.directory.failed(error, f"restarting {self.tp} at {offset}") from error

    def _cut_newest(self, offset: int) -> int:
        """Cut the newest segment before the batch that holds an offset; the offset after its last batch then."""
        segment = self.segments[-1]
        found = self._reader(segment).find(offset, wait=True)
        self.forget(segment)
        disk = self.directory.disk
        file = disk.open(segment.path(self.path, LOG))
        if found is not None:
            file.truncate(found[0])
            file.sync()
        scan = SegmentScan(segment.base)
        scan.run(file, file.size(), self.config.index_interval_bytes, verify=False)
        if scan.bad is not None:
            raise self.take_offline(f"{scan.bad} before the cut at {offset}")
        self.segments[-1] = scan.save(disk, self.path, segment.modified_ms)
        # What cannot be read of it is made anew with the producers, which have to be read again too.
        with suppress(TxnIndexDamaged):
            txn_index.truncate_to(disk, txn_index.path_of(self.path, segment.base), offset)
        return scan.next_offset

    # Onto the disk

    @property
    def is_dirty(self) -> bool:
        """Whether something was appended that a power cut could take."""
        return self.recovery_point < self.log_end

    def begin_flush(self) -> FlushJob | None:
        """What must be done for everything appended so far to be on the disk; None when it is. Run it off the loop."""
        if not self.segments:
            self.recovery_point = self.log_end
        if not self.is_dirty:
            return None
        dirty = self.segments[max(bisect_right(self.segments, self.recovery_point, key=segment_base) - 1, 0) :]
        files: list[DiskFile | str] = []
        for segment in dirty[:-1]:
            files += [segment.path(self.path, kind) for kind in SEGMENT_FILES]
        files.append(self.active.file if self.active is not None else dirty[-1].path(self.path, LOG))
        self.save_aborted()
        notes = self.txn_notes
        if notes.written > notes.synced:
            files.append(dirty[-1].path(self.path, TXN_INDEX))
        if not self.entry_synced:
            files.append(f"{self.path}/{PARTITION_METADATA}")
        epochs = self.epochs
        if epochs.saves > epochs.saves_synced:
            files.append(f"{self.path}/{EPOCHS}")
        new = tuple(segment for segment in dirty if not segment.entry_synced)
        return FlushJob(
            disk=self.directory.disk,
            path=self.path,
            end=self.log_end if notes.complete_to is None else notes.complete_to,
            files=tuple(files),
            new=new,
            home=None if self.entry_synced else self.directory.path,
            epochs_saves=epochs.saves if epochs.saves > epochs.saves_synced else None,
            notes_written=notes.written if notes.written > notes.synced else None,
            truncations=self.truncations,
        )

    def finish_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """Take note that a flush is done, or take the directory offline because it failed."""
        if error is not None:
            raise self.directory.lost(error, f"flushing {self.tp}") from error
        for segment in job.new:
            segment.entry_synced = True
        self.entry_synced = True
        if job.epochs_saves is not None:
            self.epochs.saves_synced = job.epochs_saves
        if job.notes_written is not None:
            self.txn_notes.synced = job.notes_written
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.end)

    def flush(self) -> None:
        """Begin, run and finish a flush, waiting for the disk."""
        self._run(self.begin_flush())

    def _run(self, job: FlushJob | None) -> None:
        if job is not None:
            try:
                job.run()
            except OSError as error:
                self.finish_flush(job, error)
            self.finish_flush(job)

    def begin_close(self) -> FlushJob | None:
        """Save what is only in memory; what is left to do for everything to be on the disk."""
        disk = self.directory.disk
        try:
            if self.active is not None:
                self.active.finish()
                self.active.save_indexes(disk, self.path)
        except OSError as error:
            raise self.directory.failed(error, f"closing {self.tp}") from error
        if self.producers is not None and self.opened:
            self.snapshot_producers(self.producers(), self.log_end)
            self.directory.check()
        return self.begin_flush()

    def close(self, *, clean: bool = True) -> None:
        """Let go of everything.

        Closed clean, all of it is on the disk, waited for, and the next start need not look.
        """
        if clean and self.opened and self.directory.offline is None:
            self._run(self.begin_close())
        self.abandon()

    def summarise(self) -> LogSummary:
        """The log in a line, for the next start."""
        segments = None if self.left is None else self.left.segments
        if self.opened:
            if self.active is not None:
                self.active.describe()
            if self.segments:
                self.oldest_ms = self.segments[0].greatest_timestamp(self.directory.disk, self.path)
            segments = tuple((segment.base, segment.size) for segment in self.segments)
        return LogSummary(
            tp=self.tp,
            topic_id=self.topic_id,
            log_start=self.log_start,
            log_end=self.log_end,
            size_bytes=self.size_bytes,
            oldest_ms=self.oldest_ms,
            cleaned_to=self.cleaned_to,
            segments=segments,
        )
