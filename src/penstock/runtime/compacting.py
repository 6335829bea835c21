"""Compaction, driven: which log is due, its pass off the loop, its result on it."""

from collections.abc import Callable
from threading import Event

from penstock.config.broker import BrokerConfig
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicPartition
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.runtime.hosts import Hosts
from penstock.runtime.partition_host import PartitionHost
from penstock.runtime.unhurried import OffLoop, Stopped, Unhurried
from penstock.storage.compaction import Compaction, plan
from penstock.storage.key_map import keys_max_of
from penstock.storage.store import LogStore
from penstock.storage.view import SegmentView
from penstock.storage.walk import BadBatch


class Compacting:
    """Compacts logs one after another; one that turns out damaged is left alone until the broker starts again."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        store: LogStore,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        off_loop: OffLoop,
        stopping: Event,
        log: Logger,
        counters: StorageCounters,
    ) -> None:
        self._hosts = hosts
        self._store = store
        self._config = config
        self._clock = clock
        self._off_loop = off_loop
        self._stopping = stopping
        self._log = log
        self._counters = counters
        self.uncleanable: set[TopicPartition] = set()

    async def run(self) -> None:
        """One round over all compacted logs."""
        if not self._config().log_cleaner_enable:
            return
        for log in list(self._store):
            topic = self._hosts.topic(log.tp.topic)
            if (
                topic is None
                or "compact" not in log.config.cleanup_policy
                or log.cleaned_to >= log.log_end
                or log.tp in self.uncleanable
                or self._store.get(log.tp) is not log
            ):
                continue
            try:
                host = self._hosts.get(*log.tp)
                if host.gone is None:
                    await self._compact(host)
            except BrokerError as error:
                self._log.error("compaction_refused", partition=str(log.tp), reason=str(error))

    async def _compact(self, host: PartitionHost) -> None:
        config = self._config()
        log = host.log
        work = plan(
            log,
            self._clock.now_ms(),
            stable=host.state.last_stable,
            keys_max=keys_max_of(int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor)),
            pace=Unhurried(config.log_cleaner_io_max_bytes_per_second, self._clock, self._stopping),
        )
        if work is None:
            return
        try:
            await self._off_loop(work.build_map)
            for group in work.groups():
                if not await self._swap_group(host, work, group):
                    return
            work.finish(log)
        except OSError as error:
            self._counters.compaction_errors += 1
            if host.gone is None:
                raise log.directory.failed(error, f"compacting {host.tp}") from error
        except BadBatch as damage:
            self._counters.compaction_errors += 1
            self.uncleanable.add(host.tp)
            self._log.error("log_uncleanable", partition=str(host.tp), detail=str(damage))
        except Stopped:
            return
        finally:
            work.abandon(log)
        host.forget_aborted()
        totals = work.totals
        self._counters.compactions += 1
        self._counters.compaction_bytes_read += totals.bytes_read
        self._counters.compaction_bytes_written += totals.bytes_written
        self._log.info(
            "log_compacted",
            partition=str(host.tp),
            bytes_read=totals.bytes_read,
            bytes_written=totals.bytes_written,
            records_dropped=totals.records_dropped,
        )

    async def _swap_group(self, host: PartitionHost, work: Compaction, group: tuple[SegmentView, ...]) -> bool:
        """Write a group anew and put it in place; False when the partition is gone meanwhile."""
        cleaned = await self._off_loop(lambda: work.clean(group))
        if host.gone is not None or host.log.cleaning is not work:
            return False
        work.swap(host.log, cleaned, self._store.trash)
        return True
