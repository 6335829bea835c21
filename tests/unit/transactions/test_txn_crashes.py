"""Transactions on a disk in memory, with kills, power cuts, slow flushes and deadlines at any moment.

Three clients write records and offsets in transactions to topics with `flush=group`, repeat what was not answered, and
initialize again when they are fenced. In the end what they were told must hold: what was committed is there once, what
was aborted is not, nothing is torn, and nothing waits any more.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.eventual import deliver
from tests.unit.groups.coordinator_rig import OFFSETS, Groups
from tests.unit.partition.rig import NOW_MS, Seeded, batch, topic

from penstock.api.txn_verification import TxnVerification
from penstock.groups.commands import CommitEntry, CommitOffsets, CommitReply, CommitTxnOffsets
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
)
from penstock.model.ids import TopicPartition
from penstock.partition.replica import Replica
from penstock.testing.mem_disk import MemDisk
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    PartitionsAdded,
    ProducerInitialized,
    TransactionEnded,
)
from penstock.transactions.markers import MarkerLog
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import BUMPING_VERSION, FIRST_VERSION
from penstock.wire.records import ABORT_MARKER, decode_records, iter_batches, parse_marker

SEEDS = int(os.environ.get("PENSTOCK_TEST_TXN_SEEDS", 60))
"""A thousand take some minutes."""
STEPS = 600
REST_TURNS_MAX = 3_000
STATE, DATA = "__transaction_state", "data"
CONFIGS = {"flush": "group"}
PRODUCE_TIMEOUT_MS = 5_000
RESPONSE_MS_MAX = 61_000
TRANSACTION_TIMEOUT_MS = 60_000
COME_AGAIN = (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    RequestTimedOut,
)
BEGIN_AGAIN = (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
)


class Broker:
    """One life of a broker: from its start to a kill or a power cut."""

    def __init__(self, disk: MemDisk | None, leader_epoch: int, producer_ids: Iterator[int], now_ms: int) -> None:
        compacted = {"cleanup.policy": "compact", **CONFIGS}
        state = topic(STATE, number=98, configs=compacted, epoch=leader_epoch)
        data = topic(DATA, 2, number=97, configs=CONFIGS, epoch=leader_epoch)
        self.groups = Groups(topic(OFFSETS, number=99, configs=compacted, epoch=leader_epoch), disk, more=(state, data))
        rig = self.rig = self.groups.rig
        rig.clock.ms = now_ms
        self.transactions = TxnCoordinatorService(
            replicas=rig.replicas,
            logs=rig.store,
            image=self.groups.image,
            config=lambda: rig.config,
            clock=rig.clock,
            timers=rig.timers,
            threads=rig.threads,
            log=rig.notes,
            markers=MarkerLog(replicas=rig.replicas, groups=self.groups.coordinators, clock=rig.clock),
            take_producer_id=lambda: next(producer_ids),
        )
        self.transactions.start()
        self.verification = TxnVerification(coordinators=self.transactions, enabled=lambda: True)
        both = (self.groups.coordinators, self.transactions)
        self.loading = [asyncio.create_task(each.run()) for each in both]

    async def turns(self, count: int) -> None:
        for _ in range(count):
            self.rig.loop.run()
            await asyncio.sleep(0)

    def flush(self, *, first_only: bool) -> None:
        """Run all pending flushes, or only the first: partitions are flushed at different moments."""
        flushing = self.rig.flushing
        waiting = flushing.queue[1:] if first_only else []
        flushing.queue = flushing.queue[:1] if first_only else flushing.queue
        self.rig.flush()
        flushing.queue += waiting

    async def end(self, power_cut: Seeded | None) -> MemDisk:
        for task in self.loading:
            task.cancel()
        await asyncio.wait(self.loading)
        self.transactions.close()
        self.groups.coordinators.close()
        disk = self.rig.stop(clean=False)
        if power_cut is not None:
            disk.crash(power_cut)
        return disk


class Transaction:
    """A client's transaction: the records it sent, and those acknowledged."""

    def __init__(self, name: str, randomness: random.Random) -> None:
        self.partitions = randomness.choice([(0,), (1,), (0, 1)])
        self.left = [
            (p, b"%s.%d.%d" % (name.encode(), p, n)) for p in self.partitions for n in range(randomness.choice((1, 2)))
        ]
        self.sent: set[tuple[int, bytes]] = set()
        self.acknowledged: set[tuple[int, bytes]] = set()
        self.has_offset = randomness.random() < 0.5
        self.offset: int | None = None
        self.commits = randomness.random() < 0.75
        self.is_ended = False


class Client:
    """The client of one transactional id. Each step takes a response, if there is one, and sends the next request."""

    def __init__(self, model: "Model", name: str, version: int) -> None:
        self._model = model
        self.name = name
        self._version = version
        self.transactions: list[Transaction] = []
        self.phase: Callable[[Any], None] = self.initialize
        self.responses: list[Any] | None = None
        self._asked_ms = 0
        self._producer = (-1, -1)
        self._sequences = {0: 0, 1: 0}
        self._offset = 0

    @property
    def _broker(self) -> Broker:
        return self._model.broker

    @property
    def _current(self) -> Transaction:
        return self.transactions[-1]

    @property
    def rests(self) -> bool:
        return self.phase == self.begin

    def step(self) -> None:
        now_ms = self._broker.rig.clock.ms
        if self.responses is not None and not self.responses:
            assert now_ms - self._asked_ms < RESPONSE_MS_MAX, f"{self.name}: no response to {self.phase.__name__}"
            return
        response = self.responses[0] if self.responses else None
        self.responses = None
        if isinstance(response, BEGIN_AGAIN):
            self.phase = self.initialize
            return
        assert not isinstance(response, BrokerError) or isinstance(response, COME_AGAIN), (
            f"{self.phase.__name__}: {response!r}"
        )
        self._asked_ms = now_ms
        self.phase(None if isinstance(response, BrokerError) else response)

    def _ask(self, coordinator: Callable[[], Any], command: Any) -> None:
        responses = self.responses = list[Any]()
        try:
            deliver(coordinator().submit(command), responses)
        except BrokerError as error:
            responses.append(error)

    def _ask_transactions(self, command: Any) -> None:
        self._ask(lambda: self._broker.transactions.of(self.name), command)

    def initialize(self, response: ProducerInitialized | None) -> None:
        if response is None:
            self._ask_transactions(InitProducer(transactional_id=self.name, timeout_ms=TRANSACTION_TIMEOUT_MS))
            return
        self._go_on_as(response.producer_id, response.epoch)

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._sequences = {0: 0, 1: 0}
        self._producer = producer_id, epoch
        self.phase = self.begin

    def begin(self, _: None) -> None:
        self.transactions.append(Transaction(f"{self.name}-{len(self.transactions)}", self._model.randomness))
        self.phase = self.add

    def add(self, response: PartitionsAdded | None) -> None:
        if response is not None:
            self.phase = self.produce
            return
        places = [TopicPartition(DATA, partition) for partition in self._current.partitions]
        if self._current.has_offset:
            places.append(TopicPartition(OFFSETS, 0))
        producer_id, epoch = self._producer
        self._ask_transactions(
            AddPartitions(
                transactional_id=self.name,
                producer_id=producer_id,
                epoch=epoch,
                partitions=tuple(places),
                transaction_version=self._version,
            )
        )

    def produce(self, response: bool | None) -> None:
        wanted = self._current
        if response is not None:
            self._sequences[wanted.left[0][0]] += 1
            wanted.acknowledged.add(wanted.left.pop(0))
        if not wanted.left:
            self.phase = self.commit_offset if wanted.has_offset else self.end
            return
        wanted.sent.add(wanted.left[0])
        self.responses = self._append(*wanted.left[0])

    def _append(self, partition: int, value: bytes) -> list[Any]:
        """Send one batch as the produce path does; returns the list that will hold its acknowledgement."""
        rig, responses = self._broker.rig, list[Any]()
        replica = rig.replica(DATA, partition)
        producer_id, epoch = self._producer
        data = batch(
            value,
            at_ms=rig.clock.ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[partition],
            is_transactional=True,
        )
        verify_txn = self._broker.verification.of_produce(self.name, 12 if self._version == BUMPING_VERSION else 9)
        try:
            wait = replica.committed(rig.append(replica, data, acks_all=True, verify_txn=verify_txn).end)
        except BrokerError as error:
            return [error]
        if wait is None:
            return [True]
        deliver(wait.timeout(rig.timers, PRODUCE_TIMEOUT_MS, RequestTimedOut).then(lambda _: True), responses)
        return responses

    def commit_offset(self, response: CommitReply | None) -> None:
        wanted = self._current
        if response is not None:
            assert not response.failures
            self.phase = self.end
            return
        if wanted.offset is None:
            self._offset += 1
            wanted.offset = self._offset
        commit = CommitOffsets(
            group=self.name,
            member_id="",
            group_instance_id=None,
            generation=-1,
            entries=(CommitEntry(DATA, 0, wanted.offset),),
            version=5,
        )
        producer_id, epoch = self._producer
        self._ask(
            lambda: self._broker.groups.of(self.name),
            CommitTxnOffsets(producer_id=producer_id, producer_epoch=epoch, commit=commit),
        )

    def end(self, response: TransactionEnded | None) -> None:
        producer_id, epoch = self._producer
        if response is not None:
            self._current.is_ended = True
            if self._version == BUMPING_VERSION:
                self._go_on_as(response.producer_id, response.epoch)
            self.phase = self.begin
            return
        self._ask_transactions(
            EndTransaction(
                transactional_id=self.name,
                producer_id=producer_id,
                epoch=epoch,
                commit=self._current.commits,
                transaction_version=self._version,
            )
        )


class Model:
    """A broker that is killed again and again, and its clients."""

    def __init__(self, seed: int) -> None:
        self.randomness = random.Random(seed)
        self._producer_ids = iter(range(7, 1_000_000))
        self._leader_epoch = 0
        self.broker = Broker(None, 0, self._producer_ids, NOW_MS)
        versions = (BUMPING_VERSION, FIRST_VERSION)
        self.clients = [Client(self, f"t{number}", self.randomness.choice(versions)) for number in range(3)]

    async def crash(self) -> None:
        power_cut = Seeded(self.randomness.randrange(1 << 30)) if self.randomness.random() < 0.5 else None
        disk = await self.broker.end(power_cut)
        self._leader_epoch += 1
        self.broker = Broker(disk, self._leader_epoch, self._producer_ids, self.broker.rig.clock.ms)
        for client in self.clients:
            client.responses = None

    async def step(self) -> None:
        randomness, broker = self.randomness, self.broker
        kind = randomness.random()
        if kind < 0.6:
            randomness.choice(self.clients).step()
        elif kind < 0.75:
            broker.flush(first_only=randomness.random() < 0.5)
        elif kind < 0.9:
            await broker.turns(randomness.randrange(1, 5))
        elif kind < 0.985:
            broker.rig.loop.pass_ms(randomness.choice([10, 100, 1_000, 6_000, 31_000]))
            await broker.turns(1)
        else:
            await self.crash()

    async def rest(self) -> None:
        """Let every client end its transaction, and the broker complete decided ones."""
        for _ in range(REST_TURNS_MAX):
            if all(client.rests for client in self.clients):
                break
            for client in self.clients:
                if not client.rests:
                    client.step()
            await self._pass(200)
        assert all(client.rests for client in self.clients), "a client does not come to its end"
        if self.randomness.random() < 0.5:
            await self.crash()
        for _ in range(60):
            await self._pass(2_500)

    async def _pass(self, ms: int) -> None:
        await self.broker.turns(2)
        self.broker.flush(first_only=False)
        self.broker.rig.loop.pass_ms(ms)

    def check(self) -> None:
        for name, partition in ((DATA, 0), (DATA, 1), (STATE, 0), (OFFSETS, 0)):
            replica = self.broker.rig.replica(name, partition)
            assert replica.offsets.last_stable == replica.offsets.log_end, f"{replica.tp}: a transaction is open"
            assert len(replica._commit_waiters) == len(replica._flush_waiters) == 0, f"{replica.tp}: a waiter is left"
        for coordinator in (*self.broker.transactions.loaded(), *self.broker.groups.coordinators.loaded()):
            assert coordinator.waiting == 0
        seen = [
            (partition, value) for partition in (0, 1) for value in committed(self.broker.rig.replica(DATA, partition))
        ]
        assert len(seen) == len(set(seen)), "a record is duplicated"
        for client in self.clients:
            for transaction in client.transactions:
                check_outcome(transaction, set(seen))
            check_offset(client.transactions, self.broker.groups.offsets(client.name).get((DATA, 0)))


def check_outcome(transaction: Transaction, seen: set[tuple[int, bytes]]) -> None:
    if transaction.is_ended and transaction.commits:
        assert transaction.acknowledged <= seen, "a commit that was acknowledged is lost"
    elif transaction.is_ended or not transaction.commits:
        assert not transaction.sent & seen, "an aborted record is seen"
    else:
        assert not transaction.sent & seen or transaction.acknowledged <= seen, "a transaction is torn"


def check_offset(transactions: list[Transaction], found: int | None) -> None:
    possible = {each.offset for each in transactions if each.commits}
    promised = [each.offset for each in transactions if each.is_ended and each.commits and each.offset is not None]
    assert found is None or found in possible, f"{found} was never committed"
    assert not promised or (found is not None and found >= max(promised)), (
        f"{max(promised)} was committed, found {found}"
    )


def committed(replica: Replica) -> list[bytes | None]:
    """The records that a read_committed consumer gets, given the aborted transactions."""
    found: list[bytes | None] = []
    offset = replica.offsets.log_start
    while True:
        fetched = replica.read(offset, 1 << 30, at_least_one=True, read_committed=True)
        data = fetched.records if isinstance(fetched.records, bytes) else fetched.records.contents()
        if not data:
            return found
        to_come = sorted((each.first_offset, each.producer_id) for each in fetched.aborted or ())
        aborting: set[int] = set()
        for position, header in iter_batches(data):
            records = decode_records(data[position : position + header.size])
            while to_come and to_come[0][0] <= header.last_offset:
                aborting.add(to_come.pop(0)[1])
            if header.is_control:
                if parse_marker(records[0])[0] == ABORT_MARKER:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                found += [record.value for record in records]
            offset = header.last_offset + 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_results_survive_kills_and_power_cuts(seed: int) -> None:
    async def act() -> None:
        model = Model(seed)
        for _ in range(STEPS):
            await model.step()
        await model.rest()
        model.check()
        await model.broker.end(None)

    asyncio.run(act())
