"""Members of groups in a simulation, of both protocols: they read, commit what they have read, and rejoin.

A commit whose outcome is unknown may arrive long after its member has given up. A member therefore goes on as a new
member after one: a late commit of the same member could move the offset back, and Kafka would let it. Now and then a
member falls asleep between reading and committing, for longer than its session lasts, and then commits as a zombie.
"""

from __future__ import annotations

import asyncio
from struct import Struct

from penstock.groups.consumer.embedded_protocol import read_assignment, read_subscription, write_assignment
from penstock.testing.histories import Moved
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.consumers import Fetcher, Seen
from penstock.testing.sim.links import ELSEWHERE, GROUP_KEY, UNDECIDED, Code, Link, NotSent
from penstock.testing.sim.observer import committed_offsets
from penstock.testing.sim.plan import CLASSIC_GROUP, CONSUMER_GROUP, EVENTS, Plan
from penstock.testing.sim.recording import key_of
from penstock.wire.api import (
    consumer_group_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    sync_group,
)

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
OFFSET_COMMIT_VERSION = 9
CONSUMER_HEARTBEAT_VERSION = 1

REBALANCE_TIMEOUT_MS = 6_000
JOIN_S = 10.0
"""How long a member waits for the others to join."""
HEARTBEAT_S = 0.5
POLL_MS = 500
ZOMBIE = 0.05
"""How often a member falls asleep before it commits."""
LEAVES = 0.01
"""How often a member leaves after a commit, and comes back."""

PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"
LEAVING_EPOCH = -1
RENEWING = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_MEMBER_EPOCH})
"""The member is not, or no longer, what it takes itself for."""

INT16 = Struct(">h")
INT32 = Struct(">i")


class Rejoin(Exception):
    """This membership is over; the member may know why."""


def write_subscription(topic: str) -> bytes:
    """What a consumer of one topic says of itself, in version 0."""
    name = topic.encode()
    return INT16.pack(0) + INT32.pack(1) + INT16.pack(len(name)) + name + INT32.pack(-1)


class Membership:
    """What members of both protocols do alike: read what they own, and commit it."""

    def __init__(self, link: Link, plan: Plan, *, group: str) -> None:
        self.link = link
        self.plan = plan
        self.group = group
        self.member_id = ""
        self.epoch = -1
        """The generation, or the member's epoch."""
        self._process = link.recording.process(link.name)
        self._fetcher = Fetcher(link, committed=False, sessions=False, process=self._process)

    @property
    def owned(self) -> set[int]:
        return {index for _, index in self._fetcher.positions}

    async def own(self, indexes: set[int]) -> None:
        """Read these partitions: new ones from where the group is, others from where this member is."""
        positions = self._fetcher.positions
        for place in list(positions):
            if place[1] not in indexes:
                del positions[place]
        added = sorted(indexes - self.owned)
        if not added:
            return
        at = await self._committed()
        for index in added:
            self._fetcher.seek((EVENTS.name, index), max(at[key_of(EVENTS.name, index)], 0))
        keys = tuple(key_of(EVENTS.name, index) for index in added)
        self.link.recording.add(Moved(process=self._process, keys=keys))

    def disown(self) -> None:
        self._fetcher.positions.clear()

    async def _committed(self) -> dict[str, int]:
        for _ in range(20):
            found = await committed_offsets(
                self.link, self.group, (EVENTS,), stable=True, member_id=self._member(), epoch=self._member_epoch()
            )
            if found is not None:
                return found
            await self.link.backoff()
        raise Rejoin("the committed offsets are not known")

    def _member(self) -> str | None:
        return None

    def _member_epoch(self) -> int:
        return -1

    async def poll(self) -> Seen:
        """Read on."""
        recording = self.link.recording
        seen = await self._fetcher.poll(wait_ms=POLL_MS)
        if seen:
            recording.polled_by(f"{self.group} poll", self._process, seen)
            for key, pairs in seen.items():
                recording.polled.setdefault((self.group, key), set()).update(offset for offset, _ in pairs)
        return seen

    async def commit(self) -> None:
        """Commit the positions; `Rejoin` where this member may not, or does not learn whether it did."""
        link = self.link
        if link.random.random() < ZOMBIE:
            link.world.counts["zombie commits"] += 1
            await asyncio.sleep(self.plan.session_timeout_ms / 1000 * link.random.uniform(1.3, 2.5))
        offsets = dict(self._fetcher.positions)
        request = offset_commit.Request(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=EVENTS.name,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=at)
                        for (_, index), at in offsets.items()
                    ],
                )
            ],
        )
        try:
            response = await link.ask_coordinator(GROUP_KEY, self.group, offset_commit, OFFSET_COMMIT_VERSION, request)
        except NotSent:
            await link.backoff()
            return
        except Disconnected:
            raise Rejoin("a commit has an unknown outcome") from None
        codes = {part.error_code for topic in response.topics for part in topic.partitions}
        link.recording.operations[f"{self.group} commit"] += 1
        if codes == {Code.NONE}:
            link.recording.commit_acknowledged(self.group, {key_of(*place): at for place, at in offsets.items()})
            return
        link.recording.line(f"{link.name}: a commit of {self.member_id} at {self.epoch} got {sorted(codes)}")
        if codes & UNDECIDED:
            raise Rejoin("a commit has an unknown outcome")
        if codes <= ELSEWHERE:
            link.forget()
            await link.backoff()
        elif codes <= {Code.REBALANCE_IN_PROGRESS, Code.STALE_MEMBER_EPOCH}:
            return
        elif codes <= RENEWING:
            link.world.counts["fenced commits"] += 1
            raise Rejoin("fenced")
        else:
            link.unexpected(f"a commit of {self.group}", max(codes))
            raise Rejoin("refused")


class ClassicMember(Membership):
    """A member that joins, is assigned partitions by the member that leads, and sends heartbeats."""

    def __init__(self, link: Link, plan: Plan) -> None:
        super().__init__(link, plan, group=CLASSIC_GROUP)

    async def run(self) -> None:
        while not self.plan.stopping:
            try:
                assigned = await self._join()
                if assigned is not None:
                    await self.own(assigned)
                    await self._stay()
            except Rejoin as over:
                self.link.recording.line(f"{self.link.name}: {self.member_id} goes on as a new member: {over}")
                await self._leave()
            except Disconnected:
                await self.link.backoff()
            self.disown()
        await self._leave()

    async def _join(self) -> set[int] | None:
        """Join and sync: the partitions of this member, or None where it has to be done again."""
        link = self.link
        protocol = join_group.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=write_subscription(EVENTS.name))
        request = join_group.Request(
            group_id=self.group,
            session_timeout_ms=self.plan.session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        joined = await link.ask_coordinator(GROUP_KEY, self.group, join_group, JOIN_VERSION, request, timeout_s=JOIN_S)
        if joined.error_code:
            await self._refused("a join", joined.error_code, joined.member_id)
            return None
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        link.recording.operations["classic-readers join"] += 1
        assignments = [] if joined.leader != self.member_id else assign(joined.members)
        synced = await link.ask_coordinator(
            GROUP_KEY,
            self.group,
            sync_group,
            SYNC_VERSION,
            sync_group.Request(
                group_id=self.group,
                generation_id=self.epoch,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=ASSIGNOR,
                assignments=assignments,
            ),
            timeout_s=JOIN_S,
        )
        if synced.error_code:
            await self._refused("a sync", synced.error_code, self.member_id)
            return None
        partitions = dict(read_assignment(synced.assignment).partitions)
        return set(partitions.get(EVENTS.name, ()))

    async def _refused(self, what: str, code: int, member_id: str) -> None:
        if code == Code.MEMBER_ID_REQUIRED:
            self.member_id = member_id
            return
        if code in RENEWING:
            self.member_id = ""
        elif code in ELSEWHERE:
            self.link.forget()
        elif code not in UNDECIDED and code != Code.REBALANCE_IN_PROGRESS:
            self.link.unexpected(what, code)
        await self.link.backoff()

    async def _stay(self) -> None:
        """Read and commit until the group rebalances."""
        link = self.link
        beat_at = 0.0
        while not self.plan.stopping:
            if link.world.now >= beat_at:
                beat_at = link.world.now + HEARTBEAT_S
                if not await self._beat():
                    return
            if await self.poll():
                await self.commit()
                if link.random.random() < LEAVES:
                    raise Rejoin("it leaves")
            await asyncio.sleep(link.random.random() * 0.2 / self.plan.pace)

    async def _beat(self) -> bool:
        """Send a heartbeat; whether the membership goes on as it is."""
        request = heartbeat.Request(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        response = await self.link.ask_coordinator(GROUP_KEY, self.group, heartbeat, HEARTBEAT_VERSION, request)
        code = response.error_code
        if not code:
            return True
        if code in ELSEWHERE | UNDECIDED:
            self.link.forget()
            await self.link.backoff()
            return True
        if code in RENEWING:
            self.member_id = ""
        elif code != Code.REBALANCE_IN_PROGRESS:
            self.link.unexpected("a heartbeat", code)
        return False

    async def _leave(self) -> None:
        """Leave; a member that cannot say so is put out when its session ends."""
        if self.member_id:
            leaving = leave_group.MemberIdentity(member_id=self.member_id)
            request = leave_group.Request(group_id=self.group, members=[leaving])
            self.member_id = ""
            try:
                await self.link.ask_coordinator(GROUP_KEY, self.group, leave_group, LEAVE_VERSION, request)
            except Disconnected:
                await self.link.backoff()


def assign(members: list[join_group.JoinGroupResponseMember]) -> list[sync_group.SyncGroupRequestAssignment]:
    """Give the partitions to the members in turn."""
    readers = sorted(each.member_id for each in members if EVENTS.name in read_subscription(each.metadata).topics)
    shares: dict[str, list[int]] = {member_id: [] for member_id in readers}
    for index in range(EVENTS.partitions):
        shares[readers[index % len(readers)]].append(index)
    return [
        sync_group.SyncGroupRequestAssignment(
            member_id=member_id, assignment=write_assignment([(EVENTS.name, indexes)] if indexes else [], 0)
        )
        for member_id, indexes in shares.items()
    ]


class ConsumerMember(Membership):
    """A member of the consumer protocol (KIP-848): heartbeats tell it what it owns."""

    def __init__(self, link: Link, plan: Plan) -> None:
        super().__init__(link, plan, group=CONSUMER_GROUP)
        self._randomness = SimRandomness(link.random)
        self._target: set[int] | None = None
        self._told = False
        """Whether the coordinator knows what this member owns."""

    def _member(self) -> str | None:
        return self.member_id

    def _member_epoch(self) -> int:
        return self.epoch

    async def run(self) -> None:
        while not self.plan.stopping:
            self.member_id = self._randomness.uuid_bytes().hex()
            try:
                await self._live()
            except Rejoin as over:
                self.link.recording.line(f"{self.link.name}: {self.member_id} goes on as a new member: {over}")
            self.disown()
            await self._leave()

    def _begin(self) -> None:
        self.epoch, self._target, self._told = 0, None, False

    async def _live(self) -> None:
        """One membership, from joining until it is over."""
        link = self.link
        self._begin()
        beat_at = 0.0
        while not self.plan.stopping:
            if link.world.now >= beat_at or not self._told:
                beat_at = link.world.now + HEARTBEAT_S
                try:
                    await self._beat()
                    if self._target is not None and self._target != self.owned:
                        await self.own(self._target)
                        self._told = False
                except Disconnected:
                    await link.backoff()
            if self.epoch > 0 and await self.poll():
                await self.commit()
                if link.random.random() < LEAVES:
                    raise Rejoin("it leaves")
            await asyncio.sleep(link.random.random() * 0.2 / self.plan.pace)

    async def _beat(self) -> None:
        link = self.link
        owned = consumer_group_heartbeat.TopicPartitions(
            topic_id=await link.topic_id(EVENTS.name), partitions=sorted(self.owned)
        )
        joins = self.epoch == 0
        request = consumer_group_heartbeat.Request(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[EVENTS.name] if joins else None,
            topic_partitions=[] if joins else [owned] if owned.partitions else [],
        )
        response = await link.ask_coordinator(
            GROUP_KEY, self.group, consumer_group_heartbeat, CONSUMER_HEARTBEAT_VERSION, request
        )
        code = response.error_code
        if not code:
            self._told = True
            if joins:
                link.recording.operations["consumer-readers join"] += 1
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._target = {index for topic in response.assignment.topic_partitions for index in topic.partitions}
            return
        if code in RENEWING:
            raise Rejoin("fenced")
        if code in ELSEWHERE | UNDECIDED:
            link.forget()
        else:
            link.unexpected("a heartbeat of the consumer protocol", code)
        await link.backoff()

    async def _leave(self) -> None:
        request = consumer_group_heartbeat.Request(
            group_id=self.group, member_id=self.member_id, member_epoch=LEAVING_EPOCH
        )
        try:
            await self.link.ask_coordinator(
                GROUP_KEY, self.group, consumer_group_heartbeat, CONSUMER_HEARTBEAT_VERSION, request
            )
        except Disconnected:
            await self.link.backoff()
