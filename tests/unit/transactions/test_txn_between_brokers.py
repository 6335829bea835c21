"""A transaction whose coordinator is on another broker than the partitions it writes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.unit.api.api_world import NOW_MS, World
from tests.unit.partition.rig import batch

from penstock.broker.apis import every_api
from penstock.config.broker import BrokerConfig
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OperationNotAttempted,
    TransactionAbortable,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.model.ids import Offset, TopicPartition
from penstock.model.topic import TRANSACTION_STATE_TOPIC
from penstock.partition.replica import Replica
from penstock.replication.peers import PeerUnavailable, Purpose
from penstock.transactions.commands import VerifyPartitions
from penstock.transactions.markers import Marker, MarkerBatch, MarkerLog, RemoteMarkers, RoutedMarkers
from penstock.transactions.state import TxnState
from penstock.transactions.verifier import QuestionBatch, RemoteVerifier, RoutedVerifier, Verified
from penstock.wire import add_partitions_to_txn as between_brokers
from penstock.wire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    create_topics,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    txn_offset_commit,
    write_txn_markers,
)

LEADER, COORDINATOR = 1, 2
ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
ADDS, VERIFIES = 12, 11
"""Versions of Produce whose clients leave adding partitions to the broker, and that add them themselves."""
END_OF_OLD_CLIENTS = 4


def purpose_of(api: ModuleType, request: Any) -> Purpose:
    """A request that waits until something is committed shares no connection with one that does not."""
    if api is write_txn_markers:
        return Purpose.MARKERS
    [verifies] = {each.verify_only for each in request.transactions}
    return Purpose.VERIFICATIONS if verifies else Purpose.TRANSACTIONS


class DirectPeers:
    """Stands for the connections between two brokers: hands a request to the other one's handler."""

    def __init__(self) -> None:
        self.worlds: dict[int, World] = {}
        self.sent: list[tuple[int, ModuleType, Any]] = []
        self.down = False
        self.held: asyncio.Event | None = None
        """Set to deliver the responses to AddPartitionsToTxn."""
        self.responded = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self,
        broker_id: int,
        purpose: Purpose,
        api: ModuleType,
        request: Any,
        *,
        timeout_ms: float,
        version_max: int | None = None,
    ) -> Deferred[Any]:
        assert purpose is purpose_of(api, request)
        assert timeout_ms > 0
        self.sent.append((broker_id, api, request))
        result: Deferred[Any] = Deferred()
        if self.down:
            result.fail(PeerUnavailable("down"))
            return result
        task = asyncio.create_task(self._carry(self.worlds[broker_id], api, request, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return result

    async def _carry(self, world: World, api: ModuleType, request: Any, result: Deferred[Any]) -> None:
        response = await world.ask(api.API_KEY, request, codec=api)
        if api is between_brokers and self.held is not None:
            self.responded.set()
            await self.held.wait()
        result.resolve(response)


class Cluster:
    """Broker 1 leads the partitions that clients write to, broker 2 has the coordinator of transactions."""

    def __init__(self, leader: World, coordinator: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader = leader
        self.coordinator = coordinator
        self.peers = DirectPeers()
        self.peers.worlds = {LEADER: leader, COORDINATOR: coordinator}
        peers: Any = self.peers
        call_soon = asyncio.get_running_loop().call_soon
        verifier = RoutedVerifier(
            broker_id=LEADER,
            image=coordinator.catalog.image,
            coordinators=coordinator.parts.transactions,
            remote=RemoteVerifier(peers=peers, call_soon=call_soon, timeout_ms=lambda: 1_000),
        )
        leader.apis = {api.key: api for api in every_api(replace(leader.parts, verifier=verifier))}
        markers = RoutedMarkers(
            broker_id=COORDINATOR,
            image=leader.catalog.image,
            local=coordinator.parts.markers,
            remote=RemoteMarkers(peers=peers, call_soon=call_soon, timeout_ms=lambda: 1_000),
        )
        monkeypatch.setattr(coordinator.parts.transactions, "_markers", markers)
        self.producer = (-1, -1)

    async def begin(self) -> None:
        """Make topics, and a producer of the transactional id `t`."""
        for world in (self.leader, self.coordinator):
            orders = create_topics.CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
            await world.ask(19, create_topics.Request(topics=[orders]))
            await world.ask(10, find_coordinator.Request(key_type=0, coordinator_keys=["g"]))
        await self.coordinator.ask(10, find_coordinator.Request(key_type=1, coordinator_keys=["t"]))
        request = init_producer_id.Request(transactional_id="t", transaction_timeout_ms=60_000)
        response = await self.coordinator.ask(22, request)
        assert response.error_code == 0
        self.producer = (response.producer_id, response.producer_epoch)

    async def add(self) -> None:
        """Add a partition as clients before transaction version 2 do."""
        request = add_partitions_to_txn.Request(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        )
        response = await self.coordinator.ask(24, request, 3)
        assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0

    async def produce(self, version: int, *, sequence: int = 0, partitions: tuple[int, ...] = (0,)) -> list[int]:
        data = batch(
            b"a",
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            is_transactional=True,
            at_ms=NOW_MS,
        )
        parts = [produce.PartitionProduceData(index=index, records=memoryview(bytes(data))) for index in partitions]
        topic = produce.TopicProduceData(name="orders", partition_data=parts)
        request = produce.Request(transactional_id="t", acks=-1, timeout_ms=1_000, topic_data=[topic])
        response = await self.leader.ask(0, request, version)
        return [part.error_code for part in response.responses[0].partition_responses]

    async def end(self, version: int) -> None:
        request = end_txn.Request(
            transactional_id="t", producer_id=self.producer[0], producer_epoch=self.producer[1], committed=True
        )
        assert (await self.coordinator.ask(26, request, version)).error_code == 0
        await until(lambda: self.state is TxnState.COMPLETE_COMMIT)

    @property
    def state(self) -> TxnState:
        return self.coordinator.parts.transactions.of("t").shard().describe("t").state

    def log_end(self, tp: TopicPartition = ORDERS) -> int:
        return self.leader.replicas.get(tp.topic, tp.partition).offsets.log_end


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110  # facts of two brokers, with timers of their own
            await asyncio.sleep(0.001)


Act = Callable[[Cluster], Coroutine[Any, Any, None]]


@pytest.fixture
def in_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    async def whole(act: Act) -> None:
        worlds: list[World] = []
        try:
            for broker_id in (LEADER, COORDINATOR):
                config = BrokerConfig(broker_id=broker_id, offsets_topic_num_partitions=1)
                worlds.append(await World.start(tmp_path / str(broker_id), config))
            cluster = Cluster(*worlds, monkeypatch)
            await cluster.begin()
            await act(cluster)
        finally:
            for world in worlds:
                await world.stop()

    def run(act: Act) -> None:
        for broker_id in (LEADER, COORDINATOR):
            (tmp_path / str(broker_id)).mkdir()
        asyncio.run(whole(act))

    return run


def test_a_produce_adds_its_partitions_and_their_markers_come_back(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        assert await cluster.produce(ADDS, partitions=(0, 1)) == [0, 0]
        assert cluster.state is TxnState.ONGOING
        await cluster.end(5)

        assert (cluster.log_end(), cluster.log_end(OTHER)) == (2, 2)
        assert [(broker, api) for broker, api, _ in cluster.peers.sent] == [
            (COORDINATOR, between_brokers),
            (LEADER, write_txn_markers),
        ]

    in_cluster(act)


def test_a_batch_of_an_open_transaction_asks_no_coordinator(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        assert await cluster.produce(VERIFIES) == [0]
        assert await cluster.produce(VERIFIES, sequence=1) == [0]

        assert len(cluster.peers.sent) == 1

    in_cluster(act)


def test_a_verification_waits_for_nothing_that_the_coordinators_partition_has_not_committed(
    in_cluster: Callable[[Act], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = Replica.committed

    def held(replica: Replica, end: Offset) -> Deferred[None] | None:
        return Deferred() if replica.tp.topic == TRANSACTION_STATE_TOPIC else committed(replica, end)

    async def act(cluster: Cluster) -> None:
        await cluster.add()
        monkeypatch.setattr(Replica, "committed", held)
        adding = asyncio.create_task(cluster.produce(ADDS, partitions=(1,)))
        await until(lambda: len(cluster.peers.sent) == 1)
        assert await cluster.produce(VERIFIES) == [0]
        assert not adding.done(), "the addition waits, on a connection of its own"
        adding.cancel()
        monkeypatch.setattr(Replica, "committed", committed)

    in_cluster(act)


def test_additions_and_verifications_of_one_turn_are_sent_apart(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        both = await asyncio.gather(cluster.produce(VERIFIES), cluster.produce(ADDS, partitions=(1,)))
        assert both == [[0], [0]]
        requests = [request.transactions for _, _, request in cluster.peers.sent]
        assert sorted(each.verify_only for [each] in requests) == [False, True]

    in_cluster(act)


def test_a_partition_that_was_not_added_is_refused(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        assert await cluster.produce(VERIFIES, partitions=(0, 1)) == [0, TransactionAbortable.code]
        assert await cluster.produce(10, partitions=(1,)) == [InvalidTxnState.code]

    in_cluster(act)


def test_a_confirmation_that_arrives_after_the_marker_is_worth_nothing(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        cluster.peers.held = asyncio.Event()
        producing = asyncio.create_task(cluster.produce(VERIFIES))
        await cluster.peers.responded.wait()
        await cluster.end(END_OF_OLD_CLIENTS)
        cluster.peers.held.set()

        assert await producing == [InvalidTxnState.code]
        assert cluster.log_end() == 1, "only the marker"

    in_cluster(act)


def test_an_offset_commit_is_verified_and_refused_after_the_marker(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        add = add_offsets_to_txn.Request(
            transactional_id="t", producer_id=cluster.producer[0], producer_epoch=cluster.producer[1], group_id="g"
        )

        async def commit() -> int:
            partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])
            request = txn_offset_commit.Request(
                transactional_id="t",
                group_id="g",
                producer_id=cluster.producer[0],
                producer_epoch=cluster.producer[1],
                topics=[topic],
            )
            response = await cluster.leader.ask(28, request, 4)
            code: int = response.topics[0].partitions[0].error_code
            return code

        assert await commit() == TransactionAbortable.code
        assert (await cluster.coordinator.ask(25, add, 3)).error_code == 0
        assert await commit() == 0
        await cluster.end(END_OF_OLD_CLIENTS)
        assert (await cluster.coordinator.ask(25, add, 3)).error_code == 0
        cluster.peers.held = asyncio.Event()
        cluster.peers.responded.clear()
        committing = asyncio.create_task(commit())
        await cluster.peers.responded.wait()
        await cluster.end(END_OF_OLD_CLIENTS)
        cluster.peers.held.set()

        assert await committing == InvalidTxnState.code

    in_cluster(act)


def test_a_coordinator_that_is_away_is_asked_again_by_the_retry(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        cluster.peers.down = True
        assert await cluster.produce(ADDS) == [NotEnoughReplicas.code]
        cluster.peers.down = False
        assert await cluster.produce(ADDS) == [0]

    in_cluster(act)


def test_markers_are_sent_again_until_their_broker_has_them(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        assert await cluster.produce(ADDS, partitions=(0, 1)) == [0, 0]
        cluster.peers.down = True
        ending = asyncio.create_task(cluster.end(5))
        await until(lambda: len(cluster.peers.sent) >= 3)
        assert cluster.state is TxnState.PREPARE_COMMIT
        cluster.peers.down = False
        await ending

        assert (cluster.log_end(), cluster.log_end(OTHER)) == (2, 2)

    in_cluster(act)


def test_a_coordinator_that_a_later_one_has_replaced_is_not_believed(in_cluster: Callable[[Act], None]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        markers: MarkerLog = cluster.leader.parts.markers
        markers.write(ORDERS, Marker(cluster.producer[0], cluster.producer[1], True, 9, 0))

        assert await cluster.produce(VERIFIES) == [NotEnoughReplicas.code]

    in_cluster(act)


def test_a_coordinator_of_an_earlier_epoch_than_the_one_asked_does_not_respond(
    in_cluster: Callable[[Act], None],
) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add()
        image = cluster.coordinator.catalog.image
        known = image.topics["__transaction_state"]
        later = tuple(replace(state, leader_epoch=state.leader_epoch + 2) for state in known.partitions)

        # The leader of the partition has learnt of the next epoch of the coordinator, the coordinator has not.
        image.topics["__transaction_state"] = replace(known, partitions=later)
        assert await cluster.produce(VERIFIES) == [NotEnoughReplicas.code]
        assert await cluster.produce(ADDS) == [NotEnoughReplicas.code]
        image.topics["__transaction_state"] = known

        assert await cluster.produce(VERIFIES) == [0]

    in_cluster(act)


# Batches of requests


def question(name: str, *partitions: TopicPartition) -> VerifyPartitions:
    return VerifyPartitions(transactional_id=name, producer_id=7, epoch=0, partitions=partitions)


def outcome(result: Deferred[Verified]) -> dict[TopicPartition, type[BrokerError]]:
    got: list[Verified] = []
    result.deliver_to(got.append, got.append)  # type: ignore[arg-type]
    return {tp: type(error) for tp, error in got[0].errors.items()}


def test_each_transaction_of_a_request_gets_its_own_results() -> None:
    asked = QuestionBatch()
    first, second = asked.add(question("a", ORDERS, OTHER), 3), asked.add(question("b", ORDERS), 4)
    assert not asked.has_room(question("a", ORDERS))
    [sent, _] = asked.request().transactions
    assert (sent.transactional_id, sent.verify_only, sent.topics[0].partitions) == ("a", True, [0, 1])

    result = add_partitions_to_txn.AddPartitionsToTxnPartitionResult
    code = OperationNotAttempted.code
    topic = add_partitions_to_txn.AddPartitionsToTxnTopicResult(
        name="orders", results_by_partition=[result(partition_index=1, partition_error_code=code)]
    )
    of_a = add_partitions_to_txn.AddPartitionsToTxnResult(transactional_id="a", topic_results=[topic])
    asked.responded(add_partitions_to_txn.Response(results_by_transaction=[of_a]))

    # What the response leaves out is not confirmed.
    assert outcome(first) == {ORDERS: UnknownServerError, OTHER: CoordinatorNotAvailable}
    assert outcome(second) == {ORDERS: UnknownServerError}


def test_an_error_of_the_whole_request_is_that_of_every_partition() -> None:
    asked = QuestionBatch()
    result = asked.add(question("a", ORDERS), 3)
    asked.responded(add_partitions_to_txn.Response(error_code=NotLeaderOrFollower.code))

    assert outcome(result) == {ORDERS: NotLeaderOrFollower}


def test_a_marker_is_retried_where_the_leader_has_yet_to_learn_of_the_partition() -> None:
    marker = Marker(7, 0, True, 3, 2)
    sent = MarkerBatch()
    results = {tp: sent.add(tp, marker) for tp in (ORDERS, OTHER)}
    assert not sent.has_room(ORDERS, marker)
    assert not sent.has_room(TopicPartition("orders", 2), marker._replace(epoch=1))
    assert sent.has_room(ORDERS, marker._replace(producer_id=8))
    [request] = sent.request().markers
    assert (request.producer_id, request.coordinator_epoch, request.topics[0].partition_indexes) == (7, 3, [0, 1])

    result = write_txn_markers.WritableTxnMarkerPartitionResult
    code = UnknownTopicOrPartition.code
    topic = write_txn_markers.WritableTxnMarkerTopicResult(
        name="orders", partitions=[result(partition_index=0), result(partition_index=1, error_code=code)]
    )
    of_producer = write_txn_markers.WritableTxnMarkerResult(producer_id=7, topics=[topic])
    sent.responded(write_txn_markers.Response(markers=[of_producer]))

    got: list[Any] = []
    for written in results.values():
        written.deliver_to(got.append, got.append)
    assert got[0] is None
    assert isinstance(got[1], NotLeaderOrFollower)
