"""Transactions of kafka-python: its own state machine, and its own reader of what was aborted."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from protocol.topics import fresh_name, wait_until

pytestmark = pytest.mark.xdist_group("transactions-kafka-python")
SECONDS_MAX = 60.0


def producer(broker: Any, name: str) -> KafkaProducer:
    made = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    made.init_transactions()
    return made


def send(writer: KafkaProducer, topic: str, value: bytes) -> None:
    writer.send(topic, value, partition=0).get(SECONDS_MAX)


def read(broker: Any, topic: str, count: int) -> list[bytes]:
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
    )
    try:
        reader.assign([TopicPartition(topic, 0)])
        return [record.value for _, record in zip(range(count), reader, strict=False)]
    finally:
        reader.close()


def test_kafka_python_commits_and_aborts_and_reads_only_what_is_committed(broker: Any, make_topic: Any) -> None:
    topic = make_topic()
    writer = producer(broker, fresh_name("t"))
    try:
        for value, commit in ((b"first", True), (b"aborted", False), (b"second", True)):
            writer.begin_transaction()
            send(writer, topic, value)
            if commit:
                writer.commit_transaction()
            else:
                writer.abort_transaction()
    finally:
        writer.close()

    assert read(broker, topic, 2) == [b"first", b"second"]


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_kafka_python_moves_a_groups_offsets_with_its_transaction(broker: Any, make_topic: Any, commit: bool) -> None:
    source, target, group = make_topic(), make_topic(), fresh_name("g")
    place = TopicPartition(source, 0)
    writer = producer(broker, fresh_name("t"))
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        writer.begin_transaction()
        send(writer, target, b"result")
        writer.send_offsets_to_transaction({place: OffsetAndMetadata(7, "", -1)}, group)
        if commit:
            writer.commit_transaction()
            # It is answered before the offsets count.
            wait_until(lambda: reader.committed(place) is not None, what="the offset", seconds_max=SECONDS_MAX)
        else:
            writer.abort_transaction()

        assert reader.committed(place) == (7 if commit else None)
    finally:
        reader.close()
        writer.close()


def test_a_second_kafka_python_producer_of_the_same_name_fences_the_first(broker: Any, make_topic: Any) -> None:
    topic, name = make_topic(), fresh_name("t")
    first = producer(broker, name)
    first.begin_transaction()
    send(first, topic, b"of the first")
    second = producer(broker, name)
    try:
        second.begin_transaction()
        send(second, topic, b"of the second")
        second.commit_transaction()

        with pytest.raises(KafkaError):
            first.commit_transaction()
    finally:
        first.close()
        second.close()

    assert read(broker, topic, 1) == [b"of the second"]
