"""An administrator of a simulation: creates and deletes topics, so that the metadata store has work while it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.links import METADATA_VERSION, UNDECIDED, Code, Link
from penstock.testing.sim.plan import Plan, Topic
from penstock.wire.api import create_topics, delete_topics, metadata

CREATE_TOPICS_VERSION = 5
DELETE_TOPICS_VERSION = 5
TIMEOUT_MS = 2_000
PAUSE_MAX_S = 3.0
KEPT = 0.3
"""How often a topic stays."""

DONE_BEFORE = frozenset({Code.TOPIC_ALREADY_EXISTS, Code.UNKNOWN_TOPIC_OR_PARTITION})
"""An earlier attempt was carried out after all."""
TRIED_AGAIN = UNDECIDED | {Code.NOT_CONTROLLER, Code.BROKER_NOT_AVAILABLE}


def creation_of(topics: tuple[Topic, ...], configs: Mapping[str, str]) -> create_topics.Request:
    """A request to create topics with one replica."""
    return create_topics.Request(
        timeout_ms=TIMEOUT_MS,
        topics=[
            create_topics.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=1,
                configs=[create_topics.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
            )
            for topic in topics
        ],
    )


class Administrator:
    """Creates a topic, and deletes most of them again; each request is repeated until its outcome is known."""

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan

    async def run(self) -> None:
        link, recording = self._link, self._link.recording
        while not self._plan.stopping:
            name = f"topic-{recording.values(1)[0]}"
            request = creation_of((Topic(name=name, partitions=1),), {})
            recording.topics[name] = None
            if not await self._insist("a creation", create_topics, CREATE_TOPICS_VERSION, request):
                continue
            recording.topics[name] = True
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S)
            if link.random.random() < KEPT:
                continue
            recording.topics[name] = None
            deletion = delete_topics.Request(topic_names=[name], timeout_ms=TIMEOUT_MS)
            if await self._insist("a deletion", delete_topics, DELETE_TOPICS_VERSION, deletion):
                recording.topics[name] = False
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S)

    async def _insist(self, what: str, api: ModuleType, version: int, request: Any) -> bool:
        """Whether it was carried out; never, only where the broker has no reason to refuse it."""
        link = self._link
        attempts = 0
        while True:
            attempts += 1
            try:
                response = await link.ask(link.any_broker(), api, version, request)
            except Disconnected:
                await link.backoff()
                continue
            [answered] = response.topics if api is create_topics else response.responses
            code = answered.error_code
            if not code or (attempts > 1 and code in DONE_BEFORE):
                link.recording.operations["topic change"] += 1
                return True
            if code not in TRIED_AGAIN:
                link.unexpected(f"attempt {attempts} of {what} of {answered.name}", code)
                return False
            await link.backoff()


async def check_topics(link: Link) -> None:
    """Compare the topics that there are with those that were created and deleted, by the brokers' word."""
    recording = link.recording
    request = metadata.Request(topics=None)
    while True:
        try:
            response = await link.ask(link.any_broker(), metadata, METADATA_VERSION, request)
        except Disconnected:
            await link.backoff()
            continue
        break
    there = {topic.name for topic in response.topics}
    for name, wanted in recording.topics.items():
        if wanted is True and name not in there:
            recording.finding(f"topic {name} was created, and is not there")
        if wanted is False and name in there:
            recording.finding(f"topic {name} was deleted, and is there")
