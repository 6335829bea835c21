"""The events of groups with the consumer protocol: one per record of `__consumer_offsets`.

Each event is Kafka's record of the same name: its first fields are the key, and a `value` of None is the tombstone of
the key. The latest of a key counts. A group's state is the latest values of its records, defined in
`penstock.wire.group_values`.
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
    """A group's epoch. Its tombstone is the last record of a group."""

    group: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerMemberMetadata:
    """A member's metadata. Its tombstone is the last record of a member."""

    group: str
    member_id: str
    value: MemberMetadata | None


@dataclass(frozen=True, slots=True)
class ConsumerTargetAssignmentMetadata:
    """The epoch of the target assignment. Completes a new target, whose parts precede it."""

    group: str
    value: AssignmentEpoch | None


@dataclass(frozen=True, slots=True)
class ConsumerTargetAssignmentMember:
    """The target assignment of a member."""

    group: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class ConsumerCurrentMemberAssignment:
    """The current assignment of a member."""

    group: str
    member_id: str
    value: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class ConsumerRegularExpression:
    """The topics that a regular expression matches."""

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
