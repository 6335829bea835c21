"""The state of a group with the consumer protocol: its records applied in order, and indexes of them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerRegularExpression,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.topics import TopicsView
from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    ASSIGNMENT_EPOCH_NONE,
    LEFT_EPOCH,
    NO_PARTITIONS,
    AssignmentEpoch,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    Partitions,
    ResolvedPattern,
)

HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its two latest records."""

    member_id: str
    metadata: MemberMetadata = field(default_factory=MemberMetadata)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return self.metadata.classic is not None

    def settled(self, assignment_epoch: int) -> bool:
        """Whether its assignment equals the target of this epoch."""
        return self.current.state is MemberState.STABLE and self.current.member_epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class Change:
    """A member before and after its request; a static one may replace another."""

    before: Member
    after: Member
    replaced: Member | None = None
    known: bool = False
    """Whether `before` is in the group."""

    @property
    def removed(self) -> tuple[Member, ...]:
        """The member whose old metadata no longer counts."""
        if self.replaced is not None:
            return (self.replaced,)
        return (self.before,) if self.known else ()


Tally = dict[str, int]


def count(tally: Tally, names: Iterable[str], change: int) -> None:
    """Add to the counts of some names; names that reach zero are removed."""
    for name in names:
        total = tally.get(name, 0) + change
        if total:
            tally[name] = total
        else:
            tally.pop(name, None)


class ConsumerState:
    """The applied records of one group.

    While a log is loaded during compaction, its records may seem to give a partition two owners for a while. So the
    latest owner counts, and only the owner's own record removes its partition.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.epoch = GroupEpoch()
        self.assignment = AssignmentEpoch()
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.instances: dict[str, str] = {}
        """Member ids by instance id."""
        self.pattern_readers: Tally = {}
        self.topic_readers: Tally = {}
        """How many members subscribe to a topic by its name."""
        self.matched: Tally = {}
        """How many patterns a topic matched."""
        self.assignors: Tally = {}
        self.classic_count = 0
        self.classic_protocols: Tally = {}
        self._owners: dict[TopicId, dict[int, str]] = {}

    # Reading

    def static(self, instance_id: str | None) -> Member | None:
        """The member with this instance id."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def owner(self, topic: TopicId, partition: int) -> str | None:
        """The member that owns a partition, which it may be revoking."""
        return self._owners.get(topic, {}).get(partition)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, metadata: MemberMetadata) -> tuple[str, ...]:
        """The topics that a member subscribes to, by name and by pattern; an unresolved pattern matches none."""
        resolved = self.patterns.get(metadata.pattern) if metadata.pattern else None
        if resolved is None or not resolved.topics:
            return metadata.topics
        if not metadata.topics:
            return resolved.topics
        return (*metadata.topics, *(topic for topic in resolved.topics if topic not in metadata.topics))

    def subscribed(self, topic: str) -> bool:
        return topic in self.topic_readers or topic in self.matched

    # Applying

    def apply(self, event: ConsumerEvent) -> None:
        """Apply an event. Tombstones of unknown keys are ignored."""
        match event:
            case ConsumerGroupMetadata(value=value):
                self.epoch = value or GroupEpoch()
            case ConsumerTargetAssignmentMetadata(value=value):
                self.assignment = value or AssignmentEpoch(ASSIGNMENT_EPOCH_NONE)
            case ConsumerTargetAssignmentMember(member_id=member_id, value=value):
                if value is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = value
            case ConsumerMemberMetadata(member_id=member_id, value=value):
                if value is not None:
                    self._put(replace(self.members.get(member_id, Member(member_id)), metadata=value))
                elif member_id in self.members:
                    self._drop(self.members.pop(member_id))
            case ConsumerCurrentMemberAssignment(member_id=member_id, value=value):
                if value is None and member_id in self.members:
                    value = CurrentAssignment(member_epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH)
                if value is not None:
                    self._put(replace(self.members.get(member_id, Member(member_id)), current=value))
            case ConsumerRegularExpression(pattern=pattern, value=value):
                before = self.patterns.pop(pattern, None)
                if before is not None:
                    count(self.matched, before.topics, -1)
                if value is not None:
                    self.patterns[pattern] = value
                    count(self.matched, value.topics, 1)
            case _:
                assert_never(event)

    def _put(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._drop(before)
        self.members[member.member_id] = member
        self._tally(member.metadata, 1)
        if member.metadata.instance_id is not None:
            self.instances[member.metadata.instance_id] = member.member_id
        for partitions in (member.current.assigned, member.current.revoking):
            for topic, epochs in partitions.items():
                self._owners.setdefault(topic, {}).update(dict.fromkeys(epochs, member.member_id))

    def _drop(self, member: Member) -> None:
        self._tally(member.metadata, -1)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member.member_id:
            del self.instances[instance_id]
        for partitions in (member.current.assigned, member.current.revoking):
            for topic, epochs in partitions.items():
                owners = self._owners.get(topic)
                if owners is None:
                    continue
                for partition in epochs:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self._owners[topic]

    def _tally(self, metadata: MemberMetadata, change: int) -> None:
        count(self.topic_readers, metadata.topics, change)
        if metadata.pattern:
            count(self.pattern_readers, (metadata.pattern,), change)
        if metadata.assignor is not None:
            count(self.assignors, (metadata.assignor,), change)
        if metadata.classic is not None:
            self.classic_count += change
            count(self.classic_protocols, (name for name, _ in metadata.classic.protocols), change)


# The hash of the subscribed topics


class TopicHashes:
    """A 64-bit hash of the subscribed topics: their ids, partitions and racks.

    The hash of each topic is cached until the topic changes: a large one takes a while, and every join needs them all.
    """

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._kept: dict[str, tuple[TopicId, int, int]] = {}

    def of(self, names: Iterable[str]) -> int:
        """The hash of the existing topics among these, in any order; 0 if there are none.

        Kafka uses another function, so hashes of the two are not comparable.
        """
        total = 0
        for name in names:
            topic_id = self._topics.topic_id(name)
            partitions = self._topics.partition_count(name)
            if topic_id is None or partitions is None:
                continue
            kept = self._kept.get(name)
            if kept is None or kept[0] != topic_id or kept[1] != partitions:
                kept = self._kept[name] = (topic_id, partitions, topic_hash(name, topic_id, partitions, self._topics))
            total += kept[2]
        return int.from_bytes((total % (1 << 64)).to_bytes(HASH_BYTES), signed=True)

    def forget(self, names: Iterable[str]) -> None:
        """Drop the cached hashes of topics that changed or were deleted."""
        for name in names:
            self._kept.pop(name, None)


def topic_hash(name: str, topic_id: TopicId, partitions: int, topics: TopicsView) -> int:
    """The hash of those properties of a topic that require a new target when they change."""
    digest = hashlib.blake2b(topic_id, digest_size=HASH_BYTES)
    digest.update(partitions.to_bytes(4))
    digest.update(name.encode())
    for partition in range(partitions):
        for rack in sorted(topics.racks(name, partition)):
            encoded = rack.encode()
            digest.update(partition.to_bytes(4) + len(encoded).to_bytes(4) + encoded)
    return int.from_bytes(digest.digest())
