"""The events of share groups: one per record of `__consumer_offsets`.

Each event is Kafka's record of the same name: its first fields are the key, and a `value` of None is the tombstone of
the key. The latest of a key counts.
"""

from dataclasses import dataclass

from penstock.wire.group_values import (
    AssignmentEpoch,
    GroupEpoch,
    Partitions,
    ShareAssignment,
    ShareMemberMetadata,
    SharePartitions,
)


@dataclass(frozen=True, slots=True)
class ShareGroupMetadata:
    """A group's epoch. Its tombstone is the last record of a group."""

    group: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadata:
    """A member's metadata. Its tombstone is the last record of a member."""

    group: str
    member_id: str
    value: ShareMemberMetadata | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadata:
    """The epoch of the target assignment. Completes a new target, whose parts precede it."""

    group: str
    value: AssignmentEpoch | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMember:
    """The target assignment of a member."""

    group: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignment:
    """The current assignment of a member."""

    group: str
    member_id: str
    value: ShareAssignment | None


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadata:
    """The share partitions of a group whose state is kept, begins or ends."""

    group: str
    value: SharePartitions | None


ShareEvent = (
    ShareGroupMetadata
    | ShareGroupMemberMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
)
