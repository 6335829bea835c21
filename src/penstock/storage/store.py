"""All logs of a broker: found at start, created, looked up, deleted, checkpointed and closed."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.model.clock import Clock, Randomness
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import NO_OFFSET, OFFSET_ZERO, BrokerId, Offset, TopicId, TopicPartition
from penstock.model.threads import Threads
from penstock.observe.log import Logger
from penstock.storage import marks, partition_metadata, set_aside, summary
from penstock.storage.checkpoint import CheckpointDamaged, CheckpointFiles
from penstock.storage.directories import CLUSTER_ID, FULL_ERRORS, SCARCE_ERRORS, LogDirectory, StartRefused, said
from penstock.storage.disk import Disk, replace_file
from penstock.storage.files import OpenFiles
from penstock.storage.flush import FlushJob, run_flush
from penstock.storage.log import Log
from penstock.storage.marks import LogMarks, MarksFound
from penstock.storage.names import (
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    PARTITION_METADATA,
    marked_name,
    parse_partition_name,
    partition_name,
)
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.recovery import Finding, Stop
from penstock.storage.segment import NO_TIMESTAMP
from penstock.storage.set_aside import Reason, StrayLog
from penstock.storage.settings import LogSettings
from penstock.storage.summary import SUMMARY, LogSummary
from penstock.storage.trash import Trash

FILES_OPEN_MAX = 2048
"""Default number of open segments over all logs; a finished one that is read holds two files."""

REFUSAL_LOGGED_EVERY_S = 60.0
"""How often a directory that refuses operations is logged, while it does."""

FLUSHES_AT_ONCE_MAX = 8
"""Logs whose flush is waited for at once when the broker starts or stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """A log directory and its logs, as DescribeLogDirs and the metrics show it."""

    path: str
    offline: str | None
    free_bytes: int
    total_bytes: int
    sizes: dict[TopicPartition, int]


DeletedLog = tuple[str, TopicPartition, TopicId]
"""A log directory, and the partition and topic id of a log that was in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointJob:
    """Checkpoint files as they are to be written. Made on the loop, run off it."""

    checkpoints: CheckpointFiles
    number: int
    files: tuple[tuple[str, bytes], ...]
    recovery_points: tuple[tuple[Log, Offset], ...]
    """The recovery points that the next start will find, once the job is done."""
    deleted: frozenset[DeletedLog] = frozenset()
    """Deleted logs that the next start will not find, once the job is done."""

    def run(self) -> None:
        self.checkpoints.write(self.number, self.files)


class LogStore:
    """The logs of one broker, over one or more directories. Used on the loop, except where a method says otherwise."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        randomness: Randomness,
        log: Logger,
        files_open_max: int = FILES_OPEN_MAX,
        on_offline: Callable[[LogDirectory], None] | None = None,
    ) -> None:
        assert paths, "a broker needs a directory"
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._randomness = randomness
        self._log = log
        self._tell_offline = on_offline
        files = OpenFiles(files_open_max)
        self.all_directories = tuple(
            LogDirectory(path, disk, files, self._went_offline, self._tell, self._refused) for path in paths
        )
        self._refusal_logged_s: dict[str, float] = {}
        """When a refusal of each directory was last logged."""
        self.trash = Trash(disk)
        self.stopped_clean = True
        """Whether the last stop closed every directory; else the ends of logs may have been lost."""
        self.crashed: set[str] = set()
        """Directories whose machine or disk has failed since the last broker on them: unflushed records may be lost."""
        self.doubled: set[TopicPartition] = set()
        """Partitions of which two directories had a copy."""
        self.damaged: set[TopicPartition] = set()
        """Logs that lost records that had been committed, as far as they were opened."""
        self._on_unclean: Callable[[], None] = lambda: None
        self._logs: dict[TopicPartition, Log] = {}
        self._strays: dict[tuple[TopicId, int], tuple[LogDirectory, StrayLog]] = {}
        """Stray logs that can be restored, by topic id and partition."""
        self._restored: list[Log] = []
        """Logs in use again whose notes are still on the disk."""
        self._unfound: list[tuple[LogDirectory, LogSummary]] = []
        """Logs that the last broker left in a directory, and that are missing there."""
        self._deleted: set[DeletedLog] = set()
        """Logs that were deleted and that the checkpoints still have: a new log of the same id is not theirs."""
        self._checkpoint_files = CheckpointFiles(disk)
        self._is_replicated: Callable[[TopicPartition, TopicId], bool] = lambda _, __: False

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    # Starting

    def load(
        self,
        default: LogSettings,
        *,
        broker_id: BrokerId,
        cluster_id: str,
        recovery_threads: int = 2,
        on_unclean: Callable[[], None] = lambda: None,
        is_replicated: Callable[[TopicPartition, TopicId], bool] = lambda _, __: False,
    ) -> None:
        """Lock every directory and find its logs; after an unclean stop, recover them. Before anything is served.

        Logs have the settings `default` until their replica sets the topic's. A directory that cannot be used goes
        offline; `StartRefused` when that leaves none, or when the data is another broker's. `on_unclean` is called
        before the recovery of a directory changes any log. Logs that other brokers have too, as `is_replicated` says,
        are opened, and cut where they are damaged.
        """
        self._on_unclean = on_unclean
        self._is_replicated = is_replicated
        acquired: list[LogDirectory] = []
        try:
            for directory in self.all_directories:
                self._load_directory(directory, default, broker_id, cluster_id, recovery_threads)
                acquired.append(directory)
        except BaseException:
            for directory in acquired:
                directory.release()
            raise
        if all(directory.offline is not None for directory in self.all_directories):
            reasons = "; ".join(f"{directory.path}: {directory.offline}" for directory in self.all_directories)
            raise StartRefused(f"no log directory can be used: {reasons}")
        self._refuse_unfound(default)

    def _refuse_unfound(self, default: LogSettings) -> None:
        """Keep partitions offline whose directories are missing, unless they were moved to another log directory."""
        for directory, known in self._unfound:
            is_aside = (known.topic_id, known.tp.partition) in self._strays
            if known.tp in self._logs or is_aside or directory.offline is not None:
                continue
            path = directory.file(partition_name(known.tp))
            self.damaged.add(known.tp)
            self._logs[known.tp] = Log(
                PartitionDirectory(known.tp, known.topic_id, directory, path, made=False, entry_synced=True),
                default,
                clock=self._clock,
                randomness=self._randomness,
                left=known.contents(),
                log_start=known.log_start,
                log_end=known.log_end,
                recovery_point=known.log_end,
                high_watermark=known.log_end,
                cleaned_to=known.cleaned_to,
                replicated=self._is_replicated(known.tp, known.topic_id),
            )
            self._log.error("log_missing", partition=str(known.tp), path=path, log_end=known.log_end)
        self._unfound.clear()

    def cluster_ids(self) -> list[tuple[str, str]]:
        """Directories that belong to a cluster, and its id; nothing is locked or changed."""
        found = [(directory.path, directory.owner().get(CLUSTER_ID)) for directory in self.all_directories]
        return [(path, cluster_id) for path, cluster_id in found if cluster_id is not None]

    def _load_directory(
        self, directory: LogDirectory, default: LogSettings, broker_id: BrokerId, cluster_id: str, threads: int
    ) -> None:
        try:
            directory.acquire(broker_id, cluster_id, self._randomness)
            stop = directory.last_stop()
            if stop is not Stop.CLEAN and not directory.new:
                self._on_unclean()
                if stop is Stop.MACHINE_CRASH:
                    self.crashed.add(directory.path)
            logs = self._find(directory, default, stop)
            self._find_strays(directory)
            self.stopped_clean = self.stopped_clean and stop is Stop.CLEAN
            directory.mark_unclean()
            doubtful = [
                log
                for log in logs
                if log.replicated or log.loader.stop is not Stop.CLEAN or log.log_end < 0 or log.loader.lacks_newest()
            ]
            if any(log.replicated and log.loader.lacks_newest() for log in doubtful):
                self._on_unclean()
            self._threads.run_all(self._recover, doubtful, at_once=threads)
            if stop is Stop.MACHINE_CRASH and all(log.offline is None for log in logs):
                directory.mark_recovered()
        except OSError as error:
            if error.errno in SCARCE_ERRORS:
                raise StartRefused(
                    f"{directory.path}: {said(error)} while opening it. The disk is not at fault: give the broker more "
                    "file descriptors (ulimit -n, LimitNOFILE) or memory, or set num.recovery.threads.per.data.dir=1."
                ) from error
            directory.go_offline(f"{said(error)} while opening it")
            return
        except KafkaStorageError as error:
            # The failure of a log has taken the directory offline already; any other leaves its contents unknown.
            if directory.offline is None:
                raise StartRefused(str(error)) from error
            return
        for log in logs:
            self._logs[log.tp] = self._settle(log, self._logs.get(log.tp))
        if self._deleted or any(log.replicated and log.loader.findings for log in logs):
            # A log that was cut goes on below its old marks: a later recovery must look at what is written there. One
            # that was deleted must not be missed when its files are gone, too.
            self.checkpoint_cut(directory)
        last_stop = "none" if directory.new and not logs else stop.value
        self._log.info("directory_loaded", path=directory.path, logs=len(logs), last_stop=last_stop)

    def _recover(self, log: Log) -> None:
        """Open one log; damage in it does not affect the others. In a thread, before serving.

        After a machine crash the recovered log is flushed before the directory is marked as recovered.
        """
        crashed = log.loader.stop is Stop.MACHINE_CRASH
        try:
            log.open()
            if crashed:
                log.flush()
        except KafkaStorageError as error:
            if log.offline is None:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in FULL_ERRORS:
                    raise
                # The disk is too full to save what recovery found; the other logs may need no room.
                reason = f"it was not recovered: {said(error.__cause__)}"
                error = log.take_offline(reason, "free space, for example by deleting topics, and restart the broker")
            self._log.error("partition_offline", partition=str(log.tp), path=log.path, reason=str(error))

    def _settle(self, log: Log, other: Log | None) -> Log:
        """Choose between two copies of a partition, which a crash during a move can leave."""
        if other is None:
            return log
        if log.topic_id != other.topic_id:
            raise StartRefused(
                f"{log.tp} is in two directories with different topic ids, {other.path} and {log.path}: "
                "move the one that is not wanted away."
            )
        keep, stray = (log, other) if log.log_end > other.log_end else (other, log)
        self._set_aside(stray, Reason.SECOND_COPY)
        self.doubled.add(log.tp)
        self._log.warning("stray_copy", partition=str(log.tp), kept=keep.path, set_aside=stray.path)
        return keep

    def _find(self, directory: LogDirectory, default: LogSettings, stop: Stop) -> list[Log]:
        summaries = self._read_summaries(directory) if stop is Stop.CLEAN else {}
        checkpointed = self._read_marks(directory)
        logs: list[Log] = []
        for name in sorted(self._disk.list_directory(directory.path)):
            if name.endswith((DELETE_DIRECTORY, FUTURE_DIRECTORY)):
                self.trash.add(directory.file(name), 0)
                continue
            tp = parse_partition_name(name)
            if tp is None:
                continue
            known, last = summaries.get(tp), checkpointed.of(tp)
            topic_id = known.topic_id if known else self._topic_id(directory.file(name), last)
            if topic_id is None:
                continue
            logs.append(self._found(directory, directory.file(name), topic_id, default, stop, known, last))
        found = {log.tp for log in logs}
        left = (
            [each for each in summaries.values() if each.segments] if stop is Stop.CLEAN else checkpointed.written(stop)
        )
        for known in left:
            if known.tp in found:
                continue
            if self._was_deleted(directory, known):
                self._deleted.add((directory.path, known.tp, known.topic_id))
            else:
                self._unfound.append((directory, known))
        return logs

    def _found(
        self,
        directory: LogDirectory,
        path: str,
        topic_id: TopicId,
        default: LogSettings,
        stop: Stop,
        known: LogSummary | None,
        last: LogMarks,
    ) -> Log:
        """A log as the last broker left it: by its summary after a clean stop, else by the last checkpoint."""
        return Log(
            PartitionDirectory(last.tp, topic_id, directory, path, entry_synced=stop is Stop.CLEAN),
            default,
            clock=self._clock,
            randomness=self._randomness,
            stop=stop,
            left=known.contents() if known else None,
            log_start=known.log_start if known else last.log_start,
            # Without a summary the end is found by opening the log.
            log_end=known.log_end if known else NO_OFFSET,
            size_bytes=known.size_bytes if known else 0,
            oldest_ms=known.oldest_ms if known else NO_TIMESTAMP,
            recovery_point=known.log_end if known else last.recovery_point,
            high_watermark=last.high_watermark,
            cleaned_to=last.cleaned_to,
            replicated=self._is_replicated(last.tp, topic_id),
        )

    def _was_deleted(self, directory: LogDirectory, known: LogSummary) -> bool:
        """Whether a log was deleted since it was last known, as far as its remains say."""
        prefix = f"{partition_name(known.tp)}."
        return known.topic_id in {
            set_aside.read_topic_id(self._disk, directory.file(name))
            for name in self._disk.list_directory(directory.path)
            if name.startswith(prefix) and name.endswith(DELETE_DIRECTORY)
        }

    def _read_summaries(self, directory: LogDirectory) -> dict[TopicPartition, LogSummary]:
        try:
            return summary.read(self._disk, directory.file(SUMMARY))
        except CheckpointDamaged as damage:
            self._log.warning("summary_damaged", detail=str(damage), consequence="every log is opened")
            return {}

    def _topic_id(self, path: str, last: LogMarks) -> TopicId | None:
        """The topic id in a partition's directory, put right where it has rotted since the last checkpoint."""
        found = set_aside.read_topic_id(self._disk, path)
        if found is None or not partition_metadata.is_rotten(found, last.topic_id):
            return found
        self._log.warning("topic_id_repaired", path=path, found=found.hex(), topic_id=last.topic_id.hex())
        # A disk that is full leaves it for the next start.
        with suppress(OSError):
            replace_file(
                self._disk, f"{path}/{PARTITION_METADATA}", partition_metadata.encode(last.topic_id), sync=True
            )
        return last.topic_id

    def _read_marks(self, directory: LogDirectory) -> MarksFound:
        found = marks.read(self._disk, directory.path)
        for damage in found.damaged:
            self._log.warning("checkpoint_damaged", detail=damage, consequence="another copy counts, if there is one")
        return found

    def _tell(self, tp: TopicPartition, finding: Finding) -> None:
        if finding.serious:
            self.damaged.add(tp)
        tell = self._log.error if finding.serious and not finding.restorable else self._log.warning
        tell(finding.event, partition=str(tp), path=finding.path, offset=finding.offset, detail=finding.detail)

    def _went_offline(self, directory: LogDirectory) -> None:
        """Close the files of a directory that went offline; every use of it is refused from here on."""
        for log in self._logs.values():
            if log.directory is directory:
                log.abandon()
        self._log.error("directory_offline", path=directory.path, reason=directory.offline)
        if self._tell_offline is not None:
            self._tell_offline(directory)

    def _refused(self, directory: LogDirectory, reason: str) -> None:
        """Log a refusal once a minute: a full disk refuses thousands of appends for the same reason."""
        now_s, last_s = self._clock.monotonic(), self._refusal_logged_s.get(directory.path)
        if last_s is None or now_s - last_s >= REFUSAL_LOGGED_EVERY_S:
            self._refusal_logged_s[directory.path] = now_s
            self._log.error("directory_refuses", path=directory.path, reason=reason)

    # Creating and deleting

    def create(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogSettings,
        directory: LogDirectory | None = None,
        *,
        base: Offset = OFFSET_ZERO,
    ) -> Log:
        """Create an empty log that begins at `base`, in the directory with the fewest logs unless one is given.

        The first append creates the partition's directory: thousands of empty partitions cost nothing.
        """
        assert tp not in self._logs, f"{tp} exists"
        home = directory if directory is not None else self._emptiest()
        home.check()
        if any((each.path, tp, topic_id) in self._deleted for each in self.all_directories):
            # A replica that left and comes back: the marks of its former log are above the end of this one.
            for each in self.all_directories:
                if each.offline is None:
                    self.checkpoint_cut(each)
        log = self._logs[tp] = self.unwritten(tp, topic_id, config, home)
        if base > OFFSET_ZERO:
            # On the disk at once: a start that finds only the checkpoints of a log with an end takes it for lost.
            log.restart_at(base)
        return log

    def unwritten(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogSettings,
        directory: LogDirectory,
        *,
        base: Offset = OFFSET_ZERO,
    ) -> Log:
        """An empty log that is not one of the store's: nothing of it is on the disk before the first append."""
        place = PartitionDirectory(tp, topic_id, directory, directory.file(partition_name(tp)), made=False)
        return Log(
            place,
            config,
            clock=self._clock,
            randomness=self._randomness,
            log_start=base,
            log_end=base,
            recovery_point=base,
            high_watermark=base,
        )

    def _emptiest(self) -> LogDirectory:
        online = [directory for directory in self.all_directories if directory.offline is None]
        if not online:
            raise KafkaStorageError("Every log directory of this broker is offline.")
        counts = dict.fromkeys(online, 0)
        if len(online) > 1:
            for log in self._logs.values():
                if log.directory in counts:
                    counts[log.directory] += 1
        return min(online, key=counts.__getitem__)

    def delete(self, tp: TopicPartition) -> None:
        """Delete a log: rename its directory now, remove the files later."""
        log = self._logs.pop(tp)
        log.partition_directory.rewrites += 1
        log.close(clean=False)
        if log.directory.offline is not None or not log.partition_directory.made:
            return
        target = log.directory.file(marked_name(tp, DELETE_DIRECTORY, self._unique()))
        try:
            self._disk.rename(log.path, target)
        except OSError as error:
            raise self._stuck(log, error, f"deleting {tp}") from error
        log.partition_directory.path = target
        self._deleted.add((log.directory.path, tp, log.topic_id))
        self.trash.add(target, self._clock.now_ms() + log.config.file_delete_delay_ms)

    def _unique(self) -> str:
        return self._randomness.uuid_bytes().hex()

    def _stuck(self, log: Log, error: OSError, doing: str) -> KafkaStorageError:
        """A log whose directory could not be renamed still has the name: no other may be created over it."""
        refusal = log.directory.failed(error, doing)
        if log.directory.offline is None:
            self._logs[log.tp] = log
        return refusal

    # Setting aside

    def set_aside(self, tp: TopicPartition) -> str:
        """Set a log aside that the metadata does not know; returns where it is now."""
        log = self._logs.pop(tp)
        if log.partition_directory.made and log.directory.offline is None:
            try:
                self._set_aside(log, Reason.UNKNOWN_TOPIC)
            except OSError as error:
                raise self._stuck(log, error, f"setting {tp} aside") from error
        return log.path

    def _set_aside(self, log: Log, reason: Reason) -> None:
        log.partition_directory.rewrites += 1
        log.abandon()
        # A log that was opened may hold repairs that are not on the disk.
        stop = log.loader.stop if not log.opened else Stop.MACHINE_CRASH
        stray = StrayLog(
            path=log.path,
            tp=log.tp,
            topic_id=log.topic_id,
            reason=reason,
            stop=stop,
            log_start=log.log_start,
            recovery_point=log.recovery_point,
            high_watermark=log.high_watermark,
            cleaned_to=log.cleaned_to,
        )
        stray = set_aside.set_aside(self._disk, stray, self._unique())
        log.partition_directory.path = stray.path
        self._note_stray(log.directory, stray)

    def _find_strays(self, directory: LogDirectory) -> None:
        for stray in set_aside.find(self._disk, directory.path):
            if stray.damage is not None:
                self._log.error(
                    "set_aside_note_damaged",
                    partition=str(stray.tp),
                    path=stray.path,
                    reason=stray.damage,
                    hint="if its topic misses it, 'penstock log adopt' makes it a topic again",
                )
            self._note_stray(directory, stray)

    def _note_stray(self, directory: LogDirectory, stray: StrayLog) -> None:
        key = stray.topic_id, stray.tp.partition
        known = self._strays.get(key)
        if stray.is_restorable and (known is None or known[1].recovery_point < stray.recovery_point):
            self._strays[key] = directory, stray

    def restore(self, tp: TopicPartition, topic_id: TopicId, config: LogSettings) -> Log | None:
        """Restore a topic's log if it was set aside. Call `settle_restored` after the last one."""
        assert tp not in self._logs, f"{tp} exists"
        found = self._strays.get((topic_id, tp.partition))
        if found is None:
            return None
        directory, stray = found
        directory.check()
        try:
            path = set_aside.restore(self._disk, stray, tp)
        except OSError as error:
            raise directory.failed(error, f"restoring {tp}") from error
        del self._strays[topic_id, tp.partition]
        log = Log(
            PartitionDirectory(tp, topic_id, directory, path, entry_synced=stray.stop is Stop.CLEAN),
            config,
            clock=self._clock,
            randomness=self._randomness,
            stop=stray.stop,
            log_start=stray.log_start,
            recovery_point=stray.recovery_point,
            high_watermark=stray.high_watermark,
            cleaned_to=stray.cleaned_to,
        )
        self._logs[tp] = log
        self._restored.append(log)
        log.open()
        self._log.warning("log_restored", partition=str(tp), set_aside=stray.path, path=path, log_end=log.log_end)
        return log

    def settle_restored(self) -> None:
        """Write checkpoints with the offsets of restored logs, then remove their notes. Waits for the disk."""
        if not self._restored:
            return
        try:
            self.checkpoint()
            for log in self._restored:
                set_aside.forget_note(self._disk, log.path)
        except OSError as error:
            self._log.warning("restored_logs_unchecked", reason=said(error), consequence="the next checkpoint has them")
        self._restored.clear()

    def deleted_for_good(self, topic_ids: Collection[TopicId]) -> frozenset[TopicId]:
        """The topics that have no log here any more; none while a directory is offline, which may hold any."""
        if any(directory.offline is not None for directory in self.all_directories):
            return frozenset()
        return frozenset(topic_ids) - {log.topic_id for log in self._logs.values()}

    def sync_names(self) -> None:
        """Return when every rename in the log directories is on the disk. Off the loop."""
        for directory in self.all_directories:
            self._disk.sync_directory(directory.path)

    # Checkpoints

    def begin_checkpoint(self) -> CheckpointJob:
        """The checkpoint files that have to change; run the job off the loop, then finish it."""
        return self._begin_checkpoint([each for each in self.all_directories if each.offline is None])

    def _begin_checkpoint(self, directories: Collection[LogDirectory], *, every: bool = False) -> CheckpointJob:
        logs = [log for log in self._logs.values() if log.directory in directories]
        files = [
            file
            for directory in directories
            for file in self._checkpoints(directory, [log for log in logs if log.directory is directory])
        ]
        number, changed = self._checkpoint_files.begin(files, every=every)
        return CheckpointJob(
            checkpoints=self._checkpoint_files,
            number=number,
            files=tuple(changed),
            recovery_points=tuple((log, log.recovery_point) for log in logs),
            deleted=frozenset(each for each in self._deleted if any(each[0] == found.path for found in directories)),
        )

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Note that a checkpoint is on the disk."""
        self._deleted -= job.deleted
        for log, recovery_point in job.recovery_points:
            log.flusher.checkpointed = recovery_point

    @staticmethod
    def _checkpoints(directory: LogDirectory, logs: list[Log]) -> Iterator[tuple[str, bytes]]:
        return marks.files(
            directory.path,
            (
                LogMarks(
                    tp=log.tp,
                    topic_id=log.topic_id,
                    recovery_point=log.recovery_point,
                    log_start=log.log_start,
                    # The end of a log that could not be opened is not known: its last checkpoint stands.
                    high_watermark=log.high_watermark if log.offline else min(log.high_watermark, log.log_end),
                    cleaned_to=log.cleaned_to,
                )
                for log in logs
            ),
        )

    def checkpoint(self) -> None:
        """Write the checkpoints, waiting for the disk."""
        job = self.begin_checkpoint()
        job.run()
        self.finish_checkpoint(job)

    # Truncating

    def truncate(self, cuts: Mapping[TopicPartition, Offset]) -> None:
        """Truncate logs, each from the batch that holds an offset on, as followers do. Waits for the disk.

        Recovery points and high watermarks are synced before anything is cut, and the cut before the next append: a
        start never reports the cut records as lost, nor takes bytes from before the cut for later ones. A log that
        fails does not keep others from being cut.
        """
        logs = [(self._logs[tp], offset) for tp, offset in cuts.items()]
        self._lower_marks(logs)
        failures: list[KafkaStorageError] = []
        for log, offset in logs:
            try:
                log.truncate_to(offset)
            except KafkaStorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def restart(self, starts: Mapping[TopicPartition, Offset]) -> None:
        """Empty logs, which go on at another offset, as followers do. Waits for the disk.

        Marks are lowered first, as for a truncation; a crash in between leaves an empty log.
        """
        logs = [(self._logs[tp], offset) for tp, offset in starts.items()]
        self._lower_marks([(log, min(log.log_start, offset)) for log, offset in logs])
        for log, offset in logs:
            log.restart_at(offset)

    def _lower_marks(self, logs: Sequence[tuple[Log, Offset]]) -> None:
        directories = list(dict.fromkeys(log.directory for log, _ in logs))
        for directory in directories:
            directory.check()
        for log, offset in logs:
            log.open()
            log.lower_marks(offset)
        for directory in directories:
            self.checkpoint_cut(directory)

    def checkpoint_cut(self, directory: LogDirectory) -> None:
        """Make the lowered marks of logs durable."""
        job = self._begin_checkpoint([directory], every=True)
        try:
            job.run()
        except OSError as error:
            raise directory.failed(error, "noting that logs are cut") from error
        self.finish_checkpoint(job)

    # Stopping

    def close(self, *, clean: bool = True) -> None:
        """Close every log and directory. After a clean close, the next start opens logs at their first use."""
        for directory in self.all_directories:
            if directory.offline is None and clean:
                self._close_clean(directory)
        for log in self._logs.values():
            log.abandon()
        for directory in self.all_directories:
            directory.release()
        self._logs.clear()

    def _close_clean(self, directory: LogDirectory) -> None:
        logs = [log for log in self._logs.values() if log.directory is directory]
        try:
            usable = [log for log in logs if log.opened and log.offline is None]
            jobs = [(log, job) for log in usable if (job := log.begin_close()) is not None]
            for (log, job), error in zip(jobs, self.run_flushes([job for _, job in jobs]), strict=True):
                log.finish_flush(job, error)
            self._begin_checkpoint([directory], every=True).run()
            lines = summary.encode(log.summarise() for log in logs)
            replace_file(self._disk, directory.file(SUMMARY), lines, sync=True)
            if any(log.offline is not None for log in logs):
                # Not clean: the next start must recover the log again.
                self._log.warning("close_unclean", path=directory.path, reason="a partition is offline")
                return
            directory.mark_clean()
        except OSError as error:
            directory.failed(error, "closing it")
            self._log.error("close_unclean", path=directory.path, reason=said(error))
        except KafkaStorageError as error:
            self._log.error("close_unclean", path=directory.path, reason=str(error))

    def run_flushes(self, jobs: Sequence[FlushJob]) -> list[OSError | None]:
        """Flush several logs at once and wait for them, at a start or a stop; what each failed with."""
        return self._threads.run_all(run_flush, jobs, at_once=FLUSHES_AT_ONCE_MAX)

    def directories(self) -> list[DirectoryState]:
        """Every directory with the sizes of its logs."""
        states: list[DirectoryState] = []
        for directory in self.all_directories:
            free, total = (0, 0) if directory.offline else self._disk.free_bytes(directory.path)
            sizes = {log.tp: log.size_bytes for log in self._logs.values() if log.directory is directory}
            states.append(
                DirectoryState(
                    path=directory.path, offline=directory.offline, free_bytes=free, total_bytes=total, sizes=sizes
                )
            )
        return states
