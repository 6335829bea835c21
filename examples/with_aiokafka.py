"""Orders with aiokafka: a consumer waits while a producer sends, both on one event loop.

python examples/with_aiokafka.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from where import bootstrap_servers

COUNT = 10


async def send(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(COUNT):
            await producer.send_and_wait(topic, json.dumps({"id": number, "item": "tea"}).encode(), partition=0)


async def read(bootstrap: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        for number in range(COUNT):
            order = json.loads((await consumer.getone()).value)
            assert order["id"] == number
    return COUNT


async def main(bootstrap: str) -> None:
    # The first producer of a topic creates it, if auto.create.topics.enable is on.
    topic = f"orders-aiokafka-{uuid.uuid4().hex[:8]}"
    await send(bootstrap, topic)
    count = await asyncio.wait_for(read(bootstrap, topic), 20)
    print(f"read {count} orders")


if __name__ == "__main__":
    asyncio.run(main(bootstrap_servers(*sys.argv[1:2])))
