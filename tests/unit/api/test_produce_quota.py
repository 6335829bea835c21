"""Produced bytes count toward the client's quota and the topic's traffic, and mute a client over its quota."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from api_world import World, connection_on, in_world
from tests.unit.eventual import settled

from penstock.api.api_versions import ApiVersions
from penstock.api.dispatch import Dispatcher
from penstock.api.registry import Registry
from penstock.controller.topics import NewTopic
from penstock.model.clock import SystemClock
from penstock.net.connection import Connection
from penstock.observe.counters import RequestCounters, ThrottleCounters
from penstock.partition.validation import HEAVY_BYTES
from penstock.quotas.client_quotas import QuotaEntity
from penstock.wire import compression
from penstock.wire.api import produce as produce_api
from penstock.wire.frame import encode_request_header
from penstock.wire.records import Record, build_batch

PRODUCE = 0
VERSION = 9
CLIENT = "writer"
TOPIC = "orders"
LARGE_BYTES = 50_000
QUOTA = 100.0
"""Bytes per second: any large batch is over it at once."""


class Watched(Connection):
    """A connection that counts how often it is muted."""

    mutes = 0

    def mute(self, seconds: float) -> None:
        assert seconds > 0
        self.mutes += 1
        super().mute(seconds)


class Served:
    """A world behind a dispatcher."""

    def __init__(self, world: World) -> None:
        ground = world.parts.ground
        ground.quotas.set("producer_byte_rate", QuotaEntity(None, CLIENT), QUOTA)
        self.traffic = ground.traffic
        self.throttles = ThrottleCounters()
        connection = connection_on(world.sockets[0], Watched)
        assert isinstance(connection, Watched)
        self.connection = connection
        api_versions = ApiVersions(lambda internal: registry.advertised(internal=internal))
        registry = Registry(tuple(world.apis.values()), RequestCounters({}, {}))
        self._dispatcher = Dispatcher(
            registry=registry,
            api_versions=api_versions,
            clock=SystemClock(),
            on_bug=bug,
            quotas=ground.quotas,
            throttles=self.throttles,
            turns=world.parts.turns,
            threads=ground.threads.executor,
        )

    async def produce(self, records: bytes | bytearray, *, acks: int, topic: str = TOPIC) -> bool:
        """Send one batch; returns whether there was a response."""
        data = produce_api.PartitionProduceData(index=0, records=bytes(records))
        request = produce_api.Request(
            acks=acks, timeout_ms=1000, topic_data=[produce_api.TopicProduceData(name=topic, partition_data=[data])]
        )
        head = encode_request_header(PRODUCE, VERSION, 1, CLIENT)
        frame = memoryview(bytearray(head + produce_api.encode_request(request, VERSION)))
        return await settled(self._dispatcher(self.connection, frame)) is not None


def bug(api: str, error: BaseException) -> None:
    raise AssertionError(f"{api} failed") from error


def noise(size: int) -> bytes:
    return random.Random(2).randbytes(size)


def batch(value: bytes, *, codec: int = compression.NONE) -> bytearray:
    return build_batch([Record(0, SystemClock().now_ms(), b"k", value)], compression=codec)


async def with_topic(world: World, **configs: str) -> Served:
    await world.controller.create_topics([NewTopic(name=TOPIC, partitions=1, configs=tuple(configs.items()))])
    return Served(world)


def test_a_producer_without_acknowledgements_is_muted_over_its_quota(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        served = await with_topic(world)

        assert not await served.produce(batch(noise(LARGE_BYTES)), acks=0)

        assert served.connection.mutes == 1
        assert served.throttles.count == {"produce": 1}
        assert world.replicas.get(TOPIC, 0).offsets.log_end == 1

    in_world(tmp_path, act)


@pytest.mark.parametrize("acks", [0, 1])
def test_a_batch_validated_off_the_loop_counts_like_any_other(tmp_path: Path, acks: int) -> None:
    async def act(world: World) -> None:
        served = await with_topic(world, **{"compressed.check": "records"})
        heavy = batch(noise(HEAVY_BYTES + 1), codec=compression.GZIP)

        assert await served.produce(heavy, acks=acks) == bool(acks)

        assert served.connection.mutes == 1
        assert served.throttles.count == {"produce": 1}
        row = served.traffic.row(TOPIC)
        assert (row.bytes_in, row.records_in, row.produce_refused) == (len(heavy), 1, 0)

    in_world(tmp_path, act)


def test_a_batch_refused_off_the_loop_is_counted_as_refused(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        served = await with_topic(world, **{"compressed.check": "records"})
        heavy = batch(noise(HEAVY_BYTES + 1), codec=compression.GZIP)
        heavy[-1] ^= 1

        assert await served.produce(heavy, acks=1)

        row = served.traffic.row(TOPIC)
        assert (row.bytes_in, row.records_in, row.produce_refused) == (0, 0, 1)

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("acks", "topic", "damage"), [(1, TOPIC, 1), (1, "missing", 0), (7, TOPIC, 0)], ids=["damaged", "unknown", "acks"]
)
def test_refused_batches_count_toward_the_quota(tmp_path: Path, acks: int, topic: str, damage: int) -> None:
    async def act(world: World) -> None:
        served = await with_topic(world)
        data = batch(noise(LARGE_BYTES))
        data[-1] ^= damage

        assert await served.produce(data, acks=acks, topic=topic)

        assert served.connection.mutes == 1

    in_world(tmp_path, act)
