"""aiokafka's admin client; what it shares with other clients is in the stories."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from protocol.topics import fresh_name

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
