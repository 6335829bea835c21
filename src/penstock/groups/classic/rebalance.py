"""The rebalance of a classic group: members rejoin, a generation begins, its leader assigns partitions.

The members of a rebalance in progress are only in memory; the resulting generation is an event. Each transition of the
group is one function: `prepare`, `complete_join`, `assign`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import SetTimer, Ticket
from penstock.groups.classic.members import NO_ASSIGNMENT, NO_TIMER, Member, Members
from penstock.groups.commands import NO_MEMBER_ID, Failure, JoinReply, SyncReply
from penstock.groups.draft import Draft
from penstock.groups.events import ClassicGroupSaved
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from penstock.model.generated_errors import RebalanceInProgress, UnknownMemberId
from penstock.wire.group_values import ClassicGroupValue


class State(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


EMPTY, PREPARING, COMPLETING, STABLE = State

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({COMPLETING, EMPTY}),
    COMPLETING: frozenset({STABLE, PREPARING}),
    STABLE: frozenset({PREPARING}),
}
"""The states that may follow each state."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Timer: a member's session expires, unless a heartbeat extended it."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinDeadline:
    """Timer: the time to join is over."""

    group: str


@dataclass(frozen=True, slots=True)
class SyncDeadline:
    """Timer: the time to send SyncGroup is over."""

    group: str


class Rebalance:
    """The rebalance table of one group: its state, generation and members, and which of them have joined and synced.

    A decision changes a copy, which replaces the table when the decision's record is in the log. Sessions are the
    exception: a request extends its member's session even if the append fails.
    """

    __slots__ = (
        "_initial",
        "_initial_left_ms",
        "_joined_meanwhile",
        "config",
        "generation",
        "members",
        "name",
        "pending",
        "protocol",
        "protocol_type",
        "state",
        "state_ms",
        "subscribed",
        "unsynced",
    )

    def __init__(self, name: str, config: BrokerConfig, *, state_ms: int) -> None:
        self.name = name
        self.config = config
        self.state = EMPTY
        self.state_ms = state_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.subscribed: frozenset[str] | None = None
        """Topics that the members subscribe to; None if they are not consumers or a subscription is unreadable."""
        self.pending: dict[str, int] = {}
        """Member ids that were given out and have not joined yet, with the time at which they expire."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self._initial = False
        """This is the first rebalance of an empty group, which is delayed for more members to join."""
        self._initial_left_ms = 0
        self._joined_meanwhile = False

    def copy(self) -> "Rebalance":
        """A copy for a decision to change."""
        copied = Rebalance(self.name, self.config, state_ms=self.state_ms)
        copied.state = self.state
        copied.generation = self.generation
        copied.protocol_type = self.protocol_type
        copied.protocol = self.protocol
        copied.members = self.members.copy()
        copied.subscribed = self.subscribed
        copied.pending = self.pending.copy()
        copied.unsynced = self.unsynced.copy()
        copied._initial = self._initial
        copied._initial_left_ms = self._initial_left_ms
        copied._joined_meanwhile = self._joined_meanwhile
        return copied

    # Records

    @classmethod
    def restored(cls, saved: ClassicGroupSaved, config: BrokerConfig) -> "Rebalance":
        """The table of a record."""
        value = saved.value
        table = cls(saved.group, config, state_ms=value.state_ms)
        leader = value.leader if any(value.leader == member.member_id for member in value.members) else None
        table.members = Members((Member.restored(member, value.protocol) for member in value.members), leader)
        table.generation = value.generation
        table.protocol_type = value.protocol_type or None
        table.protocol = value.protocol
        table.state = STABLE if value.members else EMPTY
        table.read_subscriptions()
        return table

    def saved(self) -> ClassicGroupSaved:
        """The record of the group. Applying it makes this table the group's, with all changes made until then."""
        assert self.protocol is not None or not self.members, "members are assigned by a protocol"
        value = ClassicGroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.members.leader,
            state_ms=self.state_ms,
            members=tuple(member.saved(self.protocol or "") for member in self.members),
        )
        return ClassicGroupSaved(group=self.name, value=value, becomes=self)

    @property
    def of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def read_subscriptions(self) -> None:
        """Read the topics of all members from their metadata."""
        self.subscribed = None
        if not self.of_consumers:
            return
        topics: set[str] = set()
        for member in self.members:
            wanted = subscribed_topics(member.metadata(self.protocol) or b"")
            if wanted is None:
                return
            topics |= wanted
        self.subscribed = frozenset(topics)

    # Adding and removing members

    def add(self, member: Member, protocol_type: str, session_timeout_ms: int, draft: Draft) -> None:
        """A new member joins, and the group rebalances."""
        if not self.members:
            self.protocol_type = protocol_type
        self.pending.pop(member.member_id, None)
        self.members.add(member)
        self._joined_meanwhile = True
        self.extend(member, session_timeout_ms, draft)
        self.call_members(draft)

    def swap(self, old_id: str, member: Member, draft: Draft) -> Member:
        """Replace a static member. Its first session has the timeout of the old member."""
        old = self.members.replace(old_id, member)
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member.member_id)
        draft.cancel_timer(SessionEnd(self.name, old_id))
        self.extend(member, old.session_timeout_ms, draft)
        return old

    def remove(self, member_id: str, draft: Draft) -> None:
        """Remove a member or a pending id. A request that still waits fails with UNKNOWN_MEMBER_ID."""
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        draft.cancel_timer(SessionEnd(self.name, member_id))
        member = self.members.remove(member_id)
        if member is not None:
            release(member, NO_MEMBER_ID, UnknownMemberId, draft)

    def forget_tickets(self, responded: Iterable[Ticket]) -> None:
        """These requests have their responses and wait no longer."""
        tickets = set(responded)
        for member in [*self.members]:
            join = None if member.join_ticket in tickets else member.join_ticket
            sync = None if member.sync_ticket in tickets else member.sync_ticket
            if (join, sync) != (member.join_ticket, member.sync_ticket):
                self.members.put(replace(member, join_ticket=join, sync_ticket=sync))

    # Joining

    def call_members(self, draft: Draft) -> None:
        """A member joined, left or changed: start a rebalance, or complete the one in progress if all have joined."""
        if self.state is PREPARING:
            if not self._initial and self.all_joined:
                self.complete_join(draft)
        else:
            self.prepare(draft)

    def prepare(self, draft: Draft) -> None:
        """Start a rebalance: every member has to rejoin. An empty group waits for more members."""
        if self.state is COMPLETING:
            self._take_back_assignments(draft)
        self.unsynced.clear()
        draft.cancel_timer(SyncDeadline(self.name))
        self._initial = self.state is EMPTY
        self._enter(PREPARING, draft)
        if self._initial:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            self._joined_meanwhile = False
            self._initial_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            draft.set_timer(JoinDeadline(self.name), draft.now_ms + delay_ms)
        elif self.all_joined:
            self.complete_join(draft)
        else:
            draft.set_timer(JoinDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)

    def _take_back_assignments(self, draft: Draft) -> None:
        for member in [*self.members]:
            if member.sync_ticket is not None:
                draft.respond(member.sync_ticket, RebalanceInProgress())
                self.extend(member, member.session_timeout_ms, draft)
            self.members.put(replace(member, assignment=NO_ASSIGNMENT, sync_ticket=None))

    @property
    def all_joined(self) -> bool:
        return not self.pending and self.members.waiting_to_join == len(self.members)

    def join_time_is_up(self, draft: Draft) -> None:
        """Begin the generation, unless the initial rebalance may wait longer because members joined meanwhile."""
        if self.state is not PREPARING:
            return
        if self._initial and self._joined_meanwhile and self._initial_left_ms > 0:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._initial_left_ms)
            self._joined_meanwhile = False
            self._initial_left_ms -= delay_ms
            draft.set_timer(JoinDeadline(self.name), draft.now_ms + delay_ms)
        else:
            self.complete_join(draft)

    def complete_join(self, draft: Draft) -> None:
        """Begin a generation of the members that joined, and of static members, which stay until their session ends.

        If only static members are left and none has joined, there is no leader: the group keeps waiting.
        """
        draft.cancel_timer(JoinDeadline(self.name))
        for member in [*self.members]:
            if member.join_ticket is None and member.group_instance_id is None:
                self.remove(member.member_id, draft)
        if not self.members.elect_joined() and self.members:
            draft.set_timer(JoinDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)
            return
        self._initial = False
        self.generation += 1
        self.protocol = self.members.vote() if self.members else None
        self.read_subscriptions()
        if not self.members:
            self._enter(EMPTY, draft)
            draft.append(self.saved())
            return
        self._enter(COMPLETING, draft)
        for member in [*self.members]:
            if member.join_ticket is not None:
                with_members = member.member_id == self.members.leader
                draft.respond(member.join_ticket, self.generation_for(member, with_members=with_members))
            self.members.put(member.moved(member.assignment, sync_ticket=member.sync_ticket))
            self.extend(member, member.session_timeout_ms, draft)
        self.unsynced = set(self.members.ids())
        draft.set_timer(SyncDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)

    def generation_for(
        self, member: Member, *, with_members: bool, skip_assignment: bool = False, leader: str | None = None
    ) -> JoinReply:
        """The JoinGroup response of one member; `with_members` for the leader."""
        return JoinReply(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or self.members.leader,
            skip_assignment=skip_assignment,
            members=self.members.joined(self.protocol) if with_members else (),
        )

    # Assignment

    def synced(self, member: Member, draft: Draft) -> None:
        """A member has sent SyncGroup."""
        if self.unsynced:
            self.unsynced.discard(member.member_id)
            if not self.unsynced:
                draft.cancel_timer(SyncDeadline(self.name))

    def assign(self, assignments: Mapping[str, bytes], draft: Draft) -> None:
        """The leader has sent the assignments: the group is stable; SyncGroup responses wait for the append."""
        self._enter(STABLE, draft)
        for member in [*self.members]:
            assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            if member.sync_ticket is not None:
                draft.respond(member.sync_ticket, self.assignment_reply(assignment))
                self.extend(member, member.session_timeout_ms, draft)
            self.members.put(member.moved(assignment))
        draft.append(self.saved())

    def assignment_reply(self, assignment: bytes) -> SyncReply:
        return SyncReply(protocol_type=self.protocol_type, protocol=self.protocol, assignment=assignment)

    def sync_time_is_up(self, draft: Draft) -> None:
        """Remove members that joined and never sent SyncGroup."""
        if (self.state is COMPLETING or self.state is STABLE) and self.unsynced:
            for member_id in sorted(self.unsynced):
                self.remove(member_id, draft)
            self.prepare(draft)

    # Sessions and timers

    def session_ended(self, member_id: str, draft: Draft) -> None:
        """The session of a member, or the reservation of a pending id, expired."""
        is_member = member_id in self.members
        self.remove(member_id, draft)
        if self.state is PREPARING:
            if self.all_joined:
                self.complete_join(draft)
        elif is_member:
            self.prepare(draft)

    def extend(self, member: Member, timeout_ms: int, draft: Draft) -> None:
        """Restart a member's session."""
        timer = self.extended(member, timeout_ms, draft.now_ms)
        if timer is not None:
            draft.set_timer(timer.key, timer.at_ms)

    def extended(self, member: Member, timeout_ms: int, now_ms: int) -> SetTimer | None:
        """Restart a member's session. An earlier timer is kept, and set again when it expires."""
        session = member.session
        session.deadline_ms = now_ms + timeout_ms
        if NO_TIMER < session.timer_ms <= session.deadline_ms:
            return None
        session.timer_ms = session.deadline_ms
        return SetTimer(SessionEnd(self.name, member.member_id), session.deadline_ms)

    def set_session_timers(self, draft: Draft) -> None:
        """Set the timer of every session to its end, as the timers of a refused step were not set."""
        for member in self.members:
            session = member.session
            session.timer_ms = max(session.deadline_ms, draft.now_ms)
            draft.set_timer(SessionEnd(self.name, member.member_id), session.timer_ms)

    def timers(self) -> Iterator[SessionEnd | JoinDeadline | SyncDeadline]:
        """Every timer that the group may have set."""
        for member_id in [*self.pending, *self.members.ids()]:
            yield SessionEnd(self.name, member_id)
        yield JoinDeadline(self.name)
        yield SyncDeadline(self.name)

    def _enter(self, state: State, draft: Draft) -> None:
        assert state in TRANSITIONS[self.state], f"{self.name} goes from {self.state.value} to {state.value}"
        self.state = state
        self.state_ms = draft.now_ms


def release(member: Member, reply_member_id: str, error: Failure, draft: Draft) -> None:
    """Fail the requests of a member that wait."""
    if member.join_ticket is not None:
        draft.respond(member.join_ticket, JoinReply(member_id=reply_member_id, error=error))
    if member.sync_ticket is not None:
        draft.respond(member.sync_ticket, error())
