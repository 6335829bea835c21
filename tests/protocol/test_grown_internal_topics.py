"""Internal topics that an operator grows: what is kept in them is still found, also after a restart.

Apache Kafka allows the growth, and its brokers hash group names by the new count from their next start on.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from protocol.topics import create_topic

SECONDS_MAX = 60.0
FEW_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
GROWN_TO = 7
GROUPS = [f"group-{number}" for number in range(8)]
IDS = [f"id-{number}" for number in range(8)]

pytestmark = pytest.mark.penstock_only


@pytest.fixture
def broker(start_broker: Any) -> Any:
    made = start_broker(FEW_PARTITIONS)
    create_topic(made.bootstrap, "orders")
    return made


def grow(broker: Any, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [grown] = admin.create_partitions([NewPartitions(topic, GROWN_TO)]).values()
    grown.result(SECONDS_MAX)


def member(broker: Any, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})


def commit(broker: Any, group: str, offset: int) -> None:
    consumer = member(broker, group)
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: Any, group: str) -> int:
    consumer = member(broker, group)
    [found] = consumer.committed([TopicPartition("orders", 0)], timeout=SECONDS_MAX)
    consumer.close()
    return int(found.offset)


def test_committed_offsets_are_found_after_their_topic_grew_and_the_broker_restarted(broker: Any) -> None:
    for offset, group in enumerate(GROUPS):
        commit(broker, group, offset)
    grow(broker, "__consumer_offsets")
    commit(broker, "made later", 99)

    broker.restart()

    assert [committed(broker, group) for group in GROUPS] == list(range(len(GROUPS)))
    assert committed(broker, "made later") == 99


def test_open_transactions_are_found_after_their_topic_grew_and_the_broker_restarted(broker: Any) -> None:
    producers = [
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "reconnect.backoff.max.ms": 100})
        for name in IDS
    ]
    for name, producer in zip(IDS, producers, strict=True):
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("orders", name.encode(), partition=0)
        assert producer.flush(SECONDS_MAX) == 0
    grow(broker, "__transaction_state")

    broker.restart()

    for producer in producers:
        producer.commit_transaction(SECONDS_MAX)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = consumer.consume(len(IDS), SECONDS_MAX)
    consumer.close()
    assert [message.value().decode() for message in read] == IDS
