"""A shard of transactional ids with a log, a clock and a post office, for tests that tell stories."""

from collections.abc import Hashable
from dataclasses import replace

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Event, Reply, SetTimer, Step, Ticket
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable
from penstock.model.ids import TopicPartition
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersNoted,
    MarkersWritten,
    PartitionsAdded,
    ProducerInitialized,
    TransactionEnded,
    TxnCommand,
    VerifyPartitions,
)
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.shard import TxnShard
from penstock.transactions.state import BUMPING_VERSION, FIRST_VERSION, NO_EPOCH, NO_PRODUCER_ID, Transaction, TxnState

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

Producer = tuple[int, int]
"""A producer's id and epoch."""


class Rig:
    """A coordinator whose log may refuse, whose process may die, and whose markers are written when a test says so."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig.from_settings(settings or {})
        self.now_ms = START_MS
        self.log: list[Event] = []
        self.log_refuses = False
        self.ids_left = 1_000_000
        self.next_producer_id = 1000
        self.coordinator_epoch = 0
        self.timers: dict[Hashable, int] = {}
        self.markers: list[WriteMarkers] = []
        """Those asked for and not yet reported as written."""
        self.responses: dict[Ticket, list[Reply | BrokerError]] = {}
        self.holding = False
        """While set, what is written is not committed: answers and effects wait for `commit`."""
        self.held: list[Step] = []
        self.committed = 0
        """How much of the log a crash cannot take away."""
        self.shard = self._new_shard()
        self.carry_out(self.shard.loaded(self.now_ms))

    def _new_shard(self) -> TxnShard:
        return TxnShard(self.config, self._take_producer_id, self.coordinator_epoch)

    def _take_producer_id(self) -> int | None:
        if self.ids_left == 0:
            return None
        self.ids_left -= 1
        self.next_producer_id += 1
        return self.next_producer_id

    # What a coordinator context does

    def carry_out(self, step: Step) -> None:
        if step.events and self.log_refuses:
            step = self.shard.refused(step, CoordinatorNotAvailable(), self.now_ms)
            assert not step.events
            assert not step.effects
        for event in step.events:
            self.log.append(event)
            self.shard.apply(event)
        for timer in step.timers:
            assert isinstance(timer, SetTimer)
            self.timers[timer.key] = timer.at_ms
        self.held.append(step)
        if not self.holding:
            self.commit()

    def carry_out_event(self, event: Event) -> None:
        """Let something be remembered that would take long to come about."""
        self.carry_out(Step(events=(event,)))

    def commit(self) -> None:
        """Everything that was written is safe now: let answers out, and do what was asked for."""
        self.committed = len(self.log)
        held, self.held = self.held, []
        for step in held:
            for response in step.responses:
                self.responses[response.ticket].append(response.reply)
            for effect in step.effects:
                assert isinstance(effect, WriteMarkers)
                self.markers.append(effect)

    def ask(self, command: TxnCommand) -> Reply | BrokerError:
        """The one response to a command, where it is given at once."""
        (response,) = self.responses[self.submit(command)]
        return response

    def submit(self, command: TxnCommand) -> Ticket:
        ticket = Ticket(len(self.responses))
        self.responses[ticket] = []
        self.carry_out(self.shard.decide(command, ticket, self.now_ms))
        return ticket

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and ring what is due, in order."""
        end_ms = self.now_ms + duration_ms
        while due := [(at_ms, repr(key), key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, _, key = min(due, key=lambda found: found[:2])
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.carry_out(self.shard.wake(key, self.now_ms))
        self.now_ms = end_ms

    def crash(self, *, compacted: bool = False) -> None:
        """Die, and be read again from what was committed, with what Kafka's records hold of it."""
        self.coordinator_epoch += 1
        del self.log[self.committed :]
        self.held.clear()
        self.timers.clear()
        self.markers.clear()
        self.shard = self._new_shard()
        for event in self.latest() if compacted else self.log:
            self.shard.apply(as_recorded(event))
        self.carry_out(self.shard.loaded(self.now_ms))

    def latest(self) -> list[Event]:
        """The log as compaction leaves it."""
        by_key: dict[str, Event] = {}
        for event in self.log:
            assert isinstance(event, TransactionSaved | TransactionForgotten)
            by_key.pop(event.transactional_id, None)
            by_key[event.transactional_id] = event
        return list(by_key.values())

    # What clients do

    def init(
        self, name: str = "t", *, as_producer: Producer = (NO_PRODUCER_ID, NO_EPOCH), timeout_ms: int = TIMEOUT_MS
    ) -> Producer:
        """Become the producer; fails the test where that is refused."""
        reply = self.ask(
            InitProducer(transactional_id=name, timeout_ms=timeout_ms, producer_id=as_producer[0], epoch=as_producer[1])
        )
        assert isinstance(reply, ProducerInitialized), reply
        return reply.producer_id, reply.epoch

    def init_refused(
        self, name: str = "t", *, as_producer: Producer = (NO_PRODUCER_ID, NO_EPOCH), timeout_ms: int = TIMEOUT_MS
    ) -> type[BrokerError]:
        reply = self.ask(
            InitProducer(transactional_id=name, timeout_ms=timeout_ms, producer_id=as_producer[0], epoch=as_producer[1])
        )
        assert isinstance(reply, BrokerError), reply
        return type(reply)

    def add(
        self, producer: Producer, *partitions: TopicPartition, name: str = "t", version: int = BUMPING_VERSION
    ) -> None:
        reply = self.ask(self._add(producer, partitions, name, version))
        assert isinstance(reply, PartitionsAdded), reply

    def add_refused(
        self, producer: Producer, *partitions: TopicPartition, name: str = "t", version: int = BUMPING_VERSION
    ) -> type[BrokerError]:
        reply = self.ask(self._add(producer, partitions, name, version))
        assert isinstance(reply, BrokerError), reply
        return type(reply)

    def _add(
        self, producer: Producer, partitions: tuple[TopicPartition, ...], name: str, version: int
    ) -> AddPartitions:
        return AddPartitions(
            transactional_id=name,
            producer_id=producer[0],
            epoch=producer[1],
            partitions=partitions,
            transaction_version=version,
        )

    def verify(self, producer: Producer, *partitions: TopicPartition, name: str = "t") -> Reply | BrokerError:
        return self.ask(
            VerifyPartitions(transactional_id=name, producer_id=producer[0], epoch=producer[1], partitions=partitions)
        )

    def end(self, producer: Producer, *, commit: bool, name: str = "t", version: int = BUMPING_VERSION) -> Producer:
        reply = self.ask(self._end(producer, commit, name, version))
        assert isinstance(reply, TransactionEnded), reply
        return reply.producer_id, reply.epoch

    def end_refused(
        self, producer: Producer, *, commit: bool, name: str = "t", version: int = BUMPING_VERSION
    ) -> type[BrokerError]:
        reply = self.ask(self._end(producer, commit, name, version))
        assert isinstance(reply, BrokerError), reply
        return type(reply)

    def submit_end(self, producer: Producer, *, commit: bool) -> Ticket:
        return self.submit(self._end(producer, commit, "t", BUMPING_VERSION))

    def _end(self, producer: Producer, commit: bool, name: str, version: int) -> EndTransaction:
        return EndTransaction(
            transactional_id=name,
            producer_id=producer[0],
            epoch=producer[1],
            commit=commit,
            transaction_version=version,
        )

    def write_markers(self) -> None:
        """Carry out all that was asked for, and say so."""
        while self.markers:
            self.report(self.markers.pop(0))

    def report(self, markers: WriteMarkers) -> None:
        reply = self.ask(written(markers))
        assert isinstance(reply, MarkersNoted | CoordinatorNotAvailable), reply

    def state(self, name: str = "t") -> TxnState:
        return self.shard.describe(name).state

    def transaction(self, name: str = "t") -> Transaction:
        return self.shard.describe(name)


def written(markers: WriteMarkers) -> MarkersWritten:
    return MarkersWritten(
        transactional_id=markers.transactional_id, producer_id=markers.producer_id, epoch=markers.epoch
    )


def as_recorded(event: Event) -> Event:
    """What comes back of an event that was a record of `__transaction_state`."""
    if isinstance(event, TransactionSaved):
        return TransactionSaved(replace(event.transaction, last_epoch=NO_EPOCH))
    return event


TV1, TV2 = FIRST_VERSION, BUMPING_VERSION
