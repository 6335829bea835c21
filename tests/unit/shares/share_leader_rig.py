"""A leader of share partitions on a disk in memory, with a coordinator that a test can look into."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from tests.unit.partition.rig import Rig

from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred
from penstock.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from penstock.model.topic import TopicState
from penstock.shares.batches import ReadBatches
from penstock.shares.dead_letters import DeadLetters
from penstock.shares.leader import LedSharePartition, LedSharePartitions
from penstock.shares.persister import SharePartitionState, StateBatch
from penstock.shares.sessions import SharedPartition
from penstock.shares.settings import GroupSettings
from penstock.shares.share_partition import Acknowledged
from penstock.wire.api import produce as produce_api

GROUP = "workers"
TURNS = 20
"""Turns of the loop in which everything that threads and coroutines have done is done."""


class Coordinator:
    """Keeps what leaders write."""

    def __init__(self) -> None:
        self.start = Offset(-1)
        self.batches: dict[int, StateBatch] = {}
        self.writes: list[tuple[int, list[StateBatch]]] = []

    def read(self, group: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch) -> Deferred[Any]:
        found: Deferred[SharePartitionState] = Deferred()
        batches = [batch for _, batch in sorted(self.batches.items())]
        found.resolve(SharePartitionState(0, self.start, -1, batches))
        return found

    def write(self, *args: Any) -> Deferred[None]:
        _, _, _, _, _, start, _, batches = args
        self.writes.append((start, list(batches)))
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                self.batches[offset] = batch._replace(first=offset, last=offset)
        if start >= 0:
            self.start = start
            self.batches = {offset: batch for offset, batch in self.batches.items() if offset >= start}
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done


class Peers:
    """Brokers that a test answers for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, produce_api.Request, Deferred[produce_api.Response]]] = []

    def send(self, broker_id: int, purpose: object, api: object, request: Any, **_: Any) -> Deferred[Any]:
        answer: Deferred[produce_api.Response] = Deferred()
        self.asked.append((broker_id, request, answer))
        return answer


class Leader:
    """One broker that leads topics and the share partitions of their groups."""

    def __init__(self, *topics: TopicState, settings: Mapping[str, str]) -> None:
        self.rig = Rig(*topics)
        self.image = MetadataImage()
        for each in topics:
            self.image.topics[each.name] = each
        self.coordinator, self.peers = Coordinator(), Peers()
        self.tasks: list[asyncio.Task[None]] = []
        self.overrides = {GROUP: {"share.auto.offset.reset": "earliest", **settings}}
        self.dead_letters = DeadLetters(
            broker_id=BrokerId(1),
            image=self.image,
            replicas=self.rig.replicas,
            peers=self.peers,  # type: ignore[arg-type]
            timers=self.rig.timers,
            threads=self.rig.threads,
            clock=self.rig.clock,
            spawn=self.spawn,
            timeout_ms=lambda: 1_000,
            log=self.rig.notes,
        )
        self.led = self.begin()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def begin(self) -> LedSharePartitions:
        """Lead as a broker that has just been elected."""
        self.led = LedSharePartitions(
            replicas=self.rig.replicas,
            persister=self.coordinator,  # type: ignore[arg-type]
            settings=GroupSettings(self.overrides, lambda: self.rig.config),
            timers=self.rig.timers,
            threads=self.rig.threads,
            spawn=self.spawn,
            now_ms=lambda: int(self.rig.clock.monotonic() * 1000),
            now_wall_ms=self.rig.clock.now_ms,
            has_sessions=lambda _: True,
            log=self.rig.notes,
            dead_letters=self.dead_letters,
        )
        return self.led

    def share(self, topic: str = "orders", partition: int = 0) -> LedSharePartition:
        return self.led.get(GROUP, SharedPartition(self.rig.replica(topic, partition).topic_id, partition))

    def fetch(
        self, member: str = "m", *, topic: str = "orders", records_max: int = 500, bytes_max: int = 1 << 20
    ) -> list[tuple[int, int, int]]:
        """What a member acquires now."""
        led = self.share(topic)
        offset = led.next_offset()
        if offset is None:
            return []
        fetched = led.replica.read(offset, bytes_max, at_least_one=True)
        batches = ReadBatches(fetched.records, None)
        taken = led.acquire(member, batches, offset, records_max=records_max, records_exact=True, batch_size=0)
        return [tuple(each) for each in taken]

    def say(self, kind: int, first: int, last: int | None = None, member: str = "m", *, topic: str = "orders") -> None:
        self.share(topic).acknowledge(member, [Acknowledged(first, first if last is None else last, [kind])])

    async def settle(self) -> None:
        """Let what was begun end."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def pass_ms(self, ms: int) -> None:
        self.rig.loop.pass_ms(ms)
        await self.settle()


def runs(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine."""

    def test() -> None:
        asyncio.run(story())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def written(coordinator: Coordinator) -> Sequence[tuple[int, int]]:
    """Offset and state of everything written, in order."""
    return [
        (offset, batch.state)
        for _, batches in coordinator.writes
        for batch in batches
        for offset in range(batch.first, batch.last + 1)
    ]
