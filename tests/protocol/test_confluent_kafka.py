"""What librdkafka alone shows, by confluent-kafka; what it shares with other clients is in the stories."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from protocol.clients.abilities import BY_DEFAULT, CODECS, Delivery, Record, RefusedError
from protocol.clients.confluent import Confluent
from protocol.topics import fresh_name

TIMEOUT = 60.0


def produce(broker: Any, topic: str, values: list[bytes], delivery: Delivery = BY_DEFAULT) -> None:
    Confluent(broker.bootstrap).produce(topic, [Record(value=value) for value in values], delivery)


def read(
    broker: Any, topic: str, start: int = 0, *, isolation: Any = "read_uncommitted", **settings: Any
) -> list[bytes]:
    """Everything from an offset up to the end."""
    with Confluent(broker.bootstrap, **settings).reader(topic, start=start, isolation=isolation) as reader:
        return [record.value or b"" for record in reader.read(0)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_recompresses_batches_of_another_codec(broker: Any, make_topic: Any, codec: str) -> None:
    topic = make_topic(compression_type=codec)
    values = [b"recode %d " % number * 20 for number in range(200)]

    produce(broker, topic, values, Delivery(codec="none", linger_ms=50))

    assert read(broker, topic) == values


def test_a_null_header_round_trips(broker: Any, topic: str) -> None:
    headers: Any = (("null", None), ("empty", b""))

    Confluent(broker.bootstrap).produce(topic, [Record(value=b"v", headers=headers)])

    [found] = Confluent(broker.bootstrap).consume(topic, 1)
    assert found.headers == headers


def test_an_offset_beyond_the_end_falls_back_to_the_reset_policy(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"only"])

    assert read(broker, topic, 1000, **{"auto.offset.reset": "earliest"}) == [b"only"]
    with pytest.raises(RefusedError) as refused:
        read(broker, topic, 1000, **{"auto.offset.reset": "error"})
    assert refused.value.code == KafkaError._AUTO_OFFSET_RESET


def test_many_small_fetches_read_a_large_topic(broker: Any, topic: str) -> None:
    values = [bytes([number % 256]) * 20_000 for number in range(200)]
    produce(broker, topic, values, Delivery(batch_bytes=50_000))

    small = {"fetch.message.max.bytes": 30_000, "fetch.max.bytes": 60_000, "message.max.bytes": 60_000}
    assert read(broker, topic, **small) == values


def test_a_consumer_reads_many_partitions_at_once(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=12)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1200):
        producer.produce(topic, b"%d" % number, partition=number % 12)
    assert producer.flush(TIMEOUT) == 0

    received: dict[int, list[int]] = {partition: [] for partition in range(12)}
    with closing(
        Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(12)])
        while sum(map(len, received.values())) < 1200:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"silence after {received}"
            assert message.error() is None, message.error()
            received[message.partition()].append(int(message.value()))

    assert received == {partition: list(range(partition, 1200, 12)) for partition in range(12)}


def test_a_keyed_producer_spreads_keys_and_keeps_each_on_one_partition(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=4)
    placed: dict[bytes, set[int]] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        placed.setdefault(message.key(), set()).add(message.partition())

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(400):
        producer.produce(topic, b"v", key=b"key-%d" % (number % 40), on_delivery=on_delivery)
    assert producer.flush(TIMEOUT) == 0

    assert all(len(partitions) == 1 for partitions in placed.values())
    assert set().union(*placed.values()) == {0, 1, 2, 3}


def test_a_producer_to_an_unknown_topic_makes_it(broker: Any, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    produce(broker, name, [b"first"])

    assert read(broker, name) == [b"first"]


def test_a_message_of_nearly_a_megabyte_passes_with_default_settings(broker: Any, topic: str) -> None:
    value = bytes(range(256)) * 3900

    produce(broker, topic, [value])

    assert read(broker, topic) == [value]


def test_read_committed_and_read_uncommitted_see_plain_messages_alike(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"a", b"b"])

    for level in ("read_committed", "read_uncommitted"):
        assert read(broker, topic, isolation=level) == [b"a", b"b"]


def test_topics_are_listed_with_their_partitions_and_leader(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=3)

    metadata = Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=TIMEOUT)

    partitions = metadata.topics[topic].partitions
    assert sorted(partitions) == [0, 1, 2]
    assert {(part.leader, *part.replicas, *part.isrs) for part in partitions.values()} == {
        (node,) * 3 for node in metadata.brokers
    }
    assert metadata.controller_id in metadata.brokers


def test_listing_a_topic_that_does_not_exist_does_not_make_it(broker: Any) -> None:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})) as consumer:
        metadata = consumer.list_topics("never-made", timeout=TIMEOUT)
        assert metadata.topics["never-made"].error is not None
        assert "never-made" not in consumer.list_topics(timeout=TIMEOUT).topics


def test_an_unknown_partition_is_refused(broker: Any, topic: str) -> None:
    with Confluent(broker.bootstrap).reader(topic, partition=99) as reader, pytest.raises(KafkaException) as caught:
        reader.bounds()
    assert caught.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
