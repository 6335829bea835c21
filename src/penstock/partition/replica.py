"""One partition on this broker: drives the rules of its role, appends what they accept, and serves reads.

Its parts: the log; the offsets, and the role that alone moves them (`leader`, `follower`); the producers; waiters for
an offset to be committed or flushed; watchers of growth. Everything runs on the event loop, so that no other code runs
between two awaits.
"""

from asyncio import get_running_loop
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, NamedTuple

from penstock.config.log import TopicConfig
from penstock.model.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TransactionalIdAuthorizationFailed,
)
from penstock.model.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.model.topic import PartitionState
from penstock.partition import role as roles
from penstock.partition.aborted_txns import AbortedTxns
from penstock.partition.follower import Follower
from penstock.partition.leader import Leader
from penstock.partition.offset_waiters import OffsetWaiters
from penstock.partition.producers import FrozenProducers, ProducerTable
from penstock.partition.results import Appended, Fetched
from penstock.partition.role import Offline, Role
from penstock.partition.validation import (
    HEAVY_BYTES,
    LIGHT_RECORDS_BYTES_MAX,
    TooHeavy,
    ValidationRules,
    one_batch,
    plain_header,
    validate,
    validate_within,
)
from penstock.partition.verification import TxnProof
from penstock.partition.watchers import Watcher, WatcherNotifier, Watchers
from penstock.storage import producer_snapshot
from penstock.storage.flush import FlushJob
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log import Log
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.decompression_budget import DecompressionBudget
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker

FLUSH_NEVER = 2**63
VERSION_NEWEST = 13
BUMPING_VERSION = 2
"""From this transaction version on, a marker's epoch is one more than that of the transaction's records."""


class ProducersAt(NamedTuple):
    """The producers of a partition after every batch below an offset."""

    entries: FrozenProducers
    offset: Offset
    truncations: int


class Replica:
    """One partition on this broker, in one role at a time."""

    __slots__ = (
        "_aborted",
        "_bytes_unseen",
        "_commit_waiters",
        "_decompression",
        "_flush_at",
        "_flush_waiters",
        "_flushes",
        "_rules",
        "_threads",
        "config",
        "log",
        "offsets",
        "producers",
        "role",
        "snapshot_at",
        "snapshot_bytes",
        "snapshot_ms",
        "topic_id",
        "tp",
        "watchers",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        log: Log,
        role: Leader | Follower,
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
        self.role: Role = role
        self.offsets = role.offsets
        self.producers = producers
        self._bytes_unseen: int = log.size_bytes if self.offsets.local_end < self.offsets.log_end else 0
        """Appended bytes that are not readable yet."""
        self._aborted: AbortedTxns | None = None
        self.snapshot_at = NO_OFFSET
        """Offset of the newest snapshot of the producers: a start replays the log from there."""
        self.snapshot_bytes = 0
        self.snapshot_ms = 0
        self._flushes = flushes
        self._threads = threads
        self._decompression = decompression
        self.watchers = Watchers(notifier)
        self._commit_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self._flush_at = FLUSH_NEVER
        """An append that ends at or beyond this offset requests a flush."""
        log.producers = producers.freeze
        self.configure(config, rules)

    # Role

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_offline(self) -> bool:
        return isinstance(self.role, Offline)

    def assume(self, decided: PartitionState, now_ms: int) -> None:
        """Apply the controller's decision about leader and replicas."""
        if isinstance(self.role, Offline):
            return
        self.role, moved = roles.assume(self.role, decided, now_ms)
        if moved:
            self._committed_more()
        if not isinstance(self.role, Leader):
            self.producers.guards.clear()
            self._fail_waiters(NotLeaderOrFollower())

    def leave(self, reason: BrokerError) -> None:
        """Go offline: waiting and later requests fail with this reason."""
        if not isinstance(self.role, Offline):
            self.role = Offline(reason, self.role.leader_epoch)
            self._fail_waiters(reason)

    def _fail_waiters(self, reason: BrokerError) -> None:
        self._commit_waiters.fail(reason)
        self._flush_waiters.fail(reason)
        self.watchers.change()

    def leading(self) -> Leader:
        """This replica's role as leader; raises why it does not lead."""
        role = self.role
        if isinstance(role, Leader):
            return role
        raise roles.refusal(role)

    def configure(self, config: TopicConfig, rules: ValidationRules) -> None:
        """Apply a topic's settings, also while in use."""
        self.config, self._rules = config, rules
        self.log.config = config
        role = self.role
        if isinstance(role, Offline):
            return
        flush_group = config.flush == "group"
        moved = role.configure(in_sync_min=config.min_insync_replicas, flush_group=flush_group)
        self._plan_flush()
        if flush_group and self.log.is_dirty:
            # Records written before `flush=group` was set, or found after a crash.
            self._flushes.want(self)
        if moved:
            self._committed_more()
        self._flush_waiters.reach(self.offsets.local_end)

    def truncated(self, producers: ProducerTable, snapshot_at: Offset) -> None:
        """The log was truncated: apply the producers of the rest, and forget its aborted transactions."""
        assert isinstance(self.role, Follower), f"{self.tp}: only a follower truncates itself"
        self.producers = producers
        self.log.producers = producers.freeze
        self.role.truncated(self.log.log_end, producers)
        self.snapshot_at = snapshot_at
        self._aborted = None
        self._bytes_unseen = 0
        self._plan_flush()

    # Appending

    def append(
        self,
        records: memoryview | None,
        now_ms: int,
        *,
        acks_all: bool = False,
        internal: bool = False,
        proof: TxnProof | None = None,
        version: int = VERSION_NEWEST,
        transaction_version: int = 0,
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append the single batch in `records`, or raise the error. Offsets are written into `records` itself.

        A large batch that has to be compressed or decompressed is validated in a thread: await the result before the
        next request of its producer. `internal` is for a coordinator's own batch, whose markers need
        `transaction_version`; a client's transactional batch needs a `proof` in case it is the first of
        its transaction here.
        """
        role = self.role
        if not isinstance(role, Leader):
            raise roles.refusal(role)
        if acks_all and role.too_few_in_sync:
            role.check_enough_in_sync()
        if records is None:
            records = memoryview(b"")
        if internal:
            return self._append_own(role, records, now_ms, transaction_version)
        header = plain_header(records, self._rules, now_ms, version, self.tp)
        if header is not None:
            return self._store(role, records, header, now_ms)
        return self._append_validated(role, one_batch(records, version), now_ms, proof)

    def _append_own(self, role: Leader, batch: memoryview, now_ms: int, transaction_version: int) -> Appended:
        """Append a coordinator's batch: always light enough for the loop, and never a duplicate."""
        try:
            sound, header = validate(batch, self._rules, now_ms, self.tp, internal=True)
        except BrokerError as error:
            raise self._placed(error)
        if header.attributes & CONTROL_FLAG:
            return self._store_marker(role, sound, header, now_ms, transaction_version)
        if header.attributes & TRANSACTIONAL_FLAG:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._store(role, sound, header, now_ms, internal=True)

    def _append_validated(
        self, role: Leader, batch: memoryview, now_ms: int, proof: TxnProof | None
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append a batch that needs more than the common checks, or fails them."""
        attributes = batch[ATTRIBUTES_AT + 1] if len(batch) >= HEADER_BYTES else 0
        if attributes & TRANSACTIONAL_FLAG and proof is None:
            raise TransactionalIdAuthorizationFailed()
        # A thread gets a copy: the request's buffer belongs to the connection.
        if len(batch) >= HEAVY_BYTES and self._rules.opens(attributes & CODEC_MASK):
            return self._append_later(memoryview(bytearray(batch)), now_ms, proof)
        try:
            sound, header = validate(
                batch, self._rules, now_ms, self.tp, internal=False, records_bytes_max=LIGHT_RECORDS_BYTES_MAX
            )
        except BrokerError as error:
            raise self._placed(error)
        except TooHeavy:
            return self._append_later(memoryview(bytearray(batch)), now_ms, proof)
        return self._store(role, sound, header, now_ms, proof=proof)

    async def _append_later(self, copied: memoryview, now_ms: int, proof: TxnProof | None) -> Appended:
        rules, tp, budget = self._rules, self.tp, self._decompression
        try:
            sound, header = await get_running_loop().run_in_executor(
                self._threads, lambda: validate_within(budget, copied, rules, now_ms, tp)
            )
        except BrokerError as error:
            raise self._placed(error)
        return self._store(self.leading(), sound, header, now_ms, proof=proof)

    def _placed(self, error: BrokerError) -> BrokerError:
        """Add the log start to the error of a refused batch; Kafka omits it for a batch too large or corrupt."""
        if not isinstance(error, MessageTooLarge | CorruptMessage):
            error.log_start = self.offsets.log_start
        return error

    def _store(
        self,
        role: Leader,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        internal: bool = False,
        proof: TxnProof | None = None,
    ) -> Appended:
        """Append a valid batch, unless its producer's state makes it a duplicate or an error."""
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        producers = self.producers
        _, _, _, _, _, attributes, last, _, max_time, producer_id, epoch, sequence, _ = header
        if producer_id >= 0:
            transactional = attributes & TRANSACTIONAL_FLAG != 0
            if not internal:
                first = transactional and not producers.is_open(producer_id, epoch)
                if first and proof is not None and proof.error is not None:
                    raise proof.error
                try:
                    duplicate = producers.check(producer_id, epoch, sequence, last, transactional)
                    if first and duplicate is None:
                        assert proof is not None, f"{self.tp}: a transactional batch of {producer_id} without proof"
                        producers.check_first(producer_id, epoch, sequence, proof)
                except BrokerError as error:
                    raise self._placed(error)
                if duplicate is not None:
                    base, last, timestamp = duplicate
                    return Appended(base, timestamp, self.offsets.log_start, Offset(last + 1))
            base = self.log.append(batch, header, role.leader_epoch)
            producers.record(producer_id, epoch, sequence, last, transactional, base, max_time, now_ms)
        else:
            base = self.log.append(batch, header, role.leader_epoch)
        end = self.log.log_end
        self._bytes_unseen += len(batch)
        # The append itself can take the log directory offline, and with it this role.
        if self.role is role and role.appended(base, end):
            self._committed_more()
        if end >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, max_time if attributes & LOG_APPEND_TIME_FLAG else -1, self.offsets.log_start, end)

    def _store_marker(
        self, role: Leader, batch: memoryview, header: BatchHeader, now_ms: int, transaction_version: int
    ) -> Appended:
        """Append the marker that ends a transaction, and index the transaction if it was aborted."""
        kind, coordinator_epoch = parse_marker(decode_records(batch)[0])
        producer_id, epoch = header.producer_id, header.producer_epoch
        bumps = transaction_version >= BUMPING_VERSION
        self.producers.check_marker(producer_id, epoch, coordinator_epoch, bumps=bumps)
        aborted = self.aborted()
        base = self.log.append(batch, header, role.leader_epoch)
        completed = self.producers.record_marker(
            producer_id, epoch, coordinator_epoch, base, kind == ABORT_MARKER, header.max_timestamp, now_ms
        )
        if completed is not None and completed.aborted:
            aborted.add(AbortedTxn.of(completed), self.log)
        self._bytes_unseen += len(batch)
        if self.role is role and role.appended(base, self.log.log_end):
            self._committed_more()
        if base + 1 >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, -1, self.offsets.log_start, self.log.log_end)

    # Commitment

    def _committed_more(self) -> None:
        """The high watermark moved: notify watchers and complete the waiters that it has reached."""
        grown, self._bytes_unseen = self._bytes_unseen, 0
        watchers = self.watchers
        watchers.readable_bytes += grown
        if watchers.readable_bytes >= watchers.notify_at_bytes:
            watchers.queue()
        self._commit_waiters.reach(self.offsets.high_watermark)

    def committed(self, end: Offset) -> Deferred[None] | None:
        """None when everything below `end` is committed; otherwise a waiter that completes then."""
        if self.offsets.high_watermark >= end:
            return None
        if isinstance(self.role, Offline):
            raise self.role.reason
        return self._commit_waiters.wait(end)

    def durable(self, end: Offset) -> Deferred[None] | None:
        """None when everything below `end` is flushed as the topic's `flush` asks; otherwise a waiter for that."""
        if self.offsets.local_end >= end:
            return None
        if isinstance(self.role, Offline):
            raise self.role.reason
        return self._flush_waiters.wait(end)

    def begin_flush(self) -> FlushJob | None:
        return None if isinstance(self.role, Offline) else self.log.begin_flush()

    def end_flush(self, job: FlushJob, failure: OSError | None) -> None:
        """Apply a flush, or its failure, which takes the log directory offline and this replica with it."""
        role = self.role
        if isinstance(role, Offline):
            return
        try:
            self.log.finish_flush(job, failure)
        except KafkaStorageError as error:
            self.leave(error)
            return
        self._plan_flush()
        if role.flushed(job.end):
            self._committed_more()
        self._flush_waiters.reach(self.offsets.local_end)

    def _plan_flush(self) -> None:
        due = self.log.recovery_point + self.config.flush_messages
        self._flush_at = 0 if self.config.flush == "group" else min(due, FLUSH_NEVER)

    def note_committed(self) -> None:
        """Pass the high watermark to the log, for the next checkpoint."""
        self.log.high_watermark = self.offsets.high_watermark

    # Reading

    def read(
        self,
        offset: Offset,
        bytes_max: int,
        *,
        at_least_one: bool,
        read_committed: bool = False,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    ) -> Fetched:
        """Whole batches from the one that holds `offset`, as far as readers may see. Negative epochs are unchecked."""
        role = self.role
        if leader_epoch != role.leader_epoch and leader_epoch >= 0:
            role.check_epoch(leader_epoch)
        if not isinstance(role, Leader):
            raise roles.refusal(role)
        offsets = self.offsets
        if fetched_epoch >= 0:
            left = self._divergence(offset, fetched_epoch)
            if left is not None:
                return Fetched(b"", offsets.high_watermark, offsets.last_stable, offsets.log_start, None, left)
        end = offsets.last_stable if read_committed else offsets.high_watermark
        aborted: list[AbortedTxn] | None = None
        records: FileSlice | bytes = b""
        if offset < end and offset >= offsets.log_start:
            found = self.log.slice(offset, bytes_max, end=end, at_least_one=at_least_one)
            records = found or b""
            if read_committed:
                known = self.aborted()
                aborted = known.between(offset, min(end, self.log.beyond(offset, found))) if known and found else []
        elif offset < offsets.log_start or offset > offsets.log_end:
            offsets.check_readable(offset, self.tp)
        elif read_committed:
            aborted = []
        return Fetched(records, offsets.high_watermark, offsets.last_stable, offsets.log_start, aborted)

    def _divergence(self, offset: Offset, fetched_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Epoch and end offset up to which this log agrees with a reader at `offset`; None when all of it does.

        The reader's last batch is of `fetched_epoch`.
        """
        offsets = self.offsets
        if fetched_epoch == self.role.leader_epoch:
            # The current epoch ends at the log end, also before its first batch.
            epoch, end = fetched_epoch, offsets.log_end
        else:
            epoch, end = self.log.epochs.end_of(fetched_epoch, offsets.log_end)
        if epoch < 0 or end < 0 or offset < offsets.log_start:
            raise OffsetOutOfRange(
                f"Could not determine the end offset of the last fetched epoch {fetched_epoch} of {self.tp}"
            )
        return (epoch, end) if epoch < fetched_epoch or end < offset else None

    def bytes_committed(self, offset: Offset, bytes_max: int) -> int:
        """Bytes from `offset` on that readers of committed data may see, counted up to `bytes_max`.

        An offset in an older segment counts as `bytes_max`, as in Kafka: a read is worth it without measuring.
        """
        offsets = self.offsets
        offset = max(offset, offsets.log_start)
        found = self.log.slice(offset, bytes_max, end=offsets.last_stable, at_least_one=True)
        active = self.log.active
        if found is None or (active is not None and offset >= active.base):
            return len(found or b"")
        return bytes_max

    def aborted(self) -> AbortedTxns:
        """The aborted transactions of the log, loaded at the first use."""
        if self._aborted is None:
            self._aborted = AbortedTxns.load(self.log)
        return self._aborted

    def forget_aborted(self) -> None:
        """Compaction changed the log's aborted transactions: reload them at the next use."""
        self._aborted = None

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log start to `offset` (-1: the high watermark); returns the new log start."""
        role, offsets = self.leading(), self.offsets
        if offset == -1:
            offset = offsets.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(f"The offset {offset} for partition {self.tp} is not valid")
        role.log_start_moved(offset)
        self.log.delete_before(offsets.log_start)
        self.start_moved()
        return offsets.log_start

    def start_moved(self) -> None:
        """The log start moved: retention or DeleteRecords removed records."""
        if not isinstance(self.role, Offline):
            self.role.log_start_moved(self.log.log_start)
        if self._aborted is not None:
            self._aborted.forget_before(self.log.log_start)
        self.watchers.change()

    # Watching

    def watch(self, watcher: Watcher, grown_bytes: int = 0) -> None:
        """Notify `watcher` of changes, in a later turn of the loop, until `unwatch`; at once if the replica is offline.

        With `grown_bytes`, growth is notified only from that many more readable bytes on.
        """
        self.watchers.add(watcher, grown_bytes)
        if isinstance(self.role, Offline):
            self.watchers.change()

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)

    # Snapshots of the producers

    def snapshot(self, now_ms: int) -> None:
        """Write a snapshot of the producers, so that a start replays only the log after it."""
        taken = self.begin_snapshot()
        self.end_snapshot(taken, producer_snapshot.encode(taken.entries), now_ms)

    def begin_snapshot(self) -> ProducersAt:
        """The producers as of now, to be encoded off the loop: a hundred thousand take long."""
        return ProducersAt(self.producers.freeze(), self.offsets.log_end, self.log.truncations)

    def end_snapshot(self, taken: ProducersAt, encoded: bytes, now_ms: int) -> None:
        """Write a snapshot that was encoded meanwhile, unless the log was truncated or is offline."""
        if isinstance(self.role, Offline) or self.log.truncations != taken.truncations:
            return
        self.log.save_producers(encoded, taken.offset)
        self.snapshot_at = taken.offset
        self.snapshot_bytes = self.watchers.readable_bytes
        self.snapshot_ms = now_ms
