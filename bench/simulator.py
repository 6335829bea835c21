"""How fast the simulator is: brokers and clients in one process, in simulated seconds per CPU second.

    python -m bench.simulator [--seed N] [--seconds S] [--profile]

Three brokers of their own and twenty clients, half of them producers and half consumers that follow one producer each.
The figure to reach is 50 simulated seconds per CPU second at 200 requests of clients per simulated second or more.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import time

from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.client import SimClient
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.node import Node
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.world import World
from penstock.wire.api import create_topics, fetch, produce
from penstock.wire.records import Record, build_batch, iter_batches

BROKERS = 3
CLIENTS = 20
PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.17
WAIT_MS = 500
PRODUCE_VERSION = 9
FETCH_VERSION = 11


class Traffic:
    """What the clients have done."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world = world
        self.end_s = world.now + seconds
        self.requests = 0
        self.records_read = 0
        self.records_sent = 0

    async def open(self, node: Node, broker: SimBroker) -> SimClient:
        return await SimClient.open(self.world.fabric.at(node.life), *broker.address, client_id=node.name)

    async def produce(self, node: Node, broker: SimBroker, topic: str, pauses: random.Random) -> None:
        client = await self.open(node, broker)
        created = create_topics.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        await client.ask(create_topics, 5, create_topics.Request(topics=[created]))
        while self.world.now < self.end_s:
            record = Record(0, broker.clock.now_ms(), b"key", b"v" * 100)
            data = produce.PartitionProduceData(index=0, records=build_batch([record]))
            request = produce.Request(
                acks=-1,
                timeout_ms=5000,
                topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
            )
            response = await client.ask(produce, PRODUCE_VERSION, request)
            [partition] = response.responses[0].partition_responses
            assert partition.error_code == 0, f"error {partition.error_code}"
            self.requests += 1
            self.records_sent += 1
            await asyncio.sleep(pauses.uniform(PAUSE_MIN_S, PAUSE_MAX_S))

    async def consume(self, node: Node, broker: SimBroker, topic: str) -> None:
        await asyncio.sleep(0.5)
        client = await self.open(node, broker)
        offset = 0
        while self.world.now < self.end_s:
            wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = fetch.Request(
                max_wait_ms=WAIT_MS, min_bytes=1, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])]
            )
            response = await client.ask(fetch, FETCH_VERSION, request)
            [partition] = response.responses[0].partitions
            assert partition.error_code == 0, f"error {partition.error_code}"
            self.requests += 1
            for _, header in iter_batches(partition.records or b""):
                offset = header.base_offset + header.last_offset_delta + 1
                self.records_read += header.record_count


async def simulated(world: World, seconds: float) -> Traffic:
    brokers = []
    for number in range(1, BROKERS + 1):
        store = SimStore(SimRandomness(world.stream(f"store {number}")))
        brokers.append(SimBroker(world, broker_id=number, store=store))
    for broker in brokers:
        broker.start()
    for broker in brokers:
        await broker.ready()
    traffic = Traffic(world, seconds)
    work = []
    for number in range(CLIENTS // 2):
        broker = brokers[number % BROKERS]
        topic = f"topic-{number}"
        for kind in ("producer", "consumer"):
            node = world.node(f"{kind}-{number}")
            node.start()
            if kind == "producer":
                run = traffic.produce(node, broker, topic, world.stream(node.name))
            else:
                run = traffic.consume(node, broker, topic)
            work.append(node.spawn(run, name=node.name))
    await asyncio.gather(*work)
    for broker in brokers:
        await broker.stop()
    return traffic


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", action="store_true", help="show where the CPU time goes")
    given = parser.parse_args()
    world = World(given.seed)
    profile = cProfile.Profile() if given.profile else None
    began_s, from_s = time.process_time(), world.now
    if profile is not None:
        profile.enable()
    try:
        traffic = world.run(simulated(world, given.seconds))
        cpu_s, passed_s = time.process_time() - began_s, world.now - from_s
    finally:
        if profile is not None:
            profile.disable()
        world.close()
    assert not world.failures, world.failures
    print(f"seed {given.seed}, trace {world.trace.hexdigest()}")
    print(f"{passed_s:.1f} simulated s in {cpu_s:.2f} CPU s: {passed_s / cpu_s:.1f} per second")
    print(
        f"{traffic.requests / given.seconds:.0f} requests per simulated s, {cpu_s / traffic.requests * 1e6:.0f} us each"
    )
    print(f"{traffic.records_sent} records sent, {traffic.records_read} read, {world.callbacks} callbacks")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
