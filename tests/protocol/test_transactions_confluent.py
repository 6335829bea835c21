"""Transactions of librdkafka with the offsets of its members, and across a restart of the broker.

What other clients show as well is in test_transaction_stories.py.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from protocol.clients.confluent import Confluent
from protocol.group_members import committed, fill, numbered
from protocol.topics import create_topic, fresh_name

SECONDS_MAX = 60.0
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def name() -> str:
    return fresh_name("txn")


def transactional(broker: Any, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0, **settings}
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def subscribed(broker: Any, group: str, topic: str, protocol: str = "classic") -> Consumer:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.protocol": protocol}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    return consumer


def read_committed(broker: Any, topic: str, count: int) -> list[bytes | None]:
    with Confluent(broker.bootstrap).reader(topic, isolation="read_committed") as reader:
        return [record.value for record in reader.read(count)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_members_offsets_count_when_their_transaction_does(
    broker: Any, make_topic: Any, name: str, protocol: str
) -> None:
    source, target = make_topic(), make_topic()
    fill(broker, source, numbered(10))
    producer = transactional(broker, name)
    with closing(subscribed(broker, name, source, protocol)) as consumer:
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
                assert committed(broker, name, source, 1) == [-1001]
                consumer.seek(TopicPartition(source, 0, message.offset()))

    assert committed(broker, name, source, 1) == [1]
    assert read_committed(broker, target, 1) == [b"0"]


def test_a_member_that_lost_its_partitions_cannot_commit_them(broker: Any, topic: str, name: str) -> None:
    fill(broker, topic, numbered(1))
    with closing(subscribed(broker, name, topic)) as consumer:
        assert consumer.poll(SECONDS_MAX) is not None
        stale = consumer.consumer_group_metadata()
    producer = transactional(broker, name)
    with closing(subscribed(broker, name, topic)) as other:
        assert other.poll(SECONDS_MAX) is not None
        producer.begin_transaction()

        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], stale, SECONDS_MAX)

        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(SECONDS_MAX)
    assert committed(broker, name, topic, 1) == [-1001]


def test_a_transaction_outlives_its_broker(start_broker: Any, name: str) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, "kept")
    producer = transactional(broker, name, **{"reconnect.backoff.max.ms": 100})
    producer.begin_transaction()
    producer.produce("kept", b"before", partition=0)
    assert producer.flush(SECONDS_MAX) == 0

    broker.restart()

    producer.produce("kept", b"after", partition=0)
    producer.commit_transaction(SECONDS_MAX)
    assert read_committed(broker, "kept", 2) == [b"before", b"after"]
