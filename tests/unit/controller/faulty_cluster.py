"""Three brokers' catalogs, controllers and memberships on a simulated store with every fault on, and their judge."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from tests.unit.controller.faulty_run import Violation
from tests.unit.metadata.virtual_time import SeededRandomness

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step
from penstock.controller.controller import Controller
from penstock.controller.membership import Membership, bootstrap_cluster, reached
from penstock.controller.topics import Growth, NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.operations import Operation, Set
from penstock.metadata.records import (
    BROKER_CONFIGS,
    CHANGES,
    PARTITIONS,
    TOPICS,
    BrokerState,
    chunk_path,
    chunks_needed,
    unpack_partitions,
    unpack_topic,
)
from penstock.metadata.store import StoreFault
from penstock.model.errors import BrokerError
from penstock.model.topic import TopicState
from penstock.observe.log import logger
from penstock.testing.sim.store import SimSession, SimSource, SimStore, StoreFaults

FAULTS = StoreFaults(watch_delay_s_max=1.0, coalesce_percent=30, lose_percent=3, unknown_percent=12, lag_percent=50)
REQUESTS = 40
TOPIC_NAMES = 4
REQUEST_TIMEOUT_S = 60.0


class Member:
    """One broker, as far as its metadata goes."""

    def __init__(self, broker_id: int, session: SimSession, randomness: SeededRandomness) -> None:
        config = BrokerConfig(broker_id=broker_id)
        self.session = session
        self.catalog = Catalog()
        self.controller = Controller(store=session, catalog=self.catalog, randomness=randomness, config=lambda: config)
        self.membership = Membership(
            store=session,
            catalog=self.catalog,
            controller=self.controller,
            broker=BrokerState(broker_id=broker_id, endpoints=(), rack=None),
            log=logger("test"),
        )
        self._number = 0
        self._versions: dict[tuple[str, bytes], tuple[int, ...]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await reached(lambda: bootstrap_cluster(self.session, lambda: "the-cluster"))
        await reached(lambda: self.catalog.open(self.session))
        self.catalog.listen(self.follow)
        await reached(self.membership.join)
        self.tasks.append(asyncio.get_running_loop().create_task(self.membership.run()))

    def follow(self, delta: ImageDelta) -> None:
        if self.catalog.number < self._number:
            raise Violation(f"the image went back from {self._number} to {self.catalog.number}")
        self._number = self.catalog.number
        for change in delta.topics:
            after = change.after
            if after is not None:
                key, versions = (after.name, after.topic_id), (after.version, *after.chunk_versions)
                if versions[: len(self._versions.get(key, ()))] < self._versions.get(key, ()):
                    raise Violation(f"topic {after.name} went back from {self._versions[key]} to {versions}")
                self._versions[key] = versions

    def stop(self) -> None:
        self.catalog.close()
        for task in self.tasks:
            task.cancel()


class FaultyCluster:
    """Sends requests one after the other, and checks each response and the store after it."""

    def __init__(self, seed: int) -> None:
        self._randomness = SeededRandomness(seed)
        self.server = SimStore(self._randomness, session_timeout_s=4.0)
        self.members: list[Member] = []
        self.acknowledged = 0
        self.kinds: set[str] = set()
        self._epoch = -1
        self._settled: dict[str, bytes] | None = None
        """What the store showed when the last request was acknowledged."""
        commit = self.server.commit

        def judged(session: int, operations: list[Operation]) -> int | StoreFault:
            outcome = commit(session, operations)
            if isinstance(outcome, int):
                self._judge_transaction(operations)
            return outcome

        self.server.commit = judged  # type: ignore[method-assign, assignment]

    def _judge_transaction(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Set) and operation.path == CHANGES:
                epoch = int(operation.data.split(b".")[0])
                if epoch < self._epoch:
                    raise Violation(f"controller of epoch {epoch} wrote after that of {self._epoch}")
                self._epoch = epoch
        if any(operation.path.startswith((TOPICS, PARTITIONS)) for operation in operations):
            self.topics()

    def topics(self) -> dict[str, int]:
        """Topics with their number of partitions; each must be whole."""
        found: dict[str, int] = {}
        for path, node in self.server.nodes.items():
            if path.startswith(f"{TOPICS}/"):
                record = unpack_topic(node.data)
                states = []
                for number in range(chunks_needed(record.partitions)):
                    chunk = self.server.nodes.get(chunk_path(record.topic_id, number))
                    if chunk is None:
                        raise Violation(f"{path} has {record.partitions} partitions, and chunk {number} is missing")
                    states += unpack_partitions(chunk.data, number)
                if len(states) < record.partitions:
                    raise Violation(f"{path} has {len(states)} of {record.partitions} partitions")
                found[path.rpartition("/")[2]] = record.partitions
        return found

    def visible(self) -> dict[str, bytes]:
        """What requests have done so far."""
        parts = (f"{TOPICS}/", f"{BROKER_CONFIGS}/")
        return {path: node.data for path, node in self.server.nodes.items() if path.startswith(parts)}

    async def run(self) -> None:
        for broker_id in (1, 2, 3):
            member = Member(broker_id, await SimSource(self.server).open(), self._randomness)
            self.members.append(member)
            await member.start()
        self.server.faults = FAULTS
        # So small that a topic of three chunks needs several transactions.
        self.server.operations_max = 4
        for number in range(REQUESTS):
            await self._disturb()
            await asyncio.sleep(self._randomness.below(1_500) / 1_000)
            if self._settled is not None and self.visible() != self._settled:
                raise Violation("a transaction was done after the response to a later one")
            await self._request(number)
        await self._heal()

    async def _disturb(self) -> None:
        victim = self.members[self._randomness.below(3)].session.session
        match self._randomness.below(10):
            case 0:
                self.server.expire(victim)
            case 1 | 2:
                self.server.suspend(victim, self._randomness.below(8_000) / 1_000)

    async def _request(self, number: int) -> None:
        """Ask one broker after the other until one acknowledges; each attempt may be done all the same."""
        for _ in range(20):
            for member in self.members:
                self._settled = None
                try:
                    async with asyncio.timeout(REQUEST_TIMEOUT_S):
                        done = await self._ask(member, number)
                except TimeoutError:
                    raise Violation("a request was never answered") from None
                except BrokerError:
                    continue
                if done:
                    self.acknowledged += 1
                    self._settled = self.visible()
                    return
            await asyncio.sleep(1)

    async def _ask(self, member: Member, number: int) -> bool:
        name = f"t{self._randomness.below(TOPIC_NAMES)}"
        image = member.catalog.image
        outcome: Any
        match self._randomness.below(8):
            case 0 | 1:
                new = NewTopic(name=name, partitions=1 + self._randomness.below(300), replication_factor=1)
                [outcome] = await member.controller.create_topics([new])
                if isinstance(outcome, TopicState):
                    self._kind("create", outcome.name in image.topics, self.topics().get(name) == new.partitions)
            case 2:
                [outcome] = await member.controller.delete_topics([name])
                if isinstance(outcome, TopicState):
                    gone = outcome.topic_id not in image.topics_by_id
                    self._kind("delete", gone, name not in self.topics())
            case 3:
                have = 0 if name not in image.topics else len(image.topics[name].partitions)
                growth = Growth(name=name, count=have + 200)
                [outcome] = await member.controller.grow_topics([growth])
                if isinstance(outcome, TopicState):
                    seen = len(image.topics[name].partitions) == growth.count
                    self._kind("grow", seen, self.topics().get(name) == growth.count)
            case _:
                value = str(5_000 + number)
                step = SettingStep(name="message.max.bytes", step=Step.SET, value=value)
                change = ConfigChange(resource_type=ResourceType.BROKER, name="", steps=(step,))
                [outcome] = await member.controller.change_configs([change])
                if not isinstance(outcome, BrokerError):
                    path = f"{BROKER_CONFIGS}/<default>"
                    stored = json.loads(self.server.nodes[path].data) if path in self.server.nodes else {}
                    seen = image.broker_settings("<default>").get("message.max.bytes") == value
                    self._kind("settings", seen, stored.get("message.max.bytes") == value)
        return not isinstance(outcome, BrokerError)

    def _kind(self, kind: str, seen: bool, stored: bool) -> None:
        self.kinds.add(kind)
        if not stored:
            raise Violation(f"{kind} was acknowledged and is not in the store")
        if not seen:
            raise Violation(f"{kind} was acknowledged before this broker's image had it")

    async def _heal(self) -> None:
        """Switch the faults off: every image becomes what the store is, and one broker is controller."""
        self.server.faults = StoreFaults()
        await asyncio.sleep(60)
        active = [member for member in self.members if member.controller.is_active]
        if len(active) != 1:
            raise Violation(f"{len(active)} brokers think they are the controller")
        with suppress(BrokerError):
            await active[0].controller.create_topics([NewTopic(name="last", replication_factor=1)])
        await asyncio.sleep(5)
        truth = MetadataImage()
        truth.replace_with(self.server.nodes)
        for member in self.members:
            image = member.catalog.image
            if (image.topics, image.brokers) != (truth.topics, truth.brokers):
                raise Violation("an image differs from the store after the last fault")
            if image.broker_configs != truth.broker_configs or image.controller != truth.controller:
                raise Violation("an image differs from the store after the last fault")
        if "last" not in truth.topics or set(truth.brokers) != {1, 2, 3}:
            raise Violation(f"the cluster does not work: {set(truth.brokers)}")
        used = sum(len(topic.chunk_versions) for topic in truth.topics.values())
        left = sum(path.startswith(f"{PARTITIONS}/") for path in self.server.nodes) - used
        if truth.orphans() or left > TOPIC_NAMES * 10:
            raise Violation("partitions without a topic were left behind")

    def stop(self) -> None:
        for member in self.members:
            member.stop()
