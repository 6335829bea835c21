"""aiokafka: producer, consumer and admin client on asyncio."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from protocol.topics import fresh_name

TIMEOUT = 100.0


def run(work: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT))


async def send_all(broker: Any, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        sent = [await producer.send(topic, value, partition=0) for value in values]
        return [metadata.offset if metadata is not None else -1 for metadata in await asyncio.gather(*sent)]


async def read(broker: Any, topic: str, count: int, **settings: Any) -> list[Any]:
    """The first messages of partition 0."""
    async with assigned(broker, topic, **settings) as consumer:
        return [await consumer.getone() for _ in range(count)]


def assigned(broker: Any, topic: str, **settings: Any) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def test_what_the_producer_sends_the_consumer_reads(broker: Any, topic: str) -> None:
    values = [b"value-%d" % number for number in range(300)]

    async def work() -> None:
        assert await send_all(broker, topic, values) == list(range(300))
        assert [(message.offset, message.value) for message in await read(broker, topic, 300)] == list(
            enumerate(values)
        )

    run(work())


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_whole(broker: Any, topic: str, codec: str) -> None:
    values = [b"squeeze %d " % number * 30 for number in range(100)]

    async def work() -> None:
        await send_all(broker, topic, values, compression_type=codec, linger_ms=20)
        assert [message.value for message in await read(broker, topic, 100)] == values

    run(work())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_delivers(broker: Any, topic: str, acks: Any) -> None:
    async def work() -> None:
        offsets = await send_all(broker, topic, [b"a", b"b"], acks=acks)
        assert acks == 0 or offsets == [0, 1]
        assert [message.value for message in await read(broker, topic, 2)] == [b"a", b"b"]

    run(work())


def test_its_idempotent_producer_delivers_in_order(broker: Any, topic: str) -> None:
    values = [b"%d" % number for number in range(500)]

    async def work() -> None:
        offsets = await send_all(broker, topic, values, enable_idempotence=True, max_batch_size=200)
        assert offsets == list(range(500))
        assert [message.value for message in await read(broker, topic, 500)] == values

    run(work())


def test_keys_headers_and_timestamps_round_trip(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    headers = (("trace", b"\x00\xff"), ("empty", b""))

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait(
                topic, key=b"k", value=b"v", partition=0, timestamp_ms=1_700_000_000_123, headers=list(headers)
            )
        [message] = await read(broker, topic, 1)
        assert (message.key, message.value, message.headers) == (b"k", b"v", headers)
        assert message.timestamp == 1_700_000_000_123

    run(work())


def test_a_consumer_seeks_by_offset_time_and_to_both_ends(broker: Any, make_topic: Any) -> None:
    topic = make_topic(retention_ms="-1")
    partition = TopicPartition(topic, 0)

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                stamp = 1_700_000_000_000 + number * 1000
                await producer.send_and_wait(topic, b"%d" % number, partition=0, timestamp_ms=stamp)
        async with assigned(broker, topic) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = (await consumer.offsets_for_times({partition: 1_700_000_004_500}))[partition]
            assert (found.offset, found.timestamp) == (5, 1_700_000_005_000)
            consumer.seek(partition, 8)
            assert (await consumer.getone()).offset == 8
            await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).offset == 0
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10

    run(work())


def test_a_waiting_consumer_gets_what_comes_later(broker: Any, topic: str) -> None:
    async def work() -> None:
        async with assigned(broker, topic) as consumer:
            waiting = asyncio.ensure_future(consumer.getone())
            await consumer.end_offsets([TopicPartition(topic, 0)])
            await send_all(broker, topic, [b"late"])
            assert (await waiting).value == b"late"

    run(work())


def test_a_message_too_large_for_the_topic_is_refused(broker: Any, make_topic: Any) -> None:
    topic = make_topic(max_message_bytes="2000")

    async def work() -> None:
        with pytest.raises(MessageSizeTooLargeError):
            await send_all(broker, topic, [b"x" * 5000])
        assert await send_all(broker, topic, [b"fits"]) == [0]

    run(work())


def admin_work(broker: Any, work: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
    async def within() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    run(within())


async def until(admin: AIOKafkaAdminClient, ready: Callable[[list[str]], bool]) -> None:
    """Ask for the topics until they are as they must become; the test's own time limit ends it."""
    for _ in itertools.count():
        if ready(await admin.list_topics()):
            return
        await asyncio.sleep(0.02)


def test_its_admin_client_makes_and_deletes_topics(broker: Any, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    async def work(admin: AIOKafkaAdminClient) -> None:
        made = await admin.create_topics([NewTopic(name, 2, 1)])
        assert [error[1] for error in made.topic_errors] == [0]
        await until(admin, lambda topics: name in topics)
        again = await admin.create_topics([NewTopic(name, 2, 1)])
        assert [error[1] for error in again.topic_errors] == [TopicAlreadyExistsError.errno]
        await admin.delete_topics([name])
        await until(admin, lambda topics: name not in topics)

    admin_work(broker, work)
