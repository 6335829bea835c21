"""kafka-python: the strictest reader of the protocol among Python clients. Its producer is idempotent by default."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from protocol.topics import fresh_name, wait_until

TIMEOUT = 60.0
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def sockets_it_forgets_are_collected_here() -> Iterator[None]:
    """It leaves a pair of sockets to the garbage collector, whose warning must not meet some later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as client:
        yield client


def produce(broker: Any, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    """Produce to partition 0 and return the offsets."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        sent = [producer.send(topic, value, partition=0) for value in values]
        return [future.get(TIMEOUT).offset for future in sent]


def consumer(broker: Any, topic: str, **settings: Any) -> KafkaConsumer:
    made = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=int(TIMEOUT * 1000), **settings)
    made.assign([TopicPartition(topic, 0)])
    return made


def take(reader: KafkaConsumer, count: int) -> list[Any]:
    taken = []
    for record in reader:
        taken.append(record)
        if len(taken) == count:
            break
    assert len(taken) == count
    return taken


def test_what_the_default_producer_sends_the_consumer_reads(broker: Any, topic: str) -> None:
    values = [b"value-%d" % number for number in range(500)]

    assert produce(broker, topic, values) == list(range(500))

    with consumer(broker, topic, auto_offset_reset="earliest") as reader:
        assert [(record.offset, record.value) for record in take(reader, 500)] == list(enumerate(values))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_whole(broker: Any, topic: str, codec: str) -> None:
    values = [b"squeeze %d " % number * 30 for number in range(200)]

    produce(broker, topic, values, compression_type=codec, linger_ms=50)

    with consumer(broker, topic, auto_offset_reset="earliest") as reader:
        assert [record.value for record in take(reader, 200)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_delivers(broker: Any, topic: str, acks: Any) -> None:
    offsets = produce(broker, topic, [b"a", b"b", b"c"], acks=acks, enable_idempotence=False)

    # Without acknowledgement nobody tells the offsets.
    assert acks == 0 or offsets == [0, 1, 2]
    with consumer(broker, topic, auto_offset_reset="earliest") as reader:
        assert [record.value for record in take(reader, 3)] == [b"a", b"b", b"c"]


def test_keys_headers_and_timestamps_round_trip(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    headers = [("trace", b"\x00\xff"), ("empty", b"")]
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, key=b"k", value=b"v", headers=headers, partition=0, timestamp_ms=1_700_000_000_123)
        producer.send(topic, key=b"gone", value=None, partition=0).get(TIMEOUT)

    with consumer(broker, topic, auto_offset_reset="earliest") as reader:
        first, tombstone = take(reader, 2)
    assert (first.key, first.value, list(first.headers), first.timestamp) == (b"k", b"v", headers, 1_700_000_000_123)
    assert (tombstone.key, tombstone.value) == (b"gone", None)


def test_a_consumer_seeks_by_offset_time_and_to_both_ends(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            stamp = 1_700_000_000_000 + number * 1000
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=stamp).get(TIMEOUT)

    with consumer(broker, topic) as reader:
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: 10}
        found = reader.offsets_for_times({partition: 1_700_000_004_500})[partition]
        assert (found.offset, found.timestamp) == (5, 1_700_000_005_000)
        assert reader.offsets_for_times({partition: 1_800_000_000_000}) == {partition: None}
        reader.seek(partition, found.offset)
        assert take(reader, 1)[0].offset == 5
        reader.seek_to_beginning(partition)
        assert take(reader, 1)[0].offset == 0
        reader.seek_to_end(partition)
        assert reader.position(partition) == 10


def test_topics_and_partitions_are_listed(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=3)

    with KafkaConsumer(bootstrap_servers=broker.bootstrap) as reader:
        assert topic in reader.topics()
        assert reader.partitions_for_topic(topic) == {0, 1, 2}


def test_a_message_too_large_for_the_topic_is_refused(broker: Any, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="2000")

    with pytest.raises(MessageSizeTooLargeError):
        produce(broker, topic, [b"x" * 5000])

    assert produce(broker, topic, [b"fits"]) == [0]


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
    produce(broker, topic, [b"%d" % number for number in range(10)])
    partition = TopicPartition(topic, 0)

    deleted = admin.delete_records({partition: 4})

    assert deleted[partition]["low_watermark"] == 4
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 4
    assert admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset == 10
    with consumer(broker, topic, auto_offset_reset="earliest") as reader:
        reader.seek(partition, 0)
        assert take(reader, 1)[0].offset == 4, "an offset that is gone falls back to the reset policy"


def test_the_cluster_and_its_log_directories_are_described(admin: KafkaAdminClient, broker: Any, topic: str) -> None:
    produce(broker, topic, [b"x" * 1000])

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
