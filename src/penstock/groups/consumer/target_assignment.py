"""The target assignment of a group: the assignor's input and its result.

The target of a small group is computed inline. A large one would block the loop for too long, so it is computed in a
thread, from an immutable snapshot of the group.
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
"""A job that has not finished by then counts as lost, and another one is started."""

NO_INHERITANCE: Mapping[str, str] = MappingProxyType({})

INLINE_SIZE_MAX = 2_000
"""Members plus partitions of a group whose target is computed inline: about two milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetComputed:
    """The target of an epoch, as the difference to the previous one."""

    group: str
    epoch: int
    changed: Mapping[str, Partitions]
    instances: Mapping[str, str]
    """Instance ids of the static members in it, whose member ids may have changed since."""
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """A snapshot of a group as the input of its assignor."""

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
        """Run the assignor. An exception becomes a `fault`, so that the group can try again."""
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
    """The assignor that most members ask for; the broker's first one if none does or on a tie."""
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
    """A snapshot of these members. `inherited` maps a member that replaces a static one to the replaced member."""
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
    """The ids of the existing topics among these; adds their partition counts to `counts`."""
    found: list[TopicId] = []
    for name in names:
        topic_id = topics.topic_id(name)
        partitions = topics.partition_count(name)
        if topic_id is not None and partitions is not None:
            counts[topic_id] = partitions
            found.append(topic_id)
    return frozenset(found)


def racks_of(counts: Mapping[TopicId, int], topics: TopicsView) -> dict[TopicId, Racks]:
    """The racks of these topics' partitions; empty if no broker has a rack."""
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
    """The target of one group: when it is computed, and the events it becomes."""

    def __init__(self, state: ConsumerState, settings: ConsumerGroupSettings, topics: TopicsView) -> None:
        self._state = state
        self._settings = settings
        self._topics = topics
        # Not persisted: a job that is lost with the shard is started again.
        self._computing_until_ms = 0

    @property
    def assignor(self) -> str:
        return self._preferred(self._state.assignors)

    def _preferred(self, votes: Tally) -> str:
        return preferred_assignor(votes, self._settings.broker.group_consumer_assignors)

    def schedule(self, draft: Draft) -> None:
        """Set the timer for the next target, as early as the assignment interval allows."""
        draft.set_timer(self._timer, self._assignable_ms(draft.now_ms))

    def for_member(self, change: Change, epoch: int, draft: Draft) -> tuple[int, Partitions]:
        """The target's epoch and the member's part; computes a new target if one is due and the group is small."""
        state, after = self._state, change.after
        previous_id = change.replaced.member_id if change.replaced is not None else after.member_id
        last = (state.assignment.epoch, state.target(previous_id))
        if state.assignment.epoch >= epoch or draft.now_ms < self._computing_until_ms:
            return last
        due_ms = self._assignable_ms(draft.now_ms)
        if draft.now_ms < due_ms:
            draft.set_timer(self._timer, due_ms)
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
        """Compute the group's target if it is out of date."""
        state = self._state
        if not state.members or state.assignment.epoch >= state.epoch.epoch:
            return
        due_ms = max(self._assignable_ms(draft.now_ms), self._computing_until_ms)
        if draft.now_ms < due_ms:
            draft.set_timer(self._timer, due_ms)
            return
        epoch = state.epoch.epoch
        plan = plan_target(state, state.members, epoch, self.assignor, self._topics, inherited=NO_INHERITANCE)
        self._assign(plan, draft)

    def computed(self, done: TargetComputed, draft: Draft) -> None:
        """Append a computed target for the members still in the group. Newer members get theirs with the next."""
        state = self._state
        self._computing_until_ms = 0
        retry_ms = draft.now_ms + self._settings.assignment_interval_ms
        if done.fault is not None:
            draft.set_timer(self._timer, retry_ms)
            return
        if not state.assignment.epoch < done.epoch <= state.epoch.epoch:
            self.compute(draft)
            return
        changed: dict[str, Partitions] = {}
        for member_id, partitions in done.changed.items():
            # A static member that came back under another id gets the part of its old id.
            owner = member_id if member_id in state.members else state.instances.get(done.instances.get(member_id, ""))
            if owner is not None:
                changed[owner] = partitions
        self._remember(done.epoch, changed, draft)
        if done.epoch < state.epoch.epoch:
            draft.set_timer(self._timer, retry_ms)

    def _assign(self, plan: TargetPlan, draft: Draft) -> TargetComputed | None:
        """Compute a small target inline, and start a job for a large one."""
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
            draft.append(ConsumerTargetAssignmentMember(group, member_id, partitions))
        draft.append(ConsumerTargetAssignmentMetadata(group, AssignmentEpoch(epoch, draft.now_ms)))

    def _assignable_ms(self, now_ms: int) -> int:
        """When the next target may be computed."""
        interval_ms = self._settings.assignment_interval_ms
        computed_ms = self._state.assignment.computed_ms
        return now_ms if not computed_ms or not interval_ms else max(now_ms, computed_ms + interval_ms)

    @property
    def _timer(self) -> ConsumerTimer:
        return ConsumerTimer(self._state.group, Alarm.ASSIGN)
