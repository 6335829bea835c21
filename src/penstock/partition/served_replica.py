"""One partition on this broker as it is led, committed, flushed, read and watched. `replica` adds the writing.

Everything runs on the event loop; between two awaits nobody else does.
"""

from asyncio import Future
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import NamedTuple

from penstock.config.log import TopicConfig
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import KafkaStorageError, NotLeaderOrFollower, OffsetOutOfRange
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.topic import PartitionState
from penstock.partition.aborted_txns import AbortedTxns
from penstock.partition.divergence import divergence
from penstock.partition.offset_waiters import OffsetWaiters
from penstock.partition.producers import FrozenProducers, ProducerTable
from penstock.partition.results import Fetched
from penstock.partition.state import Partition
from penstock.partition.validation import ValidationRules
from penstock.partition.watcher_notification import Watcher, WatcherNotifier
from penstock.partition.watchers import NEVER, Watchers
from penstock.storage import producer_snapshot
from penstock.storage.flush import FlushJob
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log import Log
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.decompression_budget import DecompressionBudget

FLUSH_NEVER = 2**63


class ProducersAt(NamedTuple):
    """The producers of a partition after every batch below an offset."""

    entries: FrozenProducers
    offset: int
    truncations: int


class ServedReplica:
    """The log of a partition with its offsets, producers, waiters and watchers."""

    __slots__ = (
        "_aborted",
        "_bytes_unseen",
        "_changed",
        "_commit_waiters",
        "_decompression",
        "_flush_at",
        "_flush_waiters",
        "_flushes",
        "_group",
        "_notification_due",
        "_notifier",
        "_notify_at_bytes",
        "_rules",
        "_threads",
        "_watchers",
        "config",
        "gone",
        "log",
        "producers",
        "readable_bytes",
        "snapshot_at",
        "snapshot_bytes",
        "snapshot_ms",
        "state",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        log: Log,
        state: Partition,
        producers: ProducerTable,
        config: TopicConfig,
        rules: ValidationRules,
        *,
        notifier: WatcherNotifier,
        flushes: GroupCommit,
        threads: Executor,
        decompression: DecompressionBudget,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.state, self.producers = state, producers
        self.gone: BrokerError | None = None
        """Why nobody is served here any more: the topic was deleted, the disk failed. Never taken back."""
        self.readable_bytes: int = 0
        """Bytes that have become visible to readers since the replica was made: only differences mean anything."""
        self._bytes_unseen: int = log.size_bytes if state.local_end < state.log_end else 0
        """Bytes appended that readers do not see yet."""
        self._aborted: AbortedTxns | None = None
        self.snapshot_at = -1
        """Offset of the newest snapshot of the producers: a start replays what is behind it."""
        self.snapshot_bytes = 0
        self.snapshot_ms = 0
        self._notifier = notifier
        self._flushes = flushes
        self._threads = threads
        self._decompression = decompression
        self._watchers = Watchers()
        self._notify_at_bytes = NEVER
        """From this many readable bytes on somebody wants to be notified."""
        self._changed = False
        """Whether something other than growth is to be notified to every watcher."""
        self._notification_due = False
        self._commit_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._group = False
        self._flush_at = FLUSH_NEVER
        """An append that ends here or beyond asks for a flush."""
        log.producers = producers.freeze
        self.configure(config, rules)
        self._stabilise()

    # Commitment

    def _stabilise(self) -> None:
        self.producers.advance(self.state.high_watermark)
        self.state.stabilise(self.producers.first_unstable)

    def _committed_more(self) -> None:
        """The high watermark moved: readers see more, and producers that waited for it are answered."""
        self._stabilise()
        self.readable_bytes += self._bytes_unseen
        self._bytes_unseen = 0
        self._notify_growth()
        self._commit_waiters.reach(self.state.high_watermark)

    def committed(self, end: int) -> "Future[None] | None":
        """None when readers may see everything below `end`; else what completes then, or see `stop_waiting`."""
        if self.state.high_watermark >= end:
            return None
        if self.gone is not None:
            raise self.gone
        return self._commit_waiters.wait(end)

    def durable(self, end: int) -> "Future[None] | None":
        """None when everything below `end` is as safe here as the topic's `flush` asks; else what completes then."""
        if self.state.local_end >= end:
            return None
        if self.gone is not None:
            raise self.gone
        return self._flush_waiters.wait(end)

    def stop_waiting(self, wait: "Future[None]", reason: BrokerError | None = None) -> None:
        """Cancel what `committed` or `durable` gave, or fail it for a reason: the request timed out or is abandoned."""
        self._commit_waiters.forget(wait)
        self._flush_waiters.forget(wait)
        if reason is None:
            wait.cancel()
        elif not wait.done():
            wait.set_exception(reason)

    def begin_flush(self) -> FlushJob | None:
        return None if self.gone is not None else self.log.begin_flush()

    def end_flush(self, job: FlushJob, failure: OSError | None) -> None:
        """Apply a flush, or its failure, which takes the log directory offline and everybody here with it."""
        if self.gone is not None:
            return
        try:
            self.log.finish_flush(job, failure)
        except KafkaStorageError as error:
            self.leave(error)
            return
        if not self._group:
            self._plan_flush()
        elif self.state.flushed(min(job.end, self.state.log_end)):
            self._committed_more()
        self._flush_waiters.reach(self.state.local_end)

    def _plan_flush(self) -> None:
        due = self.log.recovery_point + self.config.flush_messages
        self._flush_at = 0 if self._group else min(due, FLUSH_NEVER)

    # Reading

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        at_least_one: bool,
        read_committed: bool = False,
        leader_epoch: int = -1,
        fetched_epoch: int = -1,
    ) -> Fetched:
        """Whole batches from the one that holds `offset`, as far as the reader may see. Epochs below 0 ask no check."""
        state = self.state
        if leader_epoch != state.leader_epoch and leader_epoch >= 0:
            state.check_epoch(leader_epoch)
        if not state.leads:
            raise self._refusal()
        if fetched_epoch >= 0:
            left = divergence(self.log, state, offset, fetched_epoch)
            if left is not None:
                return Fetched(b"", state.high_watermark, state.last_stable, state.log_start, None, left)
        end = state.last_stable if read_committed else state.high_watermark
        aborted: list[AbortedTxn] | None = None
        records: FileSlice | bytes = b""
        if offset < end and offset >= state.log_start:
            found = self.log.slice(offset, bytes_max, end=end, at_least_one=at_least_one)
            records = found or b""
            if read_committed:
                known = self.aborted()
                aborted = known.between(offset, min(end, self.log.beyond(offset, found))) if known and found else []
        elif offset < state.log_start or offset > state.log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.tp}, but we only have log segments from "
                f"offset {state.log_start} up to {state.log_end}."
            )
        elif read_committed:
            aborted = []
        return Fetched(records, state.high_watermark, state.last_stable, state.log_start, aborted)

    def bytes_committed(self, offset: int, bytes_max: int) -> int:
        """How many bytes from `offset` on readers of committed data may see; `bytes_max` or more: at least so many.

        What begins in an older segment counts as `bytes_max`: it is worth a read, as in Kafka, and not a second look.
        """
        state = self.state
        offset = max(offset, state.log_start)
        found = self.log.slice(offset, bytes_max, end=state.last_stable, at_least_one=True)
        active = self.log.active
        if found is None or (active is not None and offset >= active.base):
            return len(found or b"")
        return bytes_max

    def aborted(self) -> AbortedTxns:
        """The aborted transactions of the log, found on the disk at the first use."""
        if self._aborted is None:
            self._aborted = AbortedTxns.load(self.log)
        return self._aborted

    def forget_aborted(self) -> None:
        """Compaction changed the log's aborted transactions: look again when they are needed."""
        self._aborted = None

    def delete_records(self, offset: int) -> int:
        """Make `offset` the first that readers see (-1: the high watermark); the log start that results."""
        state = self.state
        if not state.leads:
            raise self._refusal()
        if offset == -1:
            offset = state.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(f"The offset {offset} for partition {self.tp} is not valid")
        state.start_moved(offset)
        self.log.delete_before(state.log_start)
        self.start_moved()
        return state.log_start

    def start_moved(self) -> None:
        """The log begins later than before: retention or DeleteRecords dropped what was there."""
        self.state.start_moved(self.log.log_start)
        self._stabilise()
        if self._aborted is not None:
            self._aborted.forget_before(self.log.log_start)
        self._notify_change()

    # Watching

    def watch(self, watcher: Watcher, grown_bytes: int = 0) -> None:
        """Notify from now on, in a later turn of the loop, until `unwatch`. A replica that is gone says so at once.

        With `grown_bytes` growth alone is worth no notice until there are so many bytes more; then everything is.
        """
        at_bytes = self.readable_bytes + grown_bytes if grown_bytes > 1 else 0
        self._watchers.add(watcher, at_bytes)
        self._notify_at_bytes = min(self._notify_at_bytes, at_bytes)
        if self.gone is not None:
            self._notify_change()

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def _notify_growth(self) -> None:
        """Readers see more: notify watchers that wait for as much."""
        if self.readable_bytes >= self._notify_at_bytes and not self._notification_due:
            self._notification_due = True
            self._notifier.add(self)

    def _notify_change(self) -> None:
        """Readers see something other than growth: notify every watcher."""
        if self._watchers:
            self._changed = True
            if not self._notification_due:
                self._notification_due = True
                self._notifier.add(self)

    def notify_watchers(self) -> Iterator[None]:
        """Notify the watchers, one a step; they may stop watching meanwhile."""
        self._notification_due = False
        changed, self._changed = self._changed, False
        watchers = self._watchers
        failure: Exception | None = None
        for watcher in watchers.everyone() if changed else watchers.due(self.readable_bytes):
            # A watcher that fails is a bug of its own and must not leave the others waiting.
            try:
                if watcher in watchers:
                    watcher.notify(self)
            except Exception as error:
                failure = error
            yield
        self._notify_at_bytes = watchers.next_at()
        if failure is not None:
            raise failure

    # Life

    def configure(self, config: TopicConfig, rules: ValidationRules) -> None:
        """Take on a topic's settings, also while in use."""
        self.config, self._rules = config, rules
        state = self.state
        state.in_sync_min = config.min_insync_replicas
        self.log.config = config
        self._group = config.flush == "group"
        self._plan_flush()
        if self._group and self.log.is_dirty:
            # Written before the topic asked for the disk, or found after a crash.
            self._flushes.want(self)
        elif not self._group and state.local_end < state.log_end:
            # What waited for the disk no longer does.
            if state.appended(state.log_end):
                self._committed_more()
            self._flush_waiters.reach(state.local_end)

    def assume(self, decided: PartitionState, now_ms: int) -> None:
        """Take on what the controller decided about leadership and replicas."""
        if self.gone is not None:
            return
        before = self.state.high_watermark
        self.state.assume(decided, now_ms)
        if self.state.high_watermark != before:
            self._committed_more()
        if not self.state.leads:
            self._commit_waiters.fail(NotLeaderOrFollower())
            self._flush_waiters.fail(NotLeaderOrFollower())
            self._notify_change()

    def truncated(self, producers: ProducerTable, snapshot_at: int) -> None:
        """The log was cut: its producers and aborted transactions are those of what is left."""
        self.state.truncated(self.log.log_end)
        self.producers = producers
        self.log.producers = producers.freeze
        self.snapshot_at = snapshot_at
        self._aborted = None
        self._bytes_unseen = 0
        self._plan_flush()
        self._stabilise()

    def snapshot(self, now_ms: int) -> None:
        """Keep the producers as they are, so that a start replays only what comes after."""
        taken = self.begin_snapshot()
        self.end_snapshot(taken, producer_snapshot.encode(taken.entries), now_ms)

    def begin_snapshot(self) -> "ProducersAt":
        """The producers as they are, to be encoded off the loop: a hundred thousand take long."""
        return ProducersAt(self.producers.freeze(), self.state.log_end, self.log.truncations)

    def end_snapshot(self, taken: "ProducersAt", encoded: bytes, now_ms: int) -> None:
        """Keep a snapshot that was encoded meanwhile, unless the log was cut or is no longer served."""
        if self.gone is not None or self.log.truncations != taken.truncations:
            return
        self.log.save_producers(encoded, taken.offset)
        self.snapshot_at = taken.offset
        self.snapshot_bytes = self.readable_bytes
        self.snapshot_ms = now_ms

    def note_committed(self) -> None:
        """Tell the log what is committed, for the next checkpoint."""
        self.log.high_watermark = self.state.high_watermark

    def leave(self, reason: BrokerError) -> None:
        """Serve nobody any more: whoever waits is told why, and so is whoever comes."""
        if self.gone is not None:
            return
        self.gone = reason
        self.state.leads = False
        self._commit_waiters.fail(reason)
        self._flush_waiters.fail(reason)
        self._notify_change()

    def _refusal(self) -> BrokerError:
        return self.gone if self.gone is not None else NotLeaderOrFollower()
