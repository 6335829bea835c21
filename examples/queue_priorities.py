"""Two priorities: a topic for each, and a worker that takes what is urgent first.

    python examples/queue_priorities.py [HOST:PORT]

A share group has no priorities within a topic. With a topic and a share consumer for each priority, the worker asks
the urgent one first and waits for the other only where that has nothing.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from confluent_kafka import KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from where import bootstrap_servers

PRIORITIES = ("mail-urgent", "mail-normal")
"""The topics, and the groups of the same names, the most urgent first."""
MAILS = 20
GLANCE_SECONDS = 0.2
"""How long the worker waits for mail of a priority before it looks at the next one."""


def set_up(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic, made in admin.create_topics([NewTopic(name, num_partitions=1) for name in PRIORITIES]).items():
        try:
            made.result()
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ConfigResource.Type.GROUP, topic, incremental_configs=[earliest])
        admin.incremental_alter_configs([group])[group].result()


def send(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(MAILS):
        producer.produce(PRIORITIES[number % 2], f"mail {number}")
    producer.flush()


def run(bootstrap: str) -> list[str]:
    """Deliver all mails; returns the priority of each."""
    delivered: list[str] = []
    with ExitStack() as stack:
        consumers: list[ShareConsumer] = []
        for name in PRIORITIES:
            # Fewer records at once: what was handed out already cannot be overtaken.
            settings = {"bootstrap.servers": bootstrap, "group.id": name, "max.poll.records": 5}
            consumer = stack.enter_context(ShareConsumer(settings))
            consumer.subscribe([name])
            consumers.append(consumer)
        while len(delivered) < MAILS:
            for name, consumer in zip(PRIORITIES, consumers, strict=True):
                messages = consumer.poll(GLANCE_SECONDS)
                delivered += [name for _ in messages]
                if messages:
                    consumer.commit_sync(60)
                    break
    return delivered


if __name__ == "__main__":
    address = bootstrap_servers(*sys.argv[1:2])
    set_up(address)
    send(address)
    order = run(address)
    print(f"delivered {order.count(PRIORITIES[0])} urgent and {order.count(PRIORITIES[1])} normal mails")
