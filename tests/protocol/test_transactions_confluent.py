"""Transactions of confluent-kafka: what readers see and when, offsets inside of them, and who is fenced."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from protocol.topics import fresh_name, wait_until

SECONDS_MAX = 60.0
LEVELS = ("read_committed", "read_uncommitted")
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def name() -> str:
    return fresh_name("txn")


def transactional(broker: Any, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0, **settings}
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def read(broker: Any, topic: str, *, partitions: int = 1, level: str = "read_committed") -> list[bytes]:
    """Everything that a reader of this level gets now, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": level,
            "fetch.wait.max.ms": 20,
        }
    )
    values: list[bytes] = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(SECONDS_MAX)
                assert message is not None, f"silence after {values}"
                if message.error() is None:
                    values.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    break
    finally:
        consumer.close()
    return values


def read_ended(broker: Any, topic: str, *, partitions: int = 1) -> list[bytes]:
    """What readers of committed records get when no transaction is open: a commit is answered before it is there."""
    for partition in range(partitions):
        wait_until(
            lambda: len({bounds(broker, topic, level, partition) for level in LEVELS}) == 1,  # noqa: B023
            what="the markers",
            seconds_max=SECONDS_MAX,
        )
    return read(broker, topic, partitions=partitions)


def bounds(broker: Any, topic: str, level: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "isolation.level": level})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)[1])
    finally:
        consumer.close()


def test_readers_see_a_transaction_when_it_is_committed_and_all_of_it(broker: Any, make_topic: Any, name: str) -> None:
    topic = make_topic(partitions=2)
    producer = transactional(broker, name)
    producer.begin_transaction()
    for value, partition in ((b"a", 0), (b"b", 1), (b"c", 0)):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS_MAX) == 0
    assert read(broker, topic, partitions=2) == []
    assert read(broker, topic, partitions=2, level="read_uncommitted") == [b"a", b"c", b"b"]

    producer.commit_transaction(SECONDS_MAX)

    assert read_ended(broker, topic, partitions=2) == [b"a", b"c", b"b"]


def test_an_aborted_transaction_is_never_read(broker: Any, make_topic: Any, name: str) -> None:
    topic = make_topic()
    producer = transactional(broker, name)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        if number % 2:
            assert producer.flush(SECONDS_MAX) == 0
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)

    assert read_ended(broker, topic) == [b"0", b"2", b"4", b"6", b"8"]


def test_what_follows_an_open_transaction_waits_for_it(broker: Any, make_topic: Any, name: str) -> None:
    topic = make_topic()
    producer = transactional(broker, name)
    producer.begin_transaction()
    producer.produce(topic, b"inside", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"outside", partition=0)
    assert plain.flush(SECONDS_MAX) == 0
    assert (bounds(broker, topic, "read_committed"), bounds(broker, topic, "read_uncommitted")) == (0, 2)
    assert read(broker, topic) == []

    producer.abort_transaction(SECONDS_MAX)

    wait_until(lambda: bounds(broker, topic, "read_committed") == 3, what="the marker", seconds_max=SECONDS_MAX)
    assert read(broker, topic) == [b"outside"]


def test_a_second_producer_of_the_same_name_fences_the_first(broker: Any, make_topic: Any, name: str) -> None:
    topic = make_topic()
    zombie = transactional(broker, name)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(SECONDS_MAX) == 0

    heir = transactional(broker, name)

    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(SECONDS_MAX)
    assert refused.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    heir.commit_transaction(SECONDS_MAX)
    assert read_ended(broker, topic) == [b"heir"]


def test_a_transaction_that_takes_too_long_is_aborted(broker: Any, make_topic: Any, name: str) -> None:
    topic = make_topic()
    # A message may not take longer than its transaction: a second is too little for a machine that is busy.
    slow = transactional(broker, name, **{"transaction.timeout.ms": 5000, "message.timeout.ms": 5000})
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    assert slow.flush(SECONDS_MAX) == 0

    wait_until(lambda: bounds(broker, topic, "read_committed") == 2, what="the abort marker", seconds_max=SECONDS_MAX)

    with pytest.raises(KafkaException):
        slow.commit_transaction(SECONDS_MAX)
    assert read(broker, topic) == []


def committed(broker: Any, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
    finally:
        consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_count_when_their_transaction_does(broker: Any, make_topic: Any, name: str, protocol: str) -> None:
    source, target = make_topic(), make_topic()
    feed = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        feed.produce(source, b"%d" % number, partition=0)
    assert feed.flush(SECONDS_MAX) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = transactional(broker, name)
    try:
        for commit in (False, True):
            producer.begin_transaction()
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None, message.error()
            producer.produce(target, message.value(), partition=0)
            following = [TopicPartition(source, 0, message.offset() + 1)]
            producer.send_offsets_to_transaction(following, consumer.consumer_group_metadata(), SECONDS_MAX)
            if commit:
                producer.commit_transaction(SECONDS_MAX)
            else:
                producer.abort_transaction(SECONDS_MAX)
                assert committed(broker, name, source) < 0
                consumer.seek(TopicPartition(source, 0, message.offset()))
    finally:
        consumer.close()

    assert committed(broker, name, source) == 1
    assert read_ended(broker, target) == [b"0"]


def test_a_member_that_lost_its_partitions_cannot_commit_them(broker: Any, make_topic: Any, name: str) -> None:
    source = make_topic()
    feed = Producer({"bootstrap.servers": broker.bootstrap})
    feed.produce(source, b"0", partition=0)
    assert feed.flush(SECONDS_MAX) == 0
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([source])
    assert consumer.poll(SECONDS_MAX) is not None
    stale = consumer.consumer_group_metadata()
    consumer.close()
    other = Consumer(settings)
    other.subscribe([source])
    assert other.poll(SECONDS_MAX) is not None
    producer = transactional(broker, name)
    producer.begin_transaction()

    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 1)], stale, SECONDS_MAX)

    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(SECONDS_MAX)
    other.close()
    assert committed(broker, name, source) < 0


def test_a_transaction_that_wrote_nothing_ends_either_way(broker: Any, topic: str, name: str) -> None:
    producer = transactional(broker, name)
    for _ in range(2):
        producer.begin_transaction()
        producer.commit_transaction(SECONDS_MAX)
        producer.begin_transaction()
        producer.abort_transaction(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"something", partition=0)
    producer.commit_transaction(SECONDS_MAX)

    assert read_ended(broker, topic) == [b"something"]


def test_a_transaction_outlives_its_broker(start_broker: Any, name: str) -> None:
    from protocol.topics import create_topic

    broker = start_broker()
    create_topic(broker.bootstrap, "kept")
    producer = transactional(broker, name, **{"reconnect.backoff.max.ms": 100})
    producer.begin_transaction()
    producer.produce("kept", b"before", partition=0)
    assert producer.flush(SECONDS_MAX) == 0

    broker.restart()

    producer.produce("kept", b"after", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    assert read_ended(broker, "kept") == [b"before", b"after"]
