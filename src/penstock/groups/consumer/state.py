"""What a group with the consumer protocol knows: its records applied in order, and what can be looked up in them."""

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
        """Whether it speaks the classic protocol, and is served by imitation of a classic group."""
        return self.metadata.classic is not None

    def settled(self, assignment_epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it, and nothing else."""
        return self.current.state is MemberState.STABLE and self.current.member_epoch == assignment_epoch


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


Tally = dict[str, int]


def count(tally: Tally, names: Iterable[str], change: int) -> None:
    """Add to the counts of some names; what comes to nothing is left out."""
    for name in names:
        total = tally.get(name, 0) + change
        if total:
            tally[name] = total
        else:
            tally.pop(name, None)


class ConsumerState:
    """The applied records of one group.

    Records of a compacted log can come in an order in which a partition seems to have two owners for a while, when it
    is read while it is compacted; so the latest owner counts, and only an owner's own record takes its partition away.
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
        """How many members read a topic by its name."""
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
        """Who has a partition, or has yet to give it back."""
        return self._owners.get(topic, {}).get(partition)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, metadata: MemberMetadata) -> tuple[str, ...]:
        """The topics that a member reads, by name and by pattern; a pattern not yet resolved means none."""
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
        """Remember a fact. Tombstones of what is unknown mean nothing."""
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


# The hash of what is read


class TopicHashes:
    """Sixty-four bits of the topics that somebody reads: their ids, partitions and racks.

    Those of one topic are kept until the topic changes: a large one takes a while, and every join asks for all.
    """

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._kept: dict[str, tuple[TopicId, int, int]] = {}

    def of(self, names: Iterable[str]) -> int:
        """The hash of the topics that exist among these, in any order. None at all give 0.

        Kafka has another function here; it is compared with nothing but itself.
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
        """These topics changed, or went."""
        for name in names:
            self._kept.pop(name, None)


def topic_hash(name: str, topic_id: TopicId, partitions: int, topics: TopicsView) -> int:
    """What of one topic has to make its readers be assigned anew when it changes."""
    digest = hashlib.blake2b(topic_id, digest_size=HASH_BYTES)
    digest.update(partitions.to_bytes(4))
    digest.update(name.encode())
    for partition in range(partitions):
        for rack in sorted(topics.racks(name, partition)):
            encoded = rack.encode()
            digest.update(partition.to_bytes(4) + len(encoded).to_bytes(4) + encoded)
    return int.from_bytes(digest.digest())
