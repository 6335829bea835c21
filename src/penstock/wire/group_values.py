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
"""Kafka's up to 4.0 only: what a group's topics were when its assignment was made. Read over."""
CONSUMER_MEMBER = 5
CONSUMER_TARGET = 6
CONSUMER_TARGET_MEMBER = 7
CONSUMER_CURRENT_MEMBER = 8
CONSUMER_REGEX = 16

NAMED_KINDS = frozenset(
    {CONSUMER_MEMBER, CONSUMER_TARGET_MEMBER, CONSUMER_CURRENT_MEMBER, CONSUMER_REGEX},
)
"""Keys that name something of the group: a member, or a pattern."""

UNSAID_MS = -1
NO_EPOCH = -1

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


class Key(NamedTuple):
    """What a record is about. `name` is a member's id or a pattern; `topic` and `partition` are an offset's."""

    kind: int
    group: str
    name: str = ""
    topic: str = ""
    partition: int = -1


class OffsetValue(NamedTuple):
    """How far a group got in a partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int = UNSAID_MS
    expire_ms: int = UNSAID_MS
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group; `subscription` is what it said under the protocol that was chosen."""

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
    """A classic group at rest: stable with these members and their assignments, or empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[ClassicMember, ...] = ()


GroupValue = (
    ClassicGroupValue | GroupEpoch | MemberMetadata | AssignmentEpoch | Partitions | CurrentAssignment | ResolvedPattern
)
"""What a record about a group says; a target is nothing but its partitions."""
