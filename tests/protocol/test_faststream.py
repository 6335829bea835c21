"""FastStream: publishing and groups by both of its Kafka clients, subscribing to given partitions by aiokafka's.

Its subscribers over confluent-kafka always belong to a group, also for given partitions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker as AioBroker
from faststream.kafka import TopicPartition

from protocol.group_members import QUICK

BROKER_SETTINGS = QUICK
TIMEOUT = 60.0
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("publisher_class", [ConfluentBroker, AioBroker], ids=["confluent", "aiokafka"])
def test_a_subscriber_gets_what_was_published_and_answers_on_another_topic(
    broker: Any, make_topic: Any, publisher_class: Any
) -> None:
    orders, bills = make_topic(), make_topic()
    billed: list[dict[str, Any]] = []

    async def work() -> None:
        stream = AioBroker(broker.bootstrap)
        done = asyncio.Event()

        @stream.subscriber(partitions=[TopicPartition(orders, 0)], auto_offset_reset="earliest")
        @stream.publisher(bills)
        async def bill(order: dict[str, int]) -> dict[str, int]:
            return {"order": order["id"], "total": order["price"] * order["count"]}

        @stream.subscriber(partitions=[TopicPartition(bills, 0)], auto_offset_reset="earliest")
        async def book(total: dict[str, int]) -> None:
            billed.append(total)
            if len(billed) == 3:
                done.set()

        async with stream, publisher_class(broker.bootstrap) as publisher:
            await stream.start()
            for number in range(3):
                await publisher.publish({"id": number, "price": 5, "count": number}, orders)
            await asyncio.wait_for(done.wait(), TIMEOUT)

    asyncio.run(work())

    assert billed == [{"order": number, "total": 5 * number} for number in range(3)]


@pytest.mark.parametrize("broker_class", [AioBroker, ConfluentBroker], ids=["aiokafka", "confluent"])
def test_subscribers_belong_to_a_group(broker: Any, topic: str, group: str, broker_class: Any) -> None:
    seen: list[int] = []

    async def work() -> None:
        stream, done = broker_class(broker.bootstrap), asyncio.Event()

        @stream.subscriber(topic, group_id=group, auto_offset_reset="earliest")
        async def handle(number: int) -> None:
            seen.append(number)
            if len(seen) == 5:
                done.set()

        async with stream:
            await stream.start()
            for number in range(5):
                await stream.publish(number, topic)
            await asyncio.wait_for(done.wait(), TIMEOUT)

    asyncio.run(work())
    assert seen == list(range(5))
