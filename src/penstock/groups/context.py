"""The coordinator of the groups in one partition of `__consumer_offsets`.

Commits of offsets do not depend on one another, so those that come in one turn of the loop are decided as they come and
written together when the turn ends: the more there are, the less each costs.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.coordinator.context import CoordinatorClock, CoordinatorContext, Phase, coordinator_error
from penstock.coordinator.step import Effect, Event, JobDone, Result, Step
from penstock.groups.commands import CommitOffsets, GroupCommand, SharesDeleted, SharesInitialized
from penstock.groups.consumer.events import ConsumerTargetAssignmentMetadata
from penstock.groups.events import ClassicGroupSaved, TxnOffsetPending, TxnOffsetsDecided
from penstock.groups.record_formats import encode_event
from penstock.groups.shard import GroupShard
from penstock.groups.share.asking import Responses, ask_each, divided
from penstock.groups.share.effects import DeleteShares, InitializeShares
from penstock.groups.share.events import ShareGroupTargetAssignmentMetadata
from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import RecordListTooLarge
from penstock.model.ids import Offset, ProducerEpoch, ProducerId
from penstock.model.timers import Timers
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.verification import TxnProof
from penstock.shares.persister import UNINITIALIZED_OFFSET, SharePersister
from penstock.wire.group_values import AssignmentEpoch
from penstock.wire.records import RecordBatchBuilder

OFFSET_RECORD_BYTES_MIN = 40
"""Every offset commit record is longer than this, even with the shortest names."""

BATCH_BYTES_FULL = 512 * 1024
"""A batch of this size takes no further steps."""

COMMITS_WAITING_MAX = 4096
"""Commits that may wait for the end of the turn; at this many they are written at once."""


class GroupCoordinatorContext(CoordinatorContext[GroupShard]):
    """The coordinator context of the groups in one partition of `__consumer_offsets`."""

    __slots__ = ("_commits", "_flush_planned", "_missed_topics", "_shares")

    def __init__(
        self,
        partition: int,
        replica: Replica,
        shard: GroupShard,
        *,
        clock: CoordinatorClock,
        timers: Timers,
        threads: Executor,
        log: Logger,
        write_timeout_ms: Callable[[], int],
        shares: SharePersister | None = None,
    ) -> None:
        """`shares` reaches share coordinators; without it there are no share groups."""
        super().__init__(
            partition,
            replica,
            shard,
            clock=clock,
            timers=timers,
            threads=threads,
            log=log,
            write_timeout_ms=write_timeout_ms,
        )
        self._shares = shares
        self._commits: list[Step] = []
        """Commits of this turn, decided and not yet written."""
        self._flush_planned = False
        self._missed_topics: dict[str, None] = {}
        """Topics that changed while the shard was loading."""

    # Serving

    def check_commit(self, count: int) -> None:
        """Reject a commit with more offsets than a batch can hold, before they are encoded."""
        if count * OFFSET_RECORD_BYTES_MIN > self._replica.config.max_message_bytes:
            raise coordinator_error(RecordListTooLarge(f"A commit of {count} offsets"))

    @property
    def replica(self) -> Replica:
        """This partition of `__consumer_offsets`, where commits of a transaction are verified."""
        return self._replica

    def check_txn(self, producer_id: ProducerId, epoch: ProducerEpoch, proof: TxnProof) -> None:
        """Reject a commit within a transaction unless the proof that it may be written here holds."""
        self.check()
        self._replica.producers.check_unsequenced(producer_id, epoch, proof)

    def submit(self, command: GroupCommand) -> Eventual[Result]:
        """Decide on a command. Raises if the shard is not serving."""
        ticket = self.ticket()
        if type(command) is CommitOffsets:
            self._commits.append(self._shard.decide(command, ticket, self._clock.now_ms()))
            if len(self._commits) >= COMMITS_WAITING_MAX:
                self.write_pending()
            elif not self._flush_planned:
                self._flush_planned = True
                get_running_loop().call_soon(self._flush)
            return self.result(ticket)
        self.write_pending()
        self.carry_out(self._shard.decide(command, ticket, self._clock.now_ms()))
        return self.result(ticket)

    def on_topics(self, names: Iterable[str]) -> None:
        """Topics were created, changed or deleted."""
        if self._phase is Phase.LOADING:
            self._missed_topics.update(dict.fromkeys(names))
        elif self._phase is Phase.SERVING:
            self.write_pending()
            self.carry_out(self._shard.on_topics(names, self._clock.now_ms()))

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings changed."""
        self._shard.reconfigure(config)

    def decided(self, producer_id: ProducerId, *, commit: bool, end: Offset) -> None:
        """A marker that ends at `end` is in the log: commit or discard the pending offsets of a producer's transaction.

        Only while the shard serves: no marker may be written while it loads.
        """
        assert self._phase is Phase.SERVING, f"a marker while {self._phase}"
        self._end = max(self._end, end)
        self._shard.apply(TxnOffsetsDecided(producer_id, commit))

    # Loading and unloading

    def loaded(self) -> None:
        super().loaded()
        missed, self._missed_topics = self._missed_topics, {}
        if missed:
            self.on_topics(missed)

    def end(self) -> None:
        self._commits.clear()
        super().end()

    # Writing

    def apply(self, event: Event) -> None:
        self._shard.apply(event)

    def carry_out(self, step: Step) -> None:
        super().carry_out(step)
        if not self._refusing:
            for event in step.events:
                log_rebalance(self._log, event)

    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return encode_event(event)  # type: ignore[arg-type]

    def seal(self, builder: RecordBatchBuilder, steps: Sequence[Step]) -> bytearray:
        """Offsets of a transaction go into a batch with its producer id, so that its marker applies to them too."""
        first = steps[0].events[0] if steps[0].events else None
        if not isinstance(first, TxnOffsetPending):
            return builder.build()
        return builder.build(
            attributes=TRANSACTIONAL_FLAG, producer_id=first.producer_id, producer_epoch=first.producer_epoch
        )

    def perform(self, effect: Effect) -> None:
        """Ask share coordinators to begin or to end share partitions, and submit what became of it."""
        shares = self._shares
        assert shares is not None, f"{effect} without a way to share coordinators"
        match effect:
            case InitializeShares(group=group, state_epoch=state_epoch):
                self._ask(
                    effect,
                    ask_each(
                        effect.partitions,
                        lambda topic_id, index: shares.initialize(
                            group, topic_id, index, state_epoch, UNINITIALIZED_OFFSET
                        ),
                    ),
                )
            case DeleteShares(group=group):
                asked = ask_each(effect.partitions, lambda topic_id, index: shares.delete(group, topic_id, index))
                self._ask(effect, asked)
            case _:
                raise AssertionError(f"unknown effect {effect}")

    def _ask(self, effect: InitializeShares | DeleteShares, responses: Eventual[Responses]) -> None:
        if isinstance(responses, Deferred):
            responses.deliver_to(partial(self._responded, effect), raised)
        else:
            # The step that asked for it may not be over.
            get_running_loop().call_soon(self._responded, effect, responses)

    def _responded(self, effect: InitializeShares | DeleteShares, responses: Responses) -> None:
        """Share coordinators have responded. Another group coordinator asks again if this one has ended."""
        good, bad = divided(responses)
        if bad:
            errors = {type(each).__name__ for each in responses.values() if isinstance(each, BrokerError)}
            self._log.warning("share_state_refused", group=effect.group, errors=sorted(errors))
        if not self.serving:
            return
        if isinstance(effect, InitializeShares):
            self.submit(SharesInitialized(group=effect.group, partitions=good, failed=bad))
        else:
            self.submit(SharesDeleted(group=effect.group, topics=frozenset(good.keys() - bad.keys())))

    def finish(self, done: JobDone) -> Step:
        return self._shard.finish(done, self._clock.now_ms())

    def _flush(self) -> None:
        self._flush_planned = False
        self.write_pending()

    def write_pending(self) -> None:
        """Write the commits that wait for the end of the turn."""
        while self._commits:
            self._write_commits()

    def _write_commits(self) -> None:
        """Write one batch of them; commits beyond BATCH_BYTES_FULL stay for the next."""
        commits = self._commits
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
        taken = 0
        for step in commits:
            if builder.size_bytes >= BATCH_BYTES_FULL:
                break
            self.add_events(builder, step, now_ms)
            taken += 1
        steps = commits[:taken]
        del commits[:taken]
        self.write(builder, steps, now_ms)


def raised(error: Exception) -> None:
    """Errors of the protocol are responses, so this is a bug."""
    raise error


def log_rebalance(log: Logger, event: Event) -> None:
    """Log that a group has a new assignment, or has become empty."""
    match event:
        case ClassicGroupSaved(group=group, value=value):
            if value.members:
                log.info(
                    "group_rebalanced",
                    group=group,
                    generation=value.generation,
                    members=len(value.members),
                    assignor=value.protocol,
                )
            elif value.generation:
                log.info("group_empty", group=group, generation=value.generation)
        case ConsumerTargetAssignmentMetadata(value=AssignmentEpoch() as target):
            log.info("group_rebalanced", group=event.group, epoch=target.epoch)
        case ShareGroupTargetAssignmentMetadata(value=AssignmentEpoch() as target):
            log.info("group_rebalanced", group=event.group, epoch=target.epoch)
        case _:
            pass
