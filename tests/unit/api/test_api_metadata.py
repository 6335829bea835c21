"""Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import World, in_world

from penstock.api.cluster import CLUSTER_OPERATIONS, OPERATIONS_NOT_REQUESTED, TOPIC_OPERATIONS
from penstock.config.broker import BrokerConfig
from penstock.controller.topics import NewTopic
from penstock.metadata.operations import Create, Delete, Set
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerState,
    broker_path,
    chunk_path,
    pack_broker,
    pack_partitions,
)
from penstock.model.generated_errors import (
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    ListenerNotFound,
    MismatchedEndpointType,
    ReplicaNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from penstock.model.topic import PartitionState, TopicState
from penstock.wire.api import describe_cluster, describe_topic_partitions, metadata

METADATA = 3
DESCRIBE_CLUSTER = 60
DESCRIBE_TOPIC_PARTITIONS = 75
VERSIONS = range(14)


def named(*names: str, **fields: Any) -> metadata.Request:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.Request(topics=topics, allow_auto_topic_creation=fields.pop("create", True), **fields)


def by_id(*ids: bytes) -> metadata.Request:
    return metadata.Request(topics=[metadata.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids])


async def make(world: World, name: str, partitions: int = 1) -> TopicState:
    (made,) = await world.controller.create_topics([NewTopic(name=name, partitions=partitions)])
    assert isinstance(made, TopicState)
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_brokers_topics_and_leaders(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a", 2)
        response = await world.ask(METADATA, named("a"), version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 9092)
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("a", 0)
        assert [(p.partition_index, p.leader_id, p.error_code) for p in topic.partitions] == [(0, 1, 0), (1, 1, 0)]
        if version >= 1:
            assert (response.controller_id, broker.rack) == (1, "r1")
        if version >= 2:
            assert response.cluster_id == "the-cluster"
        if version >= 7:
            assert topic.partitions[0].leader_epoch == 0
        if version >= 10:
            assert topic.topic_id == made.topic_id

    in_world(tmp_path, act)


def test_no_list_means_all_and_an_empty_one_means_none_but_for_the_first_version(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        await make(world, "b")
        for version in VERSIONS:
            everything = metadata.Request(topics=[] if version == 0 else None)
            assert {topic.name for topic in (await world.ask(METADATA, everything, version)).topics} == {"a", "b"}
            if version > 0:
                assert (await world.ask(METADATA, metadata.Request(topics=[]), version)).topics == []

    in_world(tmp_path, act)


def test_a_missing_topic_is_created_and_described_in_one_response(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        for version in VERSIONS:
            name = f"new-{version}"
            (topic,) = (await world.ask(METADATA, named(name, create=True), version)).topics
            assert (topic.error_code, len(topic.partitions)) == (0, 3)
            assert name in world.catalog.image.topics

    in_world(tmp_path, act, BrokerConfig(num_partitions=3))


def test_a_topic_is_not_created_where_the_client_or_the_broker_forbids_it(tmp_path: Path) -> None:
    async def unwanted(world: World) -> None:
        (topic,) = (await world.ask(METADATA, named("a", create=False))).topics
        assert topic.error_code == UnknownTopicOrPartition.code
        assert world.catalog.image.topics == {}

    async def switched_off(world: World) -> None:
        (topic,) = (await world.ask(METADATA, named("a", create=True))).topics
        assert topic.error_code == UnknownTopicOrPartition.code

    in_world(tmp_path, unwanted)
    in_world(tmp_path, switched_off, BrokerConfig(auto_create_topics_enable=False))


@pytest.mark.parametrize("name", ["", ".", "..", "white space", "a/b", "x" * 250])
def test_a_topic_with_an_invalid_name_is_never_created(tmp_path: Path, name: str) -> None:
    async def act(world: World) -> None:
        for create in (False, True):
            (topic,) = (await world.ask(METADATA, named(name, create=create))).topics
            assert topic.error_code == InvalidTopic.code

    in_world(tmp_path, act)


def test_a_name_that_collides_is_unknown(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a.b")
        (topic,) = (await world.ask(METADATA, named("a_b", create=True))).topics
        assert topic.error_code == UnknownTopicOrPartition.code

    in_world(tmp_path, act)


def test_a_topic_is_found_by_its_id(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        found, missing = (await world.ask(METADATA, by_id(made.topic_id, b"x" * 16))).topics
        assert (found.name, found.error_code) == ("a", 0)
        assert (missing.name, missing.topic_id, missing.error_code) == (None, b"x" * 16, UnknownTopicId.code)
        await world.controller.delete_topics(["a"])
        await make(world, "a")
        (stale,) = (await world.ask(METADATA, by_id(made.topic_id))).topics
        assert stale.error_code == UnknownTopicId.code

    in_world(tmp_path, act)


def test_versions_that_have_ids_only_in_responses_refuse_them_in_requests(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        for version in (10, 11):
            response = await world.ask(METADATA, by_id(made.topic_id), version)
            assert [topic.error_code for topic in response.topics] == [InvalidRequest.code]
            assert response.brokers == []

    in_world(tmp_path, act)


def test_authorized_operations_are_sent_only_when_requested(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        for version in range(8, 14):
            request = named("a", include_topic_authorized_operations=True)
            request.include_cluster_authorized_operations = version <= 10
            response = await world.ask(METADATA, request, version)
            assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
            expected = CLUSTER_OPERATIONS if version <= 10 else OPERATIONS_NOT_REQUESTED
            assert response.cluster_authorized_operations == expected
            plain = await world.ask(METADATA, named("a"), version)
            assert plain.topics[0].topic_authorized_operations == OPERATIONS_NOT_REQUESTED
        assert CLUSTER_OPERATIONS == 8096

    in_world(tmp_path, act)


def test_a_partition_whose_leader_is_down_has_none(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        gone = PartitionState(index=0, leader=7, leader_epoch=3, replicas=(7, 1), isr=(7, 1))
        await world.store.multi([Set(chunk_path(made.topic_id, 0), pack_partitions([gone]))])
        for version in VERSIONS:
            (partition,) = (await world.ask(METADATA, named("a"), version)).topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (LeaderNotAvailable.code, -1)
            if version >= 5:
                assert partition.offline_replicas == [7]
            assert partition.replica_nodes == ([1] if version == 0 else [7, 1])

    in_world(tmp_path, act)


def test_a_replica_that_is_down_is_an_error_only_in_the_first_version(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        state = PartitionState(index=0, leader=1, leader_epoch=3, replicas=(1, 7), isr=(1,))
        await world.store.multi([Set(chunk_path(made.topic_id, 0), pack_partitions([state]))])
        for version in VERSIONS:
            (partition,) = (await world.ask(METADATA, named("a"), version)).topics[0].partitions
            assert partition.leader_id == 1
            assert partition.error_code == (ReplicaNotAvailable.code if version == 0 else 0)

    in_world(tmp_path, act)


def test_a_leader_without_the_clients_listener_is_listener_not_found(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        inside = BrokerEndpoint(listener="INSIDE", host="10.0.0.1", port=1)
        hidden = BrokerState(broker_id=1, endpoints=(inside,), rack=None)
        await make(world, "a")
        path = broker_path(1)
        await world.store.multi([Delete(path), Create(path, pack_broker(hidden), ephemeral=True)])
        await world.controller.reconcile()
        (newer,) = (await world.ask(METADATA, named("a"), 6)).topics[0].partitions
        (older,) = (await world.ask(METADATA, named("a"), 5)).topics[0].partitions
        assert (newer.error_code, older.error_code) == (ListenerNotFound.code, LeaderNotAvailable.code)

    in_world(tmp_path, act)


def test_internal_topics_are_marked(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "__consumer_offsets")
        assert (await world.ask(METADATA, named("__consumer_offsets"))).topics[0].is_internal

    in_world(tmp_path, act)


def test_the_cluster_is_described(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        for version in range(3):
            request = describe_cluster.Request(include_cluster_authorized_operations=True)
            response = await world.ask(DESCRIBE_CLUSTER, request, version)
            assert (response.error_code, response.cluster_id, response.controller_id) == (0, "the-cluster", 1)
            assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [
                (1, "broker.example", 9092, "r1")
            ]
            assert response.cluster_authorized_operations == CLUSTER_OPERATIONS

    in_world(tmp_path, act)


@pytest.mark.parametrize(("kind", "error"), [(2, MismatchedEndpointType), (7, UnsupportedEndpointType)])
def test_the_cluster_is_not_described_from_another_kind_of_endpoint(tmp_path: Path, kind: int, error: Any) -> None:
    async def act(world: World) -> None:
        response = await world.ask(DESCRIBE_CLUSTER, describe_cluster.Request(endpoint_type=kind))
        assert response.error_code == error.code
        assert response.brokers == []

    in_world(tmp_path, act)


def pages(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> describe_topic_partitions.Request:
    return describe_topic_partitions.Request(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else describe_topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 100])
def test_all_pages_together_have_all_partitions_in_order(tmp_path: Path, limit: int) -> None:
    async def act(world: World) -> None:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await make(world, name, partitions)
        seen: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(10):
            response = await world.ask(DESCRIBE_TOPIC_PARTITIONS, pages(limit=limit, cursor=cursor))
            page = [(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions]
            assert len(page) <= max(limit, 1)
            seen += page
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    in_world(tmp_path, act)


def test_missing_topics_and_invalid_names_have_different_errors(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        response = await world.ask(DESCRIBE_TOPIC_PARTITIONS, pages("nope", "a/b"))
        assert {topic.name: topic.error_code for topic in response.topics} == {
            "nope": UnknownTopicOrPartition.code,
            "a/b": InvalidTopic.code,
        }

    in_world(tmp_path, act)


@pytest.mark.parametrize("cursor", [("z", 0), ("a", -1)])
def test_an_invalid_cursor_is_refused(tmp_path: Path, cursor: tuple[str, int]) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        response = await world.ask(DESCRIBE_TOPIC_PARTITIONS, pages("a", cursor=cursor))
        assert [topic.error_code for topic in response.topics] == [InvalidRequest.code]

    in_world(tmp_path, act)
