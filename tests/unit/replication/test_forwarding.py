"""Requests that need the controller may be sent to any broker."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.replication.sim_cluster import SimCluster

from penstock.testing.sim.client import Disconnected
from penstock.wire.api import api_versions, create_topics, init_producer_id, metadata

ENVELOPE, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS = 58, 56, 67


def topic(name: str, replication_factor: int = 1) -> create_topics.Request:
    wanted = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=replication_factor)
    return create_topics.Request(topics=[wanted])


def other_than(cluster: SimCluster, broker_id: int) -> int:
    return next(each for each in cluster.brokers if each != broker_id)


def test_a_broker_forwards_a_creation_and_knows_the_topic_when_it_responds() -> None:
    async def story(cluster: SimCluster) -> None:
        broker = other_than(cluster, cluster.controller)

        response = await cluster.ask(broker, create_topics, 7, topic("orders"))

        assert [(each.name, each.error_code) for each in response.topics] == [("orders", 0)]
        assert "orders" in cluster.parts(broker).ground.catalog.image.topics
        [line] = [each for each in cluster.world.trace.lines or () if "topic_created" in each]
        assert "peer='client'" in line
        again = await cluster.ask(broker, create_topics, 7, topic("orders"))
        assert [each.error_code for each in again.topics] == [36]

    SimCluster().run(story)


def test_topics_are_created_automatically_by_any_broker() -> None:
    async def story(cluster: SimCluster) -> None:
        broker = other_than(cluster, cluster.controller)
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)

        response = await cluster.ask(broker, metadata, 12, request)

        assert [(each.name, each.error_code) for each in response.topics] == [("new", 0)]

    SimCluster().run(story)


def test_brokers_allocate_distinct_producer_ids() -> None:
    async def story(cluster: SimCluster) -> None:
        ids: set[int] = set()
        for broker in cluster.brokers:
            for _ in range(2):
                response = await cluster.ask(
                    broker, init_producer_id, 4, init_producer_id.Request(transactional_id=None)
                )
                assert response.error_code == 0
                ids.add(response.producer_id)

        assert len(ids) == 6

    SimCluster().run(story)


def test_a_request_follows_the_controller_to_its_successor() -> None:
    async def story(cluster: SimCluster) -> None:
        former = cluster.controller
        broker = other_than(cluster, former)
        cluster.brokers[former].kill()

        response = await cluster.ask(broker, create_topics, 7, topic("orders"))

        assert [each.error_code for each in response.topics] == [0]
        assert cluster.controller != former

    SimCluster().run(story)


def test_a_client_is_not_told_that_a_request_failed_which_the_controller_may_yet_serve() -> None:
    async def story(cluster: SimCluster) -> None:
        former = cluster.controller
        broker = other_than(cluster, former)
        cluster.brokers[former].pause()

        with pytest.raises(Disconnected, match="the broker closed the connection"):
            await cluster.ask(broker, create_topics, 7, topic("orders"))
        cluster.brokers[former].resume()
        await asyncio.sleep(1)

    SimCluster(settings={"request.timeout.ms": "1000"}).run(story)


def test_clients_do_not_see_the_apis_of_brokers() -> None:
    async def story(cluster: SimCluster) -> None:
        def asked(name: str) -> api_versions.Request:
            return api_versions.Request(client_software_name=name, client_software_version="1")

        shown = await cluster.ask(1, api_versions, 3, asked("client"))
        assert not {ENVELOPE, ALLOCATE_PRODUCER_IDS} & {each.api_key for each in shown.api_keys}
        shown = await cluster.ask(1, api_versions, 3, asked("penstock-broker"))
        assert {ENVELOPE, ALLOCATE_PRODUCER_IDS} <= {each.api_key for each in shown.api_keys}

    SimCluster().run(story)
