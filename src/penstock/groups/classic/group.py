"""A classic group: its members assign partitions themselves, and the coordinator only keeps them together.

Members join; when all have, or time is up, a generation begins. Its leader is told who is in it and says what each is
to do; the others wait to be told, and nobody is before it is written. This is what can be asked of such a group; what
moves it from one generation to the next is in `rebalance`.
"""

from collections.abc import Callable

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import SetTimer, Ticket
from penstock.groups.classic.members import NO_TIMER, Member, Protocols, offered
from penstock.groups.classic.rebalance import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Generations,
    JoinDeadline,
    SessionEnd,
    SyncDeadline,
)
from penstock.groups.commands import (
    NO_MEMBER_ID,
    DescribedGroup,
    DescribedMember,
    Failure,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    ListedGroup,
    SyncGroup,
)
from penstock.groups.consumer.migration import ClassicImage, ClassicPeer
from penstock.groups.draft import Draft
from penstock.groups.events import NO_STATE_MS
from penstock.groups.offset_store import SINCE_COMMIT
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member that waits to join is given up after this long: its client may be gone, and sends no heartbeats."""

REBALANCE_TIMEOUT_VERSION_MIN = 1
MEMBER_ID_REQUIRED_VERSION_MIN = 4
SKIP_ASSIGNMENT_VERSION_MIN = 9

CLASSIC = "Classic"
"""What Kafka calls groups of this kind."""

ClassicTimer = SessionEnd | JoinDeadline | SyncDeadline


class ClassicGroup(Generations):
    """One group with the classic protocol."""

    __slots__ = ("_choose_member_id",)

    def __init__(
        self, name: str, config: BrokerConfig, choose_member_id: Callable[[str], str], *, state_ms: int
    ) -> None:
        super().__init__(name, config, state_ms=state_ms)
        self._choose_member_id = choose_member_id

    # Requests

    def join(self, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        """Let a member in, and respond to it when its generation begins."""
        protocols = offered(command.protocols)
        if not self._has_room_for(command.member_id):
            self._remove(command.member_id, draft)
            draft.respond(ticket, JoinReply(member_id=NO_MEMBER_ID, error=GroupMaxSizeReached))
        elif not self._accepts(command.protocol_type, protocols):
            draft.respond(ticket, JoinReply(member_id=command.member_id, error=InconsistentGroupProtocol))
        elif command.member_id == NO_MEMBER_ID:
            self._join_new(command, ticket, draft)
        elif command.member_id in self._pending:
            if command.group_instance_id is None:
                self._add(command, command.member_id, ticket, draft)
            else:
                draft.respond(ticket, JoinReply(member_id=NO_MEMBER_ID, error=UnknownServerError))
        else:
            self._rejoin(command, ticket, draft)

    def sync(self, command: SyncGroup, ticket: Ticket, draft: Draft) -> None:
        """Tell a member its work as soon as its leader has."""
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
            if differs(command.protocol_type, self.protocol_type) or differs(command.protocol, self.protocol):
                raise InconsistentGroupProtocol
            if self.state is PREPARING:
                raise RebalanceInProgress
        except BrokerError as error:
            draft.respond(ticket, error)
            return
        self._synced(member, draft)
        if self.state is STABLE:
            draft.respond(ticket, self._work(member.assignment))
            return
        assert self.state is COMPLETING, "an empty group has no members"
        if member.sync_ticket is not None:
            draft.respond(member.sync_ticket, RebalanceInProgress())
        member.sync_ticket = ticket
        if member.member_id == self.members.leader:
            self._assign(dict(command.assignments), draft)

    def heartbeat(self, command: Heartbeat, ticket: Ticket, draft: Draft) -> None:
        """A member is alive; where a rebalance is under way it is told to join it."""
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
        except BrokerError as error:
            draft.respond(ticket, error)
            return
        self._extend(member, member.session_timeout_ms, draft)
        draft.respond(ticket, RebalanceInProgress() if self.state is PREPARING else HeartbeatReply())

    def leave(self, command: LeaveGroup, ticket: Ticket, draft: Draft) -> None:
        """Let members go, and the others share their work."""
        left = tuple(self._leave_one(leaving, draft) for leaving in command.members)
        draft.respond(ticket, LeaveReply(members=left))
        if self.state is not EMPTY and any(member.error is None for member in left):
            self._rebalance(draft)

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, now_ms: int
    ) -> SetTimer | None:
        """Refuse a commit of one who is not in this generation; one who is has shown that it is alive.

        Where nobody is in the group, anybody without a generation may commit.
        """
        if generation < 0:
            if self.state is EMPTY:
                return None
            if member_id == NO_MEMBER_ID and group_instance_id is None:
                raise UnknownMemberId
        member = self._member(member_id, group_instance_id, generation)
        if self.state is COMPLETING:
            raise RebalanceInProgress
        deadline_ms = now_ms + member.session_timeout_ms
        member.deadline_ms = deadline_ms
        if NO_TIMER < member.timer_ms <= deadline_ms:
            return None
        member.timer_ms = deadline_ms
        return SetTimer(SessionEnd(self.name, member_id), deadline_ms)

    def check_txn_commit(self, member_id: str, group_instance_id: str | None, generation: int) -> None:
        """Refuse a transaction of one who is not in this generation. One who names no member is not asked."""
        named = member_id != NO_MEMBER_ID or group_instance_id is not None
        if generation >= 0 or (named and self.state is not EMPTY):
            self._member(member_id, group_instance_id, generation)

    def check_offset_delete(self) -> None:
        """Refuse to forget single offsets of members of whom it is not known what they read."""
        if self.state is not EMPTY and not self.of_consumers:
            raise NonEmptyGroup

    def check_delete(self) -> None:
        """Refuse to forget a group that somebody is in."""
        if self.state is not EMPTY:
            raise NonEmptyGroup

    # Time

    def wake(self, key: ClassicTimer, draft: Draft) -> None:
        """One of this group's timers rang."""
        match key:
            case SessionEnd():
                self._session_ended(key.member_id, draft)
            case JoinDeadline():
                self._join_time_is_up(draft)
            case SyncDeadline():
                self._sync_time_is_up(draft)

    def loaded(self, draft: Draft) -> None:
        """Give every member a whole session from now. A group too large for new limits has to form anew."""
        for member in self.members:
            self._extend(member, member.session_timeout_ms, draft)
        if len(self.members) > self.config.group_max_size:
            self._prepare_rebalance(draft)

    def adopted(self, draft: Draft, *, rebalance: bool) -> None:
        """The group was one with the consumer protocol until now, and its members' work may be out of date."""
        for member in self.members:
            self._extend(member, member.session_timeout_ms, draft)
        if rebalance and self.state is STABLE:
            self._prepare_rebalance(draft)

    def refused(self, draft: Draft) -> None:
        """What this group came to could not be written: it has to form anew, or is as it was before."""
        if self._replaced is not None:
            old, member_id = self._replaced
            self._replaced = None
            self._swap(member_id, old, draft)
        elif self.state is COMPLETING:
            self._prepare_rebalance(draft)

    def resumed(self, draft: Draft) -> None:
        """The group was retired, and then it could not be written that it was: it goes on."""
        for member_id, until_ms in self._pending.items():
            draft.wake_at(SessionEnd(self.name, member_id), until_ms)
        for member in self.members:
            member.timer_ms = NO_TIMER
            self._extend(member, member.session_timeout_ms, draft)
        end_ms = draft.now_ms + self.members.rebalance_timeout_ms
        if self.state is PREPARING:
            draft.wake_at(JoinDeadline(self.name), end_ms)
        elif self._unsynced:
            draft.wake_at(SyncDeadline(self.name), end_ms)

    def unloaded(self, error: Failure, draft: Draft) -> None:
        """Respond to whoever waits: this group is coordinated elsewhere."""
        for member in self.members:
            self._release(member, member.member_id, error, draft)

    def retired(self, draft: Draft) -> None:
        """The group is to be forgotten, or to go on as one of another kind: its timers have nothing to ring for."""
        for member_id in [*self._pending, *(member.member_id for member in self.members)]:
            draft.let_sleep(SessionEnd(self.name, member_id))
        draft.let_sleep(JoinDeadline(self.name))
        draft.let_sleep(SyncDeadline(self.name))

    # Readings

    @property
    def empty(self) -> bool:
        return self.state is EMPTY

    @property
    def awaited(self) -> bool:
        """Somebody was given an id to join with."""
        return bool(self._pending)

    @property
    def member_count(self) -> int:
        return len(self.members)

    def subscribed_to(self, topic: str) -> bool:
        """Whether the members read a topic; consumers that do not say count as if they read all."""
        return self.of_consumers if self.subscribed is None else topic in self.subscribed

    def offsets_expire_from(self) -> int | None:
        """When the retention of this group's offsets begins; None while its members may come back to them.

        A group that nobody is in began to forget when the last one left, one that never had members with each commit.
        Consumers that all read other topics now do not come back either.
        """
        if self.protocol_type is None:
            return SINCE_COMMIT
        if self.state is EMPTY:
            return SINCE_COMMIT if self.state_ms == NO_STATE_MS else self.state_ms
        knows = self.state is STABLE and self.subscribed is not None
        return SINCE_COMMIT if knows else None

    def image(self) -> ClassicImage:
        """All that a group with another protocol has to know of this one to take its place."""
        return ClassicImage(
            group=self.name,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            peers=tuple(
                ClassicPeer(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=member.protocols,
                    assignment=member.assignment,
                )
                for member in self.members
            ),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group=self.name, protocol_type=self.protocol_type or "", state=self.state.value, type=CLASSIC
        )

    def described(self) -> DescribedGroup:
        """What members said of themselves is shown only under a protocol that has been settled on."""
        protocol = self.protocol if self.state is STABLE else None
        return DescribedGroup(
            group=self.name,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol) or b"",
                    assignment=member.assignment,
                )
                for member in self.members
            ),
        )

    # Who may join, and how

    def _member(self, member_id: str, group_instance_id: str | None, generation: int) -> Member:
        """The member of this generation that says it is this one."""
        member = self.members.checked(member_id, group_instance_id)
        if generation != self.generation:
            raise IllegalGeneration
        return member

    def _has_room_for(self, member_id: str) -> bool:
        """While a group forms those count that have joined: so the last to come are left out of one too large."""
        if self.state is EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is PREPARING:
            waits = member is not None and member.join_ticket is not None
            return waits or self.members.waiting_to_join < self.config.group_max_size
        return member is not None or len(self.members) < self.config.group_max_size

    def _accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.members.supports(protocols)

    def _join_new(self, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        replaced = self.members.static_id(command.group_instance_id)
        member_id = self._choose_member_id(
            command.client_id if command.group_instance_id is None else command.group_instance_id
        )
        if replaced is not None:
            self._replace(command, replaced, member_id, ticket, draft)
        elif command.group_instance_id is None and command.version >= MEMBER_ID_REQUIRED_VERSION_MIN:
            self._pending[member_id] = draft.now_ms + command.session_timeout_ms
            draft.wake_at(SessionEnd(self.name, member_id), self._pending[member_id])
            draft.respond(ticket, JoinReply(member_id=member_id, error=MemberIdRequired))
        else:
            self._add(command, member_id, ticket, draft)

    def _add(self, command: JoinGroup, member_id: str, ticket: Ticket, draft: Draft) -> None:
        if not self.members:
            self.protocol_type = command.protocol_type
        member = joining(command, member_id)
        member.is_new = True
        member.join_ticket = ticket
        self._pending.pop(member_id, None)
        self.members.add(member)
        self._joined_meanwhile = True
        self._extend(member, NEW_MEMBER_JOIN_TIMEOUT_MS, draft)
        self._rebalance(draft)

    def _rejoin(self, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        """One who is in the group joins again. Where nothing changes, it is told of the generation there is."""
        try:
            member = self.members.checked(command.member_id, command.group_instance_id)
        except BrokerError as error:
            draft.respond(ticket, JoinReply(member_id=command.member_id, error=type(error)))
            return
        assert self.state is not EMPTY, "an empty group has no members"
        protocols = offered(command.protocols)
        leads = member.member_id == self.members.leader
        # A leader may join again because of what its members do not show, such as partitions that were added.
        if self.state is PREPARING or member.protocols != protocols or (self.state is STABLE and leads):
            if member.join_ticket is not None:
                draft.respond(member.join_ticket, JoinReply(member_id=member.member_id, error=RebalanceInProgress))
            member.join_ticket = ticket
            self.members.offer(member, protocols)
            member.session_timeout_ms = command.session_timeout_ms
            member.rebalance_timeout_ms = rebalance_timeout_ms(command)
            self._rebalance(draft)
        else:
            draft.respond(ticket, self._generation_for(member, with_members=leads))

    def _replace(self, command: JoinGroup, old_id: str, member_id: str, ticket: Ticket, draft: Draft) -> None:
        """A static member came back under a new id: it gets the work of the old one, which is fenced.

        A stable group need not rebalance for it, as long as its assignment protocol stays the same.
        """
        led_by = self.members.leader
        member = joining(command, member_id)
        old = self._swap(old_id, member, draft)
        self._release(old, old_id, FencedInstanceId, draft)
        member.client_id, member.client_host = old.client_id, old.client_host
        member.assignment, member.join_ticket = old.assignment, ticket
        if self.state is not STABLE or self.members.vote() != self.protocol:
            self._rebalance(draft)
            return
        member.join_ticket = None
        self._replaced = old, member_id
        draft.remember(self.saved())
        if command.version >= SKIP_ASSIGNMENT_VERSION_MIN:
            leads = self.members.leader == member_id
            draft.respond(ticket, self._generation_for(member, with_members=leads, skip_assignment=leads))
        else:
            # A leader that cannot be told to skip the assignment is not told that it leads.
            draft.respond(ticket, self._generation_for(member, with_members=False, leader=led_by))

    def _swap(self, old_id: str, member: Member, draft: Draft) -> Member:
        """Put a static member in the place of another. It begins with a session as long as the other's."""
        old = self.members.replace(old_id, member)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(member.member_id)
        draft.let_sleep(SessionEnd(self.name, old_id))
        member.timer_ms = NO_TIMER
        self._extend(member, old.session_timeout_ms, draft)
        return old

    def _leave_one(self, leaving: LeavingMember, draft: Draft) -> LeftMember:
        error: Failure | None = None
        if leaving.member_id == NO_MEMBER_ID:
            member_id = self.members.static_id(leaving.group_instance_id)
            if member_id is None:
                error = UnknownMemberId
            else:
                self._remove(member_id, draft)
        else:
            try:
                if leaving.member_id not in self._pending:
                    self.members.checked(leaving.member_id, leaving.group_instance_id)
                self._remove(leaving.member_id, draft)
            except BrokerError as refusal:
                error = type(refusal)
        return LeftMember(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error=error)


def joining(command: JoinGroup, member_id: str) -> Member:
    """A member as its request describes it."""
    return Member(
        member_id,
        command.group_instance_id,
        command.client_id,
        command.client_host,
        rebalance_timeout_ms(command),
        command.session_timeout_ms,
        offered(command.protocols),
    )


def rebalance_timeout_ms(command: JoinGroup) -> int:
    """The first version of the request names none: its session timeout counts for both."""
    if command.version < REBALANCE_TIMEOUT_VERSION_MIN:
        return command.session_timeout_ms
    return command.rebalance_timeout_ms


def differs(said: str | None, is_so: str | None) -> bool:
    """Whether a member means another protocol than its group. Older requests do not say."""
    return said is not None and is_so is not None and said != is_so
