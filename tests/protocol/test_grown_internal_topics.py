"""Internal topics that an operator grows: what is kept in them is still found, also after a restart.

Apache Kafka allows the growth, and its brokers hash group names by the new count from their next start on.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from protocol.clients.confluent import Confluent
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


def test_committed_offsets_are_found_after_their_topic_grew_and_the_broker_restarted(broker: Any) -> None:
    client, place = Confluent(broker.bootstrap), ("orders", 0)
    for offset, group in enumerate(GROUPS):
        client.commit_offset(group, place, offset, "")
    grow(broker, "__consumer_offsets")
    client.commit_offset("made later", place, 99, "")

    broker.restart()

    assert [client.committed(group, place) for group in GROUPS] == [(offset, "") for offset in range(len(GROUPS))]
    assert client.committed("made later", place) == (99, "")


def test_open_transactions_are_found_after_their_topic_grew_and_the_broker_restarted(broker: Any) -> None:
    client = Confluent(broker.bootstrap, **{"reconnect.backoff.max.ms": 100})
    with ExitStack() as opened:
        producers = [opened.enter_context(client.transactional(name)) for name in IDS]
        for name, producer in zip(IDS, producers, strict=True):
            producer.begin()
            producer.send("orders", name.encode())
        grow(broker, "__transaction_state")

        broker.restart()

        for producer in producers:
            producer.commit()
    with client.reader("orders", isolation="read_committed") as reader:
        assert [record.value for record in reader.read(len(IDS))] == [name.encode() for name in IDS]
