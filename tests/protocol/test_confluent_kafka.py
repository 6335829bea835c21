"""librdkafka's producer and consumer by confluent-kafka, with its own defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

TIMEOUT = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(broker: Any, topic: str, values: list[bytes], *, partition: int = 0, **settings: Any) -> list[Message]:
    """Produce and wait for every report."""
    reports: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT) == 0
    return reports


@contextmanager
def reading(broker: Any, topic: str, start: int = OFFSET_BEGINNING, **settings: Any) -> Iterator[Consumer]:
    """A consumer assigned to partition 0 of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,  # the end of a partition is told after a fetch that found nothing
            **settings,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, start)])
        yield consumer
    finally:
        consumer.close()


def read_to_end(consumer: Consumer) -> list[Message]:
    """Everything up to the first end of partition."""
    messages = []
    while True:
        message = consumer.poll(TIMEOUT)
        assert message is not None, f"silence after {len(messages)} messages"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return messages
        messages.append(message)


def read(broker: Any, topic: str, start: int = OFFSET_BEGINNING, **settings: Any) -> list[Message]:
    with reading(broker, topic, start, **settings) as consumer:
        return read_to_end(consumer)


def test_messages_come_back_in_order_with_their_offsets(broker: Any, topic: str) -> None:
    values = [b"value-%d" % number for number in range(1000)]

    reports = produce(broker, topic, values)

    assert [report.offset() for report in reports] == list(range(1000))
    messages = read(broker, topic)
    assert [(message.offset(), message.value()) for message in messages] == list(enumerate(values))


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_comes_back_whole(broker: Any, topic: str, codec: str) -> None:
    values = [b"squeeze me %d " % number * 20 for number in range(500)]

    produce(broker, topic, values, **{"compression.type": codec, "linger.ms": 50})

    assert [message.value() for message in read(broker, topic, **{"check.crcs": True})] == values


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_topic_compresses_anew_what_came_in_another_codec(broker: Any, make_topic: Any, codec: str) -> None:
    topic = make_topic(compression_type=codec)
    values = [b"recode %d " % number * 20 for number in range(200)]

    produce(broker, topic, values, **{"compression.type": "none", "linger.ms": 50})

    assert [message.value() for message in read(broker, topic, **{"check.crcs": True})] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers(broker: Any, topic: str, acks: str) -> None:
    values = [b"%d" % number for number in range(300)]

    reports = produce(broker, topic, values, acks=acks)

    assert len(reports) == 300
    # Without acknowledgement the report says only that it left; one acknowledged message behind them orders the rest.
    produce(broker, topic, [b"last"])
    received = [message.value() for message in read(broker, topic)]
    assert sorted(received[:-1]) == sorted(values) if acks == "0" else received == [*values, b"last"]


def test_an_idempotent_producer_delivers_in_order(broker: Any, topic: str) -> None:
    values = [b"%d" % number for number in range(2000)]

    reports = produce(broker, topic, values, **{"enable.idempotence": True, "batch.num.messages": 10})

    assert [report.offset() for report in reports] == list(range(2000))
    assert [message.value() for message in read(broker, topic)] == values


def test_keys_headers_timestamps_and_tombstones_round_trip(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again")]

    producer.produce(topic, key=b"k", value=b"v", headers=headers, timestamp=1_700_000_000_123, partition=0)
    producer.produce(topic, key=b"gone", value=None, partition=0)
    producer.produce(topic, key=b"", value=b"", partition=0)
    assert producer.flush(TIMEOUT) == 0

    first, tombstone, empty = read(broker, topic)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (1, 1_700_000_000_123)
    assert (tombstone.key(), tombstone.value()) == (b"gone", None)
    assert (empty.key(), empty.value()) == (b"", b"")


def test_a_consumer_starts_at_an_offset_or_at_the_end(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(100)])

    assert [message.offset() for message in read(broker, topic, 97)] == [97, 98, 99]
    with reading(broker, topic, OFFSET_END) as consumer:
        assert read_to_end(consumer) == []
        produce(broker, topic, [b"new"])
        assert [(message.offset(), message.value()) for message in read_to_end(consumer)] == [(100, b"new")]


def test_a_consumer_seeks_back_and_forth(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(50)])

    with reading(broker, topic) as consumer:
        assert len(read_to_end(consumer)) == 50
        consumer.seek(TopicPartition(topic, 0, 10))
        assert [message.offset() for message in read_to_end(consumer)] == list(range(10, 50))


def test_offsets_are_found_by_time(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number * 1000)
        assert producer.flush(TIMEOUT) == 0

    with reading(broker, topic) as consumer:
        asked = [1_700_000_000_000, 1_700_000_003_001, 1_700_000_009_000, 1_700_000_009_001]
        found = [consumer.offsets_for_times([TopicPartition(topic, 0, time)], TIMEOUT)[0].offset for time in asked]

    assert found == [0, 4, 9, OFFSET_END]


def test_watermarks_are_the_first_and_the_next_offset(broker: Any, topic: str) -> None:
    with reading(broker, topic) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (0, 0)
        produce(broker, topic, [b"x"] * 7)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (0, 7)


def test_an_offset_beyond_the_end_falls_back_to_the_reset_policy(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"only"])

    assert [message.value() for message in read(broker, topic, 1000, **{"auto.offset.reset": "earliest"})] == [b"only"]
    with reading(broker, topic, 1000, **{"auto.offset.reset": "error"}) as consumer:
        message = consumer.poll(TIMEOUT)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_many_small_fetches_read_a_large_topic(broker: Any, topic: str) -> None:
    values = [bytes([number % 256]) * 20_000 for number in range(200)]
    produce(broker, topic, values, **{"batch.size": 50_000})

    small = {"fetch.message.max.bytes": 30_000, "fetch.max.bytes": 60_000, "message.max.bytes": 60_000}
    messages = read(broker, topic, **small)

    assert [message.value() for message in messages] == values


def test_a_consumer_reads_many_partitions_at_once(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=12)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(1200):
        producer.produce(topic, b"%d" % number, partition=number % 12)
    assert producer.flush(TIMEOUT) == 0

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(12)])
        received: dict[int, list[int]] = {partition: [] for partition in range(12)}
        while sum(map(len, received.values())) < 1200:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"silence after {received}"
            assert message.error() is None, message.error()
            received[message.partition()].append(int(message.value()))
    finally:
        consumer.close()

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
    from protocol.topics import fresh_name

    name = fresh_name(request.node.name)

    produce(broker, name, [b"first"])

    assert [message.value() for message in read(broker, name)] == [b"first"]


def test_a_message_too_large_for_the_topic_is_refused_and_the_next_is_taken(broker: Any, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="2000")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    producer.produce(topic, b"x" * 5000, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT)
    producer.produce(topic, b"fits", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT)

    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None
    assert [message.value() for message in read(broker, topic)] == [b"fits"]


def test_a_message_of_nearly_a_megabyte_passes_with_default_settings(broker: Any, topic: str) -> None:
    value = bytes(range(256)) * 3900

    produce(broker, topic, [value])

    assert [message.value() for message in read(broker, topic)] == [value]


def test_read_committed_and_read_uncommitted_see_plain_messages_alike(broker: Any, topic: str) -> None:
    produce(broker, topic, [b"a", b"b"])

    for level in ("read_committed", "read_uncommitted"):
        values = [message.value() for message in read(broker, topic, **{"isolation.level": level})]
        assert values == [b"a", b"b"]


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
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        metadata = consumer.list_topics("never-made", timeout=TIMEOUT)
        assert metadata.topics["never-made"].error is not None
        assert "never-made" not in consumer.list_topics(timeout=TIMEOUT).topics
    finally:
        consumer.close()


def test_an_unknown_partition_is_refused(broker: Any, topic: str) -> None:
    with reading(broker, topic) as consumer, pytest.raises(KafkaException) as caught:
        consumer.get_watermark_offsets(TopicPartition(topic, 99), TIMEOUT)
    assert caught.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
