"""Three brokers of one simulated world compact a topic whose tombstones go away while a follower is down."""

from __future__ import annotations

from tests.unit.partition.rig import batch
from tests.unit.partition.test_copying_again import state_of
from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import ORDERS, isr_of, leader_of

from penstock.partition.replica import Replica
from penstock.wire.api import create_topics, produce

CONFIGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "internal.segment.bytes": "200",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}
VALUE = b"v" * 60


async def put(cluster: SimCluster, key: bytes, value: bytes | None) -> None:
    data = produce.PartitionProduceData(index=0, records=bytes(batch(value, key=key)))
    request = produce.Request(
        acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name="orders", partition_data=[data])]
    )
    response = await cluster.ask(leader_of(cluster, ORDERS), produce, 9, request)
    assert response.responses[0].partition_responses[0].error_code == 0


def replica(cluster: SimCluster, broker: int) -> Replica:
    return cluster.parts(broker).replicas.get(*ORDERS)


def test_a_follower_that_was_down_when_tombstones_were_removed_has_the_same_keys() -> None:
    async def story(cluster: SimCluster) -> None:
        wanted = create_topics.CreatableTopic(
            name="orders",
            num_partitions=1,
            replication_factor=3,
            configs=[create_topics.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()],
        )
        response = await cluster.ask(1, create_topics, 7, create_topics.Request(topics=[wanted]))
        assert [each.error_code for each in response.topics] == [0]
        leader = leader_of(cluster, ORDERS)
        away = next(each for each in cluster.brokers if each not in (leader, cluster.controller))
        await put(cluster, b"kept", VALUE)
        await put(cluster, b"deleted", VALUE)
        cluster.brokers[away].kill()
        await cluster.until(lambda: away not in isr_of(cluster, ORDERS))
        await put(cluster, b"deleted", None)

        # A pass notes the delete horizon, and a later one removes the tombstone; each needs something to clean.
        number = 0
        while replica(cluster, leader).log.removal_mark.mark < 2:
            cleaned_to = replica(cluster, leader).log.cleaned_to
            for _ in range(2):
                number += 1
                await put(cluster, b"%d" % number, VALUE)
            await cluster.until(lambda before=cleaned_to: replica(cluster, leader).log.cleaned_to > before)
            assert number < 20, "the tombstone was not removed"
        cluster.brokers[away].start()
        await cluster.brokers[away].ready()

        await cluster.until(lambda: away in isr_of(cluster, ORDERS))
        states = [state_of(replica(cluster, each)) for each in cluster.brokers]
        assert b"deleted" not in states[0]
        assert states[0] == states[1] == states[2]
        assert replica(cluster, away).log.removal_mark.mark >= 2

    SimCluster(settings={"log.cleaner.backoff.ms": "1000"}).run(story)
