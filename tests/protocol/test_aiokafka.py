"""aiokafka's admin client, and its members on one event loop; what it shares with other clients is in the stories."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import IllegalStateError, TopicAlreadyExistsError

from protocol.group_members import QUICK, SECONDS_MAX, SESSION_MS, committed, fill, numbered
from protocol.topics import fresh_name

BROKER_SETTINGS = QUICK
TIMEOUT = 100.0


async def until(admin: AIOKafkaAdminClient, ready: Callable[[list[str]], bool]) -> None:
    """Ask for the topics until they are as they must become; the test's own time limit ends it."""
    for _ in itertools.count():
        if ready(await admin.list_topics()):
            return
        await asyncio.sleep(0.02)


def test_its_admin_client_makes_and_deletes_topics(broker: Any, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            made = await admin.create_topics([NewTopic(name, 2, 1)])
            assert [error[1] for error in made.topic_errors] == [0]
            await until(admin, lambda topics: name in topics)
            again = await admin.create_topics([NewTopic(name, 2, 1)])
            assert [error[1] for error in again.topic_errors] == [TopicAlreadyExistsError.errno]
            await admin.delete_topics([name])
            await until(admin, lambda topics: name not in topics)
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(work(), TIMEOUT))


def test_members_on_one_loop_share_a_topic_and_one_takes_over(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=4)
    fill(broker, topic, numbered(40), partitions=4)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
        )

    async def read_to(consumer: AIOKafkaConsumer, end: int) -> bool:
        """Whether it has its two partitions, and has read so much of them."""
        places = consumer.assignment()
        try:
            return len(places) == 2 and sum([await consumer.position(place) for place in places]) == end
        except IllegalStateError:
            return False  # one of them was taken away in between

    async def work() -> None:
        first, second, seen = member(), member(), set()
        await first.start()
        await second.start()
        # The first member reads everything, and the records of partitions that it revokes are read again.
        while not (await read_to(first, 20) and await read_to(second, 20)):
            for consumer in (first, second):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    seen.update(record.value for record in records)
        await first.commit()
        await second.commit()
        await second.stop()
        while len(first.assignment()) != 4:
            await first.getmany(timeout_ms=100)
        await first.stop()
        assert seen == set(numbered(40))

    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))
    assert sum(committed(broker, group, topic, 4)) == 40
