"""All share partitions of one partition of `__share_group_state`.

No command waits, and the shard has no state beside the applied events. Any number of writes to different share
partitions may be decided before their events are applied; every other command sees all events before it applied.
"""

from collections.abc import Hashable, Iterable
from typing import Protocol, assert_never

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, Event, Reply, Response, SetTimer, Step, Ticket, failed
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TOPIC_ID_ZERO, Offset, TopicId
from penstock.shares.persister import UNINITIALIZED_OFFSET, UNKNOWN_COUNT, check_batches
from penstock.shares.state.commands import (
    DONE,
    NO_EPOCH,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateCommand,
    WriteState,
)
from penstock.shares.state.effects import Prune
from penstock.shares.state.events import SnapshotSaved, StateForgotten, StateUpdated
from penstock.shares.state.state import NO_SUMMARY, UNCHANGED, ShareState
from penstock.shares.state.timers import ColdSnapshots, Pruning
from penstock.wire.share_records import ShareKey, SnapshotValue, UpdateValue

SNAPSHOTS_PER_STEP_MAX = 200
"""Cold snapshots in one step; the rest follow in the next."""

SNAPSHOT_BYTES_PER_STEP = 256 * 1024
"""Size from which on a step of cold snapshots takes no further one."""

BATCH_BYTES = 20


class PartitionsView(Protocol):
    """The partitions that exist now."""

    def partition_count(self, topic_id: TopicId) -> int | None:
        """The number of partitions of a topic, or None if it does not exist."""
        ...


class StateShard:
    """One partition's share partitions. The context appends and applies a step's events before the next decision."""

    __slots__ = ("_partitions", "_states", "config")

    def __init__(self, config: BrokerConfig, partitions: PartitionsView) -> None:
        self.config = config
        self._partitions = partitions
        self._states: dict[ShareKey, ShareState] = {}

    # Decisions

    def decide(self, command: StateCommand, ticket: Ticket, now_ms: int) -> Step:
        """Decide on a command. The step has exactly one response, which may be an error."""
        try:
            match command:
                case WriteState():
                    return self._write(command, ticket, now_ms)
                case ReadState():
                    return self._read(command, ticket, now_ms)
                case InitializeState():
                    return self._initialize(command, ticket, now_ms)
                case DeleteState():
                    return self._delete(command, ticket)
                case ReadSummary():
                    self._check_exists(command.key)
                    found = self._states.get(command.key)
                    return respond(ticket, NO_SUMMARY if found is None else found.summary())
        except BrokerError as error:
            return failed(ticket, error)
        assert_never(command)

    def wake(self, key: Hashable, now_ms: int) -> Step:
        match key:
            case ColdSnapshots():
                return self._repeat_snapshots(now_ms)
            case Pruning():
                timer = SetTimer(key, now_ms + self.config.share_coordinator_state_topic_prune_interval_ms)
                below = self.redundant_below()
                effects = () if below is None else (Prune(below),)
                return Step(timers=(timer,), effects=effects)
            case _:
                raise AssertionError(f"{key} is no timer of the share coordinator")

    def loaded(self, now_ms: int) -> Step:
        """Every record has been applied: start the timers."""
        config = self.config
        return Step(
            timers=(
                SetTimer(ColdSnapshots(), now_ms + config.share_coordinator_cold_partition_snapshot_interval_ms),
                SetTimer(Pruning(), now_ms + config.share_coordinator_state_topic_prune_interval_ms),
            )
        )

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step:
        """The append of a step failed, so its events were not applied: its requests fail, its timers stay."""
        return Step(
            responses=tuple(Response(response.ticket, error) for response in step.responses), timers=step.timers
        )

    def unloaded(self) -> Step:
        """This broker no longer coordinates these share partitions. No request waits here."""
        return NOTHING

    # Events

    def apply(self, event: Event, snapshot_at: Offset | None = None) -> None:
        """Apply an event that is in the log.

        `snapshot_at` is an offset not above that of the record; None while the log is loaded.
        """
        match event:
            case StateUpdated(key, update):
                state = self._states.get(key)
                if state is None:
                    # Its snapshot was lost with a damaged part of the log: what is left counts, as in Kafka.
                    state = self._states[key] = ShareState(empty_snapshot(update), snapshot_at)
                state.update(update)
            case SnapshotSaved(key, snapshot):
                before = self._states.get(key)
                made = self._states[key] = ShareState(snapshot, snapshot_at)
                if before is not None:
                    made.fence = max(made.fence, before.fence)
            case StateForgotten(key):
                self._states.pop(key, None)
            case _:
                raise AssertionError(f"{event} is not an event of a share partition")

    # Queries

    @property
    def count(self) -> int:
        """How many share partitions are known."""
        return len(self._states)

    def state(self, key: ShareKey) -> ShareState | None:
        return self._states.get(key)

    def redundant_below(self) -> Offset | None:
        """The offset below which later snapshots replace every record; None if that is unknown, or nothing is."""
        lowest: Offset | None = None
        for state in self._states.values():
            at = state.snapshot_at
            if at is None:
                return None
            if lowest is None or at < lowest:
                lowest = at
        return lowest

    def on_topics_deleted(self, topic_ids: Iterable[TopicId]) -> Step:
        """Forget the share partitions of deleted topics."""
        gone = frozenset(topic_ids)
        return Step(events=tuple(StateForgotten(key) for key in self._states if key.topic_id in gone))

    def topic_ids(self) -> frozenset[TopicId]:
        """The topics of the share partitions."""
        return frozenset(TopicId(key.topic_id) for key in self._states)

    # Commands

    def _write(self, command: WriteState, ticket: Ticket, now_ms: int) -> Step:
        key = check_key(command.key)
        state = self._states.get(key)
        if state is None:
            raise InvalidRequest("Write operation on uninitialized share partition not allowed.")
        if command.leader_epoch != NO_EPOCH and command.leader_epoch < state.fence:
            raise FencedLeaderEpoch()
        if command.state_epoch != NO_EPOCH and command.state_epoch < state.state_epoch:
            raise FencedStateEpoch()
        self._check_exists(key)
        start_offset = state.start_offset if command.start_offset == UNCHANGED else command.start_offset
        try:
            check_batches(command.batches, start_offset)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        if state.updates < self.config.share_coordinator_snapshot_update_records_per_snapshot:
            update = UpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=command.start_offset,
                delivery_complete_count=command.delivery_complete_count,
                batches=command.batches,
            )
            return Step(events=(StateUpdated(key, update),), responses=(Response(ticket, DONE),))
        batches = state.batches.copy()
        batches.combine(command.batches, start_offset)
        snapshot = state.snapshot(create_ms=now_ms, write_ms=now_ms)._replace(
            start_offset=start_offset,
            delivery_complete_count=command.delivery_complete_count,
            batches=tuple(batches),
        )
        return Step(events=(SnapshotSaved(key, snapshot),), responses=(Response(ticket, DONE),))

    def _read(self, command: ReadState, ticket: Ticket, now_ms: int) -> Step:
        """The leader epoch is written before the response, so that the coordinator after this one refuses the same."""
        key = check_key(command.key)
        state = self._states.get(key)
        if state is None:
            raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
        if command.leader_epoch != NO_EPOCH and command.leader_epoch < state.fence:
            raise FencedLeaderEpoch()
        self._check_exists(key)
        response = Response(ticket, state.described())
        if command.leader_epoch in (NO_EPOCH, state.fence):
            return Step(responses=(response,))
        if state.updates < self.config.share_coordinator_snapshot_update_records_per_snapshot:
            update = UpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=command.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
                batches=(),
            )
            return Step(events=(StateUpdated(key, update),), responses=(response,))
        snapshot = state.snapshot(create_ms=now_ms, write_ms=now_ms)._replace(leader_epoch=command.leader_epoch)
        return Step(events=(SnapshotSaved(key, snapshot),), responses=(response,))

    def _initialize(self, command: InitializeState, ticket: Ticket, now_ms: int) -> Step:
        key = check_key(command.key)
        state = self._states.get(key)
        if state is not None and command.state_epoch != NO_EPOCH and command.state_epoch < state.state_epoch:
            raise FencedStateEpoch()
        self._check_exists(key)
        if (
            state is not None
            and command.start_offset == UNINITIALIZED_OFFSET
            and command.state_epoch == state.state_epoch
        ):
            # The request was carried out before, and its response lost: what was acknowledged since stays so.
            return respond(ticket, DONE)
        snapshot = SnapshotValue(
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=command.state_epoch,
            leader_epoch=0 if state is None else state.leader_epoch,
            start_offset=command.start_offset,
            delivery_complete_count=UNKNOWN_COUNT if command.start_offset == UNINITIALIZED_OFFSET else 0,
            create_ms=now_ms,
            write_ms=now_ms,
            batches=(),
        )
        return Step(events=(SnapshotSaved(key, snapshot),), responses=(Response(ticket, DONE),))

    def _delete(self, command: DeleteState, ticket: Ticket) -> Step:
        key = check_key(command.key)
        self._check_exists(key)
        if key not in self._states:
            return respond(ticket, DONE)
        return Step(events=(StateForgotten(key),), responses=(Response(ticket, DONE),))

    def _check_exists(self, key: ShareKey) -> None:
        """Raise if the partition does not exist."""
        check_key(key)
        count = self._partitions.partition_count(TopicId(key.topic_id))
        if count is None or key.partition >= count:
            raise UnknownTopicOrPartition()

    # Snapshots

    def _repeat_snapshots(self, now_ms: int) -> Step:
        """Repeat snapshots older than the interval, unless nothing at all was written since the last ones."""
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        again = SetTimer(ColdSnapshots(), now_ms + interval_ms)
        if all(state.is_cold for state in self._states.values()):
            return Step(timers=(again,))
        events: list[Event] = []
        size_bytes = 0
        for key, state in self._states.items():
            if now_ms - state.write_ms < interval_ms:
                continue
            if len(events) == SNAPSHOTS_PER_STEP_MAX or size_bytes > SNAPSHOT_BYTES_PER_STEP:
                again = SetTimer(ColdSnapshots(), now_ms)
                break
            size_bytes += BATCH_BYTES * len(state.batches)
            events.append(SnapshotSaved(key, state.snapshot(create_ms=state.create_ms, write_ms=now_ms)))
        return Step(events=tuple(events), timers=(again,))


def check_key(key: ShareKey) -> ShareKey:
    if key.topic_id == TOPIC_ID_ZERO:
        raise InvalidRequest("The topic id cannot be null.")
    if key.partition < 0:
        raise InvalidRequest("The partition id cannot be a negative number.")
    return key


def empty_snapshot(update: UpdateValue) -> SnapshotValue:
    return SnapshotValue(
        snapshot_epoch=update.snapshot_epoch,
        state_epoch=0,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        create_ms=0,
        write_ms=0,
        batches=(),
    )


def respond(ticket: Ticket, reply: Reply) -> Step:
    return Step(responses=(Response(ticket, reply),))
