"""How a classic group forms: its members are called together, a generation begins, its leader assigns partitions.

Who is in the group while it forms is known only here; what it came to is an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.config.broker import BrokerConfig
from penstock.groups.classic.members import NO_ASSIGNMENT, NO_TIMER, Member, Members
from penstock.groups.commands import NO_MEMBER_ID, Failure, JoinReply, SyncReply
from penstock.groups.draft import Draft
from penstock.groups.events import ClassicGroupSaved
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from penstock.model.generated_errors import RebalanceInProgress, UnknownMemberId


class State(Enum):
    """Where a group is on its way; the values are Kafka's words."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


EMPTY, PREPARING, COMPLETING, STABLE = State


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """Timer: a member has been silent for too long, unless it was not."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinDeadline:
    """Timer: the time to join is up."""

    group: str


@dataclass(frozen=True, slots=True)
class SyncDeadline:
    """Timer: the time to fetch one's work is up."""

    group: str


class Generations:
    """A group's state and members, and what moves it from one generation to the next."""

    __slots__ = (
        "_initial",
        "_initial_left_ms",
        "_joined_meanwhile",
        "_pending",
        "_replaced",
        "_unsynced",
        "config",
        "generation",
        "members",
        "name",
        "protocol",
        "protocol_type",
        "state",
        "state_ms",
        "subscribed",
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
        """Topics that the members of this generation read; None where they do not say so in the way consumers do."""
        self._pending: dict[str, int] = {}
        """Ids that were given out and have not been used to join, with the time until which they can be."""
        self._unsynced: set[str] = set()
        """Members of this generation that have not asked for their work."""
        self._replaced: tuple[Member, str] | None = None
        """A static member and the id that took its place, until that is written."""
        self._initial = False
        """The rebalance under way is the first of an empty group, which waits for more members to come."""
        self._initial_left_ms = 0
        self._joined_meanwhile = False

    @property
    def of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # Facts

    def apply(self, saved: ClassicGroupSaved) -> None:
        """Be as the record says. What is known beyond it, of members that it names as they are, is kept."""
        if self.state is PREPARING:
            assert not saved.members, "what a group came to is not written while it forms"
            return
        self._replaced = None
        known = self.members
        leader = saved.leader if any(saved.leader == member.member_id for member in saved.members) else None
        self.members = Members(leader=leader)
        for saved_member in saved.members:
            member = known.get(saved_member.member_id)
            if member is None:
                member = Member.restored(saved_member, saved.protocol)
            else:
                member.recall(saved_member, saved.protocol)
            self.members.add(member)
        self.generation = saved.generation
        self.protocol_type = saved.protocol_type or None
        self.protocol = saved.protocol
        self.state = STABLE if saved.members else EMPTY
        self.state_ms = saved.state_ms
        self._read_subscriptions()

    def saved(self) -> ClassicGroupSaved:
        """What is to be remembered of the group as it is."""
        return self._snapshot({member.member_id: member.assignment for member in self.members}, self.state_ms)

    def _snapshot(self, assignments: Mapping[str, bytes], state_ms: int) -> ClassicGroupSaved:
        assert self.protocol is not None or not self.members, "members have work by a protocol"
        return ClassicGroupSaved(
            group=self.name,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.members.leader,
            state_ms=state_ms,
            members=tuple(
                member.saved(self.protocol or "", assignments.get(member.member_id, NO_ASSIGNMENT))
                for member in self.members
            ),
        )

    def _read_subscriptions(self) -> None:
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

    # Joining

    def _rebalance(self, draft: Draft) -> None:
        """A member came, went or changed: call the others, or go on where they have been called."""
        if self.state is PREPARING:
            self._complete_join_when_due(draft)
        else:
            self._prepare_rebalance(draft)

    def _prepare_rebalance(self, draft: Draft) -> None:
        """Call everybody to join anew. An empty group gives others some time to come."""
        if self.state is COMPLETING:
            self._take_back_work(draft)
        self._unsynced.clear()
        draft.let_sleep(SyncDeadline(self.name))
        self._initial = self.state is EMPTY
        self._enter(PREPARING, draft)
        if self._initial:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            self._joined_meanwhile = False
            self._initial_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            draft.wake_at(JoinDeadline(self.name), draft.now_ms + delay_ms)
        elif self._all_joined:
            self._complete_join(draft)
        else:
            draft.wake_at(JoinDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)

    def _take_back_work(self, draft: Draft) -> None:
        for member in self.members:
            member.assignment = NO_ASSIGNMENT
            if member.sync_ticket is not None:
                draft.respond(member.sync_ticket, RebalanceInProgress())
                member.sync_ticket = None
                self._extend(member, member.session_timeout_ms, draft)

    @property
    def _all_joined(self) -> bool:
        return not self._pending and self.members.waiting_to_join == len(self.members)

    def _complete_join_when_due(self, draft: Draft) -> None:
        if not self._initial and self._all_joined:
            self._complete_join(draft)

    def _join_time_is_up(self, draft: Draft) -> None:
        """Begin the generation, unless members kept coming to an empty group and it may wait for more."""
        if self.state is not PREPARING:
            return
        if self._initial and self._joined_meanwhile and self._initial_left_ms > 0:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._initial_left_ms)
            self._joined_meanwhile = False
            self._initial_left_ms -= delay_ms
            draft.wake_at(JoinDeadline(self.name), draft.now_ms + delay_ms)
        else:
            self._complete_join(draft)

    def _complete_join(self, draft: Draft) -> None:
        """Begin a generation of those who joined, and of static members, who may be away as long as their session.

        Where only static members are left and none has joined there is nobody to lead: it has to wait.
        """
        draft.let_sleep(JoinDeadline(self.name))
        for member in [*self.members]:
            if member.join_ticket is None and member.group_instance_id is None:
                self._remove(member.member_id, draft)
        if not self.members.elect_joined() and self.members:
            draft.wake_at(JoinDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)
            return
        self._initial = False
        self.generation += 1
        self.protocol = self.members.vote() if self.members else None
        self._read_subscriptions()
        if not self.members:
            self._enter(EMPTY, draft)
            draft.remember(self.saved())
            return
        self._enter(COMPLETING, draft)
        for member in self.members:
            if member.join_ticket is not None:
                with_members = member.member_id == self.members.leader
                draft.respond(member.join_ticket, self._generation_for(member, with_members=with_members))
                member.join_ticket = None
            member.is_new = False
            self._extend(member, member.session_timeout_ms, draft)
        self._unsynced = {member.member_id for member in self.members}
        draft.wake_at(SyncDeadline(self.name), draft.now_ms + self.members.rebalance_timeout_ms)

    def _generation_for(
        self, member: Member, *, with_members: bool, skip_assignment: bool = False, leader: str | None = None
    ) -> JoinReply:
        """The generation as one of its members is to know it; `with_members` if it leads."""
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

    def _synced(self, member: Member, draft: Draft) -> None:
        """A member has asked for its work."""
        if self._unsynced:
            self._unsynced.discard(member.member_id)
            if not self._unsynced:
                draft.let_sleep(SyncDeadline(self.name))

    def _assign(self, assignments: Mapping[str, bytes], draft: Draft) -> None:
        """The leader has spoken: its word is to be remembered, and whoever waits is answered with it.

        The group is stable when that is applied, not before: it may not get written.
        """
        for member in self.members:
            if member.sync_ticket is not None:
                draft.respond(member.sync_ticket, self._work(assignments.get(member.member_id, NO_ASSIGNMENT)))
                member.sync_ticket = None
                self._extend(member, member.session_timeout_ms, draft)
        draft.remember(self._snapshot(assignments, draft.now_ms))

    def _work(self, assignment: bytes) -> SyncReply:
        return SyncReply(protocol_type=self.protocol_type, protocol=self.protocol, assignment=assignment)

    def _sync_time_is_up(self, draft: Draft) -> None:
        """Members that joined and never asked for their work are out."""
        if (self.state is COMPLETING or self.state is STABLE) and self._unsynced:
            for member_id in sorted(self._unsynced):
                self._remove(member_id, draft)
            self._prepare_rebalance(draft)

    # Going

    def _session_ended(self, member_id: str, draft: Draft) -> None:
        """A member or a reserved id is given up, unless a heartbeat came or a response is owed to the member."""
        member = self.members.get(member_id)
        if member is not None:
            member.timer_ms = NO_TIMER
            if draft.now_ms < member.deadline_ms:
                self._extend(member, member.deadline_ms - draft.now_ms, draft)
                return
            if member.awaits and not member.is_new:
                return
        elif member_id not in self._pending:
            return
        self._remove(member_id, draft)
        if self.state is PREPARING:
            if self._all_joined:
                self._complete_join(draft)
        elif member is not None:
            self._prepare_rebalance(draft)

    def _remove(self, member_id: str, draft: Draft) -> None:
        """Take out a member or a reserved id. A client that still waits is told to come as a new one."""
        self._pending.pop(member_id, None)
        self._unsynced.discard(member_id)
        draft.let_sleep(SessionEnd(self.name, member_id))
        member = self.members.remove(member_id)
        if member is not None:
            self._release(member, NO_MEMBER_ID, UnknownMemberId, draft)

    def _release(self, member: Member, reply_member_id: str, error: Failure, draft: Draft) -> None:
        """Respond to what a member waits for with a failure."""
        if member.join_ticket is not None:
            draft.respond(member.join_ticket, JoinReply(member_id=reply_member_id, error=error))
            member.join_ticket = None
        if member.sync_ticket is not None:
            draft.respond(member.sync_ticket, error())
            member.sync_ticket = None

    # Time

    def _enter(self, state: State, draft: Draft) -> None:
        self.state = state
        self.state_ms = draft.now_ms

    def _extend(self, member: Member, timeout_ms: int, draft: Draft) -> None:
        """Begin a member's session anew. A timer that rings before its end is left to ring: it is set again then."""
        member.deadline_ms = draft.now_ms + timeout_ms
        if member.timer_ms == NO_TIMER or member.deadline_ms < member.timer_ms:
            member.timer_ms = member.deadline_ms
            draft.wake_at(SessionEnd(self.name, member.member_id), member.deadline_ms)
