"""Orders with FastStream: a handler gets each order as a typed object and publishes a bill to another topic.

python examples/with_faststream.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from faststream.kafka import KafkaBroker, TopicPartition
from pydantic import BaseModel
from where import bootstrap_servers

COUNT = 10


class Order(BaseModel):
    id: int
    cups: int


class Bill(BaseModel):
    order: int
    cents: int


async def main(bootstrap: str) -> None:
    run = uuid.uuid4().hex[:8]
    orders, bills = f"orders-{run}", f"bills-{run}"
    broker = KafkaBroker(bootstrap)
    booked: list[Bill] = []
    done = asyncio.Event()

    @broker.subscriber(partitions=[TopicPartition(orders, 0)], auto_offset_reset="earliest")
    @broker.publisher(bills)
    async def bill(order: Order) -> Bill:
        return Bill(order=order.id, cents=order.cups * 250)

    @broker.subscriber(partitions=[TopicPartition(bills, 0)], auto_offset_reset="earliest")
    async def book(bill: Bill) -> None:
        booked.append(bill)
        if len(booked) == COUNT:
            done.set()

    async with broker:
        await broker.start()
        for number in range(COUNT):
            await broker.publish(Order(id=number, cups=2), orders)
        await asyncio.wait_for(done.wait(), 20)
    print(f"read {len(booked)} bills")


if __name__ == "__main__":
    asyncio.run(main(bootstrap_servers(*sys.argv[1:2])))
