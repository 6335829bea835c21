"""Numbers as records in a topic with several replicas, written and read with librdkafka."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 120.0
PARTITIONS = 4


def create(bootstraps: str, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstraps})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(PATIENCE_S)


def write(producer: Producer, topic: str, values: range) -> None:
    """Write the numbers, and return when all replicas have acknowledged them."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % PARTITIONS, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0, "not all were acknowledged"
    assert not failures


def producer_of(bootstraps: str) -> Producer:
    # A broker that is paused keeps its connections: only the client's own timeout ends a request to it.
    return Producer(
        {"bootstrap.servers": bootstraps, "acks": "all", "enable.idempotence": True, "socket.timeout.ms": 3_000}
    )


def read(bootstraps: str, topic: str, count: int) -> list[int]:
    """So many numbers, sorted."""
    consumer = Consumer({"bootstrap.servers": bootstraps, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(count, PATIENCE_S)
        assert messages, f"{len(found)} of {count} records"
        found += (int(message.value() or b"-1") for message in messages if message.error() is None)
    consumer.close()
    return sorted(found)


def committed(bootstraps: str, topic: str) -> int:
    """Commit the end of the first partition for a group; what its coordinator has then."""
    consumer = Consumer({"bootstrap.servers": bootstraps, "group.id": "reader"})
    place = TopicPartition(topic, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
    consumer.commit(offsets=[TopicPartition(topic, 0, end)], asynchronous=False)
    [found] = consumer.committed([place], timeout=PATIENCE_S)
    consumer.close()
    return found.offset
