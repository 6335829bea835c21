"""Exactly once: the results and the group's offsets are committed together, or not at all.

For work whose result is messages. A crash at any moment leaves a transaction that is aborted, and the messages that it
had read are read again; readers with `isolation.level=read_committed` never see what was aborted.

    penstock up
    python examples/read_process_write.py --source orders --target bills --group billing --name billing-1

Start as many as the source has partitions, each with a `--name` of its own that stays the same over its restarts: a
second process of the same name fences the first, so that an old one cannot go on writing.
"""

from __future__ import annotations

import argparse

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from where import bootstrap_servers

BATCH = 100
SECONDS_MAX = 30.0


def process(message: Message) -> bytes:
    """The work itself: it must have no effect other than its result."""
    return (message.value() or b"").upper()


def step(consumer: Consumer, producer: Producer, target: str, messages: list[Message]) -> None:
    """One transaction: the results, and the offsets after the messages they were made of."""
    producer.begin_transaction()
    following: dict[tuple[str, int], int] = {}
    for message in messages:
        producer.produce(target, process(message), key=message.key())
        following[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in following.items()]
    # With the member's metadata: a member that has lost its partitions is fenced here.
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS_MAX)
    producer.commit_transaction(SECONDS_MAX)


def rewind(consumer: Consumer, messages: list[Message]) -> None:
    """Read again what the aborted transaction had read."""
    first: dict[tuple[str, int], int] = {}
    for message in messages:
        first.setdefault((message.topic(), message.partition()), message.offset())
    owned = {(part.topic, part.partition) for part in consumer.assignment()}
    for (topic, index), offset in first.items():
        if (topic, index) in owned:
            consumer.seek(TopicPartition(topic, index, offset))


def run(consumer: Consumer, producer: Producer, target: str, count: int | None, batch: int) -> None:
    done = 0
    while count is None or done < count:
        got = consumer.consume(batch, timeout=0.5)
        messages = [message for message in got if message.error() is None]
        if not messages:
            continue
        try:
            step(consumer, producer, target, messages)
            done += len(messages)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                # Fenced by a newer process of the same name, or another fatal error: restart the process.
                raise
            producer.abort_transaction(SECONDS_MAX)
            rewind(consumer, messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="HOST:PORT; else $PENSTOCK_BOOTSTRAP, else localhost:9092")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="the transactional id: one per process, the same after a restart")
    parser.add_argument("--instance", help="group.instance.id: a restarted process keeps its partitions")
    parser.add_argument("--batch", type=int, default=BATCH, help="messages in one transaction, at most")
    parser.add_argument("--count", type=int, help="end after so many messages")
    given = parser.parse_args()
    bootstrap = bootstrap_servers(given.bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": given.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **({"group.instance.id": given.instance} if given.instance else {}),
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": given.name,
            # From librdkafka 2.11 on, with the default a call may hang after the broker was down.
            "metadata.recovery.strategy": "none",
        }
    )
    producer.init_transactions(SECONDS_MAX)
    consumer.subscribe([given.source])
    try:
        run(consumer, producer, given.target, given.count, given.batch)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
