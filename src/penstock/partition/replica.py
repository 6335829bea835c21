"""One partition on this broker: drives the rules of its role, appends what they accept, and serves reads.

Its parts: the log; the offsets, and the role that alone moves them (`leader`, `follower`); the producers; waiters for
an offset to be committed or flushed; watchers of growth. Everything runs on the event loop, so that no other code runs
between two awaits.
"""

from asyncio import get_running_loop
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, NamedTuple

from penstock.config.log import TopicConfig
from penstock.model.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TransactionalIdAuthorizationFailed,
)
from penstock.model.ids import (
    NO_BROKER,
    NO_BROKER_EPOCH,
    NO_COORDINATOR_EPOCH,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    TopicId,
    TopicPartition,
)
from penstock.model.producers import EPOCH_MAX, PRODUCER_ID_MAX, SCHEDULE_IDS_FROM
from penstock.model.removals import Removals
from penstock.model.topic import NO_PARTITION, PartitionState
from penstock.partition import redirect
from penstock.partition import role as roles
from penstock.partition.aborted_txns import AbortedTxns
from penstock.partition.cluster_port import ClusterPort
from penstock.partition.deduplication import Deduplication, header_of, ids_of, without_records
from penstock.partition.follower import FetchFrom, Follower, TruncateTo
from penstock.partition.leader import IsrProposal, Leader
from penstock.partition.message_ids import MessageIds
from penstock.partition.offset_waiters import OffsetWaiters
from penstock.partition.producers import NO_SEQUENCE, Duplicate, FrozenProducers, ProducerTable
from penstock.partition.redirect import (
    Accepted,
    AdoptedBatch,
    AdoptedProducer,
    Drain,
    Handover,
    Resumption,
    Source,
    Sources,
)
from penstock.partition.redirected_batches import empty_batch, restamped
from penstock.partition.removals import mark_within, removals_at
from penstock.partition.replicated_batches import UnexpectedBatch, sound_batches
from penstock.partition.results import Appended, Fetched
from penstock.partition.role import Offline, Role
from penstock.partition.validation import (
    LIGHT_RECORDS_BYTES_MAX,
    TooHeavy,
    ValidationRules,
    check_header,
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
from penstock.wire.records import ABORT_MARKER, build_fence, decode_records, parse_marker

FLUSH_NEVER = 2**63
CONSUMERS_GONE_MS = 5_000
"""A follower that no consumer has read from for so long fetches as if there were none."""
VERSION_NEWEST = 13
BUMPING_VERSION = 2
"""From this transaction version on, a marker's epoch is one more than that of the transaction's records."""
NEVER_DRAINED = (NO_LEADER_EPOCH, NO_LEADER_EPOCH)


class ProducersAt(NamedTuple):
    """The producers of a partition after every batch below an offset."""

    entries: FrozenProducers
    offset: Offset
    truncations: int


class RefusedDelivery(Exception):
    """A batch of a schedule that is refused for good once everything below an offset is committed."""

    def __init__(self, reason: BrokerError, end: Offset) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.end = end


class Replica:
    """One partition on this broker, in one role at a time."""

    __slots__ = (
        "_aborted",
        "_bytes_unseen",
        "_cluster",
        "_commit_waiters",
        "_decompression",
        "_deletion_waiters",
        "_failed_at",
        "_flush_at",
        "_flush_waiters",
        "_flushes",
        "_follower_watchers",
        "_rules",
        "_sources",
        "_threads",
        "config",
        "consumed_ms",
        "dedupe",
        "detour",
        "drained_epochs",
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
        cluster: ClusterPort,
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
        self._cluster = cluster
        self._failed_at: tuple[int, int] | None = None
        """Leader epoch and partition epoch in which a failed write was last reported to the cluster."""
        self._flushes = flushes
        self._threads = threads
        self._decompression = decompression
        self.watchers = Watchers(notifier)
        self.consumed_ms: int | None = None
        """When a consumer last read from this replica as a follower, by the monotonic clock; None: never."""
        self._follower_watchers: Watchers | None = None
        """Of followers' fetches, which read up to the log end; none before the first of them."""
        self._commit_waiters = OffsetWaiters()
        self._flush_waiters = OffsetWaiters()
        self.detour: Drain | Resumption | None = None
        """Where records for this partition are, or were, written instead; only of a leader."""
        self.drained_epochs = NEVER_DRAINED
        """The first and last leader epoch in which it was drained the last time, as far as this replica has learned."""
        self._sources: tuple[LeaderEpoch, Sources] | None = None
        """What this leader has accepted of partitions that are drained into this one."""
        self.dedupe: Deduplication | None = None
        """Of a topic with `dedupe.window.records`."""
        self._deletion_waiters: OffsetWaiters | None = None
        """Of the low watermark; none before the first."""
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

    @property
    def follows(self) -> bool:
        """Whether it has a leader to fetch from."""
        role = self.role
        return isinstance(role, Follower) and role.leader != NO_BROKER

    def serves(self, *, from_follower: bool) -> bool:
        """Whether a consumer is served here: by a leader, or by a follower if the consumer may read from one."""
        role = self.role
        return isinstance(role, Leader) or (from_follower and isinstance(role, Follower) and role.serves_consumers)

    def assume(self, decided: PartitionState, now_ms: int) -> bool:
        """Apply the controller's decision about leader and replicas; True when leader, epoch or role changed."""
        before = self.role
        if isinstance(before, Offline):
            return False
        self.role, moved = roles.assume(before, decided, now_ms, newest_epoch=self.log.epochs.latest)
        self.follow_detour(decided)
        if moved:
            self._committed_more()
        return self._changed_role(before)

    def follow_detour(self, decided: PartitionState) -> None:
        """Take over whether this partition is drained or resumes, from the decision that its role is of."""
        role = self.role
        if decided.drained_into != NO_PARTITION and decided.drained_since >= 0:
            self.drained_epochs = decided.drained_since, decided.leader_epoch
        if not isinstance(role, Leader):
            self.detour = None
        elif (role.leader_epoch, role.partition_epoch) == (decided.leader_epoch, decided.partition_epoch):
            self.detour = redirect.detour(decided, self.detour, self.log.log_end)

    def fence(self) -> bool:
        """Follow no leader until the broker is admitted again; True when leader, epoch or role changed."""
        before, self.role = self.role, roles.fence(self.role)
        self.detour = None
        return self._changed_role(before)

    def _changed_role(self, before: Role) -> bool:
        role = self.role
        if not isinstance(role, Leader):
            self.producers.guards.clear()
            if self.dedupe is not None:
                self.dedupe.forget()
            if not isinstance(before, Follower):
                self.log.drop_empty_epochs()
            self._fail_waiters(NotLeaderOrFollower())
        elif role.leader_epoch != before.leader_epoch:
            self.log.lower_removal_mark(mark_within(self.log.removal_mark.mark, self.log.log_end))
            # Readers with an older epoch are fenced.
            self._notify_all()
        elif self._follower_watchers is not None and isinstance(before, Leader) and before.isr != role.isr:
            # A follower that is not in the ISR any more may join again, though it has nothing to fetch.
            self._follower_watchers.change()
        return type(role) is not type(before) or role_key(role) != role_key(before)

    def leave(self, reason: BrokerError) -> None:
        """Go offline: waiting and later requests fail with this reason."""
        if not isinstance(self.role, Offline):
            self.role = Offline(reason, self.role.leader_epoch)
            self._fail_waiters(reason)

    def _fail_waiters(self, reason: BrokerError) -> None:
        self._commit_waiters.fail(reason)
        self._flush_waiters.fail(reason)
        if self._deletion_waiters is not None:
            self._deletion_waiters.fail(reason)
        self._notify_all()

    def _notify_all(self) -> None:
        """Something other than growth happened that every long poll has to see."""
        self.watchers.change()
        if self._follower_watchers is not None:
            self._follower_watchers.change()

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
        if rules.dedupe_records != (0 if self.dedupe is None else self.dedupe.records):
            self.dedupe = (
                Deduplication(rules.dedupe_records, self._threads, self._decompression)
                if rules.dedupe_records
                else None
            )
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
        if self.log.log_start > self.offsets.log_start:
            self.role.restarted(self.log.log_start, producers)
        else:
            self.role.truncated(self.log.log_end, producers)
        self.snapshot_at = snapshot_at
        self._aborted = None
        self._bytes_unseen = 0
        self._plan_flush()
        # Consumers may wait for offsets that are gone.
        self.watchers.change()

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
        if self.detour is not None:
            redirect.check_accepts(self.detour)
        header = plain_header(records, self._rules, now_ms, version, self.tp)
        if header is not None:
            return self._store(role, records, header, now_ms)
        return self._append_validated(role, one_batch(records, version), now_ms, proof, acks_all)

    def _append_own(self, role: Leader, batch: memoryview, now_ms: int, transaction_version: int) -> Appended:
        """Append a coordinator's batch: always light enough for the loop, and never a duplicate."""
        if isinstance(self.detour, Drain) and (self.detour.is_ending or self.detour.is_ghost):
            raise NotEnoughReplicas("the partition is drained and empty, and about to lose its log")
        try:
            sound, header = validate(batch, self._rules, now_ms, self.tp, internal=True)
        except BrokerError as error:
            raise self._placed(error)
        if header.attributes & CONTROL_FLAG and header.producer_id >= 0:
            return self._store_marker(role, sound, header, now_ms, transaction_version)
        if header.attributes & TRANSACTIONAL_FLAG and header.producer_id >= 0:
            self.producers.check_epoch(header.producer_id, header.producer_epoch)
        return self._store(role, sound, header, now_ms, internal=True)

    def _append_validated(
        self,
        role: Leader,
        batch: memoryview,
        now_ms: int,
        proof: TxnProof | None,
        acks_all: bool,
        handover: Accepted | None = None,
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append a batch that needs more than the common checks, or fails them."""
        attributes = batch[ATTRIBUTES_AT + 1] if len(batch) >= HEADER_BYTES else 0
        if attributes & TRANSACTIONAL_FLAG and proof is None and handover is None:
            raise TransactionalIdAuthorizationFailed()
        # A thread gets a copy: the request's buffer belongs to the connection.
        if len(batch) >= self._rules.heavy_bytes and self._rules.opens(attributes & CODEC_MASK):
            return self._append_later(memoryview(bytearray(batch)), now_ms, proof, acks_all, handover)
        try:
            sound, header = validate(
                batch, self._rules, now_ms, self.tp, internal=False, records_bytes_max=LIGHT_RECORDS_BYTES_MAX
            )
        except BrokerError as error:
            raise self._placed(error)
        except TooHeavy:
            return self._append_later(memoryview(bytearray(batch)), now_ms, proof, acks_all, handover)
        if self.dedupe is not None and not attributes & TRANSACTIONAL_FLAG:
            ids = ids_of(sound)
            if ids:
                if self.dedupe.window is None:
                    return self._append_later(memoryview(bytearray(batch)), now_ms, proof, acks_all, handover)
                repeated = self.dedupe.repeated(ids, self.log)
                if repeated:
                    sound = without_records(sound, header, repeated)
                return self._store_new(role, self.dedupe, sound, ids, repeated, now_ms, handover)
        return self._store(role, sound, header, now_ms, proof=proof, handover=handover)

    async def _append_later(
        self,
        copied: memoryview,
        now_ms: int,
        proof: TxnProof | None,
        acks_all: bool,
        handover: Accepted | None = None,
    ) -> Appended:
        rules, tp, budget, dedupe = self._rules, self.tp, self._decompression, self.dedupe

        def validated() -> tuple[memoryview, BatchHeader, MessageIds]:
            sound, header = validate_within(budget, copied, rules, now_ms, tp)
            if dedupe is None or header.is_transactional:
                return sound, header, ()
            return sound, header, dedupe.ids_within(sound, header)

        try:
            sound, header, ids = await get_running_loop().run_in_executor(self._threads, validated)
        except BrokerError as error:
            raise self._placed(error)
        repeated: frozenset[int] = frozenset()
        if ids:
            sound, repeated = await self._without_repeated(sound, header, ids)
        # A target may have begun another leader epoch meanwhile, which does not know what overtook the batch.
        role = self.leading() if handover is None else self._target_of(handover.source)
        if acks_all:
            # The ISR may have shrunk meanwhile.
            role.check_enough_in_sync()
        if self.detour is not None:
            redirect.check_accepts(self.detour)
        if ids and self.dedupe is not None:
            return self._store_new(role, self.dedupe, sound, ids, repeated, now_ms, handover)
        return self._store(role, sound, header, now_ms, proof=proof, handover=handover)

    async def _without_repeated(
        self, batch: memoryview, header: BatchHeader, ids: MessageIds
    ) -> tuple[memoryview, frozenset[int]]:
        """The batch without the records whose ids are known as of the return, and which those are."""
        sound, removed = batch, frozenset[int]()
        while True:
            self.leading()
            dedupe = self.dedupe
            if dedupe is None:
                return batch, frozenset()
            if dedupe.window is None:
                await dedupe.load(self.log)
                continue
            repeated = dedupe.repeated(ids, self.log)
            if repeated == removed:
                return sound, removed
            # Other batches are appended meanwhile, and may bring more ids of this one.
            sound, removed = await dedupe.filtered(batch, header, repeated), repeated

    def _store_new(
        self,
        role: Leader,
        dedupe: Deduplication,
        batch: memoryview,
        ids: MessageIds,
        repeated: frozenset[int],
        now_ms: int,
        handover: Accepted | None,
        internal: bool = False,
    ) -> Appended:
        """Append a batch whose repeated records are removed, and add its other ids to the window."""
        end = self.log.log_end
        appended = self._store(role, batch, header_of(batch), now_ms, internal=internal, handover=handover)
        if appended.base_offset >= end:
            # Not a retry of a batch that is in the log.
            dedupe.appended(ids, appended.base_offset, self.log, repeated)
        return appended

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
        handover: Accepted | None = None,
    ) -> Appended:
        """Append a valid batch, unless its producer's state makes it a duplicate or an error."""
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        producers = self.producers
        _, _, _, _, _, attributes, last, _, max_time, producer_id, epoch, sequence, _ = header
        if handover is not None:
            self._known_sources(role).check(handover.source, handover.number, producer_id)
        if producer_id >= 0:
            transactional = attributes & TRANSACTIONAL_FLAG != 0
            if handover is not None:
                duplicate = producers.check_redirected(
                    producer_id,
                    epoch,
                    sequence,
                    last,
                    transactional,
                    first_sequence=handover.first_sequence,
                    begins_at=handover.begins_at,
                )
                if duplicate is not None:
                    return Appended(
                        duplicate.base_offset,
                        duplicate.timestamp,
                        self.offsets.log_start,
                        Offset(duplicate.last_offset + 1),
                    )
            elif not internal:
                if producer_id > PRODUCER_ID_MAX:
                    raise InvalidRecord(f"Producer ids above {PRODUCER_ID_MAX} are the broker's own")
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
            try:
                base = self.log.append(batch, header, role.leader_epoch)
            except KafkaStorageError:
                self._write_failed()
                raise
            producers.record(producer_id, epoch, sequence, last, transactional, base, max_time, now_ms)
        else:
            try:
                base = self.log.append(batch, header, role.leader_epoch)
            except KafkaStorageError:
                self._write_failed()
                raise
        end = self.log.log_end
        self._bytes_unseen += len(batch)
        # The append itself can take the log directory offline, and with it this role.
        if self.role is role and role.appended(base, end):
            self._committed_more()
        if self._follower_watchers is not None:
            self._follower_watchers.grow(len(batch))
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
        try:
            base = self.log.append(batch, header, role.leader_epoch)
        except KafkaStorageError:
            self._write_failed()
            raise
        completed = self.producers.record_marker(
            producer_id, epoch, coordinator_epoch, base, kind == ABORT_MARKER, header.max_timestamp, now_ms
        )
        if completed is not None and completed.aborted:
            aborted.add(AbortedTxn.of(completed), self.log)
        self._bytes_unseen += len(batch)
        if self.role is role and role.appended(base, self.log.log_end):
            self._committed_more()
        if self._follower_watchers is not None:
            self._follower_watchers.grow(len(batch))
        if base + 1 >= self._flush_at:
            self._flushes.want(self)
        return Appended(base, -1, self.offsets.log_start, self.log.log_end)

    # Draining

    def hand_over(
        self, records: memoryview | None, now_ms: int, *, version: int, proof: TxnProof | None
    ) -> "Appended | tuple[Handover, bytearray]":
        """The batch of a client as the partition that this one is drained into has to append it, and how.

        Returns where the batch is if this partition has it already.
        """
        drain = self.detour
        assert isinstance(drain, Drain), f"{self.tp} is not drained"
        self.leading()
        batch = one_batch(memoryview(b"") if records is None else records, version)
        # Before the batch is restamped, which would hide damage; the rest is checked where it is appended.
        header = check_header(batch, self._rules, self.tp, internal=False)
        transactional = header.attributes & TRANSACTIONAL_FLAG != 0
        if transactional and proof is None:
            raise TransactionalIdAuthorizationFailed()
        if header.producer_id > PRODUCER_ID_MAX:
            raise InvalidRecord(f"Producer ids above {PRODUCER_ID_MAX} are the broker's own")
        if not transactional:
            drain.note(self.producers, header.producer_id, header.producer_epoch, header.base_sequence, now_ms)
        self.begin_drain(now_ms)
        drain.check_ready(self.offsets.high_watermark)
        try:
            found = drain.hand_over(
                self.producers,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                transactional=transactional,
                proof=proof,
            )
        except BrokerError as error:
            raise self._placed(error)
        if isinstance(found, Duplicate):
            end = Offset(found.last_offset + 1)
            return Appended(found.base_offset, found.timestamp, self.offsets.log_start, end)
        return found, restamped(batch, found.producer_id)

    def begin_drain(self, now_ms: int) -> None:
        """Append the barrier that has to be committed before anything is handed over, unless it is there."""
        role, drain = self.leading(), self.detour
        if isinstance(drain, Drain) and drain.barrier is None:
            # Retention drops whole segments: records of clients in the last one would stay as long as markers come.
            self.log.roll()
            drain.barrier = self._append_barrier(role, now_ms)

    def end_for_consumer(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Where a leader epoch ends for a consumer that has passed over what follows; else as `Leader.end_of`.

        The epochs in which the partition was drained have no records of clients. A consumer that takes its epoch from
        the last record, as franz-go does, would find that it is beyond the end, and report lost records.
        """
        found, end = self.leading().end_of(epoch, self.log.epochs)
        first, last = self.drained_epochs
        while 0 <= end < self.offsets.log_end and 0 <= first <= (after := self.log.epochs.epoch_at(end)) <= last:
            _, end = self.log.epochs.end_of(after, self.offsets.log_end)
        return found, end

    def emptied_to(self) -> Offset | None:
        """Where the log of a drained partition ends that has no records of clients; None while it has some.

        Markers and barriers need not be deleted: clients skip them.
        """
        drain, offsets = self.detour, self.offsets
        if not isinstance(drain, Drain) or drain.is_ghost or drain.barrier is None or not self.is_leader:
            return None
        if self.producers.first_unstable is not None or offsets.high_watermark < drain.barrier:
            return None
        begun = (start for epoch, start in self.log.epochs.entries() if epoch >= drain.since >= 0)
        return offsets.log_end if offsets.log_start >= next(begun, offsets.log_end) else None

    def ghost_numbers(self, partition: int) -> Iterator[int]:
        """Numbers the requests of a ghost that is served beside this replica, its target."""
        return self._known_sources(self.leading()).numbers(partition)

    def accept_producers(
        self, source: Source, number: int, producers: Iterable[AdoptedProducer], now_ms: int
    ) -> Offset:
        """Append empty batches for those of a partition that is drained into this one, and about to be a ghost.

        Returns the end of the log, which has to be committed before the partition may lose its own.
        """
        role = self._target_of(source)
        role.check_enough_in_sync()
        sources = self._known_sources(role)
        sources.check(source, number, NO_PRODUCER_ID)
        for producer in producers:
            sources.check_producer(source, producer.producer_id)
            self._adopt_one(role, producer, now_ms)
        return self.log.log_end

    def _adopt_one(self, role: Leader, producer: AdoptedProducer, now_ms: int) -> None:
        for adopted in redirect.adoptable(self.producers, producer):
            batch = memoryview(empty_batch(adopted))
            self._store(role, batch, BatchHeader._make(HEADER.unpack_from(batch)), now_ms, internal=True)

    def _append_barrier(self, role: Leader, now_ms: int) -> Offset:
        """Append a control batch of this leader epoch, which clients skip; returns its end."""
        barrier = build_fence(partition=self.tp.partition, leader_epoch=role.leader_epoch, timestamp_ms=now_ms)
        return self._append_own(role, memoryview(barrier), now_ms, 0).end

    def confirm_leader(self, now_ms: int) -> Deferred[None] | None:
        """Wait until a record of this leader epoch that is the log's last now is committed.

        A leader that was deposed and does not know it never gets there: the waiter fails when it learns of it.
        """
        role = self.leading()
        end = self.log.log_end
        if end <= max(self.offsets.high_watermark, role.epoch_start):
            end = self._append_barrier(role, now_ms)
        return self.committed(end)

    def accept(
        self,
        source: Source,
        handover: Handover,
        records: memoryview,
        now_ms: int,
        *,
        acks_all: bool,
        version: int,
    ) -> "Appended | Coroutine[Any, Any, Appended]":
        """Append a batch of a partition that is drained into this one; as `append`."""
        role = self._target_of(source)
        if acks_all and role.too_few_in_sync:
            role.check_enough_in_sync()
        accepted = Accepted(source, handover.number, handover.first_sequence, handover.begins_at)
        header = plain_header(records, self._rules, now_ms, version, self.tp)
        if header is not None:
            return self._store(role, records, header, now_ms, handover=accepted)
        return self._append_validated(role, one_batch(records, version), now_ms, None, acks_all, accepted)

    def accept_marker(
        self, source: Source, number: int, marker: memoryview, now_ms: int, transaction_version: int
    ) -> Appended:
        """Append the marker of a transaction of a partition that is drained into this one."""
        role = self._target_of(source)
        role.check_enough_in_sync()
        producer_id = BatchHeader._make(HEADER.unpack_from(marker)).producer_id
        self._known_sources(role).check(source, number, producer_id, ends=True)
        return self._append_own(role, marker, now_ms, transaction_version)

    def accept_fence(
        self, source: Source, number: int, now_ms: int, *, open_only: bool = False
    ) -> tuple[Appended, list[AdoptedProducer]]:
        """Append a fence: nothing of older leader epochs of the source is accepted after it.

        Returns also what this log has of the source's producers, or of those with open transactions. That is of now: a
        marker that is appended before the fence is committed may get lost.
        """
        role = self._target_of(source)
        role.check_enough_in_sync()
        self._known_sources(role).fence(source, number)
        known = redirect.producers_of(self.producers, source.partition, open_only=open_only)
        fence = build_fence(partition=source.partition, leader_epoch=source.leader_epoch, timestamp_ms=now_ms)
        return self._append_own(role, memoryview(fence), now_ms, 0), known

    def accept_delivery(self, batch: memoryview, now_ms: int) -> Offset:
        """Append a batch that a schedule delivers, unless the log has it; returns the offset that it ends at, at most.

        It is acknowledged once everything below that is committed. `RefusedDelivery`: it never will be, once the end
        that the error has is committed. `CoordinatorLoadInProgress`: it can be after `read_ids`.
        """
        role = self.leading()
        role.check_enough_in_sync()
        header = check_header(batch, self._rules, self.tp, internal=True)
        if header.producer_id < SCHEDULE_IDS_FROM or header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
            raise InvalidRecord(f"{self.tp}: not a batch of a schedule")
        end = self.producers.check_scheduled(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta
        )
        if end is not None:
            return end
        if isinstance(self.detour, Drain):
            # Of no partition that accepts records: it is to be delivered to another.
            fenced = InvalidProducerEpoch(f"{self.tp} is drained")
            raise RefusedDelivery(fenced, self._fence_delivery(role, header, now_ms))
        if self.detour is not None:
            raise NotLeaderOrFollower(f"{self.tp} resumes")
        try:
            if len(batch) > self._rules.bytes_max:
                raise MessageTooLarge(f"a batch of {len(batch)} bytes, {self._rules.bytes_max} are allowed")
            return self._append_delivery(role, batch, now_ms).end
        except (InvalidRecord, InvalidTimestamp, MessageTooLarge) as refusal:
            raise RefusedDelivery(refusal, self._fence_delivery(role, header, now_ms)) from refusal

    def _append_delivery(self, role: Leader, batch: memoryview, now_ms: int) -> Appended:
        dedupe = self.dedupe
        ids = () if dedupe is None else ids_of(batch)
        if dedupe is None or not ids:
            return self._append_own(role, batch, now_ms, 0)
        if dedupe.window is None:
            raise CoordinatorLoadInProgress(f"the message ids of {self.tp} have to be read")
        sound, header = validate(batch, self._rules, now_ms, self.tp, internal=True)
        repeated = dedupe.repeated(ids, self.log)
        if repeated:
            sound = without_records(sound, header, repeated)
        return self._store_new(role, dedupe, sound, ids, repeated, now_ms, None, internal=True)

    async def read_ids(self) -> None:
        """Read the message ids that `accept_delivery` needs."""
        if self.dedupe is not None:
            await self.dedupe.load(self.log)

    def _fence_delivery(self, role: Leader, header: BatchHeader, now_ms: int) -> Offset:
        """Accept nothing more of the epoch of a batch that is refused: it may be sent again, or arrive late, when the
        topic's settings are others, and what it delivers is delivered otherwise by then. Returns the log's end.
        """
        if header.producer_epoch < EPOCH_MAX:
            epoch = ProducerEpoch(header.producer_epoch + 1)
            fence = memoryview(empty_batch(AdoptedBatch(header.producer_id, epoch, NO_SEQUENCE, 0, now_ms)))
            self._store(role, fence, BatchHeader._make(HEADER.unpack_from(fence)), now_ms, internal=True)
        return self.log.log_end

    def _target_of(self, source: Source) -> Leader:
        """This replica's role as leader of the partition that another one is drained into."""
        role = self.leading()
        role.check_epoch(source.target_epoch)
        if self.detour is not None:
            raise NotLeaderOrFollower(f"{self.tp} is drained itself")
        return role

    def _known_sources(self, role: Leader) -> Sources:
        if self._sources is None or self._sources[0] != role.leader_epoch:
            self._sources = role.leader_epoch, Sources()
        return self._sources[1]

    def adopt(self, known: Iterable[AdoptedProducer], now_ms: int, *, last: bool = True) -> Offset:
        """Append empty batches for those that its producers wrote elsewhere, and accept records again.

        `last` is False while there are more producers, whom another call adopts. Returns the end of the log, which has
        to be committed before the partition has resumed.
        """
        role, resumption = self.leading(), self.detour
        assert isinstance(resumption, Resumption), f"{self.tp} does not resume"
        if not resumption.is_ready:
            for producer in known:
                self._adopt_one(role, producer, now_ms)
            resumption.is_ready = last
        return self.log.log_end

    def _write_failed(self) -> None:
        """Report a replica that cannot write, because its disk is full, once per state of the partition.

        Another one leads then, or this one leaves the ISR. A leader that is alone in its ISR stays: no other replica
        has everything.
        """
        role = self.role
        if isinstance(role, Offline) or (isinstance(role, Leader) and role.isr == frozenset({role.broker_id})):
            return
        state = role.leader_epoch, role.partition_epoch
        if self.log.replicated and state != self._failed_at:
            self._failed_at = state
            self._cluster.on_resigned(self.tp)

    # Following

    def fetch_position(self, now_ms: int | None = None) -> FetchFrom | None:
        """The next fetch from the leader; None while this replica follows none. `now_ms` is of the monotonic clock."""
        role = self.role
        if not isinstance(role, Follower):
            return None
        return role.fetch_from(self.log.epochs, has_consumers=now_ms is not None and self._has_consumers(now_ms))

    def _has_consumers(self, now_ms: int) -> bool:
        """Whether consumers read from this follower: one waits, or has read a short while ago."""
        if self.consumed_ms is None:
            return False
        return len(self.watchers) > 0 or now_ms - self.consumed_ms < CONSUMERS_GONE_MS

    def replicate(
        self,
        records: memoryview,
        *,
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
        log_start: Offset,
        now_ms: int,
        removals: Removals | None = None,
    ) -> None:
        """Append the leader's records, and follow its high watermark and log start.

        `leader_epoch` is that of the request; `removals` is what the records may lack. A partial batch at the end is
        left out. Raises where the records do not continue this log; the sound batches before are appended all the same.
        """
        role = self._following(leader_epoch)
        was_serving = role.serves_consumers
        try:
            if len(records):
                self._append_replicated(role, records, removals, now_ms)
        except KafkaStorageError:
            self._write_failed()
            raise
        finally:
            if self.role is role and role.replicated(self.log.log_end, high_watermark):
                self._committed_more()
        if self.role is not role:
            return
        if role.serves_consumers and not was_serving:
            self.watchers.change()
        start = min(log_start, self.offsets.high_watermark)
        if start > self.offsets.log_start:
            self.log.delete_before(start)
            self.start_moved()
        if self.log.log_end >= self._flush_at and self.log.is_dirty:
            self._flushes.want(self)

    def _append_replicated(self, role: Follower, records: memoryview, removals: Removals | None, now_ms: int) -> None:
        log = self.log

        def appended(header: BatchHeader, batch: memoryview) -> None:
            self._bytes_unseen += len(batch)
            if header.producer_id >= 0:
                self._record_replicated(header, batch, now_ms)

        batches, base, fault = sound_batches(
            records if not records.readonly else memoryview(bytearray(records)),
            log_start=log.log_start,
            log_end=log.log_end,
            epoch_min=log.epochs.latest,
            epoch_max=role.leader_epoch,
        )
        start = log.log_start
        if base < log.log_end:
            # The log is empty, and starts within the leader's first batch.
            log.restart_at(base)
        if removals is not None:
            log.raise_removal_mark(removals.mark)
        log.append_stamped(batches, appended)
        if base < start:
            log.delete_before(start)
        if fault is not None:
            raise UnexpectedBatch(f"{self.tp}: the leader's batch does not continue the log: {fault}")

    def _record_replicated(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        """Apply a batch of a producer that was appended, as its leader did."""
        if not header.attributes & CONTROL_FLAG:
            self.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.is_transactional,
                header.base_offset,
                header.max_timestamp,
                now_ms,
            )
            return
        aborted, coordinator_epoch = False, NO_COORDINATOR_EPOCH
        if header.record_count > 0:
            # Compaction may have emptied the batch; it ends the transaction all the same.
            kind, coordinator_epoch = parse_marker(decode_records(batch)[0])
            aborted = kind == ABORT_MARKER
        completed = self.producers.record_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            header.base_offset,
            aborted,
            header.max_timestamp,
            now_ms,
        )
        if completed is not None and completed.aborted:
            self.aborted().add(AbortedTxn.of(completed), self.log)

    def copies_again(self, removals: Removals | None, *, leader_epoch: LeaderEpoch) -> bool:
        """Whether to copy the leader's log from its start (`Replicas.copy_again`), instead of what it sent."""
        return self._following(leader_epoch).copies_again(removals, self.log.removal_mark.copied)

    def diverged(self, epoch: LeaderEpoch, end: Offset, *, leader_epoch: LeaderEpoch) -> TruncateTo:
        """Where to truncate to (`Replicas.truncate`): the leader's log agrees up to the `end` of `epoch` at most."""
        return self._following(leader_epoch).diverged(epoch, end, self.log.epochs)

    def out_of_range(self, leader_start: Offset, leader_end: Offset, *, leader_epoch: LeaderEpoch) -> TruncateTo | None:
        """Where to truncate to because the leader's log ends earlier; None where it starts later (`Replicas.restart`).

        `leader_epoch` is that of the request that was out of range.
        """
        role = self._following(leader_epoch)
        return role.beyond_leader(leader_end) if self.offsets.log_end > leader_end else None

    def _following(self, leader_epoch: LeaderEpoch) -> Follower:
        """This replica's role as follower, if a response to a request of that leader epoch is still wanted."""
        role = self.role
        if isinstance(role, Offline):
            raise role.reason
        if not isinstance(role, Follower):
            raise FencedLeaderEpoch(f"{self.tp}: a leader's response to a request, and this replica leads now")
        role.check_response(leader_epoch)
        return role

    # Followers and the ISR

    def follower_fetched(
        self,
        follower: BrokerId,
        *,
        broker_epoch: BrokerEpoch,
        leader_epoch: LeaderEpoch,
        fetch_offset: Offset,
        held_end: Offset,
        log_start: Offset,
        now_ms: int,
    ) -> None:
        """Count a follower's fetch, and propose it for the ISR where that allows it. See `Leader.follower_fetched`."""
        role = self.leading()
        fetched = role.follower_fetched(
            follower,
            broker_epoch=broker_epoch,
            leader_epoch=leader_epoch,
            fetch_offset=fetch_offset,
            held_end=held_end,
            log_start=log_start,
            now_ms=now_ms,
        )
        if fetched.high_watermark_moved:
            self._committed_more()
        if self._deletion_waiters:
            self.reach_low_watermark()
        if fetched.propose_isr is not None:
            self._propose(role, fetched.propose_isr)

    def shrink_isr(self, now_ms: int, lag_ms_max: int) -> None:
        """Propose an ISR without the members that have not caught up within `lag_ms_max`, if there are any."""
        role = self.role
        if isinstance(role, Leader) and role.followers:
            isr = role.isr_without_laggards(now_ms, lag_ms_max)
            if isr is not None:
                self._propose(role, isr)

    def _propose(self, role: Leader, isr: frozenset[BrokerId]) -> None:
        cluster = self._cluster
        if cluster.may_propose():
            cluster.propose(self, role.propose(isr, cluster.broker_epoch_of))

    def proposal_ineligible(self, proposal: IsrProposal, now_ms: int) -> None:
        """The controller will never write this proposal. No other response ends one, see `Leader.propose`."""
        if isinstance(self.role, Leader) and self.role.proposal_ineligible(proposal, now_ms):
            self._committed_more()

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
        """None when everything below `end` is committed; otherwise a waiter that completes then.

        The waiter fails when this replica no longer leads. While the ISR is too small the high watermark does not move,
        so that an append with acks=all, which was refused if it was too small then, waits for it to grow.
        """
        role = self.role
        if self.offsets.high_watermark >= end:
            return None
        if not isinstance(role, Leader):
            raise roles.refusal(role)
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
        # Not the end of the job: the log may have been truncated meanwhile, and appended to again.
        if role.flushed(self.log.recovery_point):
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
        from_follower: bool = False,
    ) -> Fetched:
        """Whole batches from the one that holds `offset`, as far as readers may see. Negative epochs are unchecked.

        With `from_follower` a follower serves too, up to its own high watermark: an offset beyond that may be readable
        at the leader, and will be here.
        """
        role = self.role
        if leader_epoch != role.leader_epoch and leader_epoch >= 0:
            role.check_epoch(leader_epoch)
        if not isinstance(role, Leader):
            if not from_follower or isinstance(role, Offline):
                raise roles.refusal(role)
            role.check_serves_consumers()
        offsets = self.offsets
        if fetched_epoch >= 0:
            left = role.divergence(offset, fetched_epoch, self.log.epochs)
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

    def redirect(self, broker_id: BrokerId, *, leader_epoch: LeaderEpoch) -> Fetched:
        """No records, for a consumer that is to read from the follower on another broker. Checks its epoch."""
        self.role.check_epoch(leader_epoch)
        offsets = self.offsets
        return Fetched(
            b"",
            offsets.high_watermark,
            offsets.last_stable,
            offsets.log_start,
            None,
            preferred_replica=broker_id,
        )

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

    def deleted_everywhere(self, offset: Offset) -> Deferred[None] | None:
        """None when every live replica has deleted the records below `offset`; otherwise a waiter for that."""
        if self.low_watermark() >= offset:
            return None
        if self._deletion_waiters is None:
            self._deletion_waiters = OffsetWaiters()
        return self._deletion_waiters.wait(offset)

    def low_watermark(self) -> Offset:
        """The least log start over the live replicas, as this leader knows them."""
        return self.leading().low_watermark(self._is_live)

    def _is_live(self, broker: BrokerId) -> bool:
        return self._cluster.broker_epoch_of(broker) != NO_BROKER_EPOCH

    def reach_low_watermark(self) -> None:
        """A follower deleted records, or is no longer live: complete the deletions that waited for it."""
        if self._deletion_waiters and isinstance(self.role, Leader):
            self._deletion_waiters.reach(self.low_watermark())

    def start_moved(self) -> None:
        """The log start moved: retention or DeleteRecords removed records."""
        if not isinstance(self.role, Offline):
            self.role.log_start_moved(self.log.log_start)
        if self._aborted is not None:
            self._aborted.forget_before(self.log.log_start)
        self._notify_all()

    def read_for_follower(
        self,
        follower: BrokerId,
        offset: Offset,
        bytes_max: int,
        *,
        at_least_one: bool,
        broker_epoch: BrokerEpoch,
        leader_epoch: LeaderEpoch,
        fetched_epoch: LeaderEpoch,
        held_end: Offset,
        log_start: Offset,
        now_ms: int,
    ) -> Fetched:
        """Whole batches up to the log end, for a follower, whose fetch counts unless its log diverges from this one.

        The fetch is counted before the read, so that the response has the high watermark that it leads to.
        """
        self.role.check_epoch(leader_epoch)
        role, offsets = self.leading(), self.offsets
        if fetched_epoch >= 0:
            left = role.divergence(offset, fetched_epoch, self.log.epochs)
            if left is not None:
                return Fetched(b"", offsets.high_watermark, offsets.last_stable, offsets.log_start, None, left)
        self.follower_fetched(
            follower,
            broker_epoch=broker_epoch,
            leader_epoch=leader_epoch,
            fetch_offset=offset,
            held_end=offset if held_end < 0 else held_end,
            log_start=log_start,
            now_ms=now_ms,
        )
        found = self.log.slice(offset, bytes_max, end=offsets.log_end, at_least_one=at_least_one)
        removals = removals_at(self.log.removal_mark.removals, offset)
        return Fetched(
            found or b"", offsets.high_watermark, offsets.last_stable, offsets.log_start, None, removals=removals
        )

    # Watching

    def watchers_of(self, *, follower: bool) -> Watchers:
        """What notifies a long poll: consumers see committed records, and followers every append."""
        if not follower:
            return self.watchers
        if self._follower_watchers is None:
            self._follower_watchers = Watchers(self.watchers.notifier)
        return self._follower_watchers

    def watch(self, watcher: Watcher, grown_bytes: int = 0, *, follower: bool = False) -> None:
        """Notify `watcher` of changes, in a later turn of the loop, until `unwatch`; at once if the replica is offline.

        With `grown_bytes`, growth is notified only from that many more readable bytes on.
        """
        watchers = self.watchers_of(follower=follower)
        watchers.add(watcher, grown_bytes)
        if isinstance(self.role, Offline):
            watchers.change()

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)
        if self._follower_watchers is not None:
            self._follower_watchers.discard(watcher)

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


def role_key(role: Role) -> tuple[int, int]:
    """Leader and leader epoch, as far as a role has them: other parts act on a change of these."""
    leader = role.leader if isinstance(role, Follower) else role.broker_id if isinstance(role, Leader) else NO_BROKER
    return leader, role.leader_epoch
