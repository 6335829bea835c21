"""The membership of a group with the consumer protocol: lookup, replacement, sessions, fencing."""

from collections.abc import Iterable
from dataclasses import replace

from penstock.coordinator.step import SetTimer, Step
from penstock.groups.consumer.epochs import GroupEpochs
from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.consumer.migration import ClassicAdopted, downgraded
from penstock.groups.consumer.settings import ConsumerGroupSettings
from penstock.groups.consumer.state import Change, ConsumerState, Member
from penstock.groups.consumer.target_assignment import TargetAssignment
from penstock.groups.consumer.timers import MEMBER_ALARMS, Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import FencedInstanceId, GroupMaxSizeReached, UnknownMemberId
from penstock.wire.group_values import JOINING_EPOCH, MemberState, Partitions


class Membership:
    """The members of one group, of both protocols."""

    def __init__(
        self,
        state: ConsumerState,
        settings: ConsumerGroupSettings,
        topics: TopicsView,
        epochs: GroupEpochs,
        targets: TargetAssignment,
    ) -> None:
        self._group = state.group
        self._state = state
        self._settings = settings
        self._topics = topics
        self._epochs = epochs
        self._targets = targets
        self._rejoining: set[str] = set()
        """Classic members that were told to rejoin. Not persisted: after a load they are told to again."""

    # Finding members

    def known(self, member_id: str) -> Member:
        member = self._state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self._group}.")
        return member

    def known_static(self, instance_id: str) -> Member:
        member = self._state.static(instance_id)
        if member is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        return member

    def check_room(self, member_id: str) -> None:
        """Raises GroupMaxSizeReached, unless the member is in the group already."""
        size_max = self._settings.broker.group_consumer_max_size
        if len(self._state.members) >= size_max and member_id not in self._state.members:
            raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {size_max} members.")

    # Adding and changing members

    def replace_static(self, replaced: Member, member_id: str, draft: Draft) -> Member:
        """A static member came back under another id: it keeps its partitions."""
        current = replace(replaced.current, member_epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        member = Member(member_id, replaced.metadata, current)
        self._remove(replaced, draft)
        draft.append(ConsumerMemberMetadata(self._group, member_id, member.metadata))
        draft.append(ConsumerTargetAssignmentMember(self._group, member_id, self._state.target(replaced.member_id)))
        draft.append(ConsumerCurrentMemberAssignment(self._group, member_id, current))
        return member

    def subscribe(self, change: Change, draft: Draft) -> bool:
        """Append a member's metadata if it changed; whether its topic names did."""
        before, after = change.before.metadata, change.after.metadata
        if after != before or not (change.known or change.replaced):
            draft.append(ConsumerMemberMetadata(self._group, change.after.member_id, after))
        return after.topics != before.topics

    # Sessions and timeouts

    def extend_session(self, member: Member, draft: Draft) -> None:
        """Restart a member's session."""
        classic = member.metadata.classic
        timeout_ms = self._settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        draft.set_timer(self._timer(Alarm.SESSION, member), draft.now_ms + timeout_ms)

    def expect_revocation(self, member: Member, draft: Draft) -> None:
        """A member that has to revoke partitions has its rebalance timeout for it."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.classic:
            timeout_ms = member.metadata.rebalance_timeout_ms
            draft.set_timer(self._timer(Alarm.REBALANCE, member), draft.now_ms + timeout_ms)

    def expect_rejoin(self, member: Member, draft: Draft) -> None:
        """A classic member has its rebalance timeout to rejoin, from when it was first told to."""
        if member.member_id not in self._rejoining:
            self._rejoining.add(member.member_id)
            timeout_ms = member.metadata.rebalance_timeout_ms
            draft.set_timer(self._timer(Alarm.JOIN, member), draft.now_ms + timeout_ms)

    def rejoined(self, member_id: str) -> None:
        """A classic member rejoined."""
        self._rejoining.discard(member_id)

    # Removing members

    def fence(self, members: list[Member], draft: Draft) -> None:
        """Remove members from the group; if only classic ones stay, the group may be downgraded."""
        if not members:
            return
        gone = {member.member_id for member in members}
        staying = [member for member_id, member in self._state.members.items() if member_id not in gone]
        if self._may_downgrade(staying):
            kept = ((member, self._state.target(member.member_id)) for member in staying)
            self.downgrade(kept, draft, f"Downgrade group {self._group} from consumer to classic for member leaving.")
            return
        for member in members:
            self._remove(member, draft)
        patterns = {member.metadata.pattern for member in staying}
        for pattern in sorted({member.metadata.pattern or "" for member in members}):
            if pattern and pattern not in patterns:
                draft.append(ConsumerRegularExpression(self._group, pattern, None))
        self._epochs.without(members, draft)
        for member in members:
            self._cancel_member_timers(member.member_id, draft)
        if staying:
            self._targets.schedule(draft)

    def _remove(self, member: Member, draft: Draft) -> None:
        """Append a member's tombstones, its metadata last."""
        draft.append(ConsumerCurrentMemberAssignment(self._group, member.member_id, None))
        draft.append(ConsumerTargetAssignmentMember(self._group, member.member_id, None))
        draft.append(ConsumerMemberMetadata(self._group, member.member_id, None))

    def _may_downgrade(self, staying: list[Member]) -> bool:
        return (
            0 < len(staying) <= self._settings.broker.group_max_size
            and all(member.classic for member in staying)
            and self._settings.migration_policy.downgrades
        )

    def replacement_downgrades(self, replaced: Member) -> bool:
        """Whether the group is downgraded when a classic member replaces this one."""
        return (
            not replaced.classic
            and self._state.classic_count == len(self._state.members) - 1
            and len(self._state.members) <= self._settings.broker.group_max_size
            and self._settings.migration_policy.downgrades
        )

    def downgrade(
        self, kept: Iterable[tuple[Member, Partitions]], draft: Draft, reason: str | None, joined: Change | None = None
    ) -> None:
        """Replace the group by a classic one, which rebalances if there is a reason."""
        for event in self.tombstones(joined):
            draft.append(event)
        self.cancel_timers(draft)
        draft.append(downgraded(self._group, self._state.epoch.epoch, kept, self._topics, draft.now_ms))
        draft.set_timer(ClassicAdopted(self._group, reason), draft.now_ms)

    def cancel_timers(self, draft: Draft) -> None:
        """Cancel every timer of a group that ends."""
        for member_id in self._state.members:
            self._cancel_member_timers(member_id, draft)
        draft.cancel_timer(ConsumerTimer(self._group, Alarm.ASSIGN))
        draft.cancel_timer(ConsumerTimer(self._group, Alarm.PATTERNS))

    def _cancel_member_timers(self, member_id: str, draft: Draft) -> None:
        self._rejoining.discard(member_id)
        for alarm in MEMBER_ALARMS:
            draft.cancel_timer(ConsumerTimer(self._group, alarm, member_id))

    def tombstones(self, joined: Change | None = None) -> Iterable[ConsumerEvent]:
        """The tombstones of the group. `joined` is a replacement of a static member in the same step."""
        replacements: dict[str, str] = {}
        if joined is not None and joined.replaced is not None:
            replacements[joined.replaced.member_id] = joined.after.member_id
        member_ids = [replacements.get(member_id, member_id) for member_id in self._state.members]
        yield from (ConsumerCurrentMemberAssignment(self._group, member_id, None) for member_id in member_ids)
        yield from (ConsumerTargetAssignmentMember(self._group, member_id, None) for member_id in member_ids)
        yield ConsumerTargetAssignmentMetadata(self._group, None)
        yield from (ConsumerMemberMetadata(self._group, member_id, None) for member_id in member_ids)
        yield from (ConsumerRegularExpression(self._group, pattern, None) for pattern in self._state.patterns)
        yield ConsumerGroupMetadata(self._group, None)

    # Refused appends

    def refused(self, step: Step, draft: Draft) -> None:
        """Set the timers of members still in the group. A member that was to be fenced gets another session."""
        for timer in step.timers:
            key = timer.key
            if not isinstance(key, ConsumerTimer) or (key.member_id and key.member_id not in self._state.members):
                continue
            if isinstance(timer, SetTimer):
                draft.set_timer(key, timer.at_ms)
            elif key.alarm is Alarm.SESSION:
                member = self._state.members[key.member_id]
                self.extend_session(member, draft)
                self.expect_revocation(member, draft)

    def _timer(self, alarm: Alarm, member: Member) -> ConsumerTimer:
        return ConsumerTimer(self._group, alarm, member.member_id)


def check_instance(member: Member, member_id: str, instance_id: str) -> None:
    """Raises FencedInstanceId if another member has this instance id now."""
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
