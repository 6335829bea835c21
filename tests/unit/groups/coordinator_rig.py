"""Group coordinators on a disk in memory, without a network and with a clock that tests advance."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tests.unit.eventual import deliver
from tests.unit.partition.rig import HOME, Rig, Seeded, topic

from penstock.coordinator.step import Reply
from penstock.groups.commands import (
    CommitEntry,
    CommitOffsets,
    CommitReply,
    CommitTxnOffsets,
    DeleteGroups,
    GroupCommand,
    Heartbeat,
    JoinGroup,
    JoinReply,
    SyncGroup,
)
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.image import ImageDelta, MetadataImage, TopicChange
from penstock.model.errors import BrokerError
from penstock.model.topic import TopicState
from penstock.testing.mem_disk import MemDisk

OFFSETS = "__consumer_offsets"
SESSION_MS = 10_000
TURNS_MAX = 10_000


def offsets_topic(partitions: int = 1, configs: Mapping[str, str] | None = None) -> TopicState:
    return topic(OFFSETS, partitions, number=99, configs={"cleanup.policy": "compact", **(configs or {})})


class Groups:
    """One broker's coordinators. Topics: `orders` with four partitions, and `__consumer_offsets`."""

    def __init__(
        self,
        own: TopicState | None = None,
        disk: MemDisk | None = None,
        more: tuple[TopicState, ...] = (),
        paths: tuple[str, ...] = (HOME,),
    ) -> None:
        topics = (topic("orders", 4), own or offsets_topic(), *more)
        self.rig = Rig(*topics, disk=disk, paths=paths)
        self.image = MetadataImage()
        for one in topics:
            self.image.topics[one.name] = one
            self.image.topics_by_id[one.topic_id] = one
        self.coordinators = GroupCoordinatorService(
            replicas=self.rig.replicas,
            logs=self.rig.store,
            image=self.image,
            config=lambda: self.rig.config,
            clock=self.rig.clock,
            randomness=Seeded(),
            timers=self.rig.timers,
            threads=self.rig.threads,
            log=self.rig.notes,
        )
        self.coordinators.start()

    def of(self, group: str = "g") -> GroupCoordinatorContext:
        return self.coordinators.of(group)

    def ask(self, command: GroupCommand) -> list[Reply | BrokerError]:
        """Submit a command; returns the list that will hold the response."""
        responses: list[Reply | BrokerError] = []
        deliver(self.of(group_of(command)).submit(command), responses)
        return responses

    async def response(self, command: GroupCommand) -> Any:
        """Submit a command, run one turn of the loop, and return the response."""
        responses = self.ask(command)
        await asyncio.sleep(0)
        assert len(responses) == 1, f"{len(responses)} responses to {command}"
        return responses[0]

    async def commit(self, offset: int, group: str = "g", partition: int = 0, **fields: Any) -> Any:
        return await self.response(commit(offset, group, partition, **fields))

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        return {(found.topic, found.partition): found.offset for found in self.of(group).shard().fetch_offsets(group)}

    async def member(self, group: str = "g") -> tuple[str, int]:
        """Join as the only member of a group and sync; returns the member id and generation."""
        joining = self.ask(join(group))
        self.rig.loop.pass_ms(self.rig.config.group_initial_rebalance_delay_ms + 100)
        [reply] = joining
        assert isinstance(reply, JoinReply)
        assert reply.error is None, f"{reply}"
        await self.response(sync(group, reply.member_id, reply.generation))
        return reply.member_id, reply.generation

    def change(self, before: TopicState | None, after: TopicState | None) -> None:
        """Change the metadata, as the catalog does."""
        for one in (before, after):
            if one is not None:
                self.image.topics.pop(one.name, None)
                self.image.topics_by_id.pop(one.topic_id, None)
        if after is not None:
            self.image.topics[after.name] = after
            self.image.topics_by_id[after.topic_id] = after
        delta = ImageDelta(topics=(TopicChange(before=before, after=after),))
        self.rig.replicas.apply(delta)
        self.coordinators.follow(delta)

    async def load(self, until: Callable[[], object] | None = None) -> None:
        """Load all queued partitions, or until a condition holds."""
        loading = asyncio.create_task(self.coordinators.run())
        for _ in range(TURNS_MAX):
            if until() if until is not None else not self.coordinators.loading:
                break
            await asyncio.sleep(0)
        loading.cancel()
        await asyncio.wait([loading])

    def again(self, *, clean: bool = False) -> "Groups":
        """Another broker on the same disk, after this one was killed or stopped."""
        if clean:
            self.coordinators.close()
        return Groups(self.image.topics[OFFSETS], self.rig.stop(clean=clean))


def commit(offset: int, group: str = "g", partition: int = 0, **fields: Any) -> CommitOffsets:
    known = {"member_id": "", "group_instance_id": None, "generation": -1, "version": 9}
    entry = CommitEntry("orders", partition, offset, topic_id=topic("orders").topic_id)
    return CommitOffsets(group=group, entries=(entry,), **(known | fields))


def join(group: str = "g", member_id: str = "") -> JoinGroup:
    return JoinGroup(
        group=group,
        member_id=member_id,
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(("range", b"what I want"),),
        version=3,
    )


def sync(group: str, member_id: str, generation: int) -> SyncGroup:
    return SyncGroup(
        group=group,
        member_id=member_id,
        group_instance_id=None,
        generation=generation,
        protocol_type="consumer",
        protocol="range",
        assignments=((member_id, b"what I get"),),
    )


def beat(group: str, member_id: str, generation: int) -> Heartbeat:
    return Heartbeat(group=group, member_id=member_id, group_instance_id=None, generation=generation)


def with_groups(act: Callable[[Groups], Coroutine[Any, Any, None]], own: TopicState | None = None) -> None:
    async def whole() -> None:
        await act(Groups(own))

    asyncio.run(whole())


def took(reply: object) -> bool:
    return isinstance(reply, CommitReply) and not reply.failures


def group_of(command: GroupCommand) -> str:
    """The group of a command; the first of several, which are in one partition."""
    if isinstance(command, CommitTxnOffsets):
        return command.commit.group
    return command.groups[0] if isinstance(command, DeleteGroups) else command.group
