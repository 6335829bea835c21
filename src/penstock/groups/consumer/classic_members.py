"""Classic members in a group with the consumer protocol.

During a migration a group has members of both kinds. For the classic ones the coordinator is the leader: they reconcile
by rejoining, acknowledge a revocation with the owned partitions in their subscription, use the member epoch as their
generation, and get their partitions in the SyncGroup response. No member waits for others.
"""

from collections.abc import Callable
from dataclasses import replace

from penstock.coordinator.step import Step, Ticket, failed
from penstock.groups.classic.members import offered
from penstock.groups.commands import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from penstock.groups.consumer.embedded_protocol import (
    MalformedProtocolError,
    Subscription,
    read_subscription,
    read_version,
    write_assignment,
)
from penstock.groups.consumer.epochs import GroupEpochs
from penstock.groups.consumer.membership import Membership, check_instance
from penstock.groups.consumer.migration import MigrationPolicy, by_id, by_name
from penstock.groups.consumer.patterns import PatternSubscriptions, Repattern
from penstock.groups.consumer.reconciliation import Owned, Reconciler
from penstock.groups.consumer.settings import ConsumerGroupSettings
from penstock.groups.consumer.state import Change, ConsumerState, Member
from penstock.groups.consumer.target_assignment import TargetAssignment
from penstock.groups.consumer.timers import Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE
from penstock.groups.topics import TopicsView
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from penstock.wire.group_values import ClassicMetadata, MemberMetadata, MemberState

MEMBER_ID_REQUIRED_VERSION_MIN = 4


class ClassicMembers:
    """Handles the requests of a group's classic members."""

    def __init__(
        self,
        state: ConsumerState,
        settings: ConsumerGroupSettings,
        topics: TopicsView,
        choose_member_id: Callable[[str | None], str],
        *,
        members: Membership,
        epochs: GroupEpochs,
        patterns: PatternSubscriptions,
        targets: TargetAssignment,
        reconciler: Reconciler,
    ) -> None:
        self._group = state.group
        self._state = state
        self._settings = settings
        self._topics = topics
        self._choose_member_id = choose_member_id
        self._members = members
        self._epochs = epochs
        self._patterns = patterns
        self._targets = targets
        self._reconciler = reconciler

    # Finding members

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """The classic member with this id. Raises if it is unknown, fenced, not classic, or of another generation."""
        if instance_id is None:
            member = self._members.known(member_id)
        else:
            found = self._state.static(instance_id)
            if found is None:
                raise UnknownMemberId(f"Member with instance id {instance_id} is not a member of group {self._group}.")
            check_instance(found, member_id, instance_id)
            member = found
        if not member.classic:
            raise UnknownMemberId(f"Member {member.member_id} does not use the classic protocol.")
        epoch = member.current.member_epoch
        if generation != epoch:
            raise IllegalGeneration(
                f"The request generation id {generation} is not equal to the member epoch {epoch} of member "
                f"{member.member_id}."
            )
        return member

    # Joining

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """A member with the classic protocol joins a group that is not empty."""
        draft = Draft(now_ms)
        try:
            self._join(command, ticket, draft)
        except BrokerError as error:
            return failed(ticket, error)
        return draft.step()

    def _join(self, command: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        if self._settings.migration_policy is MigrationPolicy.DISABLED:
            raise InconsistentGroupProtocol(
                f"Cannot join the consumer group {self._group} with the classic protocol because the group migration "
                "is disabled."
            )
        unknown = command.member_id == NO_MEMBER_ID
        member_id = self._choose_member_id(None) if unknown else command.member_id
        self._members.check_room(member_id)
        self._check_protocols(member_id, command)
        if unknown and command.group_instance_id is None and command.version >= MEMBER_ID_REQUIRED_VERSION_MIN:
            draft.respond(ticket, JoinReply(member_id=member_id, error=MemberIdRequired))
            return
        subscription = embedded_subscription(command)
        existing = self._state.static(command.group_instance_id)
        before, replaced = self._joining(command, member_id, draft, unknown=unknown)
        after = replace(before, metadata=metadata_of(before, command, subscription))
        change = Change(before, after, replaced, known=member_id in self._state.members and replaced is None)
        renamed = self._members.subscribe(change, draft)
        resubscribed = self._patterns.subscribe(change, draft) is not Repattern.KEPT or renamed
        epoch = self._epochs.after(change, draft, bump=resubscribed)
        owned = by_id(subscription.owned, self._topics)
        if existing is not None and self._members.replacement_downgrades(existing):
            after = self._join_downgraded(change, epoch, owned, draft, resubscribed=resubscribed)
        else:
            target = self._targets.for_member(change, epoch, draft)
            after = self._reconciler.reconcile(change, target, owned, draft, resubscribed=resubscribed)
            draft.set_timer(
                ConsumerTimer(self._group, Alarm.SESSION, member_id), draft.now_ms + command.session_timeout_ms
            )
            draft.set_timer(
                ConsumerTimer(self._group, Alarm.SYNC, member_id), draft.now_ms + command.rebalance_timeout_ms
            )
            draft.cancel_timer(ConsumerTimer(self._group, Alarm.JOIN, member_id))
        self._members.rejoined(member_id)
        draft.respond(
            ticket,
            JoinReply(
                member_id=member_id,
                generation=after.current.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol=command.protocols[0][0],
            ),
        )

    def _check_protocols(self, member_id: str, command: JoinGroup) -> None:
        """Raises unless the member supports a protocol that all classic members support."""
        classic = self._state.classic_count
        shared = (self._state.classic_protocols.get(name, 0) == classic for name, _ in command.protocols)
        if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(shared):
            raise InconsistentGroupProtocol(f"Member {member_id}'s protocols are not supported.")

    def _joining(
        self, command: JoinGroup, member_id: str, draft: Draft, *, unknown: bool
    ) -> tuple[Member, Member | None]:
        """The member before the request, and the static member it replaces, which need not have left."""
        instance_id = command.group_instance_id
        if instance_id is None:
            return self._state.members.get(member_id, Member(member_id)), None
        existing = self._state.static(instance_id)
        if not unknown:
            existing = self._members.known_static(instance_id)
            check_instance(existing, member_id, instance_id)
            return existing, None
        if existing is None:
            return self._state.members.get(member_id, Member(member_id)), None
        return self._members.replace_static(existing, member_id, draft), existing

    def _join_downgraded(self, change: Change, epoch: int, owned: Owned, draft: Draft, *, resubscribed: bool) -> Member:
        """A classic member replaces the last one with the consumer protocol: the group is downgraded."""
        after = change.after
        replaced = change.replaced if change.replaced is not None else change.before
        target = self._state.target(replaced.member_id)
        rebalance = self._state.assignment.epoch < epoch
        if not rebalance:
            after = self._reconciler.reconcile(
                change, (self._state.assignment.epoch, target), owned, draft, resubscribed=resubscribed
            )
        kept = [
            (member, self._state.target(member_id))
            for member_id, member in self._state.members.items()
            if member_id != replaced.member_id
        ]
        reason = f"Downgrade group {self._group} from consumer to classic with stale assignment."
        self._members.downgrade([*kept, (after, target)], draft, reason if rebalance else None, change)
        return after

    # Sync and heartbeat

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        """Respond with the member's partitions, or REBALANCE_IN_PROGRESS if there is a newer target."""
        draft = Draft(now_ms)
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
            protocol, metadata = protocols_of(member)[0]
            check_same_protocol(member, protocol, command)
        except BrokerError as error:
            return failed(ticket, error)
        current = member.current
        if (
            self._state.assignment.epoch > current.member_epoch
            and current.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._members.expect_rejoin(member, draft)
            draft.respond(
                ticket,
                RebalanceInProgress(
                    f"A new rebalance is triggered in group {self._group} and member {member.member_id} should rejoin "
                    "to catch up."
                ),
            )
            return draft.step()
        draft.cancel_timer(ConsumerTimer(self._group, Alarm.SYNC, member.member_id))
        self._members.extend_session(member, draft)
        assigned = {topic: frozenset(epochs) for topic, epochs in current.assigned.items()}
        draft.respond(
            ticket,
            SyncReply(
                protocol_type=command.protocol_type,
                protocol=command.protocol,
                assignment=write_assignment(by_name(assigned, self._topics), read_version(metadata)),
            ),
        )
        return draft.step()

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        """Extend the member's session; tell it to rejoin if it has partitions to revoke or to receive."""
        draft = Draft(now_ms)
        try:
            member = self._member(command.member_id, command.group_instance_id, command.generation)
        except BrokerError as error:
            return failed(ticket, error)
        self._members.extend_session(member, draft)
        state = member.current.state
        if (
            member.current.member_epoch < self._state.assignment.epoch
            or state is MemberState.UNREVOKED_PARTITIONS
            or (state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member))
        ):
            self._members.expect_rejoin(member, draft)
            draft.respond(ticket, RebalanceInProgress())
        else:
            draft.respond(ticket, HeartbeatReply())
        return draft.step()

    def _waits_for_others(self, member: Member) -> bool:
        """Whether another member still owns a partition of this member's target."""
        return any(
            partition not in member.current.assigned.get(topic, ()) and self._state.owner(topic, partition) is not None
            for topic, partitions in self._state.target(member.member_id).items()
            for partition in partitions
        )

    # Leaving

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        """Remove members of either protocol."""
        draft = Draft(now_ms)
        leaving: dict[str, Member] = {}
        left: list[LeftMember] = []
        for named in command.members:
            try:
                member = self._leaving(named)
            except BrokerError as error:
                failure: type[BrokerError] | None = type(error)
            else:
                failure = None
                leaving[member.member_id] = member
            left.append(LeftMember(member_id=named.member_id, group_instance_id=named.group_instance_id, error=failure))
        self._members.fence(list(leaving.values()), draft)
        draft.respond(ticket, LeaveReply(members=tuple(left)))
        return draft.step()

    def _leaving(self, named: LeavingMember) -> Member:
        if named.group_instance_id is None:
            return self._members.known(named.member_id)
        member = self._members.known_static(named.group_instance_id)
        if named.member_id != NO_MEMBER_ID:
            check_instance(member, named.member_id, named.group_instance_id)
        return member


def embedded_subscription(command: JoinGroup) -> Subscription:
    """The member's subscription, which is the same under each of its protocols."""
    try:
        return read_subscription(command.protocols[0][1])
    except MalformedProtocolError:
        raise UnknownServerError("Malformed embedded consumer protocol in subscription deserialization.") from None


def metadata_of(before: Member, command: JoinGroup, subscription: Subscription) -> MemberMetadata:
    """The metadata of a classic member once it has joined: without a pattern or a preferred assignor."""
    metadata = before.metadata
    timeout_ms = command.rebalance_timeout_ms
    return replace(
        metadata,
        instance_id=command.group_instance_id or metadata.instance_id,
        rack_id=subscription.rack_id or metadata.rack_id,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        pattern="",
        client_id=command.client_id,
        client_host=command.client_host,
        classic=ClassicMetadata(command.session_timeout_ms, offered(command.protocols)),
    )


def protocols_of(member: Member) -> tuple[tuple[str, bytes], ...]:
    assert member.metadata.classic is not None
    return member.metadata.classic.protocols


def check_same_protocol(member: Member, protocol: str, command: SyncGroup) -> None:
    """Raises if a sync names another protocol than the join response did. Older versions name none."""
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise InconsistentGroupProtocol(
            f"The protocol type {command.protocol_type} from member {member.member_id} request is not equal to the "
            f"group protocol type {CONSUMER_PROTOCOL_TYPE}."
        )
    if command.protocol not in (None, protocol):
        raise InconsistentGroupProtocol(
            f"The protocol name {command.protocol} from member {member.member_id} request is not equal to the "
            f"protocol name {protocol} returned in the join response."
        )
