"""What the coordinator remembers of groups with the consumer protocol: one event per record of `__consumer_offsets`.

Each event is a record of Kafka's of the same name: its first fields are the key, `value` is the value, and None is the
tombstone of the key. The latest of a key counts. A member's state is nothing but the latest of its records, so the
values, which `penstock.wire.group_values` has, are also what a group works with.
"""

from dataclasses import dataclass

from penstock.wire.group_values import (
    AssignmentEpoch,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    Partitions,
    ResolvedPattern,
)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A group's epoch. Its tombstone is the last of a group."""

    group: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerMemberMetadata:
    """A member. Its tombstone is the last of a member."""

    group: str
    member_id: str
    value: MemberMetadata | None


@dataclass(frozen=True, slots=True)
class ConsumerTargetAssignmentMetadata:
    """There is a new target, complete with this event."""

    group: str
    value: AssignmentEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerTargetAssignmentMember:
    """What a member is to have."""

    group: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class ConsumerCurrentMemberAssignment:
    """What a member has."""

    group: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class ConsumerRegularExpression:
    """What a subscription by pattern means."""

    group: str
    pattern: str
    value: ResolvedPattern | None


ConsumerEvent = (
    ConsumerGroupMetadata
    | ConsumerMemberMetadata
    | ConsumerTargetAssignmentMetadata
    | ConsumerTargetAssignmentMember
    | ConsumerCurrentMemberAssignment
    | ConsumerRegularExpression
)
