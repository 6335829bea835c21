"""The target of a group: what its assignor is given, and what it made of it.

A small group is assigned where it stands. A large one takes long enough to be noticed by all who wait for the loop, so
it is assigned in a thread, on a picture of the group that nobody changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.coordinator.step import Job
from penstock.groups.assignors import ASSIGNORS
from penstock.groups.assignors.spec import Assignor, GroupSpec, MemberSpec, Racks
from penstock.groups.consumer.events import NO_PARTITIONS, Partitions
from penstock.groups.consumer.state import ConsumerState, Member, Tally
from penstock.groups.topics import TopicsView
from penstock.model.ids import TopicId

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
