"""Three brokers of one simulated world replicate what producers write."""

from __future__ import annotations

import asyncio

from tests.unit.partition.rig import batch
from tests.unit.replication.sim_cluster import SimCluster

from penstock.model.ids import TopicPartition
from penstock.partition.replica import Replica
from penstock.wire.api import create_topics, produce

ORDERS = TopicPartition("orders", 0)


async def create(cluster: SimCluster, name: str = "orders", *, partitions: int = 1, min_isr: int = 2) -> None:
    wanted = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=3,
        configs=[create_topics.CreatableTopicConfig(name="min.insync.replicas", value=str(min_isr))],
    )
    response = await cluster.ask(1, create_topics, 7, create_topics.Request(topics=[wanted]))
    assert [(each.error_code, each.error_message) for each in response.topics] == [(0, None)]


def leader_of(cluster: SimCluster, tp: TopicPartition) -> int:
    return cluster.parts(cluster.controller).ground.catalog.image.topics[tp.topic].partitions[tp.partition].leader


def isr_of(cluster: SimCluster, tp: TopicPartition) -> set[int]:
    return set(cluster.parts(cluster.controller).ground.catalog.image.topics[tp.topic].partitions[tp.partition].isr)


async def write(
    cluster: SimCluster,
    tp: TopicPartition,
    *,
    acks: int = -1,
    values: int = 1,
    leader: int | None = None,
    value: bytes = b"value",
) -> int:
    """Write a batch to the leader, or to a broker that is thought to lead; its error code."""
    records = bytes(batch(*[value] * values))
    data = produce.PartitionProduceData(index=tp.partition, records=records)
    request = produce.Request(
        acks=acks, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name=tp.topic, partition_data=[data])]
    )
    response = await cluster.ask(leader_of(cluster, tp) if leader is None else leader, produce, 9, request)
    return int(response.responses[0].partition_responses[0].error_code)


def ends(cluster: SimCluster, tp: TopicPartition) -> list[int]:
    return [int(cluster.parts(each).replicas.get(*tp).offsets.log_end) for each in cluster.brokers]


def test_a_write_with_acks_all_is_on_every_replica_when_it_is_acknowledged() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)

        assert await write(cluster, ORDERS, values=3) == 0

        assert ends(cluster, ORDERS) == [3, 3, 3]

    SimCluster().run(story)


def test_a_follower_that_returns_catches_up_and_joins_the_isr() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        follower = next(
            each for each in cluster.brokers if each not in (leader_of(cluster, ORDERS), cluster.controller)
        )
        assert await write(cluster, ORDERS) == 0
        cluster.brokers[follower].kill()
        await cluster.until(lambda: follower not in isr_of(cluster, ORDERS))
        assert await write(cluster, ORDERS, values=5) == 0

        cluster.brokers[follower].start()
        await cluster.brokers[follower].ready()

        await cluster.until(lambda: follower in isr_of(cluster, ORDERS))
        assert ends(cluster, ORDERS) == [6, 6, 6]

    SimCluster().run(story)


def test_a_write_survives_the_leader() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        former = leader_of(cluster, ORDERS)
        assert await write(cluster, ORDERS, values=2) == 0

        cluster.brokers[former].kill()
        await cluster.until(lambda: leader_of(cluster, ORDERS) not in (former, -1))
        assert await write(cluster, ORDERS, values=3) == 0
        cluster.brokers[former].start()
        await cluster.brokers[former].ready()

        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert ends(cluster, ORDERS) == [5, 5, 5]

    SimCluster().run(story)


def test_a_leader_that_stops_lets_another_lead_first() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=6)
        for index in range(6):
            assert await write(cluster, TopicPartition("orders", index)) == 0
        stopping = leader_of(cluster, ORDERS)

        await cluster.brokers[stopping].stop()

        rest = next(each for each in cluster.brokers if each != stopping)
        image = cluster.parts(rest).ground.catalog.image
        assert stopping not in {state.leader for state in image.topics["orders"].partitions}
        assert cluster.brokers[stopping].log.counts["controlled_shutdown"] == 1
        await cluster.until(lambda: cluster.has_controller())
        for index in range(6):
            assert await write(cluster, TopicPartition("orders", index)) == 0

    SimCluster().run(story)


def test_a_broker_that_stops_is_not_proposed_for_the_isr_again() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=6)
        for index in range(6):
            assert await write(cluster, TopicPartition("orders", index)) == 0
        stopping = cluster.controller

        await cluster.brokers[stopping].stop()

        for broker_id in cluster.brokers:
            if broker_id != stopping:
                assert cluster.brokers[broker_id].log.counts["isr_expands"] == 0
                assert not any(replica.leading().is_proposing for replica in leaders(cluster, broker_id))

    SimCluster().run(story)


def leaders(cluster: SimCluster, broker_id: int) -> list[Replica]:
    return [replica for replica in cluster.parts(broker_id).replicas.live() if replica.is_leader]


def test_brokers_that_stop_together_do_not_wait_for_each_other() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=6)
        began = cluster.world.now

        await asyncio.gather(*(broker.stop() for broker in cluster.brokers.values()))

        assert cluster.world.now - began < 3
        assert not any(broker.log.counts["controlled_shutdown_timed_out"] for broker in cluster.brokers.values())

    SimCluster().run(story)
