"""The state of a share group: its records applied in order, and an index of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from penstock.groups.share.events import (
    ShareEvent,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    ASSIGNMENT_EPOCH_NONE,
    LEFT_EPOCH,
    NO_PARTITIONS,
    AssignmentEpoch,
    GroupEpoch,
    NamedPartitions,
    Partitions,
    ShareAssignment,
    ShareMemberMetadata,
    SharePartitions,
)

Named = Mapping[TopicId, NamedPartitions]


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member: its two latest records."""

    member_id: str
    metadata: ShareMemberMetadata = field(default_factory=ShareMemberMetadata)
    current: ShareAssignment = field(default_factory=ShareAssignment)


class ShareState:
    """The applied records of one group."""

    __slots__ = ("assignment", "epoch", "group", "members", "partitions", "readers", "targets")

    def __init__(self, group: str) -> None:
        self.group = group
        self.epoch = GroupEpoch()
        self.assignment = AssignmentEpoch()
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.partitions = SharePartitions()
        self.readers: dict[str, int] = {}
        """How many members subscribe to a topic."""

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def names_after(self, removed: ShareMember | None, added: ShareMember | None) -> frozenset[str]:
        """The subscribed topics after a member was replaced by another."""
        gone = removed.metadata.topics if removed is not None else ()
        names = {name for name, readers in self.readers.items() if readers > (name in gone)}
        return frozenset(names.union(added.metadata.topics if added is not None else ()))

    def apply(self, event: ShareEvent) -> None:
        """Apply an event. Tombstones of unknown keys are ignored."""
        match event:
            case ShareGroupMetadata(value=value):
                self.epoch = value or GroupEpoch()
            case ShareGroupTargetAssignmentMetadata(value=value):
                self.assignment = value or AssignmentEpoch(ASSIGNMENT_EPOCH_NONE)
            case ShareGroupTargetAssignmentMember(member_id=member_id, value=value):
                if value is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = value
            case ShareGroupMemberMetadata(member_id=member_id, value=value):
                if value is not None:
                    self._put(replace(self.members.get(member_id, ShareMember(member_id)), metadata=value))
                elif member_id in self.members:
                    self._count(self.members.pop(member_id).metadata.topics, -1)
            case ShareGroupCurrentMemberAssignment(member_id=member_id, value=value):
                if value is None and member_id in self.members:
                    value = ShareAssignment(member_epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH)
                if value is not None:
                    self._put(replace(self.members.get(member_id, ShareMember(member_id)), current=value))
            case ShareGroupStatePartitionMetadata(value=value):
                self.partitions = value or SharePartitions()
            case _:
                assert_never(event)

    def _put(self, member: ShareMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._count(before.metadata.topics, -1)
        self.members[member.member_id] = member
        self._count(member.metadata.topics, 1)

    def _count(self, names: Iterable[str], change: int) -> None:
        for name in names:
            total = self.readers.get(name, 0) + change
            if total:
                self.readers[name] = total
            else:
                self.readers.pop(name, None)


def united(left: Named, right: Named) -> dict[TopicId, NamedPartitions]:
    """The partitions of both."""
    found = dict(left)
    for topic_id, (name, partitions) in right.items():
        before = found.get(topic_id)
        found[topic_id] = NamedPartitions(name, partitions if before is None else before.partitions | partitions)
    return found


def without(left: Named, right: Mapping[TopicId, frozenset[int]]) -> dict[TopicId, NamedPartitions]:
    """The partitions of the first that are not in the second."""
    found: dict[TopicId, NamedPartitions] = {}
    for topic_id, (name, partitions) in left.items():
        rest = partitions - right.get(topic_id, frozenset())
        if rest:
            found[topic_id] = NamedPartitions(name, rest)
    return found


def indexes(named: Named) -> dict[TopicId, frozenset[int]]:
    return {topic_id: found.partitions for topic_id, found in named.items()}
