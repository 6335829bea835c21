"""Administrators of a simulation: one creates and deletes topics, so that the metadata store has work while it fails,
and one reassigns partitions, drains brokers and evens them out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from penstock.config.replica import ALL_LOG_DIRS, CORDONED_LOG_DIRS
from penstock.controller.balance import BrokerPlace, PartitionLoad, plan_balance
from penstock.controller.configs import ResourceType, Step
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.links import METADATA_VERSION, UNDECIDED, Code, Link, NotSent
from penstock.testing.sim.plan import EVENTS, LEDGER, PAIRS, Plan, Topic
from penstock.wire.api import alter_partition_reassignments as reassignments
from penstock.wire.api import create_topics, delete_topics, metadata
from penstock.wire.api import incremental_alter_configs as altered

REASSIGN_VERSION = 1
REASSIGN_PAUSE_MAX_S = 5.0
CANCELLED = 0.3
"""How often a reassignment is cancelled, where it is not complete before."""
CANCEL_REFUSED = frozenset({Code.INVALID_REPLICA_ASSIGNMENT, Code.NO_REASSIGNMENT_IN_PROGRESS})
DRAINED = 0.2
"""How often a broker is drained instead of a partition moved, and as often the cluster is evened out."""
MOVES_MAX = 4
"""Partitions that one plan moves: a part of a drain, which goes on another time."""
ALTER_CONFIGS_VERSION = 1
AUTO_BALANCED = 0.4
"""In how many seeds the controller evens out brokers by itself, too."""
AUTO_BALANCE = {"auto.balance": "true", "auto.balance.check.interval.seconds": "2"}
FACTORS = {EVENTS.name: 3, LEDGER.name: 3, PAIRS.name: 2, GROUP_OFFSETS_TOPIC: 3, TRANSACTION_STATE_TOPIC: 3}
"""Topics that are reassigned, with their fewest replicas; sometimes they have one more."""

CREATE_TOPICS_VERSION = 5
DELETE_TOPICS_VERSION = 5
TIMEOUT_MS = 2_000
PAUSE_MAX_S = 3.0
KEPT = 0.3
"""How often a topic stays."""

DONE_BEFORE = frozenset({Code.TOPIC_ALREADY_EXISTS, Code.UNKNOWN_TOPIC_OR_PARTITION})
"""An earlier attempt was carried out after all."""
TRIED_AGAIN = UNDECIDED | {Code.NOT_CONTROLLER, Code.BROKER_NOT_AVAILABLE, Code.INVALID_REPLICATION_FACTOR}


def creation_of(topics: tuple[Topic, ...], configs: Mapping[str, str], *, factor: int = 1) -> create_topics.Request:
    """A request to create topics with so many replicas."""
    return create_topics.Request(
        timeout_ms=TIMEOUT_MS,
        topics=[
            create_topics.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=factor,
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
        self._late = False
        """Whether a request of the current topic got no response: it may be carried out after later ones."""

    async def run(self) -> None:
        link, recording = self._link, self._link.recording
        while not self._plan.stopping:
            name = f"topic-{recording.values(1)[0]}"
            factor = link.random.randint(1, 3) if self._plan.replicated else 1
            request = creation_of((Topic(name=name, partitions=1),), {}, factor=factor)
            recording.topics[name] = None
            self._late = False
            if not await self._insist("a creation", create_topics, CREATE_TOPICS_VERSION, request):
                continue
            recording.topics[name] = True
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S)
            if link.random.random() < KEPT:
                continue
            recording.topics[name] = None
            created_late = self._late
            deletion = delete_topics.Request(topic_names=[name], timeout_ms=TIMEOUT_MS)
            if await self._insist("a deletion", delete_topics, DELETE_TOPICS_VERSION, deletion):
                recording.topics[name] = None if created_late else False
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S)

    async def _insist(self, what: str, api: ModuleType, version: int, request: Any) -> bool:
        """Whether it was carried out; never, only where the broker has no reason to refuse it."""
        link = self._link
        attempts = 0
        while True:
            attempts += 1
            address = link.any_broker()
            try:
                response = await link.ask(address, api, version, request)
            except NotSent:
                await link.backoff()
                continue
            except Disconnected:
                self._late = True
                await link.backoff()
                continue
            [result] = response.topics if api is create_topics else response.responses
            code = result.error_code
            if code:
                link.recording.line(f"{link.name}: {what} of {result.name} got {code} from {address[0]}")
            # A broker that forwards a request may send it to the controller more than once.
            if not code or ((attempts > 1 or self._plan.replicated) and code in DONE_BEFORE):
                link.recording.operations["topic change"] += 1
                return True
            if code not in TRIED_AGAIN:
                link.unexpected(f"attempt {attempts} of {what} of {result.name}", code)
                return False
            await link.backoff()


class Reassigner:
    """Moves replicas of partitions to other brokers, adds and removes one, and cancels some of it on the way.

    Sometimes it cordons a broker, moves some of its replicas away and undoes it, or carries out a part of a plan that
    evens out the brokers, both as `penstock cluster` does.

    A request whose response is lost is not repeated: whether it was carried out does not matter to the next one.
    """

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan

    async def run(self) -> None:
        link, plan = self._link, self._plan
        if plan.auto_balance is None:
            plan.auto_balance = link.random.random() < AUTO_BALANCED
        if plan.auto_balance:
            await self._set_auto_balance(on=True)
        await self._reassign()
        if plan.auto_balance:
            # At the end nothing may be in progress.
            await self._set_auto_balance(on=False)

    async def _set_auto_balance(self, *, on: bool) -> None:
        link = self._link
        while on is not self._plan.stopping:
            settings = [
                altered.AlterableConfig(
                    name=name, config_operation=Step.SET if on else Step.DELETE, value=value if on else None
                )
                for name, value in AUTO_BALANCE.items()
            ]
            try:
                if not await self._alter("", settings):
                    return
            except Disconnected:
                pass
            await link.backoff()

    async def _reassign(self) -> None:
        link = self._link
        while not self._plan.stopping or self._plan.cordoned is not None:
            await asyncio.sleep(link.random.random() * REASSIGN_PAUSE_MAX_S)
            try:
                if self._plan.cordoned is not None:
                    # One at a time, or too few brokers are left.
                    if self._plan.stopping or link.random.random() < KEPT:
                        await self._cordon(self._plan.cordoned, begins=False)
                    elif link.random.random() < DRAINED:
                        await self._move_by_plan()
                        continue
                elif not self._plan.ever_cordoned or link.random.random() < DRAINED:
                    await self._move_by_plan(drained=await self._drain())
                    continue
                if self._plan.stopping:
                    continue
                found = await self._any_partition()
                if found is None:
                    continue
                topic, index, brokers = found
                factor = FACTORS[topic] + (link.random.random() < KEPT)
                replicas = link.random.sample(brokers, min(factor, len(brokers)))
                await self._ask(topic, index, replicas)
                if link.random.random() < CANCELLED:
                    await asyncio.sleep(link.random.random())
                    await self._ask(topic, index, None)
            except Disconnected:
                await link.backoff()

    async def _drain(self) -> int:
        """Cordon a broker."""
        response = await self._described()
        broker: int = self._link.random.choice(sorted(each.node_id for each in response.brokers))
        # The outcome of the request may stay unknown.
        self._plan.cordoned = broker
        self._plan.ever_cordoned.add(broker)
        await self._cordon(broker, begins=True)
        return broker

    async def _cordon(self, broker: int, *, begins: bool) -> None:
        step = Step.SET if begins else Step.DELETE
        value = ALL_LOG_DIRS if begins else None
        setting = altered.AlterableConfig(name=CORDONED_LOG_DIRS, config_operation=step, value=value)
        if not await self._alter(str(broker), [setting]) and not begins:
            self._plan.cordoned = None

    async def _alter(self, broker: str, settings: list[altered.AlterableConfig]) -> int:
        """Change settings of a broker, or of all; the error code."""
        link = self._link
        resource = altered.AlterConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=broker, configs=settings
        )
        address = link.any_broker()
        response = await link.ask(address, altered, ALTER_CONFIGS_VERSION, altered.Request(resources=[resource]))
        code: int = response.responses[0].error_code
        changed = {each.name: each.value for each in settings}
        link.recording.line(f"{link.name}: {changed} of broker {broker!r} got {code} from {address[0]}")
        if code and code not in TRIED_AGAIN:
            link.unexpected(f"a change of {changed} of broker {broker!r}", code)
        return code

    async def _described(self) -> metadata.Response:
        wanted = [metadata.MetadataRequestTopic(name=name) for name in sorted(FACTORS)]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        response: metadata.Response = await self._link.ask(self._link.any_broker(), metadata, METADATA_VERSION, request)
        return response

    async def _move_by_plan(self, drained: int | None = None) -> None:
        """Carry out the first moves of a plan that empties a broker, or of one that evens all of them out."""
        response = await self._described()
        brokers = [
            BrokerPlace(
                broker_id=BrokerId(each.node_id),
                rack=each.rack,
                accepts=each.node_id != self._plan.cordoned,
                emptied=each.node_id == drained,
            )
            for each in response.brokers
        ]
        partitions = [
            PartitionLoad(
                tp=TopicPartition(topic.name or "", each.partition_index),
                replicas=tuple(map(BrokerId, each.replica_nodes)),
            )
            for topic in response.topics
            for each in topic.partitions
        ]
        moves = plan_balance(brokers, partitions, copies_max=MOVES_MAX, even=drained is None)
        self._link.recording.line(f"{self._link.name}: {len(moves)} moves, drained {drained}")
        for move in moves[:MOVES_MAX]:
            await self._ask(move.tp.topic, move.tp.partition, list(move.after))

    async def _any_partition(self) -> tuple[str, int, list[int]] | None:
        """A partition of a topic that there is, and the brokers that a broker knows."""
        link = self._link
        name = link.random.choice(sorted(FACTORS))
        wanted = metadata.Request(topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await link.ask(link.any_broker(), metadata, METADATA_VERSION, wanted)
        [topic] = response.topics
        if topic.error_code or not topic.partitions:
            return None
        partition = link.random.choice(topic.partitions)
        return name, partition.partition_index, sorted(each.node_id for each in response.brokers)

    async def _ask(self, topic: str, index: int, replicas: list[int] | None) -> None:
        link = self._link
        partition = reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        request = reassignments.Request(
            timeout_ms=TIMEOUT_MS, topics=[reassignments.ReassignableTopic(name=topic, partitions=[partition])]
        )
        address = link.any_broker()
        response = await link.ask(address, reassignments, REASSIGN_VERSION, request)
        code = response.error_code or response.responses[0].partitions[0].error_code
        link.recording.line(f"{link.name}: {topic}-{index} to {replicas} got {code} from {address[0]}")
        # A cancellation would leave no replica in sync, or comes after the end.
        refused: frozenset[Code] = CANCEL_REFUSED if replicas is None else frozenset()
        if replicas is not None and self._plan.ever_cordoned.intersection(replicas):
            refused = frozenset({Code.INVALID_REPLICA_ASSIGNMENT})
        if code and code not in TRIED_AGAIN | refused:
            link.unexpected(f"a reassignment of {topic}-{index} to {replicas}", code)


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
