"""The commands of the group coordinator and their replies, independent of the wire format.

A command keeps the request's version where its meaning depends on it. If a whole request fails, the response is the
error itself; a reply has an error field only if it carries more than the error, such as the member id to join with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.errors import BrokerError
from penstock.model.ids import NO_LEADER_EPOCH, TOPIC_ID_ZERO, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId

NO_MEMBER_ID = ""
"""The id of a member that has none yet, or of a commit from outside the group."""

NO_GENERATION = -1
DEFAULT_RETENTION_MS = -1

Failure = type[BrokerError]
NO_FAILURES: Mapping[int, Failure] = MappingProxyType({})


# Membership of classic groups


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member joins or rejoins: the response waits until all members have joined and a generation begins.

    `client_host` is what DescribeGroups shows, as Kafka prints it: a slash and the address.
    """

    group: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    version: int
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The generation that a member joined, or the error. Only the leader gets the list of members."""

    member_id: str
    error: Failure | None = None
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader sends everyone's. The response waits until they are in the log."""

    group: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """The assignment of one member, as the leader encoded it."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A heartbeat of a classic member. RebalanceInProgress tells it to rejoin."""

    group: str
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """No rebalance is in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """The member to remove, by its id; a static one by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """These members leave, or an operator removes them."""

    group: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """The result for one of them."""

    member_id: str
    group_instance_id: str | None
    error: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """The result for each, in the order of the request. Below version 3 the one member's error is the request's."""

    members: tuple[LeftMember, ...]


# Offsets


class CommitEntry(NamedTuple):
    """The offset to commit for one partition. A plain tuple: it is made for every commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: TopicId = TOPIC_ID_ZERO


@dataclass(slots=True, kw_only=True)
class CommitOffsets:
    """Commit offsets of a group. `generation` is a member epoch if the group uses the consumer protocol.

    Immutable by convention: made for every commit, and a frozen dataclass takes twice as long to make.
    """

    group: str
    member_id: str
    group_instance_id: str | None
    generation: int
    entries: tuple[CommitEntry, ...]
    version: int
    retention_ms: int = DEFAULT_RETENTION_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTxnOffsets:
    """The same within a transaction: visible only once the transaction is committed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commit: CommitOffsets


@dataclass(frozen=True, slots=True)
class CommitReply:
    """The errors of entries that were not committed, by index; all others were."""

    failures: Mapping[int, Failure]


ALL_COMMITTED = CommitReply(NO_FAILURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Delete these offsets of a group, in topics that it does not subscribe to."""

    group: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    """The errors of partitions whose offsets were not deleted, by index."""

    failures: Mapping[int, Failure]


class CommittedOffset(NamedTuple):
    """A committed offset of one partition."""

    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_ms: int
    topic_id: TopicId


# Administration


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """Delete these groups of this shard, with their offsets, if they are empty."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupsReply:
    """The errors of groups that were not deleted, by name."""

    failures: Mapping[str, BrokerError]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a list: states and types are Kafka's words, such as `PreparingRebalance` and `Classic`."""

    group: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member of a classic group, as an operator sees it. Its metadata shows only while its group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A classic group, as an operator sees it."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


# Groups with the consumer protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat: identity, subscription, owned partitions. None is "unchanged"; epoch -1 or -2 leaves."""

    group: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: tuple[tuple[TopicId, tuple[int, ...]], ...] | None
    client_id: str
    client_host: str
    version: int


# Share groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat: identity and subscription. None is "unchanged"; epoch -1 leaves."""

    group: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topics: tuple[str, ...] | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesInitialized:
    """The share coordinators have begun these share partitions; others failed, and are tried again."""

    group: str
    partitions: Mapping[TopicId, frozenset[int]]
    failed: Mapping[TopicId, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareOffsets:
    """Begin share partitions of these topics elsewhere: choose those that exist."""

    group: str
    partitions: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareOffsets:
    """End the share partitions of these topics; None is all of them, before the group is deleted."""

    group: str
    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesDeleted:
    """The share coordinators have ended all share partitions of these topics."""

    group: str
    topics: frozenset[TopicId]


GroupCommand = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | CommitTxnOffsets
    | DeleteOffsets
    | DeleteGroups
    | ConsumerHeartbeat
    | ShareHeartbeat
    | SharesInitialized
    | AlterShareOffsets
    | DeleteShareOffsets
    | SharesDeleted
)
