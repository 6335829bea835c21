"""A classic group: the leader among its members assigns the partitions, the coordinator tracks membership.

When all members have joined, or the rebalance timeout is over, a generation begins. Its leader receives the members and
sends their assignments; the other members wait in SyncGroup until these are in the log. This module handles the
requests; the rebalance table moves the group from one generation to the next.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, CancelTimer, Event, JobDone, Step, Ticket, failed
from penstock.groups.classic.members import NO_TIMER, Member, Protocols, offered
from penstock.groups.classic.rebalance import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    JoinDeadline,
    Rebalance,
    SessionEnd,
    SyncDeadline,
    release,
)
from penstock.groups.commands import (
    NO_MEMBER_ID,
    CommitOffsets,
    ConsumerHeartbeat,
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
from penstock.groups.consumer.migration import ClassicAdopted, ClassicImage, ClassicPeer
from penstock.groups.consumer.responses import DescribedConsumerGroup
from penstock.groups.consumer.timers import ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.events import NO_STATE_MS, ClassicGroupForgotten, ClassicGroupSaved
from penstock.groups.group import VALID, CommitValidation, GroupTimer
from penstock.groups.offset_store import SINCE_COMMIT
from penstock.groups.share.timers import ShareSessionEnd
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedInstanceId,
    GroupIdNotFound,
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
"""A new member whose JoinGroup waits is removed after this long: its client may be gone, and sends no heartbeats."""

REBALANCE_TIMEOUT_VERSION_MIN = 1
MEMBER_ID_REQUIRED_VERSION_MIN = 4
SKIP_ASSIGNMENT_VERSION_MIN = 9

CLASSIC = "Classic"
"""Kafka's name of this group type."""


class ClassicGroup:
    """One group with the classic protocol."""

    __slots__ = ("_choose_member_id", "name", "rebalance")

    def __init__(
        self, name: str, config: BrokerConfig, choose_member_id: Callable[[str], str], *, state_ms: int
    ) -> None:
        self.name = name
        self.rebalance = Rebalance(name, config, state_ms=state_ms)
        """Replaced as a whole, when a decision is in the log or has no events."""
        self._choose_member_id = choose_member_id

    def _decided(self, table: Rebalance, draft: Draft) -> Step:
        """The step of a decision that was made on a copy of the table."""
        if not draft.writes:
            self.rebalance = table
        return draft.step()

    # Requests

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """Add a member, and respond to it when its generation begins."""
        table, draft = self.rebalance.copy(), Draft(now_ms)
        self._join(table, command, ticket, draft)
        return self._decided(table, draft)

    def join_first(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """The same, in a new group: it also writes the group's first record, so that a crash does not lose it."""
        table, draft = self.rebalance.copy(), Draft(now_ms)
        draft.append(table.saved())
        self._join(table, command, ticket, draft)
        return draft.step()

    def _join(self, table: Rebalance, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        protocols = offered(command.protocols)
        if not has_room_for(table, command.member_id):
            table.remove(command.member_id, draft)
            draft.respond(ticket, JoinReply(member_id=NO_MEMBER_ID, error=GroupMaxSizeReached))
        elif not accepts(table, command.protocol_type, protocols):
            draft.respond(ticket, JoinReply(member_id=command.member_id, error=InconsistentGroupProtocol))
        elif command.member_id == NO_MEMBER_ID:
            self._join_new(table, command, ticket, draft)
        elif command.member_id in table.pending:
            if command.group_instance_id is None:
                add(table, command, command.member_id, ticket, draft)
            else:
                draft.respond(ticket, JoinReply(member_id=NO_MEMBER_ID, error=UnknownServerError))
        else:
            rejoin(table, command, ticket, draft)

    def _join_new(self, table: Rebalance, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        replaced = table.members.static_id(command.group_instance_id)
        member_id = self._choose_member_id(
            command.client_id if command.group_instance_id is None else command.group_instance_id
        )
        if replaced is not None:
            replace_static(table, command, replaced, member_id, ticket, draft)
        elif command.group_instance_id is None and command.version >= MEMBER_ID_REQUIRED_VERSION_MIN:
            until_ms = draft.now_ms + command.session_timeout_ms
            table.reserve(member_id, until_ms)
            draft.set_timer(SessionEnd(self.name, member_id), until_ms)
            draft.respond(ticket, JoinReply(member_id=member_id, error=MemberIdRequired))
        else:
            add(table, command, member_id, ticket, draft)

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        """Respond with the member's assignment as soon as the leader has sent it."""
        table = self.rebalance
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
            if differs(command.protocol_type, table.protocol_type) or differs(command.protocol, table.protocol):
                raise InconsistentGroupProtocol
            if table.state is PREPARING:
                raise RebalanceInProgress
        except BrokerError as error:
            return failed(ticket, error)
        assigns = table.state is COMPLETING and member.member_id == table.members.leader
        if assigns:
            # This appends a record, which may fail. Every other sync takes effect at once.
            table = table.copy()
        draft = Draft(now_ms)
        table.synced(member, draft)
        if table.state is STABLE:
            draft.respond(ticket, table.assignment_reply(member.assignment))
            return self._decided(table, draft)
        assert table.state is COMPLETING, "an empty group has no members"
        if member.sync_ticket is not None:
            draft.respond(member.sync_ticket, RebalanceInProgress())
        table.members.put(member.moved(member.assignment, sync_ticket=ticket))
        if assigns:
            table.assign(dict(command.assignments), draft)
        return self._decided(table, draft)

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        """Extend the member's session; during a rebalance respond REBALANCE_IN_PROGRESS."""
        draft = Draft(now_ms)
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
        except BrokerError as error:
            return failed(ticket, error)
        self.rebalance.extend(member, member.session_timeout_ms, draft)
        draft.respond(ticket, RebalanceInProgress() if self.rebalance.state is PREPARING else HeartbeatReply())
        return draft.step()

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        """Remove members; the others rebalance."""
        table, draft = self.rebalance.copy(), Draft(now_ms)
        left = tuple(leave_one(table, leaving, draft) for leaving in command.members)
        draft.respond(ticket, LeaveReply(members=left))
        if table.state is not EMPTY and any(member.error is None for member in left):
            table.call_members(draft)
        return self._decided(table, draft)

    def consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        return failed(ticket, GroupIdNotFound(f"Group {self.name} is not a consumer group."))

    # Offsets and administration

    def validate_commit(self, command: CommitOffsets, now_ms: int) -> CommitValidation:
        """A commit without a generation is valid while the group is empty."""
        table = self.rebalance
        if command.generation < 0:
            if table.state is EMPTY:
                return VALID
            if command.member_id == NO_MEMBER_ID and command.group_instance_id is None:
                raise UnknownMemberId
        member = self._member(command.member_id, command.group_instance_id, command.generation)
        if table.state is COMPLETING:
            raise RebalanceInProgress
        timer = table.extended(member, member.session_timeout_ms, now_ms)
        return VALID if timer is None else CommitValidation(timer=timer)

    def validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        """A commit that names no member is not checked."""
        named = command.member_id != NO_MEMBER_ID or command.group_instance_id is not None
        if command.generation >= 0 or (named and self.rebalance.state is not EMPTY):
            self._member(command.member_id, command.group_instance_id, command.generation)
        return VALID

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Offsets of a classic group may be fetched by any client."""

    def validate_offset_delete(self) -> None:
        if self.rebalance.state is not EMPTY and not self.rebalance.of_consumers:
            raise NonEmptyGroup

    def validate_delete(self) -> None:
        if self.rebalance.state is not EMPTY:
            raise NonEmptyGroup

    def deletion(self, now_ms: int) -> Step:
        draft = Draft(now_ms)
        draft.append(ClassicGroupForgotten(group=self.name))
        for key in self.rebalance.timers():
            draft.cancel_timer(key)
        return draft.step()

    # Timers, jobs, topics, loading

    def wake(self, key: GroupTimer, now_ms: int) -> Step:
        draft = Draft(now_ms)
        if isinstance(key, SessionEnd) and not self._session_expired(key.member_id, draft):
            return draft.step()
        if isinstance(key, ConsumerTimer | ShareSessionEnd):
            # Set before the group was downgraded to the classic protocol.
            return NOTHING
        table = self.rebalance.copy()
        match key:
            case SessionEnd():
                table.session_ended(key.member_id, draft)
            case JoinDeadline():
                table.join_time_is_up(draft)
            case SyncDeadline():
                table.sync_time_is_up(draft)
            case ClassicAdopted():
                adopted(table, draft, rebalance=key.reason is not None)
            case _:
                assert_never(key)
        return self._decided(table, draft)

    def _session_expired(self, member_id: str, draft: Draft) -> bool:
        """Whether a session has ended: without a heartbeat, and without a request that waits for its response."""
        member = self.rebalance.members.get(member_id)
        if member is None:
            return member_id in self.rebalance.pending
        session = member.session
        session.timer_ms = NO_TIMER
        if draft.now_ms < session.deadline_ms:
            self.rebalance.extend(member, session.deadline_ms - draft.now_ms, draft)
            return False
        return member.is_new or not member.awaits

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """The job was started before the group was downgraded to the classic protocol."""
        return NOTHING

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """Classic members watch their topics themselves."""
        return NOTHING

    def reconfigure(self, config: BrokerConfig) -> None:
        self.rebalance.config = config

    def loaded(self, now_ms: int) -> Step:
        """A group that exceeds a lowered group.max.size rebalances."""
        table, draft = self.rebalance.copy(), Draft(now_ms)
        too_large = len(table.members) > table.config.group_max_size
        adopted(table, draft, rebalance=too_large)
        return self._decided(table, draft)

    def unloaded(self, error: Failure) -> Step:
        draft = Draft(now_ms=0)
        for member in self.rebalance.members:
            release(member, member.member_id, error, draft)
        return draft.step()

    def refused(self, step: Step, now_ms: int) -> Step:
        """The group stays as it was before the step; if its assignment was refused, it rebalances."""
        table, draft = self.rebalance.copy(), Draft(now_ms)
        table.forget_tickets(response.ticket for response in step.responses)
        for timer in step.timers:
            if isinstance(timer, CancelTimer) and isinstance(timer.key, SessionEnd):
                # The step removed this member; it stays.
                member = table.members.get(timer.key.member_id)
                if member is not None:
                    table.extend(member, member.session_timeout_ms, draft)
        table.set_session_timers(draft)
        if table.state is COMPLETING:
            table.prepare(draft)
        return self._decided(table, draft)

    def apply(self, event: Event) -> None:
        """Take the state of the record; if it was decided here, also the state that no record holds."""
        assert isinstance(event, ClassicGroupSaved), f"{event} is not an event of a classic group"
        config = self.rebalance.config
        self.rebalance = Rebalance.restored(event, config) if event.becomes is None else event.becomes

    # Queries

    @property
    def empty(self) -> bool:
        return self.rebalance.state is EMPTY

    @property
    def expires(self) -> bool:
        return True

    @property
    def has_pending_members(self) -> bool:
        return bool(self.rebalance.pending)

    @property
    def member_count(self) -> int:
        return len(self.rebalance.members)

    def subscribed_to(self, topic: str) -> bool:
        """Consumers with an unreadable subscription count as subscribed to every topic."""
        subscribed = self.rebalance.subscribed
        return self.rebalance.of_consumers if subscribed is None else topic in subscribed

    def offsets_expire_from(self) -> int | None:
        """From when the last member left an empty group; from each commit in a group that never had members.

        A stable group of consumers also expires offsets from their commit: those of topics that it does not read.
        """
        table = self.rebalance
        if table.protocol_type is None:
            return SINCE_COMMIT
        if table.state is EMPTY:
            return SINCE_COMMIT if table.state_ms == NO_STATE_MS else table.state_ms
        knows = table.state is STABLE and table.subscribed is not None
        return SINCE_COMMIT if knows else None

    def image(self) -> ClassicImage:
        """The state that an upgrade to the consumer protocol takes over."""
        return ClassicImage(
            group=self.name,
            generation=self.rebalance.generation,
            protocol_type=self.rebalance.protocol_type,
            protocol=self.rebalance.protocol,
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
                for member in self.rebalance.members
            ),
        )

    def listed(self) -> ListedGroup:
        table = self.rebalance
        return ListedGroup(
            group=self.name, protocol_type=table.protocol_type or "", state=table.state.value, type=CLASSIC
        )

    def described(self) -> DescribedGroup:
        """Members' metadata is shown only while the group is stable, for the protocol it has chosen."""
        table = self.rebalance
        protocol = table.protocol if table.state is STABLE else None
        return DescribedGroup(
            group=self.name,
            state=table.state.value,
            protocol_type=table.protocol_type or "",
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
                for member in table.members
            ),
        )

    def described_consumer(self) -> DescribedConsumerGroup:
        raise GroupIdNotFound(f"Group {self.name} is not a consumer group.")

    def _member(self, member_id: str, group_instance_id: str | None, generation: int) -> Member:
        """The member with this id. Raises if it is unknown, fenced, or of another generation."""
        member = self.rebalance.members.checked(member_id, group_instance_id)
        if generation != self.rebalance.generation:
            raise IllegalGeneration
        return member


# Joining and leaving


def has_room_for(table: Rebalance, member_id: str) -> bool:
    """During a rebalance only members that have joined count, so the last to join a full group are rejected."""
    if table.state is EMPTY:
        return True
    size_max = table.config.group_max_size
    member = table.members.get(member_id)
    if table.state is PREPARING:
        waits = member is not None and member.join_ticket is not None
        return waits or table.members.waiting_to_join < size_max
    return member is not None or len(table.members) < size_max


def accepts(table: Rebalance, protocol_type: str, protocols: Protocols) -> bool:
    if table.state is EMPTY:
        return bool(protocol_type and protocols)
    return protocol_type == table.protocol_type and table.members.supports(protocols)


def add(table: Rebalance, command: JoinGroup, member_id: str, ticket: Ticket, draft: Draft) -> None:
    member = replace(joining(command, member_id), is_new=True, join_ticket=ticket)
    table.add(member, command.protocol_type, NEW_MEMBER_JOIN_TIMEOUT_MS, draft)


def rejoin(table: Rebalance, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
    """A member rejoins. If nothing changes, the response is the current generation."""
    try:
        member = table.members.checked(command.member_id, command.group_instance_id)
    except BrokerError as error:
        draft.respond(ticket, JoinReply(member_id=command.member_id, error=type(error)))
        return
    assert table.state is not EMPTY, "an empty group has no members"
    protocols = offered(command.protocols)
    leads = member.member_id == table.members.leader
    # A leader may rejoin for reasons that the metadata does not show, such as added partitions.
    if table.state is PREPARING or member.protocols != protocols or (table.state is STABLE and leads):
        if member.join_ticket is not None:
            draft.respond(member.join_ticket, JoinReply(member_id=member.member_id, error=RebalanceInProgress))
        table.members.put(
            replace(
                member,
                join_ticket=ticket,
                protocols=protocols,
                session_timeout_ms=command.session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms(command),
            )
        )
        table.call_members(draft)
    else:
        draft.respond(ticket, table.generation_for(member, with_members=leads))


def replace_static(
    table: Rebalance, command: JoinGroup, old_id: str, member_id: str, ticket: Ticket, draft: Draft
) -> None:
    """A static member came back under a new id: it gets the assignment of the old one, which is fenced.

    A stable group does not rebalance for it unless its assignment protocol changes.
    """
    led_by = table.members.leader
    old = table.members[old_id]
    member = replace(
        joining(command, member_id),
        client_id=old.client_id,
        client_host=old.client_host,
        assignment=old.assignment,
        join_ticket=ticket,
    )
    table.swap(old_id, member, draft)
    release(old, old_id, FencedInstanceId, draft)
    if table.state is not STABLE or table.members.vote() != table.protocol:
        table.call_members(draft)
        return
    table.members.put(replace(member, join_ticket=None))
    table.read_subscriptions()
    draft.append(table.saved())
    if command.version >= SKIP_ASSIGNMENT_VERSION_MIN:
        leads = table.members.leader == member_id
        draft.respond(ticket, table.generation_for(member, with_members=leads, skip_assignment=leads))
    else:
        # Older versions cannot skip the assignment, so the leader is named by its old id and does not assign.
        draft.respond(ticket, table.generation_for(member, with_members=False, leader=led_by))


def leave_one(table: Rebalance, leaving: LeavingMember, draft: Draft) -> LeftMember:
    error: Failure | None = None
    if leaving.member_id == NO_MEMBER_ID:
        member_id = table.members.static_id(leaving.group_instance_id)
        if member_id is None:
            error = UnknownMemberId
        else:
            table.remove(member_id, draft)
    else:
        try:
            if leaving.member_id not in table.pending:
                table.members.checked(leaving.member_id, leaving.group_instance_id)
            table.remove(leaving.member_id, draft)
        except BrokerError as refusal:
            error = type(refusal)
    return LeftMember(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error=error)


def adopted(table: Rebalance, draft: Draft, *, rebalance: bool) -> None:
    """Start every member's session, after a load or a downgrade; rebalance if asked."""
    for member in table.members:
        table.extend(member, member.session_timeout_ms, draft)
    if rebalance and table.state is STABLE:
        table.prepare(draft)


def joining(command: JoinGroup, member_id: str) -> Member:
    """A member as its request describes it."""
    return Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(command),
        session_timeout_ms=command.session_timeout_ms,
        protocols=offered(command.protocols),
    )


def rebalance_timeout_ms(command: JoinGroup) -> int:
    """Version 0 of the request has none: its session timeout is used for both."""
    if command.version < REBALANCE_TIMEOUT_VERSION_MIN:
        return command.session_timeout_ms
    return command.rebalance_timeout_ms


def differs(requested: str | None, current: str | None) -> bool:
    """Whether a request names another protocol than the group's. Older requests name none."""
    return requested is not None and current is not None and requested != current
