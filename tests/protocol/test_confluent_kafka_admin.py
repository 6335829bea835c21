"""librdkafka's admin client by confluent-kafka."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from protocol.clients.abilities import Record
from protocol.clients.confluent import Confluent
from protocol.group_members import fill, numbered
from protocol.topics import fresh_name, wait_until

TIMEOUT = 60.0


@pytest.fixture
def admin(broker: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The result of an operation on one thing."""
    [(_, future)] = futures.items()
    return future.result(TIMEOUT)


def refusal(futures: dict[Any, Future[Any]]) -> KafkaError:
    """The error an operation on one thing ends with."""
    with pytest.raises(KafkaException) as caught:
        only(futures)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def topic_configs(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))


def test_a_topic_is_made_described_and_deleted(admin: AdminClient, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    only(admin.create_topics([NewTopic(name, 3, 1)]))
    wait_until(lambda: name in admin.list_topics(timeout=TIMEOUT).topics, what="topic")
    description = only(admin.describe_topics(TopicCollection([name])))
    assert (description.name, description.is_internal) == (name, False)
    assert [partition.id for partition in description.partitions] == [0, 1, 2]
    assert all(partition.leader is not None and len(partition.isr) == 1 for partition in description.partitions)

    only(admin.delete_topics([name]))
    wait_until(lambda: name not in admin.list_topics(timeout=TIMEOUT).topics, what="end of the topic")


def test_partitions_and_replicas_default_to_the_brokers_settings(
    admin: AdminClient, request: pytest.FixtureRequest
) -> None:
    name = fresh_name(request.node.name)

    only(admin.create_topics([NewTopic(name, -1, -1)]))

    wait_until(lambda: name in admin.list_topics(timeout=TIMEOUT).topics, what="topic")
    assert len(admin.list_topics(name, timeout=TIMEOUT).topics[name].partitions) == 1


@pytest.mark.parametrize(
    ("new", "code", "said"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION, "bad name!"),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION, "'..'"),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION, "249"),
        (NewTopic("t", 0, 1), KafkaError.INVALID_PARTITIONS, "partitions"),
        (NewTopic("t", 1, 5), KafkaError.INVALID_REPLICATION_FACTOR, "5"),
        (NewTopic("t", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG, "no.such.key"),
        (NewTopic("t", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG, "soon"),
        (NewTopic("t", 1, 1, config={"segment.bytes": "-3"}), KafkaError.INVALID_CONFIG, "-3"),
        (NewTopic("t", 1, 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG, "burn"),
    ],
    ids=lambda value: value.topic[:10] if isinstance(value, NewTopic) else None,
)
def test_an_invalid_topic_is_rejected_with_its_fault(admin: AdminClient, new: NewTopic, code: int, said: str) -> None:
    error = refusal(admin.create_topics([new]))

    assert error.code() == code
    assert said in error.str()


@pytest.mark.parametrize("partitions", [10_001, 100_000])
def test_more_partitions_than_one_request_may_ask_for_are_refused(admin: AdminClient, partitions: int) -> None:
    assert refusal(admin.create_topics([NewTopic("enormous", partitions, 1)])).code() == KafkaError.POLICY_VIOLATION


def test_a_topic_that_exists_is_not_made_again(admin: AdminClient, topic: str) -> None:
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])).code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_validation_alone_makes_no_topic(admin: AdminClient, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))

    assert name not in admin.list_topics(timeout=TIMEOUT).topics


def test_an_unknown_topic_is_neither_deleted_nor_described(admin: AdminClient) -> None:
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(admin.delete_topics(["no-such"])).code() == unknown
    assert refusal(admin.describe_topics(TopicCollection(["no-such"]))).code() == unknown
    assert refusal(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "no-such")])).code() == unknown


def test_a_topic_grows_and_does_not_shrink(admin: AdminClient, topic: str) -> None:
    only(admin.create_partitions([NewPartitions(topic, 4)]))

    wait_until(lambda: len(admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions) == 4, what="growth")
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])).code() == KafkaError.INVALID_PARTITIONS
    assert refusal(admin.create_partitions([NewPartitions(topic, 4)])).code() == KafkaError.INVALID_PARTITIONS


def test_topic_configs_are_described_with_their_sources(admin: AdminClient, make_topic: Any) -> None:
    topic = make_topic(retention_ms="3600000", cleanup_policy="compact,delete")

    configs = topic_configs(admin, topic)

    assert configs["retention.ms"].value == "3600000"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].is_default
    assert configs["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert {"max.message.bytes", "min.insync.replicas", "compression.type", "flush.ms"} <= set(configs)


def test_topic_configs_change_one_by_one(admin: AdminClient, make_topic: Any) -> None:
    topic = make_topic(retention_ms="1000000", max_message_bytes="5000")
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "2000000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )

    only(admin.incremental_alter_configs([resource]))

    wait_until(lambda: topic_configs(admin, topic)["retention.ms"].value == "2000000", what="new retention")
    configs = topic_configs(admin, topic)
    assert configs["max.message.bytes"].is_default
    assert set(configs["cleanup.policy"].value.split(",")) == {"delete", "compact"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_altering_all_configs_resets_those_not_named(admin: AdminClient, make_topic: Any) -> None:
    topic = make_topic(retention_ms="1000000", max_message_bytes="5000")

    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "7000000"})]))

    wait_until(lambda: topic_configs(admin, topic)["retention.ms"].value == "7000000", what="new retention")
    assert topic_configs(admin, topic)["max.message.bytes"].is_default


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_all_described_configs_of_a_topic_can_be_written_back_and_given_to_a_new_one(
    admin: AdminClient, make_topic: Any, request: pytest.FixtureRequest
) -> None:
    topic, copy = make_topic(retention_ms="1000000"), fresh_name(request.node.name)
    described = {name: entry.value for name, entry in topic_configs(admin, topic).items() if entry.value is not None}

    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config=described)]))
    only(admin.create_topics([NewTopic(copy, 1, 1, config=described)]))

    for name in (topic, copy):
        wait_until(
            lambda name=name: {key: entry.value for key, entry in topic_configs(admin, name).items()} == described,
            what="the same settings",
        )


def test_a_bad_config_value_is_refused_and_nothing_changes(admin: AdminClient, make_topic: Any) -> None:
    topic = make_topic(retention_ms="1000000")
    entry = ConfigEntry("retention.ms", "later", incremental_operation=AlterConfigOpType.SET)

    error = refusal(
        admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
    )

    assert error.code() == KafkaError.INVALID_CONFIG
    assert "later" in error.str()
    assert topic_configs(admin, topic)["retention.ms"].value == "1000000"


def test_broker_configs_are_described(admin: AdminClient) -> None:
    [node] = admin.list_topics(timeout=TIMEOUT).brokers

    configs = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]))

    assert configs["num.partitions"].value == "1"
    assert configs["message.max.bytes"].value == "1048588"
    assert configs["auto.create.topics.enable"].value == "true"
    assert "log.dirs" in configs


def test_a_broker_config_changes_while_it_runs(admin: AdminClient) -> None:
    [node] = admin.list_topics(timeout=TIMEOUT).brokers
    broker = (ResourceType.BROKER, str(node))

    def change(value: str | None) -> None:
        kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=kind)
        only(admin.incremental_alter_configs([ConfigResource(*broker, incremental_configs=[entry])]))

    def described() -> ConfigEntry:
        return only(admin.describe_configs([ConfigResource(*broker)]))["log.cleaner.backoff.ms"]

    change("14000")
    wait_until(lambda: described().value == "14000", what="the new value")
    assert described().source == ConfigSource.DYNAMIC_BROKER_CONFIG.value

    change(None)
    wait_until(lambda: described().value == "15000", what="the old value")


def test_the_cluster_describes_itself(admin: AdminClient, broker: Any) -> None:
    described = admin.describe_cluster().result(TIMEOUT)

    [node] = described.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert described.controller is not None
    assert described.cluster_id
    assert described.cluster_id == admin.list_topics(timeout=TIMEOUT).cluster_id


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, broker: Any, topic: str) -> None:
    fill(broker, topic, numbered(20))

    deleted = only(admin.delete_records([TopicPartition(topic, 0, 12)]))

    assert deleted.low_watermark == 12
    earliest = only(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}))
    assert earliest.offset == 12


def test_records_beyond_the_end_are_not_deleted(admin: AdminClient, broker: Any, topic: str) -> None:
    fill(broker, topic, numbered(3))

    error = refusal(admin.delete_records([TopicPartition(topic, 0, 50)]))

    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})).offset == 0


def test_offsets_are_listed_by_every_specification(admin: AdminClient, broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    for stamp in (1000, 5000, 3000):
        Confluent(broker.bootstrap).produce(topic, [Record(value=b"v", timestamp_ms=1_700_000_000_000 + stamp)])

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        found = only(admin.list_offsets({TopicPartition(topic, 0): spec}))
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 3
    assert listed(OffsetSpec.max_timestamp()) == (1, 1_700_000_005_000)
    assert listed(OffsetSpec.for_timestamp(1_700_000_002_000)) == (1, 1_700_000_005_000)
    assert listed(OffsetSpec.for_timestamp(1_800_000_000_000))[0] == -1


def test_several_topics_succeed_and_fail_apart(admin: AdminClient, topic: str, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    futures = admin.create_topics([NewTopic(topic, 1, 1), NewTopic(name, 1, 1)])

    futures[name].result(TIMEOUT)
    with pytest.raises(KafkaException):
        futures[topic].result(TIMEOUT)
