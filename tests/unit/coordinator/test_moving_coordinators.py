"""Coordinators of a cluster of three brokers, whose leaders move while groups and transactions are under way."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tests.unit.partition.rig import batch
from tests.unit.replication.sim_cluster import SimCluster

from penstock.groups.lag import GroupLag
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    IllegalGeneration,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownMemberId,
)
from penstock.model.ids import BrokerId
from penstock.observe.groups import LagView
from penstock.replication.remote_bounds import RemoteBounds
from penstock.testing.sim.client import Disconnected
from penstock.wire.api import (
    add_partitions_to_txn,
    create_topics,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from penstock.wire.records import decode_records, iter_batches

GROUP, TRANSACTION = 0, 1
RETRIED = frozenset(
    error.code
    for error in (
        ConcurrentTransactions,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotCoordinator,
        NotEnoughReplicas,
        NotLeaderOrFollower,
        RequestTimedOut,
    )
)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "2000",
    "auto.leader.rebalance.enable": "false",
}
TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}


class Client:
    """A client that finds coordinators and leaders again, and retries, until it has a response."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.producer = (-1, -1)

    def running(self) -> list[int]:
        """The brokers that can respond."""
        return [number for number, broker in self.cluster.brokers.items() if broker.running and not broker.node.paused]

    async def coordinator(self, kind: int, key: str) -> int:
        found: list[int] = []

        async def known() -> bool:
            for broker in self.running():
                request = find_coordinator.Request(key_type=kind, coordinator_keys=[key])
                try:
                    [one] = (await self.cluster.ask(broker, find_coordinator, 4, request)).coordinators
                except Disconnected:
                    continue
                if not one.error_code and one.node_id in self.running():
                    found.append(one.node_id)
                    return True
            return False

        await self.cluster.until(known)
        return found[-1]

    async def ask(self, kind: int, key: str, api: ModuleType, version: int, request: Any, *, code: Any = None) -> Any:
        """The coordinator's response that is not to be retried."""
        got: list[Any] = []

        async def responded() -> bool:
            try:
                response = await self.cluster.ask(await self.coordinator(kind, key), api, version, request)
            except Disconnected:
                return False
            if (response.error_code if code is None else code(response)) in RETRIED:
                return False
            got.append(response)
            return True

        await self.cluster.until(responded)
        return got[-1]

    async def create_topic(self, name: str) -> None:
        wanted = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=3)
        response = await self.cluster.ask(1, create_topics, 7, create_topics.Request(topics=[wanted]))
        assert response.topics[0].error_code == 0

    async def leader(self, topic: str, partition: int) -> int:
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=topic)])
        response = await self.cluster.ask(self.running()[0], metadata, 9, request)
        return int(response.topics[0].partitions[partition].leader_id)

    # Transactions

    async def begin(self, name: str) -> None:
        request = init_producer_id.Request(transactional_id=name, transaction_timeout_ms=60_000)
        response = await self.ask(TRANSACTION, name, init_producer_id, 4, request)
        assert response.error_code == 0
        self.producer = response.producer_id, response.producer_epoch

    async def produce(self, name: str, value: bytes, partition: int, sequence: int, *, version: int = 12) -> int:
        data = batch(
            value,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            is_transactional=True,
            at_ms=self.cluster.brokers[1].clock.now_ms(),
        )
        part = produce.PartitionProduceData(index=partition, records=bytes(data))
        topic = produce.TopicProduceData(name="orders", partition_data=[part])
        request = produce.Request(transactional_id=name, acks=-1, timeout_ms=5_000, topic_data=[topic])
        codes: list[int] = []

        async def responded() -> bool:
            leader = await self.leader("orders", partition)
            if leader not in self.running():
                return False
            try:
                response = await self.cluster.ask(leader, produce, version, request)
            except Disconnected:
                return False
            codes.append(response.responses[0].partition_responses[0].error_code)
            return codes[-1] not in RETRIED

        await self.cluster.until(responded)
        return codes[-1]

    async def end(self, name: str, *, commit: bool = True) -> int:
        request = end_txn.Request(
            transactional_id=name, producer_id=self.producer[0], producer_epoch=self.producer[1], committed=commit
        )
        response = await self.ask(TRANSACTION, name, end_txn, 5, request)
        if not response.error_code:
            self.producer = response.producer_id, response.producer_epoch
        return int(response.error_code)

    async def read_committed(self, partition: int) -> list[bytes | None]:
        leader = await self.leader("orders", partition)
        part = fetch.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1_000_000)
        request = fetch.Request(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            topics=[fetch.FetchTopic(topic="orders", partitions=[part])],
        )
        [response] = (await self.cluster.ask(leader, fetch, 12, request)).responses[0].partitions
        data = bytes(response.records or b"")
        values: list[bytes | None] = []
        begun = {each.producer_id: each.first_offset for each in response.aborted_transactions or []}
        for at, header in iter_batches(data):
            is_aborted = begun.get(header.producer_id, header.base_offset + 1) <= header.base_offset
            if header.is_control and is_aborted:
                del begun[header.producer_id]
            elif not header.is_control and not is_aborted:
                values += [record.value for record in decode_records(data[at : at + header.size])]
        return values

    # Groups

    async def join(self, group: str, member_id: str = "") -> tuple[str, int]:
        request = join_group.Request(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await self.ask(GROUP, group, join_group, 3, request)
        assert joined.error_code == 0
        assigned = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
        synced = sync_group.Request(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
        )
        assert (await self.ask(GROUP, group, sync_group, 3, synced)).error_code == 0
        return joined.member_id, joined.generation_id

    async def beat(self, group: str, member: str, generation: int) -> int:
        request = heartbeat.Request(group_id=group, generation_id=generation, member_id=member)
        return int((await self.ask(GROUP, group, heartbeat, 3, request)).error_code)

    async def commit(self, group: str, member: str, generation: int, offset: int) -> int:
        part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = offset_commit.Request(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[offset_commit.OffsetCommitRequestTopic(name="orders", partitions=[part])],
        )

        def code(response: Any) -> int:
            return int(response.topics[0].partitions[0].error_code)

        return code(await self.ask(GROUP, group, offset_commit, 7, request, code=code))

    async def committed(self, group: str) -> int:
        topic = offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        request = offset_fetch.Request(group_id=group, topics=[topic])
        response = await self.ask(GROUP, group, offset_fetch, 7, request)
        return int(response.topics[0].partitions[0].committed_offset)


def run(story: Any, settings: Mapping[str, str] = SETTINGS) -> None:
    async def whole(cluster: SimCluster) -> None:
        await story(Client(cluster))

    SimCluster(settings=settings).run(whole)


async def leave(client: Client, broker: int) -> None:
    """Kill a broker, and wait until others lead what it led."""
    client.cluster.brokers[broker].kill()
    left = client.running()[0]

    def led() -> bool:
        image = client.cluster.parts(left).ground.catalog.image
        return all(state.leader not in (broker, -1) for topic in image.topics.values() for state in topic.partitions)

    await client.cluster.until(led)


async def come_back(client: Client, broker: int) -> None:
    """Start a broker again, and wait until it is in every ISR."""
    client.cluster.brokers[broker].start()
    await client.cluster.brokers[broker].ready()

    def in_sync() -> bool:
        image = client.cluster.parts(broker).ground.catalog.image
        return all(broker in state.isr for topic in image.topics.values() for state in topic.partitions)

    await client.cluster.until(in_sync)


def test_every_broker_names_the_same_coordinators() -> None:
    async def story(client: Client) -> None:
        await client.coordinator(GROUP, "g0")
        await client.coordinator(TRANSACTION, "t0")
        for kind in (GROUP, TRANSACTION):
            keys = [f"k{at}" for at in range(8)]
            request = find_coordinator.Request(key_type=kind, coordinator_keys=keys)
            found: list[list[int]] = []
            for broker in client.cluster.brokers:
                response = await client.cluster.ask(broker, find_coordinator, 4, request)
                assert [one.error_code for one in response.coordinators] == [0] * len(keys)
                found.append([one.node_id for one in response.coordinators])
            assert found[0] == found[1] == found[2]
            state = client.cluster.parts(1).ground.catalog.image.topics[TOPICS[kind]]
            assert [len(each.replicas) for each in state.partitions] == [3, 3]
            assert [each.in_sync_min for each in state.partitions] == [2, 2]

    run(story)


def test_a_transaction_is_committed_by_the_next_coordinator() -> None:
    async def story(client: Client) -> None:
        await client.create_topic("orders")
        await client.begin("t")
        assert await client.produce("t", b"a", 0, 0) == 0
        assert await client.produce("t", b"b", 1, 0) == 0

        await leave(client, await client.coordinator(TRANSACTION, "t"))

        assert await client.end("t") == 0
        assert await client.produce("t", b"c", 0, 0) == 0
        assert await client.end("t", commit=False) == 0

        async def ended() -> bool:
            return await client.read_committed(0) == [b"a"] and await client.read_committed(1) == [b"b"]

        await client.cluster.until(ended)

    run(story)


def test_markers_that_a_coordinator_left_unwritten_are_written_by_the_next() -> None:
    async def story(client: Client) -> None:
        cluster = client.cluster
        await client.create_topic("orders")
        await client.begin("t")
        former = await client.coordinator(TRANSACTION, "t")
        leaders = [await client.leader("orders", each) for each in (0, 1)]
        [away, *_] = [each for each in (0, 1) if leaders[each] != former]
        assert await client.produce("t", b"a", away, 0) == 0
        # The leader of the partition does not run: its marker cannot be written, and the decision stands.
        writer = leaders[away]
        cluster.brokers[writer].pause()

        assert await client.end("t") == 0
        cluster.brokers[former].kill()
        cluster.brokers[writer].resume()

        async def ended() -> bool:
            leader = await client.leader("orders", away)
            return leader in client.running() and await client.read_committed(away) == [b"a"]

        await cluster.until(ended)

    run(story)


def test_a_partition_is_verified_with_a_coordinator_on_another_broker() -> None:
    async def story(client: Client) -> None:
        await client.create_topic("orders")
        for at in range(6):
            name = f"t{at}"
            await client.begin(name)
            topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[0])
            request = add_partitions_to_txn.Request(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=client.producer[0],
                v3_and_below_producer_epoch=client.producer[1],
                v3_and_below_topics=[topic],
            )

            def code(response: Any) -> int:
                return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

            await client.ask(TRANSACTION, name, add_partitions_to_txn, 3, request, code=code)
            assert await client.produce(name, b"v", 0, 0, version=11) == 0
            assert await client.produce(name, b"v", 1, 0, version=11) == 120, "it was not added"
            assert await client.end(name) == 0
        coordinators = {await client.coordinator(TRANSACTION, f"t{at}") for at in range(6)}
        assert len(coordinators) > 1

    run(story)


def test_a_group_goes_on_where_its_coordinator_moves() -> None:
    async def story(client: Client) -> None:
        await client.create_topic("orders")
        member, generation = await client.join("g")
        assert await client.commit("g", member, generation, 5) == 0
        first = await client.coordinator(GROUP, "g")

        for offset in (6, 7):
            former = await client.coordinator(GROUP, "g")
            await leave(client, former)

            assert await client.committed("g") == offset - 1
            assert await client.beat("g", member, generation) == 0
            assert await client.commit("g", member, generation - 1, 99) == IllegalGeneration.code
            assert await client.commit("g", "another", generation, 99) == UnknownMemberId.code
            assert await client.commit("g", member, generation, offset) == 0
            await come_back(client, former)

        await leave(client, await client.coordinator(GROUP, "g"))
        assert await client.committed("g") == 7
        assert len({first, former, await client.coordinator(GROUP, "g")}) > 1

    run(story)


def test_a_join_that_waits_fails_when_the_coordinator_is_fenced() -> None:
    async def story(client: Client) -> None:
        cluster = client.cluster
        await client.create_topic("orders")
        member, generation = await client.join("g")
        former = await client.coordinator(GROUP, "g")
        # The member does not join again, so that the second one waits for it.
        second = join_group.Request(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        session = cluster.brokers[former].session
        assert session is not None
        cluster.world.loop.call_later(2.0, cluster.store.end, session)

        response = await cluster.ask(former, join_group, 3, second)

        assert response.error_code == NotCoordinator.code
        assert await client.beat("g", member, generation) in (0, 27)

    run(story)


def test_each_broker_lists_the_groups_and_transactions_that_it_coordinates() -> None:
    async def story(client: Client) -> None:
        await client.create_topic("orders")
        for at in range(6):
            await client.join(f"g{at}")
            await client.begin(f"t{at}")
        by_group = {f"g{at}": await client.coordinator(GROUP, f"g{at}") for at in range(6)}
        by_transaction = {f"t{at}": await client.coordinator(TRANSACTION, f"t{at}") for at in range(6)}

        for broker in client.cluster.brokers:
            groups = await client.cluster.ask(broker, list_groups, 4, list_groups.Request())
            transactions = await client.cluster.ask(broker, list_transactions, 0, list_transactions.Request())
            assert {one.group_id for one in groups.groups} == {name for name in by_group if by_group[name] == broker}
            assert {one.transactional_id for one in transactions.transaction_states} == {
                name for name in by_transaction if by_transaction[name] == broker
            }

    run(story)


def test_the_lag_of_a_group_is_known_where_other_brokers_have_its_partitions() -> None:
    async def story(client: Client) -> None:
        cluster = client.cluster
        coordinator = await client.coordinator(GROUP, "g")
        away = next(broker for broker in cluster.brokers if broker != coordinator)
        placed = [create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[away])]
        wanted = create_topics.CreatableTopic(
            name="orders", num_partitions=-1, replication_factor=-1, assignments=placed
        )
        await cluster.ask(1, create_topics, 7, create_topics.Request(topics=[wanted]))
        await client.begin("t")
        for at in range(4):
            assert await client.produce("t", b"v", 0, at) == 0
        member, generation = await client.join("g")
        assert await client.commit("g", member, generation, 1) == 0
        parts = cluster.parts(coordinator)
        remote = RemoteBounds(
            broker_id=BrokerId(coordinator),
            image=parts.ground.catalog.image,
            peers=parts.peers,
            monotonic=parts.ground.clock.monotonic,
            timeout_ms=lambda: 1_000,
        )
        lag = GroupLag(coordinators=parts.groups, replicas=parts.replicas, logs=parts.ground.logs, remote=remote)

        def lags() -> list[tuple[int, int]]:
            return [(row.offset, row.lag) for row in lag.rows() if isinstance(row, LagView)]

        assert lags() == []
        await cluster.until(lambda: lags() == [(1, 3)])

    run(story)
