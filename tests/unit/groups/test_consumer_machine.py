"""Groups with the consumer protocol under random requests and faults, with clients that follow the protocol.

At every moment no partition has two owners; when nothing changes any more, every member has its target and every
partition has an owner; and the log alone tells all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.groups.consumer_rig import (
    GROUP,
    Rig,
    Topics,
    Waiting,
    classic_beat,
    classic_join,
    classic_leave,
    classic_sync,
    heartbeat,
)

from penstock.groups.commands import JoinGroup, JoinReply, LeavingMember, SyncReply
from penstock.groups.consumer import target_assignment
from penstock.groups.consumer.embedded_protocol import read_assignment
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.responses import ConsumerHeartbeatReply
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, RebalanceInProgress
from penstock.model.ids import TopicId

TOPICS = ("a", "b", "c1", "c2")
Slot = tuple[TopicId, int]


@dataclass
class Client:
    """A client with the consumer protocol: it revokes before it acknowledges, and owns only assigned partitions."""

    member_id: str
    topics: tuple[str, ...] = ()
    regex: str = ""
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[Slot] = field(default_factory=set)
    assigned: set[Slot] = field(default_factory=set)
    unsure: bool = True
    """A request failed since the last response: the next heartbeat has all fields."""

    def request(self) -> object:
        indexes: dict[TopicId, list[int]] = {}
        for topic, partition in sorted(self.owned):
            indexes.setdefault(topic, []).append(partition)
        full = self.unsure or self.epoch == 0
        command = heartbeat(
            self.member_id,
            self.epoch,
            instance=self.instance,
            timeout_ms=30_000 if full else -1,
            topics=self.topics if full else None,
            regex=self.regex if full else None,
            assignor=self.assignor if full else None,
        )
        owned = tuple((topic, tuple(partitions)) for topic, partitions in indexes.items())
        return command.__class__(**{**{f: getattr(command, f) for f in command.__slots__}, "owned": owned})

    def receive(self, reply: ConsumerHeartbeatReply) -> None:
        self.epoch = reply.member_epoch
        self.unsure = False
        if reply.assignment is not None:
            self.assigned = {(topic, partition) for topic, partitions in reply.assignment for partition in partitions}

    def follow(self) -> None:
        """Revoke first; take new partitions once there is nothing to revoke and that has been acknowledged."""
        if self.owned - self.assigned:
            self.owned &= self.assigned
        else:
            self.owned = set(self.assigned)

    def start_over(self) -> None:
        self.epoch, self.owned, self.assigned, self.unsure = 0, set(), set(), True


@dataclass
class ClassicClient:
    """A member with the classic protocol. An eager one revokes all its partitions before it rejoins."""

    member_id: str
    topics: tuple[str, ...]
    eager: bool
    generation: int = -1
    owned: set[Slot] = field(default_factory=set)
    assigned: set[Slot] = field(default_factory=set)
    joins: bool = True
    syncs: bool = False

    def request(self, names: dict[TopicId, str]) -> JoinGroup:
        if self.eager:
            self.owned = set()
        self.assigned = set(self.owned)
        held: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            if topic in names:
                held.setdefault(names[topic], []).append(partition)
        return classic_join(self.member_id, self.topics, owned=dict(held.items()))

    def follow(self) -> None:
        """Revoke partitions that are not assigned, which takes a rejoin, and take those that are."""
        if self.syncs:
            return
        if self.owned - self.assigned:
            self.joins = True
        self.owned = set(self.assigned)

    def start_over(self) -> None:
        self.generation, self.owned, self.assigned, self.joins, self.syncs = -1, set(), set(), True, False


subscriptions = st.one_of(
    st.tuples(st.lists(st.sampled_from(TOPICS), unique=True).map(tuple), st.just("")),
    st.tuples(st.just(()), st.sampled_from(["c.*", "a|b", ".*"])),
    st.tuples(st.just(("a",)), st.just("c.")),
)


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients join, send heartbeats, stop and leave; topics change; the coordinator loads from its log."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(target_assignment, "INLINE_SIZE_MAX", 5)
        self.rig = Rig(Topics(a=3, b=2, c1=1), assignment_interval_ms=1_000, group_consumer_migration_policy="upgrade")
        self.rig.jobs_wait = True
        self.clients: list[Client] = []
        self.classic: list[ClassicClient] = []
        self.away: list[Client] = []
        self.born = 0

    @initialize(clients=st.lists(subscriptions, min_size=1, max_size=3), classic=st.lists(st.booleans(), max_size=2))
    def begin(self, clients: list[tuple[tuple[str, ...], str]], classic: list[bool]) -> None:
        for number, subscription in enumerate(clients):
            self.join(subscription, None, static=number % 2 == 0, lost=False)
        for eager in classic:
            self.join_classic(("a", "b"), eager)
        self.live(3)

    # Clients

    def client(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients))

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        subscription=subscriptions,
        assignor=st.sampled_from([None, "uniform", "range"]),
        static=st.booleans(),
        lost=st.booleans(),
    )
    def join(self, subscription: tuple[tuple[str, ...], str], assignor: str | None, static: bool, lost: bool) -> None:
        self.born += 1
        topics, regex = subscription
        instance = f"i{self.born}" if static else None
        client = Client(f"m{self.born}", topics, regex, instance, assignor)
        self.clients.append(client)
        self.beat_once(client, lost=lost)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), lost=st.booleans())
    def beat(self, data: st.DataObject, lost: bool) -> None:
        self.beat_once(self.client(data), lost=lost)

    def beat_once(self, client: Client, *, lost: bool = False) -> None:
        reply = self.rig.ask(client.request())
        if lost or isinstance(reply, Waiting):
            client.unsure = True
        elif isinstance(reply, BrokerError):
            if reply.name == "UNRELEASED_INSTANCE_ID":
                # Its own first join, whose response was lost: it has to wait until that session ends.
                client.start_over()
                return
            if isinstance(reply, CoordinatorNotAvailable):
                client.unsure = True
                return
            assert reply.name in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"), reply
            client.start_over()
        else:
            client.receive(reply)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def follow(self, data: st.DataObject) -> None:
        self.client(data).follow()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=subscriptions)
    def resubscribe(self, data: st.DataObject, subscription: tuple[tuple[str, ...], str]) -> None:
        client = self.client(data)
        client.topics, client.regex = subscription
        client.unsure = True

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.client(data)
        client.owned = set()
        self.clients.remove(client)
        self.rig.leave(client.member_id, -1, client.instance)

    @precondition(lambda self: any(client.instance for client in self.clients))
    @rule(data=st.data())
    def leave_for_a_while(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.instance]))
        self.clients.remove(client)
        client.start_over()
        self.rig.leave(client.member_id, -2, client.instance)
        self.away.append(client)

    @precondition(lambda self: self.away)
    @rule(data=st.data(), renamed=st.booleans())
    def come_back(self, data: st.DataObject, renamed: bool) -> None:
        client = data.draw(st.sampled_from(self.away))
        self.away.remove(client)
        if renamed:
            self.born += 1
            client.member_id = f"m{self.born}"
        self.clients.append(client)
        self.beat_once(client)

    @precondition(lambda self: len(self.clients) > 2)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A client dies; it no longer owns its partitions."""
        self.clients.remove(self.client(data))

    # Classic clients

    @precondition(lambda self: self.has_members() and len(self.classic) < 3)
    @rule(topics=st.lists(st.sampled_from(TOPICS), unique=True).map(tuple), eager=st.booleans())
    def join_classic(self, topics: tuple[str, ...], eager: bool) -> None:
        self.born += 1
        client = ClassicClient(f"c{self.born}", topics, eager)
        self.classic.append(client)
        self.act_once(client)

    @precondition(lambda self: self.classic)
    @rule(data=st.data(), lost=st.booleans())
    def act_classic(self, data: st.DataObject, lost: bool) -> None:
        self.act_once(data.draw(st.sampled_from(self.classic)), lost=lost)

    @precondition(lambda self: self.classic)
    @rule(data=st.data())
    def follow_classic(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.classic)).follow()

    @precondition(lambda self: self.classic)
    @rule(data=st.data())
    def leave_classic(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.classic))
        self.classic.remove(client)
        self.rig.ask(classic_leave(LeavingMember(member_id=client.member_id)))

    def act_once(self, client: ClassicClient, *, lost: bool = False) -> None:
        """The next request of a classic client: join, sync or heartbeat."""
        if not self.has_members():
            client.start_over()
            return  # It would begin a classic group, which is another story.
        if client.joins:
            group = self.group()
            if group is not None and client.member_id not in group.state.members:
                client.owned = set()  # Fenced without a response: its commits since then are rejected.
            reply = self.rig.ask(client.request({self.rig.topics.topic_id(n): n for n in self.rig.topics.counts}))
        elif client.syncs:
            reply = self.rig.ask(classic_sync(client.member_id, client.generation))
        else:
            reply = self.rig.ask(classic_beat(client.member_id, client.generation))
        if lost or isinstance(reply, Waiting):
            client.joins = True
        elif isinstance(reply, RebalanceInProgress):
            client.joins, client.syncs = True, False
        elif isinstance(reply, CoordinatorNotAvailable) or (isinstance(reply, JoinReply) and reply.error is not None):
            client.joins = True
        elif isinstance(reply, BrokerError):
            assert reply.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"), reply
            client.start_over()
        elif isinstance(reply, JoinReply):
            client.generation, client.joins, client.syncs = reply.generation, False, True
        elif isinstance(reply, SyncReply):
            client.syncs = False
            named = read_assignment(reply.assignment).partitions
            client.assigned = {(self.rig.topics.topic_id(name), p) for name, partitions in named for p in partitions}

    def has_members(self) -> bool:
        group = self.group()
        return group is not None and not group.empty

    # Time and faults

    @rule(span_ms=st.sampled_from([100, 1_000, 1_000, 4_000, 4_000, 46_000]))
    def pass_time(self, span_ms: int) -> None:
        """Without requests: the longest time ends every session."""
        self.rig.pass_ms(span_ms)

    @rule(rounds=st.integers(1, 4))
    def live(self, rounds: int) -> None:
        """Every client sends its next request."""
        for _ in range(rounds):
            self.rig.run_jobs()
            for classic in self.classic:
                self.act_once(classic)
            for client in self.clients:
                self.beat_once(client)
                client.follow()
                self.no_partition_has_two_owners()
            for classic in self.classic:
                classic.follow()
                self.no_partition_has_two_owners()
            self.rig.pass_ms(2_000)

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(0, 5))
    def change_topic(self, topic: str, partitions: int) -> None:
        now = self.rig.topics.counts.get(topic, 0)
        if partitions and partitions < now:
            return  # Topics do not shrink.
        self.rig.change_topics(**{topic: partitions})

    @precondition(lambda self: self.rig.jobs)
    @rule(data=st.data())
    def finish_a_job(self, data: st.DataObject) -> None:
        job = self.rig.jobs.pop(data.draw(st.integers(0, len(self.rig.jobs) - 1)))
        self.rig.run(self.rig.shard.finish(job.run(), self.rig.now_ms))

    @rule()
    def restart(self) -> None:
        self.rig.restart()

    @rule(refuses=st.sampled_from([True, False, False]), holds=st.sampled_from([True, False, False]))
    def change_the_log(self, refuses: bool, holds: bool) -> None:
        """The log refuses or accepts appends, and commits them late or at once. Waiting clients give up."""
        self.rig.commit()
        self.rig.refusing = CoordinatorNotAvailable() if refuses else None
        self.rig.holding = holds

    @rule(data=st.data(), moves=st.booleans())
    def lose_what_was_not_committed(self, data: st.DataObject, moves: bool) -> None:
        """Uncommitted events survive in part: the broker died, or another broker leads."""
        survives = data.draw(st.integers(0, len(self.rig.log) - self.rig.committed))
        if moves:
            self.rig.lose_leadership(survives)
        else:
            self.rig.crash(survives)

    # Invariants

    def group(self) -> ConsumerGroup | None:
        group = self.rig.shard._groups.get(GROUP)  # pyright: ignore[reportPrivateUsage]
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.group()
        members = {} if group is None else group.state.members
        owners: dict[Slot, str] = {}
        for client in (*self.clients, *self.classic):
            if client.member_id not in members:
                continue  # Fenced: what it still does is refused, and it will hear of it.
            for slot in client.owned:
                assert slot not in owners, f"{slot} is owned by {owners[slot]} and {client.member_id}"
                owners[slot] = client.member_id

    @invariant()
    def no_partition_is_given_out_twice(self) -> None:
        group = self.group()
        given: set[Slot] = set()
        for member in group.state.members.values() if group is not None else ():
            for partitions in (member.current.assigned, member.current.revoking):
                slots = {(topic, partition) for topic, epochs in partitions.items() for partition in epochs}
                assert not slots & given
                given |= slots

    def teardown(self) -> None:
        try:
            self.settle()
            self.replay_tells_all()
        finally:
            self.patch.undo()

    def settle(self) -> None:
        """Without further changes, dead members are fenced, and every partition has an owner."""
        self.rig.refusing, self.rig.holding = None, False
        self.rig.commit()
        self.live(60)
        group = self.group()
        if group is None or group.empty:
            assert not self.clients
            return
        described = group.described_consumer()
        assert described.state == "Stable", described
        assert {member.member_id for member in described.members} == {
            client.member_id for client in (*self.clients, *self.classic)
        }
        owned = {client.member_id: client.owned for client in (*self.clients, *self.classic)}
        for member in described.members:
            target = {(part.topic_id, partition) for part in member.target for partition in part.partitions}
            assigned = {(part.topic_id, partition) for part in member.assigned for partition in part.partitions}
            assert owned[member.member_id] == target == assigned
        everything: set[Slot] = set()
        for client in self.clients:
            everything |= self.slots((*client.topics, *(n for n in self.rig.topics.counts if matches(client.regex, n))))
        for classic in self.classic:
            everything |= self.slots(classic.topics)
        assert set().union(*owned.values()) == everything

    def slots(self, names: Iterable[str]) -> set[Slot]:
        counts = self.rig.topics.counts
        existing = [name for name in names if name in counts]
        return {(self.rig.topics.topic_id(name), partition) for name in existing for partition in range(counts[name])}

    def replay_tells_all(self) -> None:
        before = self.group()
        fresh = self.rig.new_shard()
        self.rig.replay(fresh, self.rig.log)
        after = fresh._groups.get(GROUP)  # pyright: ignore[reportPrivateUsage]
        assert (before is None) == (after is None)
        if before is not None:
            assert isinstance(after, ConsumerGroup)
            assert vars(after.state) == vars(before.state)


def matches(regex: str, name: str) -> bool:
    return {"c.*": name.startswith("c"), "a|b": name in "ab", ".*": True, "c.": name in ("c1", "c2"), "": False}[regex]


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
