"""kafka-python's admin client and command line; what it shares with other clients is in the stories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidPartitionsError,
    InvalidTopicError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from protocol.clients.kafka_python import FORGETS_SOCKETS, KafkaPython
from protocol.group_members import QUICK, SECONDS_MAX, Member, committed, fill, numbered, settle
from protocol.topics import fresh_name, wait_until

BROKER_SETTINGS = QUICK
TIMEOUT = 60.0
pytestmark = list(FORGETS_SOCKETS)


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as client:
        yield client


def test_topics_and_partitions_are_listed(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=3)

    with KafkaConsumer(bootstrap_servers=broker.bootstrap) as reader:
        assert topic in reader.topics()
        assert reader.partitions_for_topic(topic) == {0, 1, 2}


def test_topics_are_made_grown_and_deleted(admin: KafkaAdminClient, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    made = admin.create_topics(
        {name: {"num_partitions": 2, "configs": {"retention.ms": "100000"}}}, wait_for_metadata=True
    )
    assert made["topics"][0]["configs"]["retention.ms"]["value"] == "100000"
    assert name in admin.list_topics()
    [described] = admin.describe_topics([name])
    assert len(described["partitions"]) == 2

    admin.create_partitions({name: 5})
    wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5, what="growth")

    admin.delete_topics([name])
    wait_until(lambda: name not in admin.list_topics(), what="end of the topic")


@pytest.mark.parametrize("version", [(2, 1), (2, 4), (3, 0)], ids=str)
def test_topics_are_made_and_deleted_as_on_an_older_broker(
    broker: Any, request: pytest.FixtureRequest, version: tuple[int, int]
) -> None:
    name = fresh_name(request.node.name)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap, api_version=version) as admin:
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
        assert name in admin.list_topics()
        admin.delete_topics([name])


def test_refusals_have_their_own_errors(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(InvalidTopicError):
        admin.create_topics(["not a name"])
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["no-such-topic"])


def test_configs_are_described_and_changed(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "123456"})])

    def changed() -> dict[str, Any]:
        found: dict[str, Any] = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return found["topic"][topic]

    wait_until(lambda: changed().get("retention.ms", {}).get("value") == "123456", what="the new value")
    everything = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    assert everything["topic"][topic]["cleanup.policy"]["value"] == "delete"


def test_config_synonyms_say_where_a_value_would_come_from(admin: KafkaAdminClient, make_topic: Any) -> None:
    topic = make_topic(retention_ms="777777")

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], include_synonyms=True)["topic"][topic]["retention.ms"]

    names = [synonym["name"] for synonym in described["synonyms"]]
    assert names[0] == "retention.ms"
    assert described["synonyms"][0]["value"] == "777777"


def test_records_are_deleted_and_offsets_listed(admin: KafkaAdminClient, broker: Any, topic: str) -> None:
    fill(broker, topic, numbered(10))
    partition = TopicPartition(topic, 0)

    deleted = admin.delete_records({partition: 4})

    assert deleted[partition]["low_watermark"] == 4
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 4
    assert admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset == 10
    [first, *_] = KafkaPython(broker.bootstrap).consume(topic, 6, start=0)
    assert first.offset == 4, "an offset that is gone falls back to the reset policy"


def test_the_cluster_and_its_log_directories_are_described(admin: KafkaAdminClient, broker: Any, topic: str) -> None:
    fill(broker, topic, [b"x" * 1000])

    [node] = admin.describe_cluster()["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.bootstrap
    directories = [directory for response in admin.describe_log_dirs() for directory in response["log_dirs"]]
    sizes = {
        (found["name"], partition["partition_index"]): partition["partition_size"]
        for directory in directories
        for found in directory["topics"]
        for partition in found["partitions"]
    }
    assert sizes[topic, 0] >= 1000


def test_its_command_line_lists_topics(broker: Any, topic: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "kafka.admin", "-b", broker.bootstrap, "topics", "list"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)

    assert done.returncode == 0, done.stderr
    assert topic in done.stdout


def test_groups_are_listed_described_moved_and_deleted(
    broker: Any, topic: str, group: str, admin: KafkaAdminClient
) -> None:
    fill(broker, topic, numbered(10))
    place = TopicPartition(topic, 0)
    with Member(broker, group, [topic], name="reader") as member:
        wait_until(lambda: len(member.values) == 10, what="ten values", seconds_max=SECONDS_MAX)
        wait_until(lambda: committed(broker, group, topic, 1) == [10], what="commit")
        assert (group, "Stable") in [(each["group_id"], each["group_state"]) for each in admin.list_groups()]
        [described] = as_list(admin.describe_groups([group]))
        assert [each["client_id"] for each in described["members"]] == ["reader"]
        refused = admin.delete_groups([group])
        assert NonEmptyGroupError.__name__ in str(refused) or "NON_EMPTY" in str(refused), refused

    assert admin.list_group_offsets({group: [place]})[group][place].offset == 10
    admin.alter_group_offsets(group, {place: OffsetAndMetadata(4, "moved", -1)})
    assert committed(broker, group, topic, 1) == [4]
    admin.reset_group_offsets(group, {place: OffsetSpec.EARLIEST})
    assert committed(broker, group, topic, 1) == [0]
    admin.delete_group_offsets(group, [place])
    assert committed(broker, group, topic, 1) == [-1001]
    admin.delete_groups([group])
    assert group not in [each["group_id"] for each in admin.list_groups()]


def as_list(described: Any) -> list[Any]:
    return list(described.values()) if isinstance(described, dict) else list(described)


def test_a_group_with_members_is_not_moved(broker: Any, topic: str, group: str, admin: KafkaAdminClient) -> None:
    place = TopicPartition(topic, 0)
    with Member(broker, group, [topic]) as member:
        settle(member, places=1)
        refused = admin.alter_group_offsets(group, {place: OffsetAndMetadata(1, "", -1)})
        assert UnknownMemberIdError.__name__ in str(refused), refused
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("no-such-group", [place])
