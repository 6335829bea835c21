"""The log of one partition: batches in the order of their offsets, in segments.

Used on the loop thread only. Work that may wait for the disk is handed out as a snapshot (`view`, `begin_flush`,
`begin_repair`), done off the loop, and its result applied here.
"""

from collections.abc import Callable, Iterable, Sized
from struct import Struct
from typing import NoReturn, Protocol

from penstock.model.batch import HEADER, PREFIX_BYTES, BatchHeader
from penstock.model.clock import Clock, Randomness
from penstock.model.generated_errors import KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from penstock.model.ids import NO_LEADER_EPOCH, NO_OFFSET, OFFSET_ZERO, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.model.producers import ProducerSnapshot
from penstock.model.removals import CopyStart
from penstock.storage import producer_snapshot
from penstock.storage.active_segment import INDEX_SAVE_ENTRIES, RELATIVE_OFFSET_MAX, ActiveSegment
from penstock.storage.completeness import Contents
from penstock.storage.directories import LogDirectory
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.flush import Flusher, FlushJob, run_flush
from penstock.storage.loading import LogLoader
from penstock.storage.names import EPOCHS
from penstock.storage.partition_directory import DAMAGE_ADVICE, PartitionDirectory
from penstock.storage.recovery import Loaded, Stop
from penstock.storage.removal_mark import RemovalMark
from penstock.storage.segment import NO_TIMESTAMP
from penstock.storage.segment_files import mark_gaps
from penstock.storage.segments import LogSegments
from penstock.storage.settings import LogSettings, segment_ms_effective
from penstock.storage.slices import FileSlice
from penstock.storage.summary import LogSummary
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.txn_index_writer import TxnIndexWriter
from penstock.storage.view import LogView, SegmentView

STAMP = Struct(">qii")
"""Base offset, length and leader epoch: the 16 bytes that a broker writes into a batch."""


class Cleaning(Protocol):
    """A compaction under way, or a move to another directory."""

    def truncating(self, log: "Log", offset: Offset) -> None:
        """The log is about to be truncated to an offset: end the work, or do again what it has done beyond it."""
        ...


class Producers(Sized, Iterable[ProducerSnapshot], Protocol):
    """The producers of a partition at one moment."""


class Log:
    """A partition's log, opened at its first use. It assigns offsets and keeps its parts in step with them.

    Its parts: `partition_directory` knows where the files are, `loader` opens them, `segments` hold the batches,
    `epochs` and `txn_index` index them, `flusher` knows how much of all that is on the disk.
    """

    __slots__ = (
        "cleaned_to",
        "cleaning",
        "clock",
        "epochs",
        "flusher",
        "high_watermark",
        "leader_epoch",
        "loader",
        "log_end",
        "log_start",
        "oldest_ms",
        "opened",
        "partition_directory",
        "producers",
        "producers_unsaved",
        "removal_mark",
        "replicated",
        "segments",
        "txn_index",
    )

    def __init__(
        self,
        directory: PartitionDirectory,
        config: LogSettings,
        *,
        clock: Clock,
        randomness: Randomness,
        stop: Stop = Stop.CLEAN,
        left: Contents | None = None,
        log_start: Offset = OFFSET_ZERO,
        log_end: Offset = OFFSET_ZERO,
        size_bytes: int = 0,
        oldest_ms: int = NO_TIMESTAMP,
        recovery_point: Offset = OFFSET_ZERO,
        high_watermark: Offset = OFFSET_ZERO,
        cleaned_to: Offset = OFFSET_ZERO,
        replicated: bool = False,
    ) -> None:
        self.partition_directory = directory
        self.replicated = replicated
        """Whether other brokers have copies: damage is then cut off, and the rest copied from the leader."""
        self.clock = clock
        self.log_start = log_start
        self.log_end = log_end
        """-1 before the log is opened, where no summary or checkpoint has it."""
        self.high_watermark = high_watermark
        """As the replica last reported it; checkpointed, so that recovery knows which records were committed."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The epoch of the last batch that this process appended; an append with another one starts a new epoch."""
        self.cleaned_to = cleaned_to
        """Below it, compaction has left one record per key."""
        self.cleaning: Cleaning | None = None
        """The compaction or the move under way, if any: no other code changes segments meanwhile."""
        self.oldest_ms = oldest_ms
        """Greatest timestamp of the oldest segment, as of the last clean stop; used until the log is opened."""
        self.opened = False
        self.producers: Callable[[], Producers] | None = None
        """Returns the producers' state when a segment is rolled, for the snapshot beside it."""
        self.producers_unsaved = False
        """Whether a segment was rolled without a snapshot, because there were too many producers to encode at once."""
        self.loader = LogLoader(directory, stop, left)
        self.segments = LogSegments(directory, config, clock=clock, randomness=randomness, size_bytes=size_bytes)
        self.epochs = LeaderEpochs()
        self.txn_index = TxnIndexWriter(directory)
        self.removal_mark = RemovalMark(directory)
        self.flusher = Flusher(directory, self.segments, self.epochs, self.txn_index, recovery_point)

    # Attributes of the parts

    @property
    def tp(self) -> TopicPartition:
        return self.partition_directory.tp

    @property
    def topic_id(self) -> TopicId:
        return self.partition_directory.topic_id

    @property
    def directory(self) -> LogDirectory:
        return self.partition_directory.log_directory

    @property
    def path(self) -> str:
        return self.partition_directory.path

    @property
    def offline(self) -> KafkaStorageError | None:
        """Why this log alone cannot be served; None while it can, as far as its log directory can."""
        return self.partition_directory.offline

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def active(self) -> ActiveSegment | None:
        return self.segments.active

    @property
    def recovery_point(self) -> Offset:
        """Everything below survives a power cut."""
        return self.flusher.recovery_point

    @property
    def truncations(self) -> int:
        """How often the log was truncated."""
        return self.flusher.truncations

    @property
    def config(self) -> LogSettings:
        return self.segments.config

    @config.setter
    def config(self, config: LogSettings) -> None:
        self.segments.config = config

    # Opening

    @property
    def is_lost(self) -> bool:
        """Whether the directory of a log of the last broker is missing; opening it records that for later starts."""
        return self.loader.is_lost

    def open(self) -> None:
        """Load the log from the disk; after an unclean stop, recover it."""
        if self.partition_directory.offline is not None:
            raise self.partition_directory.offline
        if self.opened:
            return
        self.directory.check()
        try:
            if self.partition_directory.made or self.is_lost:
                self._load()
                self._load_removal_mark()
        except KafkaStorageError:
            self.log_end = max(self.log_end, self.log_start)
            raise
        self.opened = True

    def _load(self) -> None:
        if self.replicated:
            self._load_replicated()
            return
        loader = self.loader
        given_up = loader.check_complete(self.log_end)
        if given_up is not None:
            self.log_start, self.high_watermark = given_up.log_start, given_up.log_end
            self.flusher.recovery_point = OFFSET_ZERO
        self._recover(self.high_watermark)
        left = loader.left
        if left is not None and self.log_end != left.log_end:
            # The last clean stop left it with another end: a batch there has rotted since.
            self.log_end = left.log_end
            self._recover(left.log_end, whole=True)
        loader.opened()

    def _load_removal_mark(self) -> None:
        try:
            self.removal_mark.load(self.log_end, self.high_watermark)
        except OSError as error:
            raise self.loader.refusal(error) from error

    def _load_replicated(self) -> None:
        """Load a log that other brokers have too, without what it lacks: its leader has that."""
        loader = self.loader
        incomplete = loader.is_incomplete(self.log_end)
        if self.partition_directory.made:
            self._recover(self.high_watermark, whole=incomplete)
            left = loader.left
            if left is not None and not incomplete and self.log_end != left.log_end:
                # The last clean stop left it with another end: a batch there has rotted since.
                self._recover(left.log_end, whole=True)
        else:
            self.log_start = self.log_end = self.cleaned_to = OFFSET_ZERO
            self.flusher.restarted(OFFSET_ZERO)
        if self.directory.pages_lost and self.log_end > self.flusher.recovery_point:
            self._cut_unsynced()
        # It is not known to be committed what is not here.
        self.high_watermark = min(self.high_watermark, self.log_end)
        loader.opened()

    def _cut_unsynced(self) -> None:
        """Cut what may be in the page cache alone: a failed fsync marked it as written, and none writes it again."""
        offset = self.flusher.recovery_point
        self.loader.report_unsynced(offset, self.log_end)
        try:
            if offset > self.log_start:
                self._truncate(offset)
            else:
                self._restart(self.log_start)
        except OSError as error:
            raise self.directory.failed(error, f"truncating {self.tp} to {offset}") from error

    def _recover(self, high_watermark: Offset, *, whole: bool = False) -> None:
        try:
            found = self._recovery(high_watermark, whole=whole)()
        except Exception as error:
            raise self.loader.refusal(error) from error
        self._recovered(found)

    def _recovery(self, high_watermark: Offset, *, whole: bool) -> Callable[[], Loaded]:
        return self.loader.recovery(
            log_start=self.log_start,
            recovery_point=self.flusher.recovery_point,
            high_watermark=high_watermark,
            interval=self.config.index_interval_bytes,
            whole=whole,
            replicated=self.replicated,
        )

    def _recovered(self, found: Loaded) -> None:
        self.segments.load(found.segments)
        if not found.segments:
            # Nothing was ever flushed here.
            self.partition_directory.entry_synced = False
        self.log_start = found.log_start
        self.log_end = found.log_end
        self.flusher.lower(found.log_end)
        self.epochs.load_from(found.epochs)
        self.loader.loaded(found)
        self.cleaned_to = min(self.cleaned_to, found.log_end)

    def open_active(self) -> ActiveSegment:
        """The active segment, opened."""
        self.open()
        return self.segments.open_active(self.log_end)

    # Repair

    def repair(self) -> None:
        """Repair an open log, waiting for the disk: before it is served, or in a tool."""
        job = self.begin_repair()
        try:
            self.end_repair(job())
        except Exception as error:
            self.fail_repair(error)

    def begin_repair(self) -> Callable[[], Loaded]:
        """Take an open log out of use and return the work that reads all of it again, off the loop.

        Needed when a batch is damaged where recovery did not look. Everything below the log end counts as committed:
        damage is quarantined, sound batches stay. `end_repair` or `fail_repair` puts the log into use again.
        """
        assert self.opened, f"{self.tp} is not open"
        assert self.offline is None, f"{self.tp} is offline: {self.offline}"
        assert self.cleaning is None, f"{self.tp} is being compacted or moved"
        self.segments.abandon()
        directory = self.partition_directory
        directory.rewrites += 1
        directory.offline = KafkaStorageError(f"The log of {self.tp} in {self.path} is being repaired.")
        return self._recovery(self.log_end, whole=True)

    def end_repair(self, found: Loaded) -> None:
        """Apply a repair and serve the log again."""
        self.partition_directory.offline = None
        self._recovered(found)
        self.high_watermark = min(self.high_watermark, self.log_end)

    def fail_repair(self, error: Exception) -> NoReturn:
        """Take the log, or its whole log directory, offline because a repair failed."""
        self.partition_directory.offline = None
        raise self.loader.refusal(error) from error

    def take_offline(self, reason: str, advice: str = DAMAGE_ADVICE) -> KafkaStorageError:
        """Stop serving this log and leave its log directory online; the error to raise now and at every later use."""
        return self.partition_directory.take_offline(reason, advice)

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Handle a file that cannot be read, and return the error to raise."""
        return self.partition_directory.failed(error, doing)

    # Writing

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: LeaderEpoch) -> Offset:
        """Stamp a batch with its offset and epoch, write it at the end, and return its base offset.

        `header` is the batch's own, with the timestamps to store. A batch that cannot be written whole is removed
        again.
        """
        segments = self.segments
        active = segments.active
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
                active.append_rest(batch, written)
        except OSError as error:
            self._take_back(active, error)
        if timestamp > active.max_timestamp:
            active.max_timestamp = timestamp
            active.max_timestamp_offset = last
        active.size = position + size
        segments.size_bytes += size
        self.log_end = Offset(last + 1)
        segments.touched = True
        if active.unindexed > active.interval:
            active.index(Offset(last), position)
            active.tail_from = base
            if len(active.offsets) - active.offsets.saved >= INDEX_SAVE_ENTRIES:
                segments.save_indexes(active)
        active.unindexed += size
        active.tail_lasts.append(last)
        active.tail_positions.append(position)
        return base

    def append_stamped(self, batches: memoryview, appended: Callable[[BatchHeader, memoryview], None]) -> None:
        """Write batches that have their offsets already, as a follower does. They may leave gaps but never go back.

        Those that go to one segment are written with one system call, and removed again together where it fails.
        `appended` is called for each of them before a segment ends: the snapshot beside it must have the producers of
        exactly the batches before it.
        """
        position = 0
        while position < len(batches):
            first = BatchHeader._make(HEADER.unpack_from(batches, position))
            before = self.log_end
            try:
                active = self._active_for_stamped(first)
                run = self._run_from(batches, position, first, active)
                end = position + sum(header.size for header in run)
                self._write_run(batches[position:end], run, active)
            except BaseException:
                self.log_end = before
                raise
            for header in run:
                appended(header, batches[position : position + header.size])
                position += header.size

    def _active_for_stamped(self, header: BatchHeader) -> ActiveSegment:
        """The segment for a batch that has its offset; its epoch may begin. Moves the log end to that offset.

        A segment begins where the one before it ends, also if offsets are missing there: after a power cut, recovery
        takes offsets that are missing between two segments for a lost end of the first one.
        """
        log_end = self.log_end
        assert header.base_offset >= log_end, f"offset {header.base_offset} before the end {log_end}"
        if header.base_offset > log_end and self.size_bytes:
            self.partition_directory.allow_gaps()
        if not self.size_bytes or header.last_offset - log_end > RELATIVE_OFFSET_MAX:
            self.log_end = header.base_offset
        active = self._active_for(header.size, header.max_timestamp, header.last_offset)
        self.log_end = header.base_offset
        if header.leader_epoch != self.leader_epoch:
            self._begin_epoch(header.leader_epoch)
        return active

    def _run_from(
        self, batches: memoryview, position: int, first: BatchHeader, active: ActiveSegment
    ) -> list[BatchHeader]:
        """The headers from `first` on of batches that the active segment holds without a roll or another epoch."""
        run = [first]
        size, end = first.size, first.next_offset
        entries_left = active.index_entries_max - len(active.offsets)
        unindexed = active.unindexed
        position += size
        while position < len(batches):
            if unindexed > active.interval:
                entries_left, unindexed = entries_left - 1, 0
                if entries_left <= 0:
                    # The batch before fills the index.
                    break
            unindexed += run[-1].size
            header = BatchHeader._make(HEADER.unpack_from(batches, position))
            base, timestamp = header.base_offset, header.max_timestamp
            assert base >= end, f"offset {base} before the end {end}"
            if (
                active.size + size + header.size > active.limit
                or timestamp > active.roll_after
                or header.last_offset > active.last_offset_max
                or header.leader_epoch != self.leader_epoch
            ):
                break
            if base > end:
                self.partition_directory.allow_gaps()
            run.append(header)
            size += header.size
            position += header.size
            end = header.next_offset
        return run

    def _write_run(self, batches: memoryview, run: list[BatchHeader], active: ActiveSegment) -> None:
        try:
            written = active.file.append(batches)
            if written != len(batches):
                active.append_rest(batches, written)
        except OSError as error:
            self._take_back(active, error)
        segments = self.segments
        segments.touched = True
        segments.size_bytes += len(batches)
        for header in run:
            position, size, last = active.size, header.size, header.last_offset
            if header.max_timestamp > active.max_timestamp:
                active.max_timestamp = header.max_timestamp
                active.max_timestamp_offset = last
            active.size = position + size
            if active.unindexed > active.interval:
                active.index(last, position)
                active.tail_from = header.base_offset
                if len(active.offsets) - active.offsets.saved >= INDEX_SAVE_ENTRIES:
                    segments.save_indexes(active)
            active.unindexed += size
            active.tail_lasts.append(last)
            active.tail_positions.append(position)
        self.log_end = run[-1].next_offset

    def _active_for(self, size: int, timestamp: int, last: int) -> ActiveSegment:
        """The segment for a batch that failed the quick checks of `append`: the active one, or a new one."""
        config = self.config
        if size > config.segment_bytes_effective:
            raise RecordListTooLarge(
                f"Message batch size is {size} bytes in append to partition {self.tp}, which exceeds the maximum "
                f"configured segment size of {config.segment_bytes_effective}."
            )
        active = self.open_active()
        segment_ms = segment_ms_effective(config)
        if active.size and active.is_full_for(size, timestamp, Offset(last), self.clock.now_ms(), segment_ms):
            self.roll()
            active = self.open_active()
        if active.size == 0:
            active.begin(timestamp, config)
        return active

    def _take_back(self, active: ActiveSegment, error: OSError) -> NoReturn:
        """Remove the written part of a batch that could not be written whole, and raise why."""
        try:
            if active.file.size() > active.size:
                active.file.truncate(active.size)
                self.flusher.shortened(active.base)
        except OSError as worse:
            raise self.directory.failed(worse, f"removing a partial batch of {self.tp}") from error
        raise self.directory.failed(error, f"appending to {self.tp}") from error

    def _begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        self.epochs.assign(leader_epoch, self.log_end)
        if self.epochs.changed:
            try:
                self._save_epochs()
            except OSError as error:
                # Not even on a full disk: a start that finds the log whole takes the file for complete, and would
                # truncate to where it believes the last epoch that it knows to end.
                self.drop_empty_epochs()
                raise self.directory.failed(error, f"noting the leader epoch of {self.tp}") from error
        self.leader_epoch = leader_epoch

    def drop_empty_epochs(self) -> None:
        """Forget epochs that begin at the log end: this replica leads no more, and other leaders may not know them."""
        self.epochs.truncate_to(self.log_end)
        self.leader_epoch = self.epochs.latest

    def _save_epochs(self) -> None:
        self.epochs.save(self.directory.disk, f"{self.path}/{EPOCHS}", sync=False)

    def roll(self) -> None:
        """Finish the active segment and start another, unless it is empty."""
        self.open()
        if not self.segments.roll(self.log_end) or self.producers is None:
            return
        producers = self.producers()
        if len(producers) <= producer_snapshot.SNAPSHOT_AT_ONCE_MAX:
            self.snapshot_producers(producers, self.log_end)
        else:
            self.producers_unsaved = True

    def snapshot_producers(self, entries: Iterable[ProducerSnapshot], offset: Offset) -> None:
        """Save the producers' state as of `offset`, so that a start replays the log only from there."""
        self.save_producers(producer_snapshot.encode(entries), offset)

    def save_producers(self, encoded: bytes, offset: Offset) -> None:
        """As `snapshot_producers`, with a snapshot that is encoded already."""
        if not self.partition_directory.made or not self.txn_index.save():
            return
        self.producers_unsaved = False
        disk = self.directory.disk
        try:
            producer_snapshot.write(disk, self.path, encoded, offset, sync=False)
            producer_snapshot.prune(disk, self.path, log_end=self.log_end, settled=self.flusher.checkpointed)
        except OSError as error:
            # A full disk only costs a longer replay.
            self.directory.failed(error, f"saving the producers of {self.tp}")

    def note_aborted(self, aborted: AbortedTxn) -> None:
        """Index an aborted transaction whose marker was just appended, for readers of committed data."""
        self.txn_index.add(self.segments[-1].base, aborted)

    # Reading

    def slice(self, offset: Offset, bytes_max: int, *, end: Offset, at_least_one: bool) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, all below offset `end`; None when there is none to send.

        At most `bytes_max`, except that with `at_least_one` the first batch is included, however large.
        """
        log_end = self.log_end
        if offset < self.log_start or offset > log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.tp}, but we only have log segments "
                f"in the range {self.log_start} to {log_end}."
            )
        if offset >= end or offset == log_end:
            return None
        segments = self.segments
        active = segments.active
        if active is None:
            active = self.open_active()
        return segments.slice_from(active, offset, bytes_max, end, log_end, at_least_one)

    def beyond(self, offset: Offset, records: FileSlice) -> Offset:
        """An offset beyond all records of a slice from `offset`: near its end where an index knows one, as in Kafka.

        Call it in the loop turn that made the slice.
        """
        return self.segments.beyond(offset, records, self.log_end)

    def view(self) -> LogView:
        """A snapshot of the log, for reading off the loop. It skips segments that are deleted meanwhile."""
        self.open()
        self.directory.check()
        directory = self.partition_directory
        return LogView(
            disk=directory.disk,
            path=directory.path,
            log_start=self.log_start,
            log_end=self.log_end,
            segments=tuple(SegmentView.of(segment) for segment in self.segments.describe()),
            rewrites=directory.rewrites,
            rewrites_now=lambda: directory.rewrites,
        )

    # Shortening

    def delete_before(self, offset: Offset) -> None:
        """Make `offset` the log start; retention drops the segments that end before it."""
        assert offset <= self.log_end, f"{self.tp}: delete before {offset} beyond the end {self.log_end}"
        if offset > self.log_start:
            self.open()
            self.log_start = offset
            # Only committed records are deleted: a lower high watermark comes from a damaged checkpoint.
            self.high_watermark = max(self.high_watermark, offset)
            self.epochs.delete_before(offset)

    def drop_oldest(self, count: int) -> list[str]:
        """Drop the oldest segments; returns their files, to be removed when no reader has them open."""
        marked = self.segments.drop_oldest(count)
        self.delete_before(self.segments[0].base)
        return marked

    def lower_marks(self, offset: Offset) -> None:
        """Lower every offset that is checkpointed to `offset`, before the log is truncated there.

        What is appended next is not clean: a tombstone in the clean part is removed without looking for older records.
        """
        self.flusher.lower(offset)
        self.log_start = min(self.log_start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.cleaned_to = min(self.cleaned_to, offset)

    def truncate_to(self, offset: Offset) -> None:
        """Remove everything from the batch that holds `offset` on. Appends continue at `offset`.

        `LogStore.truncate` calls it in a crash-safe order.
        """
        self.open()
        if offset >= self.log_end:
            return
        if self.cleaning is not None:
            self.cleaning.truncating(self, offset)
        if offset <= self.log_start:
            self.restart_at(offset)
            return
        try:
            self._truncate(offset)
        except OSError as error:
            raise self.directory.failed(error, f"truncating {self.tp} to {offset}") from error

    def _truncate(self, offset: Offset) -> None:
        disk = self.directory.disk
        self.partition_directory.rewrites += 1
        self.txn_index.truncate_to(offset)
        reached = self.segments.truncate_to(offset)
        self.log_end = offset
        self.flusher.truncated(offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.cleaned_to = min(self.cleaned_to, offset)
        if reached < offset:
            # The batch that held the offset is gone whole: the segment at `offset` keeps where the log continues.
            mark_gaps(disk, self.path)
        # A slice that is being sent may cover what was cut: it ends early, and never has what is appended next.
        self.segments.start(offset)
        self.epochs.truncate_to(offset)
        self._save_epochs()
        self.leader_epoch = self.epochs.latest
        producer_snapshot.prune(disk, self.path, log_end=offset)
        # After a power cut, truncated batches must not reappear after newer ones.
        disk.sync_directory(self.path)
        self.removal_mark.lower_to(Offset(offset - 1))

    def restart_at(self, offset: Offset) -> None:
        """Drop everything and continue, empty, at an offset, as a follower does whose leader's log starts later."""
        self.open()
        if self.cleaning is not None:
            self.cleaning.truncating(self, OFFSET_ZERO)
        try:
            self._restart(offset)
        except OSError as error:
            raise self.directory.failed(error, f"restarting {self.tp} at {offset}") from error

    def _restart(self, offset: Offset) -> None:
        disk = self.directory.disk
        self.partition_directory.rewrites += 1
        self.txn_index.truncate_to(OFFSET_ZERO)
        self.partition_directory.make()
        self.segments.clear()
        self.log_start = self.log_end = self.high_watermark = offset
        self.cleaned_to = min(self.cleaned_to, offset)
        self.flusher.restarted(offset)
        self.epochs.clear()
        self.leader_epoch = self.epochs.latest
        self._save_epochs()
        producer_snapshot.prune(disk, self.path, log_end=NO_OFFSET)
        self.segments.start(offset)
        # The recovery point is checkpointed without a flush: a start must find the log that has it, by its topic id.
        self.partition_directory.sync_topic_id()
        disk.sync_directory(self.path)
        self.removal_mark.lower_to(Offset(offset - 1))

    # Removals of compaction

    def raise_removal_mark(self, mark: Offset) -> None:
        """Raise the mark to that of the leader, before records of a log are appended that lacks some."""
        try:
            self.removal_mark.raise_to(mark, rewrites=self.partition_directory.rewrites)
        except OSError as error:
            raise self.directory.failed(error, f"noting what is removed from {self.tp}") from error

    def lower_removal_mark(self, mark: Offset) -> None:
        """Lower the mark of a replica that begins to lead. A full disk keeps the old one for the next start."""
        try:
            self.removal_mark.lower_to(mark)
        except OSError as error:
            self.directory.failed(error, f"noting what is removed from {self.tp}")

    def copy_from_start(self, mark: Offset, copied: CopyStart) -> None:
        """The log is empty, and is copied from the start of its leader's log, which has this mark."""
        try:
            self.removal_mark.copy_from_start(mark, copied)
        except OSError as error:
            raise self.directory.failed(error, f"noting what is removed from {self.tp}") from error

    # Flushing and closing

    @property
    def is_dirty(self) -> bool:
        """Whether the log has records that a power cut could lose."""
        return self.flusher.recovery_point < self.log_end

    def begin_flush(self) -> FlushJob | None:
        """The work that flushes everything appended so far; None when all is flushed. Run it off the loop."""
        return self.flusher.begin(self.log_end)

    def finish_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """Move the recovery point after a flush, or take the log directory offline because it failed."""
        self.flusher.finish(job, error)

    def flush(self) -> None:
        """Flush now, waiting for the disk."""
        self.flusher.run(self.log_end)

    def begin_close(self) -> FlushJob | None:
        """Save the state that is only in memory, and return the flush that remains to be run."""
        active = self.segments.active
        if active is not None:
            try:
                active.finish()
                active.save_indexes(self.directory.disk, self.path)
            except OSError as error:
                raise self.directory.failed(error, f"closing {self.tp}") from error
        if self.producers is not None and self.opened:
            self.snapshot_producers(self.producers(), self.log_end)
            self.directory.check()
        return self.flusher.begin(self.log_end, closing=True)

    def close(self, *, clean: bool = True) -> None:
        """Close every file. With `clean`, everything is flushed first, and the next start need not check the log."""
        if clean and self.opened and self.directory.offline is None:
            job = self.begin_close()
            if job is not None:
                self.finish_flush(job, run_flush(job))
        self.segments.abandon()

    def abandon(self) -> None:
        """Close every file without saving: the log directory failed, or everything is saved already."""
        self.segments.abandon()

    def summarise(self) -> LogSummary:
        """The summary of the log for the next start."""
        left = self.loader.left
        sizes = None if left is None else left.segments
        if self.opened:
            segments = self.segments.describe()
            if segments:
                self.oldest_ms = segments[0].greatest_timestamp(self.directory.disk, self.path)
            sizes = tuple((segment.base, segment.size) for segment in segments)
        return LogSummary(
            tp=self.tp,
            topic_id=self.topic_id,
            log_start=self.log_start,
            log_end=self.log_end,
            size_bytes=self.size_bytes,
            oldest_ms=self.oldest_ms,
            cleaned_to=self.cleaned_to,
            segments=sizes,
        )
