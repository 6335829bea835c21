"""Topics made and read as a strict consumer does: only what is committed."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READ_SECONDS_MAX = 20.0


def make_topic(bootstrap: str, partitions: int = 2, name: str = "out") -> str:
    """A new topic with a name of its own."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    return topic


def committed(bootstrap: str, topic: str) -> list[Message]:
    """Every committed record; fails if a transaction is open, behind which nothing is read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Message] = []
        ended: dict[int, int] = {}
        while len(ended) < len(partitions):
            message = consumer.poll(READ_SECONDS_MAX)
            assert message is not None, f"{topic}: no answer"
            if message.error():
                ended[message.partition()] = message.offset()
            else:
                found.append(message)
        for partition, offset in ended.items():
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            assert offset == high, f"{topic}-{partition}: a transaction is open at {offset}, the log ends at {high}"
        return found
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[str]:
    """The values of every committed record, in order of partition and offset."""
    messages = sorted(committed(bootstrap, topic), key=lambda each: (each.partition(), each.offset()))
    return [message.value().decode() for message in messages]
