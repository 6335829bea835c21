"""The target of a group: what its assignor is given, and what it made of it.

A small group is assigned where it stands. A large one takes long enough to be noticed by all who wait for the loop, so
it is assigned in a thread, on a picture of the group that nobody changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.coordinator.step import Job, Step
from penstock.groups.assignors import ASSIGNORS
from penstock.groups.assignors.spec import Assignor, GroupSpec, MemberSpec, Racks
from penstock.groups.consumer.events import ConsumerTargetAssignmentMember, ConsumerTargetAssignmentMetadata
from penstock.groups.consumer.settings import ConsumerGroupSettings
from penstock.groups.consumer.state import Change, ConsumerState, Member, Tally, count
from penstock.groups.consumer.timers import Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import UnknownServerError
from penstock.model.ids import TopicId
from penstock.wire.group_values import NO_PARTITIONS, AssignmentEpoch, Partitions

JOB_MS_MAX = 60_000
"""A job that has not come back by then is taken for lost, and another one is sent."""

NO_INHERITANCE: Mapping[str, str] = MappingProxyType({})

INLINE_SIZE_MAX = 2_000
"""Members and partitions of a group that is assigned at once: about two milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetComputed:
    """A target for an epoch, as far as it differs from the one before."""

    group: str
    epoch: int
    changed: Mapping[str, Partitions]
    instances: Mapping[str, str]
    """Instance ids of those static members: one may have got another member id since."""
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """A picture of a group, ready to be assigned."""

    group: str
    epoch: int
    assignor: Assignor
    spec: GroupSpec
    unassigned: frozenset[str]
    """Members that have no target yet, not even an empty one."""

    @property
    def size(self) -> int:
        return len(self.spec.members) + sum(self.spec.partition_counts.values())

    def compute(self) -> TargetComputed:
        """Never raises: a group must not wait for what will not come."""
        try:
            targets = self.assignor(self.spec)
        except Exception as error:
            return TargetComputed(
                group=self.group, epoch=self.epoch, changed={}, instances={}, fault=f"{type(error).__name__}: {error}"
            )
        changed = {
            member.member_id: targets[member.member_id]
            for member in self.spec.members
            if member.member_id in self.unassigned or targets[member.member_id] != member.target
        }
        instances = {
            member.member_id: member.instance_id
            for member in self.spec.members
            if member.instance_id is not None and member.member_id in changed
        }
        return TargetComputed(group=self.group, epoch=self.epoch, changed=changed, instances=instances)

    def job(self) -> Job:
        return Job(self.group, self.compute)


def preferred_assignor(votes: Tally, allowed: Iterable[str]) -> str:
    """The assignor that most members ask for; the broker's first where nobody does, or of several."""
    names = [name for name in allowed if name in ASSIGNORS] or list(ASSIGNORS)
    return max(names, key=lambda name: votes.get(name, 0))


def plan_target(
    state: ConsumerState,
    members: Mapping[str, Member],
    epoch: int,
    assignor: str,
    topics: TopicsView,
    *,
    inherited: Mapping[str, str],
) -> TargetPlan:
    """A picture of these members. `inherited` names, for a member that replaces a static one, who that was."""
    counts: dict[TopicId, int] = {}
    readings: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
    specs: list[MemberSpec] = []
    for member_id in sorted(members):
        metadata = members[member_id].metadata
        key = (metadata.topics, metadata.pattern)
        read = readings.get(key)
        if read is None:
            read = readings[key] = existing(state.topics_of(metadata), topics, counts)
        specs.append(
            MemberSpec(
                member_id=member_id,
                topics=read,
                target=state.targets.get(inherited.get(member_id, member_id), NO_PARTITIONS),
                instance_id=metadata.instance_id,
                rack_id=metadata.rack_id,
            )
        )
    racked = any(spec.rack_id is not None for spec in specs)
    return TargetPlan(
        group=state.group,
        epoch=epoch,
        assignor=ASSIGNORS[assignor],
        spec=GroupSpec(members=specs, partition_counts=counts, racks=racks_of(counts, topics) if racked else {}),
        unassigned=frozenset(members.keys() - state.targets.keys() - inherited.keys()),
    )


def existing(names: Iterable[str], topics: TopicsView, counts: dict[TopicId, int]) -> frozenset[TopicId]:
    """The ids of the topics that exist among these; their partitions are counted on the way."""
    found: list[TopicId] = []
    for name in names:
        topic_id = topics.topic_id(name)
        partitions = topics.partition_count(name)
        if topic_id is not None and partitions is not None:
            counts[topic_id] = partitions
            found.append(topic_id)
    return frozenset(found)


def racks_of(counts: Mapping[TopicId, int], topics: TopicsView) -> dict[TopicId, Racks]:
    """The racks of these topics' partitions; nothing where no broker names its rack."""
    racks: dict[TopicId, Racks] = {}
    for topic_id, partitions in counts.items():
        name = topics.topic_name(topic_id)
        if name is None:
            continue
        found = tuple(frozenset(topics.racks(name, partition)) for partition in range(partitions))
        if any(found):
            racks[topic_id] = found
    return racks


class TargetAssignment:
    """The target of one group: when it is computed, and what is written of it."""

    def __init__(self, state: ConsumerState, settings: ConsumerGroupSettings, topics: TopicsView) -> None:
        self._state = state
        self._settings = settings
        self._topics = topics
        # Not remembered: a job that is lost with the shard is sent again.
        self._computing_until_ms = 0

    @property
    def assignor(self) -> str:
        return self._preferred(self._state.assignors)

    def _preferred(self, votes: Tally) -> str:
        return preferred_assignor(votes, self._settings.broker.group_consumer_assignors)

    def schedule(self, draft: Draft) -> None:
        """Have a target computed as soon as that may be done."""
        draft.wake_at(self._timer, self._assignable_ms(draft.now_ms))

    def for_member(self, change: Change, epoch: int, draft: Draft) -> tuple[int, Partitions]:
        """The target's epoch, and the member's part of it, computed now where that is due and short."""
        state, after = self._state, change.after
        heir_of = change.replaced.member_id if change.replaced is not None else after.member_id
        last = (state.assignment.epoch, state.target(heir_of))
        if state.assignment.epoch >= epoch or draft.now_ms < self._computing_until_ms:
            return last
        due_ms = self._assignable_ms(draft.now_ms)
        if draft.now_ms < due_ms:
            draft.wake_at(self._timer, due_ms)
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
        plan = plan_target(state, members, epoch, self._preferred(votes), self._topics, inherited=inherited)
        done = self._assign(plan, draft)
        if done is None:
            return last
        return epoch, done.changed.get(after.member_id, last[1])

    def compute(self, draft: Draft) -> None:
        """Compute the group's target where it is out of date."""
        state = self._state
        if not state.members or state.assignment.epoch >= state.epoch.epoch:
            return
        due_ms = max(self._assignable_ms(draft.now_ms), self._computing_until_ms)
        if draft.now_ms < due_ms:
            draft.wake_at(self._timer, due_ms)
            return
        epoch = state.epoch.epoch
        plan = plan_target(state, state.members, epoch, self.assignor, self._topics, inherited=NO_INHERITANCE)
        self._assign(plan, draft)

    def computed(self, done: TargetComputed, draft: Draft) -> None:
        """Write down a target, for the members that are still here. Those who came since get theirs with the next."""
        state = self._state
        self._computing_until_ms = 0
        retry_ms = draft.now_ms + self._settings.assignment_interval_ms
        if done.fault is not None:
            draft.wake_at(self._timer, retry_ms)
            return
        if not state.assignment.epoch < done.epoch <= state.epoch.epoch:
            self.compute(draft)
            return
        changed: dict[str, Partitions] = {}
        for member_id, partitions in done.changed.items():
            # A static member that came back under another id has the part of the old one.
            heir = member_id if member_id in state.members else state.instances.get(done.instances.get(member_id, ""))
            if heir is not None:
                changed[heir] = partitions
        self._remember(done.epoch, changed, draft)
        if done.epoch < state.epoch.epoch:
            draft.wake_at(self._timer, retry_ms)

    def _assign(self, plan: TargetPlan, draft: Draft) -> TargetComputed | None:
        """Compute a small target at once, and send a large one off."""
        if plan.size > INLINE_SIZE_MAX:
            self._computing_until_ms = draft.now_ms + JOB_MS_MAX
            draft.add(Step(jobs=(plan.job(),)))
            return None
        done = plan.compute()
        if done.fault is not None:
            raise UnknownServerError(f"Failed to compute a new target assignment for epoch {plan.epoch}: {done.fault}")
        self._remember(done.epoch, done.changed, draft)
        return done

    def _remember(self, epoch: int, changed: Mapping[str, Partitions], draft: Draft) -> None:
        group = self._state.group
        for member_id, partitions in changed.items():
            draft.remember(ConsumerTargetAssignmentMember(group, member_id, partitions))
        draft.remember(ConsumerTargetAssignmentMetadata(group, AssignmentEpoch(epoch, draft.now_ms)))

    def _assignable_ms(self, now_ms: int) -> int:
        """When the next target may be computed."""
        interval_ms = self._settings.assignment_interval_ms
        computed_ms = self._state.assignment.computed_ms
        return now_ms if not computed_ms or not interval_ms else max(now_ms, computed_ms + interval_ms)

    @property
    def _timer(self) -> ConsumerTimer:
        return ConsumerTimer(self._state.group, Alarm.ASSIGN)
