"""What happens to the members of a group with the consumer protocol, whichever protocol they speak themselves."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Job, Step
from penstock.groups.consumer.events import (
    JOINING_EPOCH,
    AssignmentEpoch,
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    Partitions,
)
from penstock.groups.consumer.migration import ClassicAdopted, MigrationPolicy, downgraded
from penstock.groups.consumer.patterns import compiled, resolve
from penstock.groups.consumer.reconciliation import Destination, Owned, reconcile
from penstock.groups.consumer.state import ConsumerState, Member, TopicHashes, count
from penstock.groups.consumer.target_assignment import (
    INLINE_SIZE_MAX,
    TargetComputed,
    TargetPlan,
    plan_target,
    preferred_assignor,
)
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import UnknownServerError
from penstock.model.ids import TopicId

JOB_MS_MAX = 60_000
"""A job that has not come back by then is taken for lost, and another one is sent."""

PATTERN_REFRESH_MS_MIN = 10_000
PATTERN_REFRESH_MS_MAX = 600_000
"""Known patterns are matched anew when topics appear, not more often than the one and not less than the other."""

HURRY_MS = 10_000
HURRIED_INTERVAL_MS = 500
HURRIED_MS_PER_MEMBER = 2
"""For so long after a change of epoch members beat sooner: this often, or slower the more of them there are."""

NO_INHERITANCE: Mapping[str, str] = MappingProxyType({})


class Alarm(Enum):
    """What a group wants to be woken for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    """A member has to have given back what it was asked for."""
    JOIN = "join"
    SYNC = "sync"
    ASSIGN = "assign"
    PATTERNS = "patterns"


class ConsumerTimer(NamedTuple):
    """A timer of a group, or of one of its members."""

    group: str
    alarm: Alarm
    member_id: str = ""


class Repattern(Enum):
    """What became of a member's pattern."""

    KEPT = "kept"
    CHANGED = "changed"
    RESOLVED = "resolved"
    """Changed to one whose topics are known, or to none: it can be assigned at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """A member before and after what it asks for; a static one may take the place of another."""

    before: Member
    after: Member
    replaced: Member | None = None
    known: bool = False
    """Whether `before` is in the group."""

    @property
    def removed(self) -> tuple[Member, ...]:
        """Who is no longer in the group as it was."""
        if self.replaced is not None:
            return (self.replaced,)
        return (self.before,) if self.known else ()


def no_overrides(group: str) -> Mapping[str, str]:
    """No group has settings of its own."""
    return {}


class Membership:
    """Members, their epochs and their partitions."""

    def __init__(
        self,
        group: str,
        config: BrokerConfig,
        topics: TopicsView,
        choose_member_id: Callable[[str | None], str],
        overrides: Callable[[str], Mapping[str, str]] = no_overrides,
    ) -> None:
        self.group = group
        self.state = ConsumerState(group)
        self.config = config
        self._topics = topics
        self._choose_member_id = choose_member_id
        self._overrides = overrides
        self._hashes = TopicHashes(topics)
        # Not remembered: what is lost of this with the shard is done again.
        self._checked_epoch: int | None = None
        self._computing_until_ms = 0
        self._resolving_until_ms = 0
        self._topics_appeared = False
        self._paced_epoch: int | None = None
        self._hurried_until_ms = 0
        self._rejoining: set[str] = set()

    # Settings and timers

    def _setting(self, name: str, default: int) -> int:
        return int(self._overrides(self.group).get(name, default))

    @property
    def _session_timeout_ms(self) -> int:
        return self._setting("consumer.session.timeout.ms", self.config.group_consumer_session_timeout_ms)

    @property
    def _heartbeat_interval_ms(self) -> int:
        return self._setting("consumer.heartbeat.interval.ms", self.config.group_consumer_heartbeat_interval_ms)

    @property
    def _assignment_interval_ms(self) -> int:
        return self._setting("consumer.assignment.interval.ms", self.config.group_consumer_assignment_interval_ms)

    def _pace_ms(self, epoch: int, now_ms: int) -> int:
        """When a member is to beat again: sooner than usual while the group is on its way to a new target.

        A partition changes hands in three heartbeats: its owner is told to let go, lets go, and the next one is told to
        take it. At the usual pace that takes two intervals, most of it waiting. A large group is hurried less, so that
        what it asks of the loop stays bounded.
        """
        # A group that was just loaded has no change behind it, only a first heartbeat.
        if epoch != self.state.epoch.epoch or self._paced_epoch not in (None, epoch):
            self._hurried_until_ms = now_ms + HURRY_MS
        self._paced_epoch = epoch
        usual = self._heartbeat_interval_ms
        if now_ms >= self._hurried_until_ms:
            return usual
        return min(usual, max(HURRIED_INTERVAL_MS, len(self.state.members) * HURRIED_MS_PER_MEMBER))

    @property
    def _policy(self) -> MigrationPolicy:
        return MigrationPolicy.named(self.config.group_consumer_migration_policy)

    def _timer(self, alarm: Alarm, member_id: str = "") -> ConsumerTimer:
        return ConsumerTimer(self.group, alarm, member_id)

    def _assignable_ms(self, now_ms: int) -> int:
        """When the next target may be computed."""
        interval_ms = self._assignment_interval_ms
        computed_ms = self.state.assignment.computed_ms
        return now_ms if not computed_ms or not interval_ms else max(now_ms, computed_ms + interval_ms)

    # A member's own say

    def _replace_static(self, replaced: Member, member_id: str, draft: Draft) -> Member:
        """A static member came back under another id: it is given what it had."""
        current = replace(replaced.current, member_epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        member = Member(member_id, replaced.metadata, current)
        self._remember_all(draft, self._removal(replaced))
        draft.remember(ConsumerMemberMetadata(self.group, member_id, member.metadata))
        draft.remember(ConsumerTargetAssignmentMember(self.group, member_id, self.state.target(replaced.member_id)))
        draft.remember(ConsumerCurrentMemberAssignment(self.group, member_id, current))
        return member

    def _remember_metadata(self, change: Change, draft: Draft) -> bool:
        """Write down what a member says of itself; whether it names other topics than before."""
        before, after = change.before.metadata, change.after.metadata
        if after != before or not (change.known or change.replaced):
            draft.remember(ConsumerMemberMetadata(self.group, change.after.member_id, after))
        return after.topics != before.topics

    def _remember_pattern(self, change: Change, draft: Draft) -> Repattern:
        """Write down what a new pattern changes, and have patterns matched where that is due.

        A pattern nobody has had yet is not assigned before it is matched, or the group would be assigned twice.
        """
        state, before, after = self.state, change.before.metadata.pattern, change.after.metadata.pattern
        result = Repattern.KEPT
        unmatched = False
        if before != after:
            result = Repattern.CHANGED
            if before and state.pattern_readers.get(before) == 1:
                draft.remember(ConsumerRegularExpression(self.group, before, None))
            if after:
                if after not in state.pattern_readers:
                    compiled(after)
                    unmatched = True
                elif after in state.patterns:
                    result = Repattern.RESOLVED
            elif before:
                result = Repattern.RESOLVED
        if unmatched or state.pattern_readers:
            readers = dict(state.pattern_readers)
            count(readers, [before] if before and (change.known or change.replaced) else [], -1)
            count(readers, [after] if after else [], 1)
            self._match_patterns(readers, draft, unmatched=unmatched)
        return result

    def _match_patterns(self, patterns: Iterable[str], draft: Draft, *, unmatched: bool = False) -> None:
        """Send the group's patterns off to be matched with all topics, where that is due."""
        wanted = frozenset(patterns)
        now_ms = draft.now_ms
        if not wanted or now_ms < self._resolving_until_ms:
            return
        last_ms = next((pattern.resolved_ms for pattern in self.state.patterns.values()), None)
        unmatched = unmatched or not wanted <= self.state.patterns.keys()
        if last_ms is not None and not unmatched and now_ms <= last_ms + PATTERN_REFRESH_MS_MIN:
            if self._topics_appeared:
                draft.wake_at(self._timer(Alarm.PATTERNS), last_ms + PATTERN_REFRESH_MS_MIN + 1)
            return
        if unmatched or self._topics_appeared or last_ms is None or now_ms > last_ms + PATTERN_REFRESH_MS_MAX:
            self._resolving_until_ms = now_ms + JOB_MS_MAX
            self._topics_appeared = False
            names = tuple(self._topics.names())
            job = Job(self.group, partial(resolve, self.group, wanted, names, now_ms))
            draft.add(Step(jobs=(job,)))

    # The group's epoch and target

    def _raise_epoch(self, change: Change, draft: Draft, *, bump: bool) -> int:
        """The group's epoch after a change, one higher where what is read changed, or the topics did."""
        epoch = self.state.epoch.epoch
        if not bump and self._checked_epoch is not None and epoch >= self._checked_epoch:
            return epoch
        new_hash = self._hashes.of(self._names_after(change.removed, change.after))
        if bump or new_hash != self.state.epoch.metadata_hash:
            epoch += 1
            draft.remember(ConsumerGroupMetadata(self.group, GroupEpoch(epoch, new_hash)))
        self._checked_epoch = epoch
        return epoch

    def _names_after(self, removed: Iterable[Member], added: Member | None = None) -> Iterable[str]:
        """The topics that are read, by name or pattern, once some members are gone and one has come."""
        readers = dict(self.state.topic_readers)
        patterns = dict(self.state.pattern_readers)
        for member in removed:
            count(readers, member.metadata.topics, -1)
            count(patterns, [member.metadata.pattern] if member.metadata.pattern else [], -1)
        if added is not None:
            count(readers, added.metadata.topics, 1)
            count(patterns, [added.metadata.pattern] if added.metadata.pattern else [], 1)
        names = set(readers)
        for pattern, resolved in self.state.patterns.items():
            if pattern in patterns:
                names.update(resolved.topics)
        return names

    def _current_target(self, change: Change, epoch: int, draft: Draft) -> tuple[int, Partitions]:
        """The target's epoch, and the member's part of it, computed now where that is due and short."""
        state, after = self.state, change.after
        heir_of = change.replaced.member_id if change.replaced is not None else after.member_id
        last = (state.assignment.epoch, state.target(heir_of))
        if state.assignment.epoch >= epoch or draft.now_ms < self._computing_until_ms:
            return last
        due_ms = self._assignable_ms(draft.now_ms)
        if draft.now_ms < due_ms:
            draft.wake_at(self._timer(Alarm.ASSIGN), due_ms)
            return last
        members = dict(state.members)
        inherited: Mapping[str, str] = NO_INHERITANCE
        if change.replaced is not None:
            members.pop(change.replaced.member_id)
            inherited = {after.member_id: change.replaced.member_id}
        members[after.member_id] = after
        votes = dict(state.assignors)
        count(votes, [member.metadata.assignor for member in change.removed if member.metadata.assignor], -1)
        count(votes, [after.metadata.assignor] if after.metadata.assignor else [], 1)
        assignor = preferred_assignor(votes, self.config.group_consumer_assignors)
        plan = plan_target(state, members, epoch, assignor, self._topics, inherited=inherited)
        done = self._assign(plan, draft)
        if done is None:
            return last
        return epoch, done.changed.get(after.member_id, last[1])

    def _compute_target_assignment(self, draft: Draft) -> None:
        """Compute the group's target where it is out of date."""
        state = self.state
        if not state.members or state.assignment.epoch >= state.epoch.epoch:
            return
        due_ms = max(self._assignable_ms(draft.now_ms), self._computing_until_ms)
        if draft.now_ms < due_ms:
            draft.wake_at(self._timer(Alarm.ASSIGN), due_ms)
            return
        assignor = preferred_assignor(state.assignors, self.config.group_consumer_assignors)
        epoch = state.epoch.epoch
        plan = plan_target(state, state.members, epoch, assignor, self._topics, inherited=NO_INHERITANCE)
        self._assign(plan, draft)

    def _assign(self, plan: TargetPlan, draft: Draft) -> TargetComputed | None:
        """Compute a small target at once, and send a large one off."""
        if plan.size > INLINE_SIZE_MAX:
            self._computing_until_ms = draft.now_ms + JOB_MS_MAX
            draft.add(Step(jobs=(plan.job(),)))
            return None
        done = plan.compute()
        if done.fault is not None:
            raise UnknownServerError(f"Failed to compute a new target assignment for epoch {plan.epoch}: {done.fault}")
        self._remember_target(done.epoch, done.changed, draft)
        return done

    def _remember_target(self, epoch: int, changed: Mapping[str, Partitions], draft: Draft) -> None:
        self._remember_all(
            draft, (ConsumerTargetAssignmentMember(self.group, member_id, changed[member_id]) for member_id in changed)
        )
        draft.remember(ConsumerTargetAssignmentMetadata(self.group, AssignmentEpoch(epoch, draft.now_ms)))

    # A member's way to its target

    def _lead(
        self, change: Change, target: tuple[int, Partitions], owned: Owned | None, draft: Draft, *, resubscribed: bool
    ) -> Member:
        """Take the member one step to its target; how it is then."""
        member = change.after
        epoch, partitions = target
        if not resubscribed and member.settled(epoch):
            return member
        mine = {None, member.member_id, change.replaced.member_id if change.replaced is not None else None}
        destination = Destination(
            epoch=epoch,
            target=partitions,
            subscribed=self._subscribed(member.metadata),
            taken=lambda topic, partition: self.state.owner(topic, partition) not in mine,
        )
        current = reconcile(member.current, destination, owned, resubscribed=resubscribed)
        if current == member.current:
            return member
        draft.remember(ConsumerCurrentMemberAssignment(self.group, member.member_id, current))
        if not member.classic:
            timer = self._timer(Alarm.REBALANCE, member.member_id)
            if current.state is MemberState.UNREVOKED_PARTITIONS:
                draft.wake_at(timer, draft.now_ms + member.metadata.rebalance_timeout_ms)
            else:
                draft.let_sleep(timer)
        return replace(member, current=current)

    def _subscribed(self, metadata: MemberMetadata) -> Callable[[TopicId], bool]:
        names = frozenset(self.state.topics_of(metadata))

        def subscribed(topic: TopicId) -> bool:
            return self._topics.topic_name(topic) in names

        return subscribed

    # The end of members

    def _fence(self, members: list[Member], draft: Draft) -> None:
        """Take members out of the group; where only classic ones stay, the group becomes classic."""
        if not members:
            return
        gone = {member.member_id for member in members}
        staying = [member for member_id, member in self.state.members.items() if member_id not in gone]
        if self._may_downgrade(staying):
            kept = ((member, self.state.target(member.member_id)) for member in staying)
            self._downgrade(kept, draft, f"Downgrade group {self.group} from consumer to classic for member leaving.")
            return
        for member in members:
            self._remember_all(draft, self._removal(member))
        patterns = {member.metadata.pattern for member in staying}
        for pattern in sorted({member.metadata.pattern or "" for member in members}):
            if pattern and pattern not in patterns:
                draft.remember(ConsumerRegularExpression(self.group, pattern, None))
        new_hash = self._hashes.of(self._names_after(members))
        epoch = self.state.epoch.epoch + 1
        draft.remember(ConsumerGroupMetadata(self.group, GroupEpoch(epoch, new_hash)))
        for member in members:
            self._let_sleep(member.member_id, draft)
        if staying:
            draft.wake_at(self._timer(Alarm.ASSIGN), self._assignable_ms(draft.now_ms))

    def _may_downgrade(self, staying: list[Member]) -> bool:
        return (
            0 < len(staying) <= self.config.group_max_size
            and all(member.classic for member in staying)
            and self._policy.downgrades
        )

    def _downgrade(
        self, kept: Iterable[tuple[Member, Partitions]], draft: Draft, reason: str | None, joined: Change | None = None
    ) -> None:
        """Forget the group and remember it as a classic one, which is rebalanced where there is a reason."""
        self._remember_all(draft, self._tombstones(joined))
        for member_id in self.state.members:
            self._let_sleep(member_id, draft)
        draft.let_sleep(self._timer(Alarm.ASSIGN))
        draft.let_sleep(self._timer(Alarm.PATTERNS))
        draft.remember(downgraded(self.group, self.state.epoch.epoch, kept, self._topics, draft.now_ms))
        draft.wake_at(ClassicAdopted(self.group, reason), draft.now_ms)

    def _let_sleep(self, member_id: str, draft: Draft) -> None:
        self._rejoining.discard(member_id)
        for alarm in (Alarm.SESSION, Alarm.REBALANCE, Alarm.JOIN, Alarm.SYNC):
            draft.let_sleep(self._timer(alarm, member_id))

    def _removal(self, member: Member) -> tuple[ConsumerEvent, ...]:
        """A member's tombstones; its metadata is the last."""
        return (
            ConsumerCurrentMemberAssignment(self.group, member.member_id, None),
            ConsumerTargetAssignmentMember(self.group, member.member_id, None),
            ConsumerMemberMetadata(self.group, member.member_id, None),
        )

    def _tombstones(self, joined: Change | None = None) -> Iterable[ConsumerEvent]:
        """What forgets the group, also where a member has just joined in the place of another."""
        heirs: dict[str, str] = {}
        if joined is not None and joined.replaced is not None:
            heirs[joined.replaced.member_id] = joined.after.member_id
        member_ids = [heirs.get(member_id, member_id) for member_id in self.state.members]
        yield from (ConsumerCurrentMemberAssignment(self.group, member_id, None) for member_id in member_ids)
        yield from (ConsumerTargetAssignmentMember(self.group, member_id, None) for member_id in member_ids)
        yield ConsumerTargetAssignmentMetadata(self.group, None)
        yield from (ConsumerMemberMetadata(self.group, member_id, None) for member_id in member_ids)
        yield from (ConsumerRegularExpression(self.group, pattern, None) for pattern in self.state.patterns)
        yield ConsumerGroupMetadata(self.group, None)

    def _remember_all(self, draft: Draft, events: Iterable[ConsumerEvent]) -> None:
        for event in events:
            draft.remember(event)
