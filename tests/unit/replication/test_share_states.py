"""The state of share partitions on three brokers: asked from each of them, while coordinators move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import create

from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import FencedLeaderEpoch, FencedStateEpoch, UnknownTopicOrPartition
from penstock.model.ids import LeaderEpoch, Offset, TopicId
from penstock.model.topic import SHARE_STATE_TOPIC
from penstock.shares.persister import ACKNOWLEDGED, AVAILABLE, SharePartitionState, SharePersister, StateBatch
from penstock.shares.state.service import coordinator_key
from penstock.wire.api import delete_topics
from penstock.wire.share_records import ShareKey

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}
GROUP = "g"


def begin(cluster: SimCluster, broker: int, work: Callable[[SharePersister], Deferred[Any]]) -> list[Any]:
    """Let a broker's persister begin something; the list gets its result or its error."""
    found: list[Any] = []
    parts = cluster.parts(broker)
    parts.loop.call_soon(lambda: work(parts.share_persister).deliver_to(found.append, found.append))
    return found


async def result(cluster: SimCluster, broker: int, work: Callable[[SharePersister], Deferred[Any]]) -> Any:
    found = begin(cluster, broker, work)
    await cluster.until(lambda: bool(found))
    assert not isinstance(found[0], Exception) or isinstance(found[0], BrokerError), found
    return found[0]


def topic_id(cluster: SimCluster) -> TopicId:
    return cluster.parts(cluster.controller).ground.catalog.image.topics["orders"].topic_id


def coordinator_of(cluster: SimCluster, partition: int) -> int:
    """The broker that leads the partition of `__share_group_state` of a share partition."""
    parts = cluster.parts(cluster.controller)
    place = parts.share_states.partition_of(coordinator_key(ShareKey(GROUP, topic_id(cluster), partition)))
    return parts.ground.catalog.image.topics[SHARE_STATE_TOPIC].partitions[place].leader


def written(
    topic: TopicId, partition: int, *batches: StateBatch, leader: int = 1, epoch: int = 1, start: int = 0
) -> Callable[[SharePersister], Deferred[None]]:
    return lambda persister: persister.write(
        GROUP, topic, partition, epoch, LeaderEpoch(leader), Offset(start), -1, batches
    )


def initialized(
    topic: TopicId, partition: int, *, epoch: int = 1, start: int = -1
) -> Callable[[SharePersister], Deferred[None]]:
    return lambda persister: persister.initialize(GROUP, topic, partition, epoch, Offset(start))


def read(topic: TopicId, partition: int, leader: int) -> Callable[[SharePersister], Deferred[SharePartitionState]]:
    return lambda persister: persister.read(GROUP, topic, partition, LeaderEpoch(leader))


def test_state_is_the_same_whichever_broker_asks_and_old_leaders_are_fenced() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=4)
        topic = topic_id(cluster)
        later = cluster.parts(1).ground.clock.now_ms() + 60_000
        for partition in range(4):
            assert isinstance(await result(cluster, 1, read(topic, partition, 1)), UnknownTopicOrPartition)
            assert await result(cluster, 1 + partition % 3, initialized(topic, partition)) is None
            assert (await result(cluster, 1, read(topic, partition, 1))).start_offset == -1
            held = StateBatch(7, 8, AVAILABLE, 2, later)
            assert await result(cluster, 1, written(topic, partition, StateBatch(3, 5, ACKNOWLEDGED, 1), held)) is None
        coordinators = {coordinator_of(cluster, partition) for partition in range(4)}
        assert len(coordinators) > 1, "the test needs coordinators on other brokers"

        for partition in range(4):
            for broker in cluster.brokers:
                found = await result(cluster, broker, read(topic, partition, 2))
                assert found == (1, 0, 3, (StateBatch(3, 5, ACKNOWLEDGED, 1), held))
            old = await result(cluster, 1, written(topic, partition, StateBatch(9, 9, ACKNOWLEDGED, 1), leader=1))
            assert isinstance(old, FencedLeaderEpoch)
            assert await result(cluster, 3, initialized(topic, partition, epoch=2, start=4)) is None
            old = await result(cluster, 1, written(topic, partition, leader=2, epoch=1))
            assert isinstance(old, FencedStateEpoch)
            assert (await result(cluster, 2, read(topic, partition, 2)))[:3] == (2, 4, 0)

    SimCluster(settings=SETTINGS).run(story)


def test_writes_outlive_the_coordinator_that_dies_under_them() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        topic = topic_id(cluster)
        assert await result(cluster, 1, initialized(topic, 0)) is None
        coordinator = coordinator_of(cluster, 0)
        writer = next(each for each in cluster.brokers if each != coordinator)
        await result(cluster, writer, read(topic, 0, 1))
        acknowledged: dict[int, list[Any]] = {}
        for offset in range(60):
            acknowledged[offset] = begin(
                cluster, writer, written(topic, 0, StateBatch(offset, offset, ACKNOWLEDGED, 1))
            )
            if offset == 30:
                cluster.brokers[coordinator].kill()
            await cluster.until(lambda: sum(not found for found in acknowledged.values()) < 40)
        await cluster.until(lambda: all(acknowledged.values()))
        assert all(found == [None] for found in acknowledged.values())

        assert coordinator_of(cluster, 0) != coordinator
        after = await result(cluster, writer, read(topic, 0, 2))
        assert list(after.batches) == [StateBatch(0, 59, ACKNOWLEDGED, 1)]
        assert after.delivery_complete_count == 60
        late = await result(cluster, writer, written(topic, 0, StateBatch(60, 60, ACKNOWLEDGED, 1)))
        assert isinstance(late, FencedLeaderEpoch), "the new coordinator knows the leader epochs that the old one wrote"
        cluster.brokers[coordinator].start()
        await cluster.brokers[coordinator].ready()

    SimCluster(settings=SETTINGS).run(story)


def test_a_topic_that_is_created_again_begins_without_the_state_of_the_former_one() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        former = topic_id(cluster)
        assert await result(cluster, 1, initialized(former, 0)) is None
        assert await result(cluster, 1, written(former, 0, StateBatch(0, 9, ACKNOWLEDGED, 1))) is None
        gone = delete_topics.Request(topic_names=["orders"], timeout_ms=30_000)
        await cluster.ask(1, delete_topics, 4, gone)
        await cluster.until(
            lambda: all("orders" not in cluster.parts(each).ground.catalog.image.topics for each in cluster.brokers)
        )
        assert isinstance(await result(cluster, 1, read(former, 0, 1)), UnknownTopicOrPartition)
        assert not any(
            context.shard().count for each in cluster.brokers for context in cluster.parts(each).share_states.loaded()
        )

        await create(cluster)
        assert isinstance(await result(cluster, 1, read(topic_id(cluster), 0, 1)), UnknownTopicOrPartition)
        assert await result(cluster, 1, initialized(topic_id(cluster), 0)) is None
        assert list((await result(cluster, 1, read(topic_id(cluster), 0, 1))).batches) == []

    SimCluster(settings=SETTINGS).run(story)
