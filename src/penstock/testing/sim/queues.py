"""Share groups in a simulation: members that accept, release, reject, renew and fall asleep, and what they saw.

A member's hold on a record is certain only while its connection to the leader is: whatever happens to that is noted
with the last moment at which it was known to be whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from penstock.controller.configs import ResourceType, Step
from penstock.testing.histories.deliveries import (
    Acknowledged,
    Acknowledgement,
    Deliveries,
    Delivery,
    End,
    Gone,
    Rules,
    Start,
    check_deliveries,
)
from penstock.testing.sim.actors import Worker
from penstock.testing.sim.administrators import TRIED_AGAIN
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.consumers import Seen, read_records
from penstock.testing.sim.links import ELSEWHERE, GROUP_KEY, UNDECIDED, Address, Code, Link, NotSent
from penstock.testing.sim.plan import LEDGER, Plan, Topic
from penstock.testing.sim.producers import PlainProducer, key_of_value
from penstock.testing.sim.recording import key_of
from penstock.wire.api import (
    describe_share_group_offsets,
    fetch,
    incremental_alter_configs,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)

JOBS = Topic(name="jobs", partitions=2)
"""Written without transactions, read by share groups."""

PARCELS = Topic(name="parcels", partitions=2)
"""Its records have keys, in whose order a share group reads them."""
LETTERS = Topic(name="dlq.parcels", partitions=2)
"""What that group gives up."""
LETTERS_CONFIGS = {"errors.deadletterqueue.group.enable": "true"}
KEYS = 7
BACKOFF_MS, BACKOFF_MS_MAX = 300, 1_000

HEARTBEAT_VERSION = 1
SHARE_FETCH_VERSION = 2
SHARE_ACKNOWLEDGE_VERSION = 2
DESCRIBE_VERSION = 1
ALTER_CONFIGS_VERSION = 1

LOCK_S = 3.0
DELIVERIES_MAX = 5
HELD_MAX = 100
HEARTBEAT_S = 0.5
WAIT_MS = 500
RECORDS_MAX = 10
FETCH_BYTES_MAX = 64 * 1024
LEAVES = 0.02
"""How often a member leaves after a fetch, and comes back as another."""
POISONED_EVERY = 37
"""One value of so many is released by every member until it is archived."""
RELEASED, REJECTED, RENEWED, ASLEEP = 0.08, 0.03, 0.04, 0.03
"""How often a member does something else than accepting."""
WORK_S_MAX = 0.6
"""How long a member works on a record before it acknowledges it."""
OVERSLEEP = 1.4
"""A member that falls asleep acknowledges after so many times the lock's duration."""
LOOK_S = 1.0
DRAIN_IDLE_S = 3 * LOCK_S
"""When nothing has been delivered for so long, no record is held or released any more."""
DRAIN_S = 150.0

CLOCK_MS = 2
"""What the clocks of a broker and a member may round away together."""

RULES = Rules(deliveries_max=DELIVERIES_MAX, lock_s=LOCK_S, held_max=HELD_MAX)


def backoff_s(deliveries: int) -> float:
    """How long a released record waits at least after so many deliveries."""
    return (min(BACKOFF_MS << (deliveries - 1), BACKOFF_MS_MAX) - CLOCK_MS) / 1000


OPENS, CLOSES = 0, -1
LEAVING = -1

SETTINGS: dict[str, str] = {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "4000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
}
"""Of every broker: groups settle within seconds, and states have snapshots."""

CLUSTER_SETTINGS: dict[str, str] = {
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
ALONE_SETTINGS: dict[str, str] = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

FENCED_STATE_EPOCH = 124
UNKNOWN_TOPIC_ID = 100
SESSION_GONE = frozenset({122, 123, 133})
"""SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH and SHARE_SESSION_LIMIT_REACHED."""
NOT_HELD = frozenset({121, 42})
"""INVALID_RECORD_STATE, and INVALID_REQUEST for what the present leader has not handed out yet."""
MOVED = ELSEWHERE | {UNKNOWN_TOPIC_ID, FENCED_STATE_EPOCH, Code.KAFKA_STORAGE_ERROR}
"""The partition is led by another, or its state is written by another."""
RENEWING = frozenset({Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, 69})
"""The member is not, or no longer, one of the group; GROUP_ID_NOT_FOUND among them."""

TYPES = {
    Acknowledgement.ACCEPT: 1,
    Acknowledgement.RELEASE: 2,
    Acknowledgement.REJECT: 3,
    Acknowledgement.RENEW: 4,
}
GAP = 0

EVENTS = (
    "share deliver",
    "share redeliver",
    *(f"share {kind}" for kind in Acknowledgement),
    "share join",
    "share leave",
)
"""What a run must have done, each at least once."""
DEAD_LETTER = "share dead letter"


@dataclass(slots=True, kw_only=True)
class Queue:
    """A share group, its settings and its history."""

    name: str
    topic: Topic
    configs: dict[str, str] = field(default_factory=dict[str, str])
    history: Deliveries = field(default_factory=Deliveries)
    rules: Rules = RULES
    letters: Topic | None = None
    """Its dead letters."""
    counts: Counter[str] = field(default_factory=Counter[str])
    open: dict[int, Acknowledged] = field(default_factory=dict[int, Acknowledged])
    """Acknowledgements whose outcome is not known yet."""
    alive: dict[str, ShareMember] = field(default_factory=dict[str, "ShareMember"])
    """By client: the member of its current life."""
    numbers: int = 0

    def all_configs(self) -> dict[str, str]:
        return {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
            "share.delivery.count.limit": str(DELIVERIES_MAX),
            "share.partition.max.record.locks": str(HELD_MAX),
            **self.configs,
        }

    def begin(self, acknowledged: Acknowledged) -> int:
        self.numbers += 1
        self.open[self.numbers] = acknowledged
        return self.numbers

    def end(self, number: int, *, at: float | None, epoch: int | None = None) -> None:
        """Note the outcome: confirmed at a time, or unknown."""
        began = self.open.pop(number)
        self.history.acknowledged.append(
            Acknowledged(
                member=began.member,
                key=began.key,
                offset=began.offset,
                kind=began.kind,
                sent_at=began.sent_at,
                at=at,
                epoch=epoch,
            )
        )
        if at is not None:
            self.counts[f"share {began.kind}"] += 1

    def refused(self, number: int) -> None:
        """Forget an acknowledgement that was certainly not carried out."""
        del self.open[number]

    def check(self, seen: Seen, letters: Seen | None = None) -> Iterator[tuple[str, str]]:
        """What is wrong, by partition; `seen` has the records of the topics, `letters` the dead ones."""
        for number in list(self.open):
            self.end(number, at=None)
        keys = set(self.topic.partition_keys())
        log = {(key, offset): value for key, pairs in seen.items() if key in keys for offset, value in pairs}
        dead: Counter[tuple[str, int]] | None = None
        if letters is not None:
            # A letter has the value of its record, and each value is sent once.
            places = {value: place for place, value in log.items()}
            dead = Counter(places[value] for pairs in letters.values() for _, value in pairs if value in places)
            self.counts[DEAD_LETTER] = len(dead)
        for finding in check_deliveries(self.history, self.rules, End(log=log, dead=dead)):
            yield finding.key, f"share group {self.name}: {finding}"


WORKERS, CLERKS, COURIERS = "workers", "clerks", "couriers"


def queues() -> tuple[Queue, ...]:
    """The share groups of a simulation as Kafka has them."""
    return (
        Queue(name=WORKERS, topic=JOBS),
        Queue(name=CLERKS, topic=LEDGER, configs={"share.isolation.level": "read_committed"}),
    )


def letter_queue() -> Queue:
    """The share group with what Kafka lacks: order by key, backoff, dead letters."""
    return Queue(
        name=COURIERS,
        topic=PARCELS,
        letters=LETTERS,
        configs={
            "share.order": "key",
            "share.retry.backoff.ms": str(BACKOFF_MS),
            "share.retry.backoff.max.ms": str(BACKOFF_MS_MAX),
            "errors.deadletterqueue.topic.name": LETTERS.name,
        },
        rules=replace(RULES, by_key=True, backoff_s=backoff_s),
    )


async def configure(link: Link, queue: Queue) -> None:
    """Set the group's settings, however often that must be asked for."""
    changes = [
        incremental_alter_configs.AlterableConfig(name=name, config_operation=Step.SET, value=value)
        for name, value in queue.all_configs().items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=ResourceType.GROUP, resource_name=queue.name, configs=changes
    )
    request = incremental_alter_configs.Request(resources=[resource])
    while True:
        response = await link.ask(link.any_broker(), incremental_alter_configs, ALTER_CONFIGS_VERSION, request)
        [result] = response.responses
        if not result.error_code:
            return
        assert result.error_code in TRIED_AGAIN, f"{queue.name}: {result.error_message}"
        await link.backoff()


@dataclass(slots=True, kw_only=True)
class Held:
    """A record that a member holds, and what it will do with it."""

    topic: str
    index: int
    offset: int
    kind: Acknowledgement
    due_at: float
    sent_at: float
    """When the request was sent that brought it: its lock began no earlier."""
    epoch: int | None
    """The leader epoch in which it came, where that is known."""

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.index


class Session:
    """A share session with one leader."""

    __slots__ = ("epoch", "gaps", "held", "known", "whole_at")

    def __init__(self, now: float) -> None:
        self.epoch = OPENS
        self.known: set[tuple[str, int]] = set()
        self.held: dict[tuple[str, int, int], Held] = {}
        self.gaps: dict[tuple[str, int, int], float] = {}
        """Offsets that were acquired and have no record for the member, and when they were asked for."""
        self.whole_at = now
        """The last moment at which the connection was known to be whole."""


class ShareMember:
    """A member of a share group: it reads from every leader of its partitions, and acknowledges."""

    def __init__(self, link: Link, plan: Plan, queue: Queue, *, drains: bool = False) -> None:
        """`drains`: accept everything at once until nothing more comes."""
        self.link = link
        self._plan = plan
        self._queue = queue
        self._drains = drains
        self._randomness = SimRandomness(link.random)
        self._sessions: dict[Address, Session] = {}
        self._assigned: set[tuple[str, int]] = set()
        self._names: dict[bytes, str] = {}
        self.member_id = ""
        self._epoch = 0
        self._began_at = self._idle_since = link.world.now
        former = queue.alive.get(link.name)
        if former is not None:
            former.lose_sessions()
        queue.alive[link.name] = self

    @property
    def _stopping(self) -> bool:
        if not self._drains:
            return self._plan.stopping
        now, held = self.link.world.now, any(session.held for session in self._sessions.values())
        return now > self._began_at + DRAIN_S or (not held and now - self._idle_since > DRAIN_IDLE_S)

    async def run(self) -> None:
        while not self._stopping:
            self.member_id = self._randomness.uuid_bytes().hex()
            self._epoch = 0
            self._assigned = set()
            await self._live()
            await self._leave()

    async def _live(self) -> None:
        """One membership."""
        link = self.link
        beat_at = 0.0
        while not self._stopping:
            try:
                if link.world.now >= beat_at:
                    beat_at = link.world.now + HEARTBEAT_S
                    if not await self._beat():
                        return
                if await self._turn() and not self._drains and link.random.random() < LEAVES:
                    return
            except Disconnected:
                await link.backoff()
            pause = 0.05 if self._drains else 0.2
            await asyncio.sleep(link.random.random() * pause / self._plan.pace)

    # The group

    async def _beat(self) -> bool:
        """Send a heartbeat; whether the membership goes on."""
        link, queue = self.link, self._queue
        joins = self._epoch == 0
        request = share_group_heartbeat.Request(
            group_id=queue.name,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[queue.topic.name] if joins else None,
        )
        response = await link.ask_coordinator(GROUP_KEY, queue.name, share_group_heartbeat, HEARTBEAT_VERSION, request)
        code = response.error_code
        if code in RENEWING:
            return False
        if code:
            if code in ELSEWHERE | UNDECIDED:
                link.forget()
            else:
                link.unexpected("a heartbeat of a share group", code)
            await link.backoff()
            return True
        if joins:
            queue.counts["share join"] += 1
        self._epoch = response.member_epoch
        if response.assignment is not None:
            topic_id = await link.topic_id(queue.topic.name)
            self._names[topic_id] = queue.topic.name
            self._assigned = {
                (self._names[topic.topic_id], index)
                for topic in response.assignment.topic_partitions
                if topic.topic_id in self._names
                for index in topic.partitions
            }
        return True

    async def _leave(self) -> None:
        """Close the sessions, which releases what is held, and leave."""
        link, queue = self.link, self._queue
        for address in list(self._sessions):
            session = self._sessions[address]
            self._note_gone(session)
            request = share_acknowledge.Request(
                group_id=queue.name, member_id=self.member_id, share_session_epoch=CLOSES
            )
            try:
                if session.epoch != OPENS:
                    await link.ask(address, share_acknowledge, SHARE_ACKNOWLEDGE_VERSION, request)
            except Disconnected:
                pass
            del self._sessions[address]
        leaving = share_group_heartbeat.Request(group_id=queue.name, member_id=self.member_id, member_epoch=LEAVING)
        try:
            await link.ask_coordinator(GROUP_KEY, queue.name, share_group_heartbeat, HEARTBEAT_VERSION, leaving)
            queue.counts["share leave"] += 1
        except Disconnected:
            await link.backoff()

    # Sessions

    def lose_sessions(self) -> None:
        """Note that what the member held is certain no longer, as of when its connections were last known whole."""
        for session in self._sessions.values():
            self._note_gone(session, at=session.whole_at)

    def _note_gone(self, session: Session, at: float | None = None) -> None:
        moment = self.link.world.now if at is None else at
        for place in session.known | {held.place for held in session.held.values()}:
            self._queue.history.gone.append(Gone(member=self.member_id, key=key_of(*place), at=moment))

    def _reset(self, address: Address) -> None:
        session = self._sessions.pop(address, None)
        if session is not None:
            self._note_gone(session, at=session.whole_at)

    async def _turn(self) -> bool:
        """Ask one leader for records, or tell it what is due; whether there was something to do."""
        link = self.link
        by_leader: dict[Address, list[tuple[str, int]]] = {}
        for place in sorted(self._assigned):
            by_leader.setdefault(await link.leader(*place), []).append(place)
        addresses = sorted({*by_leader, *self._sessions})
        if not addresses:
            return False
        address = link.random.choice(addresses)
        places = by_leader.get(address, [])
        session = self._sessions.setdefault(address, Session(link.world.now))
        if not places and not session.held:
            self._reset(address)
            return False
        due = [held for held in session.held.values() if held.due_at <= link.world.now]
        if due and (not places or link.random.random() < 0.5):
            await self._acknowledge(address, session, due)
        elif places:
            # A renewal cannot be in a request that asks for records.
            due = [held for held in due if held.kind is not Acknowledgement.RENEW]
            await self._fetch(address, session, places, due)
        return True

    # Requests

    async def _fetch(
        self, address: Address, session: Session, places: Sequence[tuple[str, int]], due: Sequence[Held]
    ) -> None:
        link, queue = self.link, self._queue
        if session.epoch == OPENS:
            due = []
        batches = self._batches(session, due)
        topic_id = await link.topic_id(queue.topic.name)
        mentioned = {*batches, *(place for place in places if place not in session.known)}
        forgotten = [place for place in session.known if place not in places and place not in batches]
        request = share_fetch.Request(
            group_id=queue.name,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            share_acquire_mode=link.random.randrange(2),
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=place[1],
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches.get(place, ())
                            ],
                        )
                        for place in sorted(mentioned)
                    ],
                )
            ]
            if mentioned
            else [],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[index for _, index in forgotten])
            ]
            if forgotten
            else [],
        )
        epochs = {place: link.reign_of(address, place) for place in {*places, *batches}}
        numbers = self._begin(due)
        sent_at = link.world.now
        keys = [key_of(*place) for place in places]
        for key in keys:
            queue.history.unheard[key] = queue.history.unheard.get(key, 0) + 1
        try:
            response = await link.ask(address, share_fetch, SHARE_FETCH_VERSION, request)
        except NotSent:
            self._heard(keys)
            self._refused(numbers)
            self._reset(address)
            raise
        except Disconnected:
            for key in keys:
                queue.history.unheard_since.setdefault((self.member_id, key), sent_at)
            self._unknown(numbers)
            self._reset(address)
            raise
        self._heard(keys)
        if response.error_code:
            self._refused_whole(address, numbers, "a share fetch", response.error_code)
            await link.backoff()
            return
        session.whole_at = sent_at
        session.epoch += 1
        session.known = {place for place in session.known | set(places) if place not in forgotten}
        self._forget_held(session, due)
        codes: dict[tuple[str, int], int] = {}
        for topic in response.responses:
            for part in topic.partitions:
                place = (queue.topic.name, part.partition_index)
                codes[place] = part.acknowledge_error_code
                if part.error_code:
                    self._part_failed(place, session, part.error_code, "a share fetch")
                else:
                    self._take(session, address, place, part, sent_at, epochs.get(place))
        self._settle(numbers, codes, address, epochs)

    async def _acknowledge(self, address: Address, session: Session, due: Sequence[Held]) -> None:
        link, queue = self.link, self._queue
        if session.epoch == OPENS:
            self._forget_held(session, due)
            return
        renews = any(held.kind is Acknowledgement.RENEW for held in due)
        batches = self._batches(session, due)
        topic_id = await link.topic_id(queue.topic.name)
        request = share_acknowledge.Request(
            group_id=queue.name,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=place[1],
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in parts
                            ],
                        )
                        for place, parts in sorted(batches.items())
                    ],
                )
            ],
        )
        epochs = {place: link.reign_of(address, place) for place in batches}
        numbers = self._begin(due)
        sent_at = link.world.now
        try:
            response = await link.ask(address, share_acknowledge, SHARE_ACKNOWLEDGE_VERSION, request)
        except NotSent:
            self._refused(numbers)
            self._reset(address)
            raise
        except Disconnected:
            self._unknown(numbers)
            self._reset(address)
            raise
        if response.error_code:
            self._refused_whole(address, numbers, "a share acknowledgement", response.error_code)
            await link.backoff()
            return
        session.whole_at = sent_at
        session.epoch += 1
        self._forget_held(session, due)
        codes = {
            (queue.topic.name, part.partition_index): part.error_code
            for topic in response.responses
            for part in topic.partitions
        }
        for held in due:
            if held.kind is Acknowledgement.RENEW and not codes.get(held.place):
                again = Held(
                    topic=held.topic,
                    index=held.index,
                    offset=held.offset,
                    kind=Acknowledgement.ACCEPT,
                    due_at=link.world.now + link.random.random() * WORK_S_MAX,
                    sent_at=held.sent_at,
                    epoch=held.epoch,
                )
                session.held[held.topic, held.index, held.offset] = again
        self._settle(numbers, codes, address, epochs)

    def _batches(
        self, session: Session, due: Sequence[Held]
    ) -> dict[tuple[str, int], list[tuple[int, int, list[int]]]]:
        """The acknowledgement batches of each partition: runs of neighbours with a type for each offset."""
        types: dict[tuple[str, int], dict[int, int]] = {}
        for held in due:
            types.setdefault(held.place, {})[held.offset] = TYPES[held.kind]
        for (topic, index, offset), sent_at in session.gaps.items():
            # With one that is held no longer, all acknowledgements of the partition would be refused.
            if (topic, index) in types and self.link.world.now < sent_at + LOCK_S / 2:
                types[topic, index][offset] = GAP
        session.gaps = {gap: at for gap, at in session.gaps.items() if (gap[0], gap[1]) not in types}
        batches: dict[tuple[str, int], list[tuple[int, int, list[int]]]] = {}
        for place, by_offset in types.items():
            offsets = sorted(by_offset)
            ends = [before for before, after in pairwise(offsets) if after != before + 1]
            first = offsets[0]
            runs: list[tuple[int, int, list[int]]] = []
            for last in [*ends, offsets[-1]]:
                run = [offset for offset in offsets if first <= offset <= last]
                runs.append((first, last, [by_offset[offset] for offset in run]))
                following = [offset for offset in offsets if offset > last]
                first = following[0] if following else last
            batches[place] = runs
        return batches

    # Outcomes

    def _begin(self, due: Sequence[Held]) -> list[tuple[int, Held]]:
        now = self.link.world.now
        return [
            (
                self._queue.begin(
                    Acknowledged(
                        member=self.member_id,
                        key=key_of(*held.place),
                        offset=held.offset,
                        kind=held.kind,
                        sent_at=now,
                    )
                ),
                held,
            )
            for held in due
        ]

    def _heard(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._queue.history.unheard[key] -= 1

    def _refused(self, numbers: Sequence[tuple[int, Held]]) -> None:
        for number, _ in numbers:
            self._queue.refused(number)

    def _unknown(self, numbers: Sequence[tuple[int, Held]]) -> None:
        for number, _ in numbers:
            self._queue.end(number, at=None)

    def _refused_whole(self, address: Address, numbers: Sequence[tuple[int, Held]], what: str, code: int) -> None:
        """A request that was refused as a whole: nothing of it was carried out."""
        self._refused(numbers)
        self._reset(address)
        if code in ELSEWHERE | UNDECIDED:
            self.link.forget()
        elif code not in SESSION_GONE:
            self.link.unexpected(what, code)

    def _settle(
        self,
        numbers: Sequence[tuple[int, Held]],
        codes: dict[tuple[str, int], int],
        address: Address,
        epochs: dict[tuple[str, int], int | None],
    ) -> None:
        """Note the outcome of each acknowledgement by the response for its partition."""
        link, queue = self.link, self._queue
        lapsed = {held.place for _, held in numbers if not self._is_certain(held, address, epochs[held.place])}
        for number, held in numbers:
            code = codes.get(held.place)
            if code is None or code in MOVED | UNDECIDED:
                # The write may be carried out, or was, by a leader that was deposed meanwhile.
                queue.end(number, at=None)
                if code is not None:
                    link.forget()
            elif code == Code.NONE:
                epoch = epochs[held.place]
                queue.end(number, at=link.world.now, epoch=epoch if link.reigned(address, held.place, epoch) else None)
            else:
                sent_at = queue.open[number].sent_at
                queue.refused(number)
                # One of them that is held no longer is the end of all acknowledgements of its partition.
                if code not in NOT_HELD or held.place not in lapsed:
                    what = f"{held.kind} of {held.offset}, held since {held.sent_at:.3f}, sent at {sent_at:.3f},"
                    link.unexpected(what, code, key=key_of(*held.place))

    def _is_certain(self, held: Held, address: Address, epoch: int | None) -> bool:
        """Whether a record is held by the leader's word still: the one that delivered it leads, and its lock lasts."""
        if epoch is None or epoch != held.epoch or not self.link.reigned(address, held.place, epoch):
            return False
        return self.link.world.now < held.sent_at + LOCK_S

    def _part_failed(self, place: tuple[str, int], session: Session, code: int, what: str) -> None:
        link = self.link
        link.forget()
        if code not in MOVED | UNDECIDED:
            link.unexpected(what, code, key=key_of(*place))
        # What was held by the former leader is held no longer.
        self._queue.history.gone.append(Gone(member=self.member_id, key=key_of(*place), at=session.whole_at))
        session.held = {name: held for name, held in session.held.items() if held.place != place}

    def _forget_held(self, session: Session, due: Sequence[Held]) -> None:
        for held in due:
            session.held.pop((held.topic, held.index, held.offset), None)

    def _take(
        self,
        session: Session,
        address: Address,
        place: tuple[str, int],
        part: share_fetch.PartitionData,
        sent_at: float,
        epoch: int | None,
    ) -> None:
        """Note what was handed out, and decide what becomes of it."""
        link, queue = self.link, self._queue
        if not part.acquired_records:
            return
        if not link.reigned(address, place, epoch):
            epoch = None
        plain = fetch.PartitionData(partition_index=place[1], records=part.records)
        pairs, _, _ = read_records(plain, 0, committed=False)
        values = dict(pairs)
        now = link.world.now
        for acquired in part.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                value = values.get(offset)
                if value is None:
                    session.gaps[(*place, offset)] = sent_at
                    continue
                queue.history.delivered.append(
                    Delivery(
                        member=self.member_id,
                        key=key_of(*place),
                        offset=offset,
                        value=value,
                        count=acquired.delivery_count,
                        sent_at=sent_at,
                        at=now,
                        epoch=epoch,
                        record_key=key_of_value(value, KEYS) if queue.rules.by_key else None,
                    )
                )
                queue.counts["share deliver"] += 1
                queue.counts["share redeliver"] += acquired.delivery_count > 1
                session.held[(*place, offset)] = self._decide(place, offset, value, sent_at, epoch)
                self._idle_since = now

    def _decide(self, place: tuple[str, int], offset: int, value: int, sent_at: float, epoch: int | None) -> Held:
        link = self.link
        drawn = link.random.random()
        kind, due_at = Acknowledgement.ACCEPT, link.world.now + link.random.random() * WORK_S_MAX
        if value % POISONED_EVERY == 0:
            kind = Acknowledgement.RELEASE
        elif self._drains:
            due_at = link.world.now
        elif drawn < RELEASED:
            kind = Acknowledgement.RELEASE
        elif drawn < RELEASED + REJECTED:
            kind = Acknowledgement.REJECT
        elif drawn < RELEASED + REJECTED + RENEWED:
            kind = Acknowledgement.RENEW
        elif drawn < RELEASED + REJECTED + RENEWED + ASLEEP:
            due_at = link.world.now + OVERSLEEP * LOCK_S
        return Held(
            topic=place[0],
            index=place[1],
            offset=offset,
            kind=kind,
            due_at=due_at,
            sent_at=sent_at,
            epoch=epoch,
        )


class QueueObserver:
    """Looks at the start offsets of the share groups."""

    def __init__(self, link: Link, plan: Plan, watched: Sequence[Queue]) -> None:
        self._link = link
        self._plan = plan
        self._watched = watched

    async def run(self) -> None:
        while not self._plan.stopping:
            for queue in self._watched:
                try:
                    await look_at_starts(self._link, queue)
                except Disconnected:
                    await self._link.backoff()
            await asyncio.sleep(self._link.random.random() * LOOK_S)


async def look_at_starts(link: Link, queue: Queue) -> dict[str, int]:
    """Note the start offsets of a group; returns the lag of each partition, -1 where it is not known."""
    topic = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
        topic_name=queue.topic.name, partitions=list(range(queue.topic.partitions))
    )
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=queue.name, topics=[topic])
    request = describe_share_group_offsets.Request(groups=[group])
    sent_at = link.world.now
    response = await link.ask_coordinator(
        GROUP_KEY, queue.name, describe_share_group_offsets, DESCRIBE_VERSION, request
    )
    lags: dict[str, int] = {}
    [result] = response.groups
    if result.error_code:
        link.forget()
        return lags
    for topic in result.topics:
        for part in topic.partitions:
            if part.error_code or part.start_offset < 0:
                continue
            key = key_of(queue.topic.name, part.partition_index)
            queue.history.starts.append(Start(key=key, offset=part.start_offset, sent_at=sent_at, at=link.world.now))
            lags[key] = part.lag
    return lags


def queue_workers(plan: Plan, groups: Sequence[Queue]) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each client of the share groups."""
    made: dict[str, Callable[[Link], Worker]] = {}
    for queue in groups:
        if queue.topic in (JOBS, PARCELS):
            for number in (1, 2):
                made[f"{queue.topic.name}-{number}"] = _producer_of(plan, queue)
    made["queue-observer"] = lambda link: QueueObserver(link, plan, groups)
    for queue in groups:
        for number in (1, 2, 3):
            made[f"{queue.name.removesuffix('s')}-{number}"] = _member_of(plan, queue)
    return made


def _producer_of(plan: Plan, queue: Queue) -> Callable[[Link], Worker]:
    keys = KEYS if queue.rules.by_key else 0
    return lambda link: PlainProducer(link, plan, acks=-1, topic=queue.topic, keys=keys)


def _member_of(plan: Plan, queue: Queue) -> Callable[[Link], Worker]:
    return lambda link: ShareMember(link, plan, queue)


async def drain(link: Link, plan: Plan, queue: Queue) -> None:
    """Read a group until it has no lag, and nothing has been delivered for longer than any lock lasts."""
    deadline = link.world.now + DRAIN_S
    lags: dict[str, int] = {}
    while link.world.now < deadline:
        await ShareMember(link, plan, queue, drains=True).run()
        try:
            lags = await look_at_starts(link, queue)
        except Disconnected:
            await link.backoff()
            continue
        if len(lags) == queue.topic.partitions and not any(lags.values()):
            return
    for key, lag in lags.items():
        if lag:
            link.recording.finding(f"share group {queue.name} has a lag of {lag} in {key} when all is read", key=key)
