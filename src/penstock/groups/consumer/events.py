"""What the coordinator remembers of groups with the consumer protocol: one value per record of `__consumer_offsets`.

Each event is a record of Kafka's of the same name: its first fields are the key, `value` is the value, and None is the
tombstone of the key. The latest of a key counts. A member's state is nothing but the latest of its records, so the
values here are also what a group works with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from penstock.model.ids import TopicId

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; a topic without any is left out."""

PartitionEpochs = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it: what older commits are fenced with."""

NO_PARTITIONS: Partitions = MappingProxyType({})


def no_partition_epochs() -> PartitionEpochs:
    return {}


JOINING_EPOCH = 0
LEFT_EPOCH = -1
STATIC_LEFT_EPOCH = -2
"""A static member that left to come back: it keeps its partitions until its session ends."""

GROUP_EPOCH_FIRST = 1
"""A group's epoch before anything happened in it; its first member makes it 2."""

ASSIGNMENT_EPOCH_NONE = -1
"""The group's target was taken back, as the group ends."""


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of_record(cls, number: int) -> "MemberState":
        """The state with this number; one that a later version brought is unknown here."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """Counts what changed a group: its members, what they subscribe to, and those topics."""

    epoch: int = GROUP_EPOCH_FIRST
    metadata_hash: int = 0
    """Of the topics as they were then: another value, and the group has to be assigned anew."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """Who a member is and what it wants. Topics are sorted, and none stands twice."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class AssignmentEpoch:
    """The group epoch that the target was computed for, and when that was done."""

    epoch: int = GROUP_EPOCH_FIRST
    computed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """What a member has, and what it has to give back first."""

    member_epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    """A member that did not hear of its new epoch comes with this one."""
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=no_partition_epochs)
    revoking: PartitionEpochs = field(default_factory=no_partition_epochs)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a regular expression matched, sorted, and when."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


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
