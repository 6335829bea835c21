"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeProducers, log directories, replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import NOW_MS, World, in_world

from penstock.config.broker import BrokerConfig
from penstock.controller.topics import NewTopic
from penstock.model.generated_errors import (
    ElectionNotNeeded,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    LogDirNotFound,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId
from penstock.model.topic import TopicState
from penstock.wire.api import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    list_partition_reassignments,
)
from penstock.wire.records import Record, build_batch

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = 34, 35, 37
ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE_PRODUCERS = 43, 45, 46, 61


def creatable(name: str, partitions: int = 1, **configs: str | None) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(*topics: create_topics.CreatableTopic, validate_only: bool = False) -> create_topics.Request:
    return create_topics.Request(topics=list(topics), validate_only=validate_only)


async def make(world: World, name: str, partitions: int = 1, **configs: str) -> TopicState:
    settings = tuple((key.replace("_", "."), value) for key, value in configs.items())
    (made,) = await world.controller.create_topics([NewTopic(name=name, partitions=partitions, configs=settings)])
    assert isinstance(made, TopicState)
    return made


def write(world: World, topic: str, records: int, **producer: Any) -> None:
    batch = build_batch([Record(n, NOW_MS, b"k", b"v") for n in range(records)], **producer)
    world.replicas.get(topic, 0).append(memoryview(batch), NOW_MS)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_and_described_as_the_version_allows(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        response = await world.ask(CREATE_TOPICS, create(creatable("a", 3, retention_ms="5")), version)
        (result,) = response.topics
        assert (result.name, result.error_code, result.error_message) == ("a", 0, None)
        made = world.catalog.image.topics["a"]
        assert len(made.partitions) == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: (config.value, config.config_source) for config in result.configs}
            assert configs["retention.ms"] == ("5", 1)
            assert configs["cleanup.policy"] == ("delete", 5)
        if version >= 7:
            assert result.topic_id == made.topic_id

    in_world(tmp_path, act)


def test_a_topic_is_served_when_the_response_arrives(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await world.ask(CREATE_TOPICS, create(creatable("a", max_message_bytes="999")))
        assert world.replicas.get("a", 0).config.max_message_bytes == 999

    in_world(tmp_path, act)


def test_valid_invalid_and_duplicate_topics_have_separate_results(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "there")
        request = create(
            creatable("good"),
            creatable("there"),
            creatable("none", 0),
            creatable("twice"),
            creatable("twice"),
            creatable("odd", retention_ms="soon"),
        )
        results = {result.name: result for result in (await world.ask(CREATE_TOPICS, request)).topics}
        assert results["good"].error_code == 0
        assert results["there"].error_code == TopicAlreadyExists.code
        assert results["none"].error_code == InvalidPartitions.code
        assert results["twice"].error_message == "Duplicate topic name."
        assert results["odd"].error_message == (
            "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        )
        assert set(world.catalog.image.topics) == {"there", "good"}

    in_world(tmp_path, act)


def test_validation_creates_no_topic(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        (result,) = (await world.ask(CREATE_TOPICS, create(creatable("a"), validate_only=True))).topics
        assert result.error_code == 0
        assert world.catalog.image.topics == {}

    in_world(tmp_path, act)


def test_too_many_partitions_refuse_every_topic_of_the_request(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        response = await world.ask(CREATE_TOPICS, create(creatable("a"), creatable("b", 10_000)))
        assert [result.error_code for result in response.topics] == [PolicyViolation.code] * 2
        assert world.catalog.image.topics == {}

    in_world(tmp_path, act)


def by_name(*names: str) -> delete_topics.Request:
    return delete_topics.Request(topics=[delete_topics.DeleteTopicState(name=name) for name in names])


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_with_its_partitions(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        world.replicas.get("a", 0)
        request = by_name("a", "gone") if version >= 6 else delete_topics.Request(topic_names=["a", "gone"])
        response = await world.ask(DELETE_TOPICS, request, version)
        assert {r.name: r.error_code for r in response.responses} == {"a": 0, "gone": UnknownTopicOrPartition.code}
        with pytest.raises(UnknownTopicOrPartition):
            world.replicas.get("a", 0)

    in_world(tmp_path, act)


def test_a_topic_is_deleted_by_its_id_once(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        request = delete_topics.Request(topics=[delete_topics.DeleteTopicState(name=None, topic_id=made.topic_id)])
        (first,) = (await world.ask(DELETE_TOPICS, request)).responses
        (second,) = (await world.ask(DELETE_TOPICS, request)).responses
        assert (first.name, first.error_code) == ("a", 0)
        assert (second.name, second.error_code) == (None, UnknownTopicId.code)

    in_world(tmp_path, act)


def test_a_deletion_of_a_topic_named_twice_is_refused(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await make(world, "a")
        state = delete_topics.DeleteTopicState
        name, topic_id = state(name="a"), state(name=None, topic_id=made.topic_id)
        for topics, words in (
            ([state(name="a", topic_id=made.topic_id)], "You may not specify both topic name and topic id."),
            ([state(name=None)], "Neither topic name nor id were specified."),
            ([name, name], "Duplicate topic name."),
            ([topic_id, topic_id], "Duplicate topic id."),
            ([name, topic_id], "The provided topic name maps to an ID that was already supplied."),
            ([topic_id, name], "The provided topic name maps to an ID that was already supplied."),
        ):
            (result,) = (await world.ask(DELETE_TOPICS, delete_topics.Request(topics=topics))).responses
            assert (result.error_code, result.error_message) == (InvalidRequest.code, words)
        assert "a" in world.catalog.image.topics

    in_world(tmp_path, act)


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        (result,) = (await world.ask(DELETE_TOPICS, by_name("a"))).responses
        assert result.error_code == TopicDeletionDisabled.code

    in_world(tmp_path, act, BrokerConfig(delete_topic_enable=False))


def growing(name: str, count: int, assignments: list[list[int]] | None = None) -> create_partitions.Request:
    given = None
    if assignments is not None:
        given = [create_partitions.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=given)
    return create_partitions.Request(topics=[topic])


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_serves_its_new_partitions(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        (result,) = (await world.ask(CREATE_PARTITIONS, growing("a", 4), version)).results
        assert (result.error_code, result.error_message) == (0, None)
        assert world.replicas.get("a", 3).tp == ("a", 3)

    in_world(tmp_path, act)


def test_invalid_partition_counts_are_refused_with_a_message(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a", 3)
        for request, error, words in (
            (growing("a", 3), InvalidPartitions, "Topic already has 3 partition(s)."),
            (growing("nope", 3), UnknownTopicOrPartition, None),
            (growing("a", 4, [[9]]), InvalidReplicaAssignment, "broker 9, but no such broker is registered."),
        ):
            (result,) = (await world.ask(CREATE_PARTITIONS, request)).results
            assert result.error_code == error.code
            assert words is None if result.error_message is None else words in result.error_message
        assert len(world.catalog.image.topics["a"].partitions) == 3

    in_world(tmp_path, act)


def deleting(topic: str, *wanted: tuple[int, int]) -> delete_records.Request:
    partitions = [delete_records.DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in wanted]
    return delete_records.Request(topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=partitions)])


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        write(world, "a", 5)
        for offset, error, start in (
            (2, 0, 2),
            (1, 0, 2),
            (9, OffsetOutOfRange.code, -1),
            (-2, OffsetOutOfRange.code, -1),
            (-1, 0, 5),
        ):
            response = await world.ask(DELETE_RECORDS, deleting("a", (0, offset)), version)
            (result,) = response.topics[0].partitions
            assert (result.error_code, result.low_watermark) == (error, start)

    in_world(tmp_path, act)


def test_records_of_a_compacted_or_missing_topic_are_not_deleted(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "keyed", cleanup_policy="compact")
        await make(world, "both", cleanup_policy="compact,delete")
        codes = {}
        for topic in ("keyed", "both", "none"):
            response = await world.ask(DELETE_RECORDS, deleting(topic, (0, 0)))
            codes[topic] = response.topics[0].partitions[0].error_code
        assert codes == {"keyed": PolicyViolation.code, "both": 0, "none": UnknownTopicOrPartition.code}

    in_world(tmp_path, act)


def test_the_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        write(world, "a", 3, producer_id=77, producer_epoch=2, base_sequence=0)
        topics = [describe_producers.TopicRequest(name="a", partition_indexes=[0, 5])]
        response = await world.ask(DESCRIBE_PRODUCERS, describe_producers.Request(topics=topics))
        known, unknown = response.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 2)
        assert (producer.last_timestamp, producer.coordinator_epoch) == (NOW_MS, -1)
        assert producer.current_txn_start_offset == -1
        assert unknown.error_code == UnknownTopicOrPartition.code

    in_world(tmp_path, act)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_described_with_their_partitions(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await make(world, "a", 2)
        await make(world, "b")
        write(world, "a", 3)
        for topic, index in (("a", 1), ("b", 0)):
            world.replicas.get(topic, index)
        topics = [describe_log_dirs.DescribableLogDirTopic(topic="a", partitions=[0, 1, 7])]
        (some,) = (await world.ask(DESCRIBE_LOG_DIRS, describe_log_dirs.Request(topics=topics), version)).results
        (every,) = (await world.ask(DESCRIBE_LOG_DIRS, describe_log_dirs.Request(topics=None), version)).results
        assert some.log_dir == str(tmp_path / "logs")
        assert [(p.partition_index, p.partition_size > 0) for p in some.topics[0].partitions] == [(0, True), (1, False)]
        assert {topic.name for topic in every.topics} == {"a", "b"}
        if version >= 4:
            assert some.total_bytes > some.usable_bytes > 0

    in_world(tmp_path, act)


def moving(path: str, topic: str, *partitions: int) -> alter_replica_log_dirs.Request:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    return alter_replica_log_dirs.Request(dirs=[alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=topics)])


def test_a_partition_stays_where_it_is(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        world.replicas.get("a", 0)
        here = str(tmp_path / "logs")
        for request, error in (
            (moving(here, "a", 0), 0),
            (moving(here, "none", 0), UnknownTopicOrPartition.code),
            (moving("/nowhere", "a", 0), LogDirNotFound.code),
        ):
            (result,) = (await world.ask(ALTER_REPLICA_LOG_DIRS, request)).results[0].partitions
            assert result.error_code == error

    in_world(tmp_path, act)


def electing(kind: int, *wanted: tuple[str, list[int]] | None) -> elect_leaders.Request:
    topics = [elect_leaders.TopicPartitions(topic=t, partitions=p) for t, p in wanted if wanted] if wanted else None
    return elect_leaders.Request(election_type=kind, topic_partitions=topics)


def test_no_election_is_needed_where_the_one_replica_leads(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make(world, "a")
        for kind in (0, 1):
            response = await world.ask(ELECT_LEADERS, electing(kind, ("a", [0, 7]), ("b", [0])))
            codes = [p.error_code for topic in response.replica_election_results for p in topic.partition_result]
            unknown = UnknownTopicOrPartition.code
            assert (response.error_code, codes) == (0, [ElectionNotNeeded.code, unknown, unknown])
            assert (await world.ask(ELECT_LEADERS, electing(kind))).replica_election_results == []
        wrong = await world.ask(ELECT_LEADERS, electing(9, ("a", [0])))
        assert wrong.error_code == InvalidRequest.code

    in_world(tmp_path, act)


def test_a_reassignment_to_brokers_that_are_not_registered_is_refused(tmp_path: Path) -> None:
    def wanted(replicas: list[int] | None, topic: str = "a", index: int = 0) -> Any:
        partition = alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[partition])]
        return alter_partition_reassignments.Request(topics=topics)

    async def act(world: World) -> None:
        await make(world, "a")
        for request, error in (
            (wanted([1]), 0),
            (wanted([1, 2]), InvalidReplicaAssignment.code),
            (wanted([]), InvalidReplicaAssignment.code),
            (wanted(None), NoReassignmentInProgress.code),
            (wanted([1], topic="b"), UnknownTopicOrPartition.code),
            (wanted([1], index=3), UnknownTopicOrPartition.code),
        ):
            response = await world.ask(ALTER_REASSIGNMENTS, request)
            (result,) = response.responses[0].partitions
            assert result.error_code == error
        listed = await world.ask(LIST_REASSIGNMENTS, list_partition_reassignments.Request(topics=None))
        assert (listed.error_code, listed.topics) == (0, [])

    in_world(tmp_path, act)


def test_a_reassignment_is_listed_until_it_is_cancelled(tmp_path: Path) -> None:
    def wanted(*replicas: int, allow: bool = True) -> Any:
        partition = alter_partition_reassignments.ReassignablePartition(
            partition_index=0, replicas=list(replicas) or None
        )
        topics = [alter_partition_reassignments.ReassignableTopic(name="a", partitions=[partition])]
        return alter_partition_reassignments.Request(topics=topics, allow_replication_factor_change=allow)

    def listing(*indexes: int) -> Any:
        topic = list_partition_reassignments.ListPartitionReassignmentsTopics
        return list_partition_reassignments.Request(
            topics=[topic(name="a", partition_indexes=list(indexes)), topic(name="missing", partition_indexes=[0])]
        )

    async def act(world: World) -> None:
        await make(world, "a")
        image = world.controller.image
        image.brokers[BrokerId(2)] = replace(image.brokers[BrokerId(1)], broker_id=BrokerId(2))

        refused = await world.ask(ALTER_REASSIGNMENTS, wanted(1, 2, allow=False))
        (result,) = refused.responses[0].partitions
        assert (result.error_code, result.error_message) == (
            InvalidReplicationFactor.code,
            "The replication factor is changed from 1 to 2",
        )
        assert refused.allow_replication_factor_change is False

        begun = await world.ask(ALTER_REASSIGNMENTS, wanted(2, 1))
        assert [each.error_code for each in begun.responses[0].partitions] == [0]
        for request in (list_partition_reassignments.Request(topics=None), listing(0, 7)):
            (topic,) = (await world.ask(LIST_REASSIGNMENTS, request)).topics
            (found,) = topic.partitions
            assert (topic.name, found.replicas, found.adding_replicas, found.removing_replicas) == (
                "a",
                [2, 1],
                [2],
                [],
            )
        assert (await world.ask(LIST_REASSIGNMENTS, listing(7))).topics == []

        cancelled = await world.ask(ALTER_REASSIGNMENTS, wanted())
        assert [each.error_code for each in cancelled.responses[0].partitions] == [0]
        assert (await world.ask(LIST_REASSIGNMENTS, listing(0))).topics == []
        assert image.topics["a"].partitions[0].replicas == (1,)

    in_world(tmp_path, act)
