"""What the records of `__consumer_offsets` say: their keys, and one value for each kind.

Every field of Kafka 4.3's records is here, whether a broker of this kind has a use for it or not.
"""

from typing import NamedTuple

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

TopicPartitions = tuple[bytes, tuple[int, ...]]
"""A topic's id and some of its partitions."""

OwnedPartitions = tuple[bytes, tuple[int, ...], tuple[int, ...] | None]
"""The same with the epoch at which each partition was given to the member, where that is known."""


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


class MemberValue(NamedTuple):
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group at rest."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberValue, ...]


class ConsumerGroupValue(NamedTuple):
    """A group with the consumer protocol: its epoch, and a hash of the topics it was made for."""

    epoch: int
    metadata_hash: int = 0


class ClassicProtocols(NamedTuple):
    """What a member of a consumer group that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMemberValue(NamedTuple):
    """A member of a consumer group: who it is and what it wants to read."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None


class ConsumerTargetValue(NamedTuple):
    """The epoch for which the members' targets hold, and when they were found."""

    epoch: int
    assigned_ms: int = 0


class ConsumerTargetMemberValue(NamedTuple):
    """What a member is to have in the end."""

    partitions: tuple[TopicPartitions, ...]


class ConsumerCurrentMemberValue(NamedTuple):
    """What a member has now, and what it has yet to give up."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: tuple[OwnedPartitions, ...]
    revoking: tuple[OwnedPartitions, ...]


class ConsumerRegexValue(NamedTuple):
    """The topics a pattern stood for, as of a version of the metadata."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Value = (
    OffsetValue
    | GroupValue
    | ConsumerGroupValue
    | ConsumerMemberValue
    | ConsumerTargetValue
    | ConsumerTargetMemberValue
    | ConsumerCurrentMemberValue
    | ConsumerRegexValue
)
