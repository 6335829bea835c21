"""A deletion stays recorded until every log of the topic is durably removed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from tests.unit.controller.test_controller import BROKER, Cluster, run

from penstock.controller.deletions import RETRY_S, Deletions
from penstock.controller.topics import DELETIONS_MAX, NewTopic, forgotten_deletions
from penstock.metadata.operations import Create, Delete, Set
from penstock.metadata.records import DELETIONS, Deletion, deletion_path, pack_deletion
from penstock.model.ids import TopicId
from penstock.model.topic import TopicState
from penstock.observe.log import logger


def deletions_of(cluster: Cluster, gone: set[TopicId], broker_id: int = BROKER.broker_id) -> Deletions:
    async def ask(topic_ids: Collection[TopicId]) -> frozenset[TopicId]:
        return frozenset(topic_ids) & gone

    image = cluster.catalog.image
    return Deletions(store=cluster.store, image=image, broker_id=broker_id, gone=ask, log=logger("test"))


async def deleted_topic(cluster: Cluster, name: str) -> TopicId:
    (topic,) = await cluster.controller.create_topics([NewTopic(name=name)])
    assert isinstance(topic, TopicState)
    await cluster.controller.delete_topics([name])
    return topic.topic_id


def test_a_deletion_is_recorded_until_this_broker_has_no_log_of_the_topic(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        first, second = await deleted_topic(cluster, "a"), await deleted_topic(cluster, "b")
        assert set(cluster.catalog.image.deletions) == {first, second}

        await deletions_of(cluster, {first}).settle()

        assert set(cluster.catalog.image.deletions) == {second}

    async def look(cluster: Cluster) -> None:
        [left] = cluster.catalog.image.deletions.values()
        assert (left.name, left.brokers) == ("b", (BROKER.broker_id,))
        await deletions_of(cluster, {left.topic_id}).settle()
        assert not cluster.catalog.image.deletions

    run(tmp_path, act)
    run(tmp_path, look)


def test_a_deletion_is_removed_with_the_last_broker_that_completes_it(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        topic_id = await deleted_topic(cluster, "a")
        [alone] = cluster.catalog.image.deletions.values()
        both = Deletion(topic_id=topic_id, name="a", brokers=(1, 2))
        await cluster.store.multi([Set(deletion_path(topic_id), pack_deletion(both), alone.version)])

        await deletions_of(cluster, {topic_id}, broker_id=1).settle()
        assert cluster.catalog.image.deletions[topic_id].brokers == (2,)
        await deletions_of(cluster, {topic_id}, broker_id=1).settle()
        assert cluster.catalog.image.deletions[topic_id].brokers == (2,)
        await deletions_of(cluster, {topic_id}, broker_id=2).settle()
        assert not cluster.catalog.image.deletions

    run(tmp_path, act)


def test_a_broker_that_settles_at_the_same_time_as_another_tries_again_with_its_change(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        topic_id = await deleted_topic(cluster, "a")
        [alone] = cluster.catalog.image.deletions.values()
        both = Deletion(topic_id=topic_id, name="a", brokers=(1, 2))
        await cluster.store.multi([Set(deletion_path(topic_id), pack_deletion(both), alone.version)])
        other = deletions_of(cluster, {topic_id}, broker_id=2)
        settled = asyncio.Event()
        cluster.catalog.listen(lambda _: None if cluster.catalog.image.deletions else settled.set())

        async def gone_after_the_other(topic_ids: Collection[TopicId]) -> frozenset[TopicId]:
            await other.settle()
            return frozenset(topic_ids)

        deletions = Deletions(
            store=cluster.store,
            image=cluster.catalog.image,
            broker_id=1,
            gone=gone_after_the_other,
            log=logger("test"),
        )
        cluster.catalog.listen(deletions.follow)
        running = asyncio.create_task(deletions.run())
        await asyncio.wait_for(settled.wait(), RETRY_S / 2)
        running.cancel()

    run(tmp_path, act)


def test_deletions_for_brokers_that_never_return_are_bounded(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        image = cluster.catalog.image
        for number in range(3):
            topic_id = TopicId(number.to_bytes(16))
            lost = Deletion(topic_id=topic_id, name="a", brokers=(7,))
            await cluster.store.multi([Create(deletion_path(topic_id), pack_deletion(lost))])
        assert forgotten_deletions(image) == []

        oldest = image.deletions[TopicId(bytes(16))]
        for number in range(DELETIONS_MAX - 2):
            image.deletions[TopicId((100 + number).to_bytes(16))] = Deletion(
                topic_id=TopicId((100 + number).to_bytes(16)), name="b", brokers=(7,), created=oldest.created + 1
            )

        assert [operation.path for operation in forgotten_deletions(image)] == [deletion_path(oldest.topic_id)]

    run(tmp_path, act)


def test_a_store_of_an_earlier_version_gets_the_missing_nodes(tmp_path: Path) -> None:
    async def forget(cluster: Cluster) -> None:
        await cluster.store.multi([Delete(DELETIONS)])

    async def look(cluster: Cluster) -> None:
        assert await cluster.store.get(DELETIONS) is not None

    run(tmp_path, forget)
    run(tmp_path, look)
