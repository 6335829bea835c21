"""What a log consists of at any moment: its segments, of which one is active; opening, rolling, letting go."""

from collections.abc import Callable, Iterable, Sized
from functools import partial
from typing import NoReturn, Protocol

from penstock.model.batch import HEADER, HEADER_BYTES, BatchHeader
from penstock.model.clock import Clock, Randomness
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.producers import ProducerSnapshot
from penstock.storage import completeness, partition_metadata, producer_snapshot, recovery
from penstock.storage.active_segment import ActiveSegment
from penstock.storage.completeness import Contents
from penstock.storage.directories import FILE_ERRORS, LogDirectory, said
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.names import LOG, OFFSET_INDEX, PARTITION_METADATA, TIME_INDEX
from penstock.storage.notes import NoteDamaged
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.recovery import Finding, Loaded, Stop
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.segment_files import mark_gaps, read_or_empty
from penstock.storage.settings import LogSettings
from penstock.storage.time_index import TimeIndex
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.txn_notes import TxnNotes

DAMAGE_ADVICE = "run 'penstock log verify' on it, restore it from a copy, and restart the broker"


class Cleaning(Protocol):
    """A compaction under way, or a move to another directory."""

    @property
    def end(self) -> int:
        """It reads and replaces nothing at or beyond this offset, so that the log may be cut there."""
        ...


class Producers(Sized, Iterable[ProducerSnapshot], Protocol):
    """The producers of a partition at one moment."""


class SegmentedLog:
    """A log that is opened at its first use, and whose files are closed and opened again as room allows."""

    __slots__ = (
        "_config",
        "active",
        "checkpointed",
        "cleaned_to",
        "cleaning",
        "clock",
        "directory",
        "entry_synced",
        "epochs",
        "findings",
        "high_watermark",
        "leader_epoch",
        "left",
        "log_end",
        "log_start",
        "made",
        "offline",
        "oldest_ms",
        "opened",
        "path",
        "pooled",
        "producers",
        "producers_unsaved",
        "randomness",
        "recovery_point",
        "rewrites",
        "segments",
        "size_bytes",
        "stop",
        "topic_id",
        "touched",
        "tp",
        "truncations",
        "txn_notes",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogSettings,
        directory: LogDirectory,
        path: str,
        *,
        clock: Clock,
        randomness: Randomness,
        stop: Stop = Stop.CLEAN,
        log_start: int = 0,
        log_end: int = 0,
        size_bytes: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.directory = directory
        self.path = path
        self.clock = clock
        self.randomness = randomness
        self.log_start = log_start
        self.log_end = log_end
        self.size_bytes = size_bytes
        self.recovery_point = recovery_point
        """Everything below is on the disk, whatever happens to the power."""
        self.checkpointed = recovery_point
        """The recovery point that the next start will find."""
        self.high_watermark = high_watermark
        """As its owner last said; kept in the checkpoint, so that recovery knows what was committed."""
        self.cleaned_to = 0
        """Below it, compaction has left one record per key."""
        self.cleaning: Cleaning | None = None
        """The compaction or the move under way, if any: segments are left alone meanwhile."""
        self.oldest_ms = NO_TIMESTAMP
        """Greatest timestamp of the oldest segment, as the last clean stop noted it: good until the log is opened."""
        self.segments: list[Segment] = []
        self.opened = False
        self.entry_synced = stop is Stop.CLEAN
        """Whether its directory's name is on the disk, whatever happens to the power: a killed broker may have made it
        without a flush."""
        self.made = True
        """Whether its directory exists; a new log's does not until there is something to write."""
        self.active: ActiveSegment | None = None
        self.epochs = LeaderEpochs()
        self.producers: Callable[[], Producers] | None = None
        """Gives the producers' state when a segment ends, for the snapshot beside it."""
        self.producers_unsaved = False
        """Whether a segment ended without a snapshot, because there were too many producers to encode at once."""
        self.txn_notes = TxnNotes()
        self.rewrites: int = 0
        """How often its files were replaced, cut or renamed, each counted before it begins: who opens them by name off
        the loop looks here afterwards."""
        self.truncations: int = 0
        """How often its end was cut off: a flush that began before says nothing about what was written after."""
        self.touched = False
        self.pooled = False
        self._config = config
        self.leader_epoch = -1
        """Of the last batch this process appended; another one begins with the next append that says so."""
        self.stop = stop
        """How the log was left, until it is opened."""
        self.left: Contents | None = None
        """What the last broker left, where that is known, until the log is opened."""
        self.findings: list[Finding] = []
        """What opening it brought to light."""
        self.offline: KafkaStorageError | None = None
        """Why this log alone cannot be served until the broker restarts, while others in its directory can."""

    @property
    def config(self) -> LogSettings:
        return self._config

    @config.setter
    def config(self, config: LogSettings) -> None:
        self._config = config
        if self.active is not None:
            self.active.configure(config, self._jitter())

    def open(self) -> None:
        """Find out what is on the disk; after an unclean stop, make it sound again."""
        if self.offline is not None:
            raise self.offline
        if self.opened:
            return
        self.directory.check()
        if not self.made and self.left is None:
            self.opened = True
            return
        self._check_complete()
        self._recover(self.high_watermark)
        if self.left is not None:
            self._check_end(self.left.log_end)
            completeness.forget_note(self.directory.disk, self.path)
            self.left = None
        self.opened = True

    def _check_end(self, log_end: int) -> None:
        """Repair the log if it does not end where the last clean stop left it: a batch at its end has rotted since."""
        if self.log_end != log_end:
            self.log_end = log_end
            self.opened = True
            try:
                self.repair()
            except BaseException:
                self.opened = False
                raise

    @property
    def is_lost(self) -> bool:
        """Whether the last broker left it, and its directory is gone. Opening it keeps that for later starts."""
        return not self.made and self.left is not None

    def lacks_newest(self) -> bool:
        """Whether the newest segment of the last clean stop is missing or short: one look, for every log at a start."""
        newest = () if self.left is None else self.left.segments[-1:]
        try:
            return bool(completeness.missing_of(self.directory.disk, self.path, newest))
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            return True

    def _check_complete(self) -> None:
        """Refuse a log that lacks files of the last clean stop, until they are back or given up."""
        disk = self.directory.disk
        try:
            self.left = completeness.read_note(disk, self.path) or self.left
            missing = [] if self.left is None else completeness.missing_in(disk, self.path, self.left)
            if self.left is None or not missing:
                return
            if not self.left.given_up:
                completeness.note_missing(disk, self.path, self.topic_id, self.left)
                self.made = True
        except OSError as error:
            raise self.failed(error, f"opening the log of {self.tp}") from error
        except NoteDamaged as error:
            raise self.take_offline(
                f"{completeness.NOTE}, which says what it lacks, is damaged ({error}); remove it to serve what is there"
            ) from error
        reason = completeness.in_words(missing, self.path, self.left)
        if not self.left.given_up:
            self._tell("records_missing", reason)
            raise self.take_offline(reason)
        self._tell("records_given_up", f"the log goes on at {self.left.log_end}; {'; '.join(missing)}")
        # Everything that is left is read, and holes are no damage.
        mark_gaps(disk, self.path)
        self.stop, self.recovery_point = Stop.MACHINE_CRASH, 0
        self.log_start, self.high_watermark = self.left.log_start, self.left.log_end

    def _tell(self, event: str, detail: str) -> None:
        if self.directory.on_finding is not None:
            finding = Finding(event=event, path=self.path, offset=self.log_end, detail=detail, serious=True)
            self.directory.on_finding(self.tp, finding)

    def repair(self) -> None:
        """Repair an open log, waiting for the disk: before it is served, or where nobody is."""
        job = self.begin_repair()
        try:
            self.end_repair(job())
        except Exception as error:
            self.fail_repair(error)

    def begin_repair(self) -> Callable[[], Loaded]:
        """Take an open log out of use and give what reads all of it again, off the loop.

        A batch does not hold together where recovery did not look. Everything below the log end counts as committed:
        damage is set aside, sound batches stay. `end_repair` or `fail_repair` puts the log into use again.
        """
        assert self.opened, f"{self.tp} is not open"
        assert self.offline is None, f"{self.tp} is offline: {self.offline}"
        assert self.cleaning is None, f"{self.tp} is being compacted or moved"
        self.abandon()
        self.rewrites += 1
        self.offline = KafkaStorageError(f"The log of {self.tp} in {self.path} is being repaired.")
        return self._recovery(self.log_end, whole=True)

    def end_repair(self, loaded: Loaded) -> None:
        """Serve what a repair found."""
        self.offline = None
        self._take(loaded)

    def fail_repair(self, error: Exception) -> NoReturn:
        """Serve the log no more, or nothing in its directory, because a repair failed."""
        self.offline = None
        raise self._refusal(error) from error

    def take_offline(self, reason: str, advice: str = DAMAGE_ADVICE) -> KafkaStorageError:
        """Serve this log no more, and leave its directory alone; the error to raise, now and at every later use."""
        self.log_end = max(self.log_end, self.log_start)
        self.offline = KafkaStorageError(
            f"The log of {self.tp} in {self.path} is offline: {reason}. Other partitions are served; {advice}."
        )
        return self.offline

    def _recover(self, high_watermark: int) -> None:
        try:
            loaded = self._recovery(high_watermark)()
        except Exception as error:
            raise self._refusal(error) from error
        self._take(loaded)

    def _recovery(self, high_watermark: int, *, whole: bool = False) -> Callable[[], Loaded]:
        return partial(
            recovery.load,
            self.directory.disk,
            self.path,
            stop=self.stop,
            log_start=self.log_start,
            recovery_point=self.recovery_point,
            high_watermark=high_watermark,
            interval=self._config.index_interval_bytes,
            whole=whole,
        )

    def _refusal(self, error: Exception) -> KafkaStorageError:
        """What a failed recovery means: a failing disk takes its directory offline, anything else this log alone."""
        if isinstance(error, OSError):
            return self.failed(error, f"opening the log of {self.tp}")
        return self.take_offline(f"{type(error).__name__}: {error}")

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Take the consequence of files that cannot be opened: one of another owner is no failing disk."""
        if error.errno in FILE_ERRORS:
            return self.take_offline(
                f"{error.filename or self.path}: {said(error)}", "see to that file, and restart the broker"
            )
        return self.directory.failed(error, doing)

    def _take(self, loaded: Loaded) -> None:
        self.segments = loaded.segments
        if not self.segments:
            # Nothing was ever flushed here.
            self.entry_synced = False
        self.log_start = loaded.log_start
        self.log_end = loaded.log_end
        self.recovery_point = min(self.recovery_point, loaded.log_end)
        self.size_bytes = sum(segment.size for segment in loaded.segments)
        self.epochs = loaded.epochs
        self.stop = Stop.CLEAN
        self.findings = loaded.findings
        if self.directory.on_finding is not None:
            for finding in loaded.findings:
                self.directory.on_finding(self.tp, finding)

    def open_active(self) -> ActiveSegment:
        """The active segment, opened; the first segment is made when there is something to write."""
        if self.active is not None:
            return self.active
        self.open()
        self.directory.check()
        disk = self.directory.disk
        try:
            if not self.segments:
                return self.new_active()
            segment = self.segments[-1]
            file = disk.open(segment.path(self.path, LOG))
            offsets = OffsetIndex.load(read_or_empty(disk, segment.path(self.path, OFFSET_INDEX)))
            times = TimeIndex.load(read_or_empty(disk, segment.path(self.path, TIME_INDEX)))
            segment.greatest_timestamp(disk, self.path)
            active = ActiveSegment(segment, file, offsets, times, self.log_end)
            if active.size:
                first = HEADER.unpack(file.pread(HEADER_BYTES, 0))
                active.begin(BatchHeader._make(first).max_timestamp, self._config)
        except OSError as error:
            raise self.failed(error, f"opening the newest segment of {self.tp}") from error
        return self._install(active)

    def make(self) -> None:
        """Make the log's directory, where it has none yet."""
        if self.made:
            return
        disk = self.directory.disk
        disk.make_directory(self.path)
        disk.write_file(f"{self.path}/{PARTITION_METADATA}", partition_metadata.encode(self.topic_id))
        self.made = True
        self.entry_synced = False

    def new_active(self) -> ActiveSegment:
        self.make()
        segment = Segment(self.log_end, 0, self.clock.now_ms())
        segment.max_timestamp = NO_TIMESTAMP
        file = self.directory.disk.open(segment.path(self.path, LOG), create=True)
        assert file.size() == 0, f"{self.tp}: a new segment at {self.log_end} is not empty"
        self.segments.append(segment)
        return self._install(ActiveSegment(segment, file, OffsetIndex(), TimeIndex(), self.log_end))

    def _install(self, active: ActiveSegment) -> ActiveSegment:
        active.configure(self._config, self._jitter())
        self.active = active
        self.directory.files.admit(self)
        return active

    def _jitter(self) -> int:
        bound = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return self.randomness.below(bound) if bound > 0 else 0

    def release(self) -> bool:
        """Close the active segment's file to make room for another, with its indexes on the disk."""
        active = self.active
        if active is not None:
            try:
                active.save_indexes(self.directory.disk, self.path)
            except OSError:
                return False
            active.describe()
            self.active = None
        return True

    def abandon(self) -> None:
        """Let go of every file as it is. For a directory that failed, and for a broker that need not be careful."""
        active = self.active
        if active is not None:
            active.describe()
            self.active = None
        for segment in self.segments:
            segment.release()
            self.directory.files.forget(segment)
        self.directory.files.forget(self)

    def roll(self) -> None:
        """End the newest segment and begin another; one that is empty goes on."""
        active = self.open_active()
        if active.size == 0:
            return
        active.finish()
        self.save_indexes_softly(active)
        active.describe()
        self.active = None
        try:
            self.new_active()
        except OSError as error:
            self.active = active
            raise self.directory.failed(error, f"beginning a segment of {self.tp}") from error
        if self.producers is not None:
            producers = self.producers()
            if len(producers) <= producer_snapshot.SNAPSHOT_AT_ONCE_MAX:
                self.snapshot_producers(producers, self.log_end)
            else:
                self.producers_unsaved = True

    def snapshot_producers(self, entries: Iterable[ProducerSnapshot], offset: int) -> None:
        """Keep the producers' state as of `offset`, so that a start replays from there and not from the beginning."""
        self.save_producers(producer_snapshot.encode(entries), offset)

    def save_producers(self, encoded: bytes, offset: int) -> None:
        """The same with a snapshot that is encoded already."""
        if not self.made or not self.save_aborted():
            return
        self.producers_unsaved = False
        disk = self.directory.disk
        try:
            producer_snapshot.write(disk, self.path, encoded, offset, sync=False)
            producer_snapshot.prune(disk, self.path, log_end=self.log_end, settled=self.checkpointed)
        except OSError as error:
            # A full disk costs a longer replay, no more.
            self.directory.failed(error, f"saving the producers of {self.tp}")

    def note_aborted(self, aborted: AbortedTxn) -> None:
        """Keep an aborted transaction whose marker was just appended, for readers of committed data."""
        self.txn_notes.add(self.segments[-1].base, aborted)
        self.save_aborted()

    def save_aborted(self) -> bool:
        """Whether the index files have every aborted transaction; a full disk takes the rest later."""
        try:
            self.txn_notes.save(self.directory.disk, self.path)
        except OSError as error:
            self.directory.failed(error, f"noting an aborted transaction of {self.tp}")
            return False
        return True

    def save_indexes_softly(self, active: ActiveSegment) -> None:
        """A full disk is no reason to refuse: an index that lacks its end makes searching slower, not wrong."""
        try:
            active.save_indexes(self.directory.disk, self.path)
        except OSError as error:
            self.directory.failed(error, f"saving an index of {self.tp}")
