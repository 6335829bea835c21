"""FastStream, over both of its Kafka clients, with subscribers to given partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.confluent import TopicPartition as ConfluentPartition
from faststream.kafka import KafkaBroker as AioBroker
from faststream.kafka import TopicPartition as AioPartition

TIMEOUT = 30.0


@pytest.mark.parametrize(
    ("broker_class", "partition_class"),
    [(ConfluentBroker, ConfluentPartition), (AioBroker, AioPartition)],
    ids=["confluent", "aiokafka"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_subscriber_gets_what_was_published_and_answers_on_another_topic(
    broker: Any, make_topic: Any, broker_class: Any, partition_class: Any
) -> None:
    orders, bills = make_topic(), make_topic()
    billed: list[dict[str, Any]] = []

    async def work() -> None:
        stream = broker_class(broker.bootstrap)
        done = asyncio.Event()

        @stream.subscriber(partitions=[partition_class(orders, 0)], auto_offset_reset="earliest")
        @stream.publisher(bills)
        async def bill(order: dict[str, int]) -> dict[str, int]:
            return {"order": order["id"], "total": order["price"] * order["count"]}

        @stream.subscriber(partitions=[partition_class(bills, 0)], auto_offset_reset="earliest")
        async def book(total: dict[str, int]) -> None:
            billed.append(total)
            if len(billed) == 3:
                done.set()

        async with stream:
            await stream.start()
            for number in range(3):
                await stream.publish({"id": number, "price": 5, "count": number}, orders)
            await asyncio.wait_for(done.wait(), TIMEOUT)

    asyncio.run(work())

    assert billed == [{"order": number, "total": 5 * number} for number in range(3)]
