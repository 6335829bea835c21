"""A shard of transactional ids and their producers, in memory."""

from dataclasses import replace

from tests.unit.coordinator.shard_rig import ShardRig

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Effect, Event, Reply, Step
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable
from penstock.model.ids import TopicPartition
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    PartitionsAdded,
    ProducerInitialized,
    TransactionCompleted,
    TransactionEnded,
    VerifyPartitions,
)
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.shard import TxnShard
from penstock.transactions.state import BUMPING_VERSION, FIRST_VERSION, NO_EPOCH, NO_PRODUCER_ID, Transaction, TxnState

TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

Producer = tuple[int, int]
"""A producer's id and epoch."""


class Rig(ShardRig[TxnShard]):
    """A shard whose markers are written when a test calls `write_markers`."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig.from_settings(settings or {})
        self.ids_left = 1_000_000
        self.next_producer_id = 1000
        self.coordinator_epoch = 0
        self.markers: list[WriteMarkers] = []
        """Requested and not yet reported as written."""
        super().__init__()

    def new_shard(self) -> TxnShard:
        return TxnShard(self.config, self._take_producer_id, self.coordinator_epoch)

    def _take_producer_id(self) -> int | None:
        if self.ids_left == 0:
            return None
        self.ids_left -= 1
        self.next_producer_id += 1
        return self.next_producer_id

    def perform(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers)
        self.markers.append(effect)

    def run_event(self, event: Event) -> None:
        """Apply an event directly, to reach a rare state."""
        self.run(Step(events=(event,)))

    def crash(self, survives: int = 0, *, compacted: bool = False) -> None:
        """Crash and load from the committed events, reduced to the fields of Kafka's records."""
        self.coordinator_epoch += 1
        self.markers.clear()
        super().crash(survives, compacted=compacted)

    def as_recorded(self, event: Event) -> Event:
        return as_recorded(event)

    def compacted(self) -> list[Event]:
        by_key: dict[str, Event] = {}
        for event in self.log:
            assert isinstance(event, TransactionSaved | TransactionForgotten)
            by_key.pop(event.transactional_id, None)
            by_key[event.transactional_id] = event
        return list(by_key.values())

    # Requests of clients

    def init(
        self, name: str = "t", *, as_producer: Producer = (NO_PRODUCER_ID, NO_EPOCH), timeout_ms: int = TIMEOUT_MS
    ) -> Producer:
        """Initialize the producer; fails the test if the request fails."""
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

    def submit_end(self, producer: Producer, *, commit: bool) -> int:
        return self.send(self._end(producer, commit, "t", BUMPING_VERSION))

    def _end(self, producer: Producer, commit: bool, name: str, version: int) -> EndTransaction:
        return EndTransaction(
            transactional_id=name,
            producer_id=producer[0],
            epoch=producer[1],
            commit=commit,
            transaction_version=version,
        )

    def write_markers(self) -> None:
        """Report all requested markers as written."""
        while self.markers:
            self.report(self.markers.pop(0))

    def report(self, markers: WriteMarkers) -> None:
        reply = self.ask(written(markers))
        assert isinstance(reply, TransactionCompleted | CoordinatorNotAvailable), reply

    def state(self, name: str = "t") -> TxnState:
        return self.shard.describe(name).state

    def transaction(self, name: str = "t") -> Transaction:
        return self.shard.describe(name)


def written(markers: WriteMarkers) -> MarkersWritten:
    return MarkersWritten(
        transactional_id=markers.transactional_id, producer_id=markers.producer_id, epoch=markers.epoch
    )


def as_recorded(event: Event) -> Event:
    """An event as it is read from a record of `__transaction_state`."""
    if isinstance(event, TransactionSaved):
        return TransactionSaved(replace(event.transaction, last_epoch=NO_EPOCH))
    return event


TV1, TV2 = FIRST_VERSION, BUMPING_VERSION
