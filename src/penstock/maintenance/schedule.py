"""The background tasks of a broker: retention, compaction, flush, checkpoints, scrubbing and expiration.

Each task has its own interval, works on one log at a time, and leaves the loop for work that may wait for a disk. A
disk error takes only its own log directory offline; a bug in one task is reported, and the task is retried without
affecting the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from threading import Event

from penstock.config.broker import BrokerConfig
from penstock.config.key import LONG_MAX
from penstock.maintenance.compaction import Compacting
from penstock.maintenance.throttle import Result, StoppableThrottle, Stopped
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.model.threads import Threads
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.quotas.client_quotas import ClientQuotas
from penstock.storage import producer_snapshot
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log import Log
from penstock.storage.names import DELETE_DIRECTORY
from penstock.storage.producer_snapshot import SNAPSHOT_AT_ONCE_MAX
from penstock.storage.retention import may_be_due, retain
from penstock.storage.scrubber import Scrubber, ScrubJob
from penstock.storage.store import LogStore

FIRST_DELAY_MS = 30_000
"""Least delay before the first round, so that background work does not slow down a start."""

FLUSH_TICK_MS = 1_000
SNAPSHOT_TICK_MS = 5_000
TRASH_TICK_MS = 1_000
QUOTA_TICK_MS = 600_000

REPLAY_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a log after which its producers are saved again, so that a start after a crash replays little more."""

LOGS_PER_TURN = 32
"""Logs handled in one turn of the loop."""

SCRUB_RESUMES_MAX = 100
"""How often the scrubber resumes in a log whose files change during the scrub; the rest waits for the next round."""

SLEEP_MS_MAX = 3_600_000
"""Longest sleep: an interval may change while it passes."""

Work = Callable[[], Awaitable[None]]


class Maintenance:
    """The background tasks of one broker; they run as long as `run` does."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        store: LogStore,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        threads: Threads,
        flushes: GroupCommit,
        log: Logger,
        quotas: ClientQuotas | None = None,
        counters: StorageCounters | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._config = config
        self._clock = clock
        self._threads = threads
        self._flushes = flushes
        self._log = log
        self._quotas = quotas
        self._counters = counters = StorageCounters() if counters is None else counters
        self._sleep = sleep
        self._stopping = Event()
        self._dirty_since: dict[Replica, int] = {}
        self.scrubber = Scrubber()
        self.compacting = Compacting(
            replicas=replicas,
            store=store,
            config=config,
            clock=clock,
            off_loop=self._off_loop,
            stopping=self._stopping,
            pause=threads.pause,
            log=log,
            counters=counters,
        )

    async def run(self) -> None:
        """Run the tasks until cancelled; then stop the work that runs in threads."""
        config = self._config
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, interval_ms, work in (
                    ("retention", lambda: config().log_retention_check_interval_ms, self.retain),
                    ("compaction", lambda: config().log_cleaner_backoff_ms, self.compacting.run),
                    ("scrub", lambda: config().log_scrub_interval_ms, self.scrub),
                    ("checkpoint", lambda: config().log_flush_offset_checkpoint_interval_ms, self.checkpoint),
                    ("producers", lambda: config().producer_id_expiration_check_interval_ms, self.expire_producers),
                    ("flush", lambda: FLUSH_TICK_MS, self.flush_due),
                    ("snapshots", lambda: SNAPSHOT_TICK_MS, self.snapshot_producers),
                    ("trash", lambda: TRASH_TICK_MS, self.empty_trash),
                    ("quotas", lambda: QUOTA_TICK_MS, self.forget_clients),
                ):
                    tasks.create_task(self._repeat(name, interval_ms, work))
        finally:
            self._stopping.set()

    async def _repeat(self, name: str, interval_ms: Callable[[], int], work: Work) -> None:
        waited_ms = max(0, interval_ms() - FIRST_DELAY_MS)
        while True:
            left_ms = interval_ms() - waited_ms
            if left_ms > 0:
                step_ms = min(left_ms, SLEEP_MS_MAX)
                await self._sleep(step_ms / 1000)
                waited_ms += step_ms
                continue
            waited_ms = 0
            try:
                await work()
            except (BrokerError, OSError) as error:
                self._log.error("maintenance_refused", work=name, reason=str(error))
            except Exception:
                self._log.exception("maintenance_failed", work=name)
            # Yield to the loop even where the interval is 0.
            await self._sleep(0)

    async def _off_loop(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads.executor, call)

    # Retention

    async def retain(self) -> None:
        """Apply retention to every log: drop segments that are too old, or that make the log too large."""
        now_ms = self._clock.now_ms()
        for at, log in enumerate(self._logs()):
            if at % LOGS_PER_TURN == 0:
                await self._sleep(0)
            if self._store.get(log.tp) is log and may_be_due(log, now_ms):
                try:
                    self._retain_one(self._replicas.get(*log.tp), now_ms)
                except BrokerError as error:
                    self._log.error("retention_refused", partition=str(log.tp), reason=str(error))
                except Exception:
                    # An error in one log does not stop the others.
                    self._log.exception("retention_failed", partition=str(log.tp))

    def _retain_one(self, replica: Replica, now_ms: int) -> None:
        if replica.is_offline:
            return
        log = replica.log
        dropped = retain(log, now_ms, committed=replica.offsets.high_watermark, trash=self._store.trash)
        if log.log_start > replica.offsets.log_start:
            replica.start_moved()
        self._counters.segments_deleted += dropped
        if dropped:
            self._log.info("segments_dropped", partition=str(replica.tp), count=dropped, log_start=log.log_start)

    def _logs(self) -> Iterator[Log]:
        """Every log of an existing topic, as of now."""
        return (log for log in list(self._store) if self._replicas.topic(log.tp.topic) is not None)

    async def empty_trash(self) -> None:
        """Remove the files of dropped segments and deleted logs whose delay has passed."""
        trash, now_ms = self._store.trash, self._clock.now_ms()
        due = trash.take_due(now_ms)
        if any(path.endswith(DELETE_DIRECTORY) for path in due):
            # A start that finds a log in the checkpoints and no trace of it on the disk takes it for lost.
            try:
                await self.checkpoint()
            except KafkaStorageError:
                for path in due:
                    trash.add(path, now_ms)
                raise
        # No checkpoint was written to a log directory that is offline. The next start finds what is left there.
        offline = tuple(f"{each.path}/" for each in self._store.all_directories if each.offline is not None)
        due = [path for path in due if not path.startswith(offline)]
        if due:
            for error in await self._off_loop(lambda: trash.remove(due)):
                self._log.error("files_not_removed", path=str(error.filename), reason=str(error))

    # Flush, checkpoints and snapshots

    async def flush_due(self) -> None:
        """Flush logs that are due by `flush.ms`, and finished segments, which recovery then skips."""
        now_ms = self._clock.now_ms()
        dirty_since: dict[Replica, int] = {}
        for replica in list(self._replicas.live()):
            log = replica.log
            if replica.is_offline or not log.is_dirty:
                continue
            since_ms = dirty_since[replica] = self._dirty_since.get(replica, now_ms)
            flush_ms = replica.config.flush_ms
            ended = bool(log.segments) and log.segments[-1].base > log.recovery_point
            if ended or (flush_ms != LONG_MAX and now_ms - since_ms >= flush_ms):
                del dirty_since[replica]
                self._flushes.want(replica)
        self._dirty_since = dirty_since

    async def checkpoint(self) -> None:
        """Write the checkpoints of every log, for the next start."""
        for replica in self._replicas.live():
            if not replica.is_offline:
                replica.note_committed()
        job = self._store.begin_checkpoint()
        try:
            await self._off_loop(job.run)
        except OSError as error:
            raise self._directory_failed(error, "writing checkpoints")
        self._store.finish_checkpoint(job)

    def _directory_failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Take the log directory of a failed operation offline, if the error has a file name."""
        path = str(error.filename or "")
        for directory in self._store.all_directories:
            if path.startswith(f"{directory.path}/"):
                return directory.failed(error, doing)
        return KafkaStorageError(f"{error} while {doing}")

    async def snapshot_producers(self) -> None:
        """Save the producers of logs that have grown, so that a start after a crash replays little."""
        interval_ms = self._config().log_flush_offset_checkpoint_interval_ms
        now_ms = self._clock.now_ms()
        for replica in list(self._replicas.live()):
            if not replica.is_offline and replica.offsets.log_end != replica.snapshot_at:
                grown = replica.watchers.readable_bytes - replica.snapshot_bytes
                if (
                    grown >= REPLAY_BYTES_MAX
                    or now_ms - replica.snapshot_ms >= interval_ms
                    or replica.log.producers_unsaved
                ):
                    try:
                        await self._snapshot(replica, now_ms)
                    except BrokerError as error:
                        self._log.error("snapshot_refused", partition=str(replica.tp), reason=str(error))
                    except Exception:
                        self._log.exception("snapshot_failed", partition=str(replica.tp))

    async def _snapshot(self, replica: Replica, now_ms: int) -> None:
        if len(replica.producers) <= SNAPSHOT_AT_ONCE_MAX:
            replica.snapshot(now_ms)
        else:
            taken = replica.begin_snapshot()
            encoded = await self._off_loop(lambda: producer_snapshot.encode(taken.entries))
            replica.end_snapshot(taken, encoded, now_ms)
        await self._sleep(0)

    # Scrubbing

    async def scrub(self) -> None:
        """Verify every finished segment once, throttled, and log damage."""
        throttle = StoppableThrottle(
            self._config().log_scrub_max_bytes_per_second, self._clock, self._stopping, self._threads.pause
        )
        seen: set[TopicPartition] = set()
        while (jobs := self.scrubber.next_jobs(self._store)) and jobs[0].tp not in seen:
            seen.add(jobs[0].tp)
            try:
                await self._scrub_log(jobs, throttle)
            except Stopped:
                return
            except BrokerError as error:
                self._log.error("scrub_refused", partition=str(jobs[0].tp), reason=str(error))
            except Exception:
                self._log.exception("scrub_failed", partition=str(jobs[0].tp))

    async def _scrub_log(self, jobs: list[ScrubJob], throttle: StoppableThrottle) -> None:
        queue = deque(jobs)
        resumes = 0
        while queue:
            job = queue.popleft()
            log = self._store.get(job.tp)
            if log is None or log.directory.offline is not None:
                return
            try:
                found = await self._off_loop(partial(job.run, throttle))
            except OSError as error:
                raise log.directory.failed(error, f"scrubbing {job.tp}") from error
            if found is None and job.is_stale and resumes < SCRUB_RESUMES_MAX:
                resumes += 1
                queue = deque(self.scrubber.resume(self._store, job))
                continue
            self._counters.scrubbed_segments += 1
            if self.scrubber.note(job, found):
                assert found is not None
                self._counters.scrub_findings += 1
                self._log.error(
                    found.event, partition=str(job.tp), path=found.path, offset=found.offset, detail=found.detail
                )
                if log.replicated:
                    self._replicas.resign(job.tp, found.detail)

    # Expiration

    async def expire_producers(self) -> None:
        """Forget producers that have been idle for `producer.id.expiration.ms`."""
        now_ms, idle_ms = self._clock.now_ms(), self._config().producer_id_expiration_ms
        for at, replica in enumerate(list(self._replicas.live())):
            replica.producers.expire(now_ms, idle_ms)
            if at % LOGS_PER_TURN == 0:
                await self._sleep(0)

    async def forget_clients(self) -> None:
        if self._quotas is not None:
            self._quotas.forget_idle(self._clock.now_ms())
