"""The persister: carries reads and writes of share state to the share coordinators, wherever they are.

What is asked of one share partition is carried out one after the other, so that no retry overtakes a later write.
Writes that wait meanwhile are merged: the more there are, the less each costs. What one turn of the loop asks of one
broker for one group goes into one request.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

from penstock.coordinator.step import Result
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from penstock.model.timers import Timers
from penstock.model.topic import NO_LEADER, SHARE_STATE_TOPIC
from penstock.replication.peers import Peers, Purpose
from penstock.shares.persister import SharePartitionState, SharePartitionSummary, StateBatch
from penstock.shares.state.commands import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateCommand,
    WriteState,
)
from penstock.shares.state.exchange import EXCHANGES, Exchange, completed
from penstock.shares.state.service import ShareCoordinatorService, coordinator_key
from penstock.wire.share_records import ShareKey

PERSIST_MS_MAX = 30_000
"""How long a request is tried again while its coordinator moves, loads or has too few replicas in sync."""

RETRY_MS_MIN = 20
"""Delay before the first retry; each doubles it."""

RETRY_MS_MAX = 1_000

OPERATIONS_PER_REQUEST_MAX = 500
"""Share partitions in one request to another broker."""

MERGED_BATCHES_MAX = 2_000
"""Ranges in one write that is merged from several."""

TRY_AGAIN = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, RequestTimedOut)


class StateTopic(Protocol):
    """Creates `__share_group_state`."""

    def begin(self) -> None:
        """Begin to create the topic, unless it exists or that has begun."""
        ...


class Operation:
    """One command, and the requests that wait for its result: merged writes have several."""

    __slots__ = ("command", "deadline_s", "delay_ms", "waiting")

    def __init__(self, command: StateCommand, result: Deferred[Any], deadline_s: float) -> None:
        self.command = command
        self.waiting: list[Deferred[Any]] = [result]
        self.deadline_s = deadline_s
        self.delay_ms = RETRY_MS_MIN

    def merge(self, other: "Operation") -> bool:
        """Take over a later write of the same leader; False where the two have to be two."""
        mine, theirs = self.command, other.command
        if not isinstance(mine, WriteState) or not isinstance(theirs, WriteState):
            return False
        if (mine.leader_epoch, mine.state_epoch) != (theirs.leader_epoch, theirs.state_epoch):
            return False
        if len(mine.batches) + len(theirs.batches) > MERGED_BATCHES_MAX:
            return False
        self.command = WriteState(
            key=mine.key,
            state_epoch=mine.state_epoch,
            leader_epoch=mine.leader_epoch,
            start_offset=mine.start_offset if theirs.start_offset < 0 else theirs.start_offset,
            delivery_complete_count=theirs.delivery_complete_count,
            batches=(*mine.batches, *theirs.batches),
        )
        self.waiting += other.waiting
        return True

    def finish(self, result: Result) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if isinstance(result, BrokerError):
                each.fail(result)
            else:
                each.resolve(result)


class RoutedPersister:
    """A `SharePersister` that asks the leader of the partition of `__share_group_state` that a key belongs to."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        coordinators: ShareCoordinatorService,
        topic: StateTopic,
        remote: "RemoteStates",
        timers: Timers,
        monotonic: Callable[[], float],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._coordinators = coordinators
        self._topic = topic
        self._remote = remote
        self._timers = timers
        self._monotonic = monotonic
        self._lines: dict[ShareKey, deque[Operation]] = {}
        """What is asked of each share partition; the first is under way."""

    # The persister

    def read(
        self, group: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch
    ) -> Deferred[SharePartitionState]:
        command = ReadState(key=ShareKey(group, topic_id, partition), leader_epoch=leader_epoch)
        found: Deferred[SharePartitionState] = self._ask(command)
        return found.then(counted, failed=uninitialized)

    def write(
        self,
        group: str,
        topic_id: TopicId,
        partition: int,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Deferred[None]:
        command = WriteState(
            key=ShareKey(group, topic_id, partition),
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=tuple(batches),
        )
        return self._ask(command).then(nothing, failed=uninitialized)

    def initialize(
        self, group: str, topic_id: TopicId, partition: int, state_epoch: int, start_offset: Offset
    ) -> Deferred[None]:
        command = InitializeState(
            key=ShareKey(group, topic_id, partition), state_epoch=state_epoch, start_offset=start_offset
        )
        return self._ask(command).then(nothing)

    def delete(self, group: str, topic_id: TopicId, partition: int) -> Deferred[None]:
        return self._ask(DeleteState(key=ShareKey(group, topic_id, partition))).then(nothing)

    def read_summary(
        self, group: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch
    ) -> Deferred[SharePartitionSummary]:
        return self._ask(ReadSummary(key=ShareKey(group, topic_id, partition), leader_epoch=leader_epoch))

    @property
    def waiting(self) -> int:
        """Commands without a result."""
        return sum(len(line) for line in self._lines.values())

    # One share partition

    def _ask(self, command: StateCommand) -> Deferred[Any]:
        result: Deferred[Any] = Deferred()
        operation = Operation(command, result, self._monotonic() + PERSIST_MS_MAX / 1000)
        line = self._lines.get(command.key)
        if line is None:
            line = self._lines[command.key] = deque([operation])
            self._try(operation)
        elif len(line) < 2 or not line[-1].merge(operation):
            # The first one is under way, and may have been carried out.
            line.append(operation)
        return result

    def _try(self, operation: Operation) -> None:
        """Submit a command to the coordinator, on whichever broker it is now."""
        try:
            result = self._submit(operation.command)
        except BrokerError as error:
            self._completed(operation, error)
            return
        if isinstance(result, Deferred):
            later = cast("Deferred[Result]", result)
            later.deliver_to(partial(self._completed, operation), partial(self._failed, operation))
        else:
            self._completed(operation, result)

    def _submit(self, command: StateCommand) -> Eventual[Result]:
        topic = self._image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            self._topic.begin()
            raise CoordinatorNotAvailable()
        key = coordinator_key(command.key)
        leader = topic.partitions[self._coordinators.partition_of(key)].leader
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable()
        if leader == self._broker_id:
            return self._coordinators.of(key).submit(command)
        return self._remote.ask(leader, command)

    def _failed(self, operation: Operation, error: Exception) -> None:
        self._completed(operation, error if isinstance(error, BrokerError) else CoordinatorNotAvailable())

    def _completed(self, operation: Operation, result: Result) -> None:
        if isinstance(result, TRY_AGAIN) and self._monotonic() < operation.deadline_s:
            delay_ms, operation.delay_ms = operation.delay_ms, min(2 * operation.delay_ms, RETRY_MS_MAX)
            self._timers.after_ms(delay_ms, lambda: self._try(operation))
            return
        line = self._lines[operation.command.key]
        assert line[0] is operation, "another command is under way"
        line.popleft()
        if line:
            self._try(line[0])
        else:
            del self._lines[operation.command.key]
        operation.finish(result)


class RemoteStates:
    """Asks share coordinators on other brokers."""

    def __init__(
        self,
        *,
        peers: Peers,
        call_soon: Callable[[Callable[[], object]], object],
        timeout_ms: Callable[[], int],
        serves: Callable[[], bool],
    ) -> None:
        """`call_soon` calls a function at the end of this turn of the loop. `serves` says whether brokers of this
        cluster know these requests."""
        self._peers = peers
        self._call_soon = call_soon
        self._timeout_ms = timeout_ms
        self._serves = serves
        self._unsent: dict[tuple[BrokerId, type[StateCommand], str], CommandBatch] = {}

    def ask(self, broker_id: BrokerId, command: StateCommand) -> Deferred[Result]:
        to = (broker_id, type(command), command.key.group)
        batch = self._unsent.get(to)
        if batch is not None and not batch.has_room:
            self._send(to, batch)
            batch = None
        if batch is None:
            made = batch = self._unsent[to] = CommandBatch(EXCHANGES[type(command)], command.key.group)
            self._call_soon(lambda: self._send(to, made))
        return batch.add(command)

    def _send(self, to: tuple[BrokerId, type[StateCommand], str], batch: "CommandBatch") -> None:
        if self._unsent.get(to) is not batch:
            return
        del self._unsent[to]
        if not self._serves():
            batch.failed(CoordinatorNotAvailable())
            return
        # No larger than the wait for the coordinator's own commit: a connection that is slower is of no use.
        sent = self._peers.send(
            to[0], Purpose.SHARES, batch.exchange.codec, batch.request(), timeout_ms=float(self._timeout_ms())
        )
        sent.deliver_to(batch.responded, lambda _: batch.failed(CoordinatorNotAvailable()))


class CommandBatch:
    """The commands of one request; each share partition is in it at most once, as its commands come one by one."""

    def __init__(self, exchange: Exchange, group: str) -> None:
        self.exchange = exchange
        self._group = group
        self._commands: dict[ShareKey, tuple[StateCommand, Deferred[Result]]] = {}

    @property
    def has_room(self) -> bool:
        return len(self._commands) < OPERATIONS_PER_REQUEST_MAX

    def add(self, command: StateCommand) -> Deferred[Result]:
        assert command.key not in self._commands, f"{command.key} is in the request already"
        result: Deferred[Result] = Deferred()
        self._commands[command.key] = (command, result)
        return result

    def request(self) -> Any:
        return self.exchange.request_of(self._group, (command for command, _ in self._commands.values()))

    def responded(self, response: Any) -> None:
        results: Mapping[tuple[TopicId, int], Result] = self.exchange.results_of(response)
        for key, (_, result) in self._commands.items():
            result.resolve(results.get((TopicId(key.topic_id), key.partition), UnknownServerError()))

    def failed(self, error: BrokerError) -> None:
        for _, result in self._commands.values():
            result.resolve(error)


def counted(state: SharePartitionState) -> SharePartitionState:
    """A state whose final records are counted: the last count written may be older than the last batches."""
    if state.start_offset < 0:
        return state
    return state._replace(delivery_complete_count=completed(state.batches))


def uninitialized(error: Exception) -> Exception:
    """A share partition that is not initialized is unknown."""
    return UnknownTopicOrPartition(str(error)) if isinstance(error, InvalidRequest) else error


def nothing(_: object) -> None:
    """The result of a command that has none."""
