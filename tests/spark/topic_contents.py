"""Creates topics, and reads their committed records."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cluster.replicated import LEADER_MOVES

SECONDS_MAX = 90.0
POLL_SECONDS = 0.05


def make_topic(bootstrap: str, partitions: int = 2, name: str = "out") -> str:
    """A new topic with a name of its own."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS_MAX)
    return topic


def committed(bootstrap: str, topic: str) -> list[Message]:
    """Every committed record; fails if a transaction stays open, which would block the read."""
    ends = settled_ends(bootstrap, topic)
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
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(ends):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{topic}: no response"
            if not message.error():
                found.append(message)
            elif message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def settled_ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Where each partition ends, once no transaction is open in it.

    Kafka's coordinator responds to EndTxn before the markers are in every partition. Leaders may be moving.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = list(admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions)
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            stable = log_ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED)
            ends = log_ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED)
        except KafkaException as error:
            if time.monotonic() > deadline or error.args[0].code() not in LEADER_MOVES:
                raise
        else:
            if stable == ends:
                return ends
            assert time.monotonic() < deadline, f"{topic}: a transaction is open at {stable}, the log ends at {ends}"
        time.sleep(POLL_SECONDS)


def log_ends(admin: AdminClient, topic: str, partitions: list[int], level: IsolationLevel) -> dict[int, int]:
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    requested = admin.list_offsets(wanted, isolation_level=level, request_timeout=SECONDS_MAX)
    return {place.partition: int(result.result(SECONDS_MAX).offset) for place, result in requested.items()}


def values(bootstrap: str, topic: str) -> list[str]:
    """The values of every committed record, in order of partition and offset."""
    messages = sorted(committed(bootstrap, topic), key=lambda each: (each.partition(), each.offset()))
    return [message.value().decode() for message in messages]
