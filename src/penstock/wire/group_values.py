"""What the records of `__consumer_offsets` say: their keys, and one value for each kind.

Every field of Kafka 4.3's records is here, whether a broker of this kind has a use for it or not. Groups work with
these values, so that there is nothing to convert between a record and what is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.ids import TopicId
from penstock.wire.primitives import ZERO_UUID

OFFSET_OLD = 0
OFFSET = 1
GROUP = 2
CONSUMER_GROUP = 3
CONSUMER_PARTITIONS = 4
"""ConsumerGroupPartitionMetadata, of Kafka up to 4.0 only. Skipped."""
CONSUMER_MEMBER = 5
CONSUMER_TARGET = 6
CONSUMER_TARGET_MEMBER = 7
CONSUMER_CURRENT_MEMBER = 8
SHARE_MEMBER = 10
SHARE_GROUP = 11
SHARE_TARGET = 12
SHARE_TARGET_MEMBER = 13
SHARE_CURRENT_MEMBER = 14
SHARE_PARTITIONS = 15
CONSUMER_REGEX = 16

NAMED_KINDS = frozenset(
    {
        CONSUMER_MEMBER,
        CONSUMER_TARGET_MEMBER,
        CONSUMER_CURRENT_MEMBER,
        CONSUMER_REGEX,
        SHARE_MEMBER,
        SHARE_TARGET_MEMBER,
        SHARE_CURRENT_MEMBER,
    },
)
"""Keys that also name a member or a pattern."""

NO_TIME_MS = -1
NO_EPOCH = -1

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; topics without partitions are left out."""

PartitionEpochs = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which it was assigned, which fences older commits."""

NO_PARTITIONS: Partitions = MappingProxyType({})


def no_partitions() -> Partitions:
    return NO_PARTITIONS


def no_partition_epochs() -> PartitionEpochs:
    return {}


JOINING_EPOCH = 0
LEFT_EPOCH = -1
STATIC_LEFT_EPOCH = -2
"""A static member that left temporarily: it keeps its partitions until its session ends."""

GROUP_EPOCH_FIRST = 1
"""The epoch of a new group; its first member raises it to 2."""

ASSIGNMENT_EPOCH_NONE = -1
"""The target assignment was deleted, as the group ends."""


class MemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of_record(cls, number: int) -> "MemberState":
        """The state with this number; UNKNOWN for one of a later version."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group epoch, raised by changes of members, subscriptions and subscribed topics."""

    epoch: int = GROUP_EPOCH_FIRST
    metadata_hash: int = 0
    """The hash of the subscribed topics in this epoch: if it changes, the group needs a new target."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The session timeout and protocols of a member with the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member's identity and subscription. Topics are sorted and unique."""

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
    """The group epoch of the target assignment, and when it was computed."""

    epoch: int = GROUP_EPOCH_FIRST
    computed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """The partitions assigned to a member, and those it is revoking."""

    member_epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    """The epoch of a member that missed the response with its new one."""
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=no_partition_epochs)
    revoking: PartitionEpochs = field(default_factory=no_partition_epochs)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a regular expression matches, sorted, and when it was resolved."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


class Key(NamedTuple):
    """The key of a record. `name` is a member id or a pattern; `topic` and `partition` are those of an offset."""

    kind: int
    group: str
    name: str = ""
    topic: str = ""
    partition: int = -1


class OffsetValue(NamedTuple):
    """A committed offset of a partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int = NO_TIME_MS
    expire_ms: int = NO_TIME_MS
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group; `subscription` is its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupValue:
    """A classic group: stable with these members and their assignments, or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[ClassicMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadata:
    """The identity and the subscription of a member of a share group. Topics are sorted and unique."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAssignment:
    """The partitions assigned to a member of a share group."""

    member_epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=no_partitions)


class NamedPartitions(NamedTuple):
    """Some partitions of a topic, with its name."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitions:
    """The share partitions of a group: those that begin, those that have begun, and the topics of those that end."""

    initializing: Mapping[TopicId, NamedPartitions] = field(default_factory=dict[TopicId, NamedPartitions])
    initialized: Mapping[TopicId, NamedPartitions] = field(default_factory=dict[TopicId, NamedPartitions])
    deleting: Mapping[TopicId, str] = field(default_factory=dict[TopicId, str])


GroupValue = (
    ClassicGroupValue
    | GroupEpoch
    | MemberMetadata
    | AssignmentEpoch
    | Partitions
    | CurrentAssignment
    | ResolvedPattern
    | ShareMemberMetadata
    | ShareAssignment
    | SharePartitions
)
"""The value of a group's record; a target is just its partitions."""
