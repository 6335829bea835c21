"""Orders with confluent-kafka: create a topic, send to it with an idempotent producer, read it back from the start.

python examples/with_confluent_kafka.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from where import bootstrap_servers

TOPIC = "orders-confluent"
ORDERS = [{"id": number, "item": "tea", "cups": number % 3 + 1} for number in range(10)]


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, config={"retention.ms": "86400000"})])[TOPIC].result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def send(bootstrap: str) -> None:
    def report(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            raise KafkaException(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    for order in ORDERS:
        producer.produce(TOPIC, json.dumps(order), key=str(order["id"]), on_delivery=report)
    producer.flush()


def read(bootstrap: str) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    orders: list[dict[str, Any]] = []
    try:
        while len(orders) < len(ORDERS):
            message = consumer.poll(10)
            if message is None:
                raise SystemExit("nothing came for ten seconds")
            if message.error() is not None:
                raise KafkaException(message.error())
            orders.append(json.loads(message.value()))
    finally:
        consumer.close()
    return orders


if __name__ == "__main__":
    address = bootstrap_servers(*sys.argv[1:2])
    make_topic(address)
    send(address)
    print(f"read {len(read(address))} orders")
