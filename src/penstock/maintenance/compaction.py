"""Drives compaction: finds logs that are due, runs their passes off the loop and applies the results on it."""

from collections.abc import Callable
from threading import Event
from typing import NamedTuple

from penstock.config.broker import BrokerConfig
from penstock.maintenance.throttle import OffLoop, Pause, StoppableThrottle, Stopped
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.ids import Offset, TopicPartition
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.storage.compaction import Compaction, plan
from penstock.storage.key_map import keys_max_of
from penstock.storage.log import Log
from penstock.storage.store import LogStore
from penstock.storage.view import LogChanged, SegmentView
from penstock.storage.walk import BadBatch

UNCLEANABLE_RETRY_MS = 3_600_000
"""Delay before a log that could not be compacted is retried, unless retention drops segments of it before."""


class Uncleanable(NamedTuple):
    """A log that could not be compacted, and when to retry."""

    log: Log
    log_start: Offset
    retry_ms: int

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.retry_ms or self.log.log_start > self.log_start


class Compacting:
    """Compacts logs one after another; a log that cannot be compacted is skipped for a while."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        store: LogStore,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        off_loop: OffLoop,
        stopping: Event,
        pause: Pause,
        log: Logger,
        counters: StorageCounters,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._config = config
        self._clock = clock
        self._off_loop = off_loop
        self._stopping = stopping
        self._pause = pause
        self._log = log
        self._counters = counters
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}

    async def run(self) -> None:
        """One round over all compacted logs."""
        self._forget_others()
        if not self._config().log_cleaner_enable:
            return
        for log in list(self._store):
            if not self._is_due(log):
                continue
            try:
                replica = self._replicas.get(*log.tp)
                if not replica.is_offline:
                    await self._compact(replica)
            except LogChanged:
                # The log was deleted, truncated or moved meanwhile: the next round sees its new state.
                continue
            except BadBatch as damage:
                self._skip(log)
                self._log.error("log_uncleanable", partition=str(log.tp), offset=damage.offset, detail=str(damage))
            except BrokerError as error:
                self._log.error("compaction_refused", partition=str(log.tp), reason=str(error))
            except Stopped:
                return
            except Exception as error:
                # An error in one log does not stop the others.
                self._skip(log)
                self._log.exception("log_uncleanable", partition=str(log.tp), detail=str(error))

    def _is_due(self, log: Log) -> bool:
        known = self.uncleanable.get(log.tp)
        return (
            self._store.get(log.tp) is log
            and self._replicas.topic(log.tp.topic) is not None
            and "compact" in log.config.cleanup_policy
            and log.cleaned_to < log.log_end
            and (known is None or known.is_due(self._clock.now_ms()))
        )

    def _skip(self, log: Log) -> None:
        """Skip a log for a while, unless it was deleted."""
        self._counters.compaction_errors += 1
        if self._store.get(log.tp) is log:
            retry_ms = self._clock.now_ms() + UNCLEANABLE_RETRY_MS
            self.uncleanable[log.tp] = Uncleanable(log, log.log_start, retry_ms)
            self._counters.uncleanable_partitions = len(self.uncleanable)

    def _forget_others(self) -> None:
        """Forget uncleanable logs that were deleted, or are no longer compacted."""
        for tp, known in list(self.uncleanable.items()):
            if self._store.get(tp) is not known.log or "compact" not in known.log.config.cleanup_policy:
                del self.uncleanable[tp]
        self._counters.uncleanable_partitions = len(self.uncleanable)

    async def _compact(self, replica: Replica) -> None:
        config = self._config()
        log = replica.log
        stable = replica.offsets.last_stable
        if log.replicated:
            # After a power cut, recovery takes offsets that are missing between two segments for lost records, but for
            # those below the recovery point that it finds.
            stable = min(stable, log.flusher.checkpointed)
        work = plan(
            log,
            self._clock.now_ms(),
            stable=stable,
            committed=replica.offsets.high_watermark,
            keys_max=keys_max_of(int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor)),
            throttle=StoppableThrottle(
                config.log_cleaner_io_max_bytes_per_second, self._clock, self._stopping, self._pause
            ),
        )
        if work is None:
            return
        try:
            await self._off_loop(work.build_map)
            for group in work.groups():
                if not await self._swap_group(replica, work, group):
                    return
            work.finish(log)
        except OSError as error:
            if replica.is_offline:
                return
            self._counters.compaction_errors += 1
            raise log.directory.failed(error, f"compacting {replica.tp}") from error
        finally:
            work.abandon(log)
        self.uncleanable.pop(replica.tp, None)
        totals = work.totals
        self._counters.compactions += 1
        self._counters.compaction_bytes_read += totals.bytes_read
        self._counters.compaction_bytes_written += totals.bytes_written
        self._log.info(
            "log_compacted",
            partition=str(replica.tp),
            bytes_read=totals.bytes_read,
            bytes_written=totals.bytes_written,
            records_dropped=totals.records_dropped,
        )

    async def _swap_group(self, replica: Replica, work: Compaction, group: tuple[SegmentView, ...]) -> bool:
        """Rewrite a group and swap it in; False when the partition went offline meanwhile."""
        cleaned = await self._off_loop(lambda: work.clean(group))
        if replica.is_offline or replica.log.cleaning is not work:
            return False
        work.swap(replica.log, cleaned, self._store.trash)
        replica.forget_aborted()
        return True
