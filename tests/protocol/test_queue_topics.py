"""Queues beyond Kafka's, with confluent-kafka: repeated messages, consumed records, dead letters, retries, order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from protocol.share_members import QUICK_SHARES, poll_until, share_group, share_member
from protocol.topics import create_topic, fresh_name, wait_until
from protocol.under_test import external_bootstrap, new_broker

TIMEOUT = 60.0
GROUP = "workers"


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    """One that asks groups often what they have consumed, and whose share groups settle within moments."""
    if external_bootstrap() is not None:
        pytest.skip("settings of penstock's own")
    own = new_broker({"log.consume.check.interval.ms": "50", **QUICK_SHARES})
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


def test_what_is_given_up_is_a_dead_letter_what_is_late_is_skipped_and_what_is_done_is_removed(broker: Any) -> None:
    topic, group, dead = fresh_name("jobs"), fresh_name("workers"), f"dlq.{fresh_name('jobs')}"
    consumed = {"cleanup.policy": "consume", "consume.group": group, "ttl.enable": "true"}
    create_topic(broker.bootstrap, topic, configs=consumed)
    create_topic(broker.bootstrap, dead, configs={"errors.deadletterqueue.group.enable": "true"})
    share_group(
        broker,
        group,
        errors_deadletterqueue_topic_name=dead,
        share_delivery_count_limit="2",
        share_retry_backoff_ms="100",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value, headers in ((b"good", {}), (b"bad", {"h": "x"}), (b"late", {"penstock-ttl-ms": "0"}), (b"slow", {})):
        producer.produce(topic, value, key=value, headers=headers)
    assert producer.flush(TIMEOUT) == 0
    kinds = {b"good": AcknowledgeType.ACCEPT, b"bad": AcknowledgeType.REJECT, b"slow": AcknowledgeType.RELEASE}

    with share_member(broker, group, topic) as member:

        def decide(message: Message) -> AcknowledgeType:
            return kinds[message.value()]

        poll_until(lambda: member.delivered.count((b"slow", 2)) == 1, member, what="two deliveries", decide=decide)
        assert sorted(member.delivered) == [(b"bad", 1), (b"good", 1), (b"slow", 1), (b"slow", 2)]
        reader = consumer_of(broker, fresh_name("readers"))
        reader.subscribe([dead])
        try:
            letters = {message.value(): message for message in (reader.poll(TIMEOUT), reader.poll(TIMEOUT))}
            place = TopicPartition(topic, 0)
            wait_until(lambda: reader.get_watermark_offsets(place, TIMEOUT) == (4, 4), what="removal of what is done")
        finally:
            reader.close()

    assert set(letters) == {b"bad", b"slow"}
    headers = dict(letters[b"bad"].headers())
    assert (letters[b"bad"].key(), headers["h"], headers["__dlq.errors.topic"]) == (b"bad", b"x", topic.encode())
    assert (headers["__dlq.errors.offset"], headers["__dlq.errors.delivery.count"]) == (b"1", b"1")
    assert dict(letters[b"slow"].headers())["__dlq.errors.delivery.count"] == b"2"


def test_members_get_the_records_of_a_key_one_after_the_other(broker: Any) -> None:
    topic, group = fresh_name("jobs"), fresh_name("workers")
    create_topic(broker.bootstrap, topic)
    share_group(broker, group, share_order="key", share_order_in_flight="1")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(60):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 4))
    assert producer.flush(TIMEOUT) == 0
    failed: set[bytes] = set()
    done: list[int] = []

    def decide(message: Message) -> AcknowledgeType:
        """Release every seventh once."""
        if int(message.value()) % 7 == 0 and message.value() not in failed:
            failed.add(message.value())
            return AcknowledgeType.RELEASE
        done.append(int(message.value()))
        return AcknowledgeType.ACCEPT

    with ExitStack() as stack:
        members = [stack.enter_context(share_member(broker, group, topic)) for _ in range(3)]
        poll_until(lambda: len(done) >= 60, *members, what="60 records", decide=decide)

        busy = sum(bool(member.delivered) for member in members)
        delivered = [value for member in members for value, _ in member.delivered]
    assert sorted(done) == list(range(60))
    assert busy > 1
    assert len(delivered) == 60 + len(failed)
    for key in range(4):
        assert [each for each in done if each % 4 == key] == list(range(key, 60, 4))


def test_another_share_group_cannot_take_what_one_consumes(broker: Any) -> None:
    topic = fresh_name("jobs")
    create_topic(broker.bootstrap, topic, configs={"cleanup.policy": "consume", "consume.group": GROUP})
    produce(broker, topic, ["a"])
    group = share_group(broker, fresh_name("others"))
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        wait_until(lambda: bool(found_errors(consumer, found)), what="the refusal")

    assert {error.code() for error in found} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def found_errors(consumer: ShareConsumer, found: list[Any]) -> list[Any]:
    """Errors of a poll, with those before."""
    try:
        found += [message.error() for message in consumer.poll(0.5) if message.error() is not None]
    except KafkaException as error:
        found.append(error.args[0])
    return found
