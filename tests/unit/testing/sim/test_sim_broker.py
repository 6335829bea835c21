"""The unmodified broker on a simulated node: it serves, and survives what its machine does to it."""

import asyncio
import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.testing.sim.broker import DATA, SimBroker
from penstock.testing.sim.client import Disconnected, SimClient
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.world import World
from penstock.wire.api import create_topics, fetch, produce
from penstock.wire.records import Record, build_batch, decode_records, iter_batches

TOPIC = "orders"


class Session:
    """A client on a node of its own, with one connection."""

    def __init__(self, world: World, broker: SimBroker) -> None:
        self.world = world
        self.broker = broker
        self.node = world.node("client")
        if not self.node.running:
            self.node.start()

    async def connect(self) -> None:
        self.client = await SimClient.open(self.world.fabric.at(self.node.life), *self.broker.address)

    async def create(self, **configs: str) -> None:
        topic = create_topics.CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        response = await self.client.ask(create_topics, 5, create_topics.Request(topics=[topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    async def send(self, value: bytes) -> int:
        batch = build_batch([Record(0, self.broker.clock.now_ms(), None, value)])
        partition = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[partition])
        request = produce.Request(acks=-1, timeout_ms=5000, topic_data=[topic])
        [response] = (await self.client.ask(produce, 9, request)).responses[0].partition_responses
        assert response.error_code == 0, response.error_code
        return int(response.base_offset)

    async def read_all(self) -> list[bytes | None]:
        partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.Request(max_wait_ms=0, topics=[fetch.FetchTopic(topic=TOPIC, partitions=[partition])])
        [response] = (await self.client.ask(fetch, 11, request)).responses[0].partitions
        assert response.error_code == 0, response.error_code
        records = bytes(response.records or b"")
        return [
            record.value
            for position, header in iter_batches(records)
            for record in decode_records(records[position : position + header.length + 12])
        ]


def simulate(work: Callable[[SimBroker, Session], Awaitable[None]], seed: int = 1) -> World:
    """Run something with a broker that is ready and a client that is connected."""
    world = World(seed)

    async def main() -> None:
        broker = SimBroker(world, store=SimStore(SimRandomness(world.stream("store"))))
        broker.start()
        await broker.ready()
        session = Session(world, broker)
        await session.connect()
        await work(broker, session)
        await broker.stop()
        assert not broker.running

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            world.run(main(), limit_s=3600)
    finally:
        world.close()
    assert world.failures == []
    return world


async def restart(broker: SimBroker, session: Session) -> None:
    broker.start()
    await broker.ready()
    await session.connect()


def test_a_broker_serves_and_stops_clean() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create()
        assert [await session.send(b"%d" % number) for number in range(3)] == [0, 1, 2]
        assert await session.read_all() == [b"0", b"1", b"2"]
        await broker.stop()
        assert broker.disk.files.exists(f"{DATA}/.kafka_cleanshutdown")
        await restart(broker, session)
        assert await session.read_all() == [b"0", b"1", b"2"]

    simulate(work)


def test_a_killed_broker_is_not_taken_for_one_that_stopped_clean() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create()
        await session.send(b"in the page cache")
        broker.kill()
        await asyncio.sleep(5)
        assert not broker.disk.files.exists(f"{DATA}/.kafka_cleanshutdown")
        await restart(broker, session)
        assert await session.read_all() == [b"in the page cache"]

    simulate(work)


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_keeps_what_was_flushed_before_the_response(seed: int) -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create(flush="group")
        for number in range(3):
            await session.send(b"%d" % number)
        broker.cut_power()
        await asyncio.sleep(1)
        await restart(broker, session)
        assert await session.read_all() == [b"0", b"1", b"2"]

    simulate(work, seed)


def test_a_broker_may_crash_at_each_of_its_first_changes_to_the_disk() -> None:
    for crash_in in range(0, 60, 3):

        async def work(broker: SimBroker, session: Session, crash_in: int = crash_in) -> None:
            await session.create(flush="group")
            await session.send(b"before")
            broker.kill()
            broker.start()
            broker.disk.crash_in = crash_in
            await asyncio.sleep(30)
            broker.disk.crash_in = None
            if not broker.running:
                broker.start()
            await broker.ready()
            await session.connect()
            assert (await session.read_all())[0] == b"before"

        simulate(work, seed=crash_in)


def test_a_paused_broker_responds_when_it_is_resumed() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create()
        broker.pause()
        sending = asyncio.ensure_future(session.send(b"late"))
        await asyncio.sleep(3)
        assert not sending.done()
        broker.resume()
        assert await sending == 0

    simulate(work)


def test_a_broker_that_is_stopped_while_paused_stops() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        broker.pause()
        await asyncio.sleep(1)
        await broker.stop()

    simulate(work)


def test_a_broker_whose_disk_fails_refuses_to_start_and_starts_later() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create(flush="group")
        await session.send(b"kept")
        broker.kill()
        broker.disk.files.fail("open", "", errno.EIO)
        broker.start()
        await broker.ready()
        assert not broker.running
        [refusal] = broker.refusals
        assert "Input/output error" in refusal
        broker.disk.files.faults.clear()
        await restart(broker, session)
        assert await session.read_all() == [b"kept"]

    simulate(work)


def test_a_connection_may_be_cut_or_reset_under_a_request() -> None:
    async def work(broker: SimBroker, session: Session) -> None:
        await session.create()
        world = broker.world
        sending = asyncio.ensure_future(session.send(b"reset"))
        await asyncio.sleep(0)
        world.fabric.reset(world.fabric.connections()[0])
        with pytest.raises(Disconnected):
            await sending
        await session.connect()
        world.fabric.cut(broker.name, "client")
        sending = asyncio.ensure_future(session.send(b"cut"))
        await asyncio.sleep(2)
        assert not sending.done()
        world.fabric.heal_all()
        await sending
        assert (await session.read_all())[-1] == b"cut"

    simulate(work)


SCENARIO = """
import asyncio
from tests.unit.testing.sim.test_sim_broker import Session, SimBroker, restart, simulate


async def work(broker: SimBroker, session: Session) -> None:
    await session.create(flush="group")
    for number in range(30):
        await session.send(b"%d" % number)
        if number % 10 == 4:
            broker.kill()
            await restart(broker, session)
        if number % 10 == 8:
            broker.cut_power()
            await asyncio.sleep(1)
            await restart(broker, session)
    await session.read_all()
    await asyncio.sleep(100)


world = simulate(work, seed=9)
print(world.trace.hexdigest(), world.trace.facts)
"""


def test_a_seed_has_the_same_trace_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", SCENARIO],
            cwd=Path(__file__).parents[4],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(printed) == 1
    assert int(printed.pop().split()[1]) > 200
