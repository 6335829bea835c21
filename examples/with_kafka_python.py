"""Orders with kafka-python: its default producer is idempotent; one consumer reads the partition from its start.

python examples/with_kafka_python.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAlreadyExistsError
from where import bootstrap_servers

TOPIC = "orders-kafka-python"
COUNT = 10


def main(bootstrap: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)

    with KafkaProducer(bootstrap_servers=bootstrap, value_serializer=lambda order: json.dumps(order).encode()) as out:
        for number in range(COUNT):
            out.send(TOPIC, {"id": number, "item": "tea"}, key=b"%d" % number)
        out.flush()

    partition = TopicPartition(TOPIC, 0)
    with KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        orders = []
        for record in consumer:
            orders.append(json.loads(record.value))
            if len(orders) == COUNT:
                break
    print(f"read {len(orders)} orders")


if __name__ == "__main__":
    main(bootstrap_servers(*sys.argv[1:2]))
