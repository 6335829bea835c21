"""Topics that are queues, as ordinary clients see them: repeated messages, and records that a group has consumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from protocol.topics import create_topic, fresh_name, wait_until
from protocol.under_test import external_bootstrap, new_broker

TIMEOUT = 60.0
GROUP = "workers"


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    """One that asks groups often what they have consumed."""
    if external_bootstrap() is not None:
        pytest.skip("settings of penstock's own")
    own = new_broker({"log.consume.check.interval.ms": "50"})
    try:
        own.start()
        yield own
    finally:
        own.close()


def produce(broker: Any, topic: str, ids: list[str], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, **settings})
    for each in ids:
        producer.produce(topic, each.encode(), headers={"penstock-msg-id": each})
    assert producer.flush(TIMEOUT) == 0


def consumer_of(broker: Any, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def take(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_repeated_message_is_delivered_once_whichever_producer_sends_it_and_after_a_restart(
    broker: Any, codec: str
) -> None:
    topic = fresh_name("repeated")
    create_topic(broker.bootstrap, topic, configs={"dedupe.window.records": "1000"})
    produce(broker, topic, ["a", "b", "a"], **{"compression.type": codec})
    broker.restart()

    produce(broker, topic, ["b", "c"], **{"enable.idempotence": True, "compression.type": codec})
    produce(broker, topic, ["c", "a", "d"], **{"compression.type": codec})

    consumer = consumer_of(broker, fresh_name("readers"))
    consumer.subscribe([topic])
    try:
        assert take(consumer, 4) == [b"a", b"b", b"c", b"d"]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT) == (0, 8)
    finally:
        consumer.close()


def test_what_its_group_has_committed_is_gone_and_no_other_group_can_commit(broker: Any) -> None:
    topic = fresh_name("jobs")
    create_topic(broker.bootstrap, topic, configs={"cleanup.policy": "consume", "consume.group": GROUP})
    produce(broker, topic, ["a", "b", "c"])
    worker, other = consumer_of(broker, GROUP), consumer_of(broker, fresh_name("others"))
    place = TopicPartition(topic, 0)
    try:
        other.assign([TopicPartition(topic, 0, 0)])
        assert take(other, 3) == [b"a", b"b", b"c"]
        with pytest.raises(KafkaException) as refusal:
            other.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert refusal.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        worker.subscribe([topic])
        assert take(worker, 3) == [b"a", b"b", b"c"]
        assert worker.get_watermark_offsets(place, TIMEOUT) == (0, 3)

        worker.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)

        wait_until(lambda: worker.get_watermark_offsets(place, TIMEOUT) == (2, 3), what="removal of what was consumed")
    finally:
        worker.close()
        other.close()
    assert "commit_refused" in broker.log.read_text()
