"""What a coordinator of groups can be asked, and how it responds, in its own terms.

A request's version is kept where its meaning depends on it. Failures of a whole request are answered with the error
itself; a reply names errors only where it tells something beside them, such as the id that a member has to use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from penstock.model.errors import BrokerError
from penstock.model.ids import TOPIC_ID_ZERO, TopicId

NO_MEMBER_ID = ""
"""A member that has no id yet, or a committer that is no member."""

NO_GENERATION = -1
DEFAULT_RETENTION_MS = -1

Failure = type[BrokerError]
NO_FAILURES: Mapping[int, Failure] = MappingProxyType({})


# Membership of classic groups


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Let me in, or let me stay: the response waits until everybody has said so and a generation begins.

    `client_host` is what descriptions show, as Kafka prints it: a slash and the address.
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
    """The generation a member is part of, or why it is not. Only the leader learns who else is."""

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
    """What is my work? A leader says everybody's; the response waits for it to be remembered."""

    group: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """The work of one member, as its leader wrote it."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """I am alive; is all as it was? RebalanceInProgress says: join again."""

    group: str
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """All is as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """Who is to go: a member by its id, or a static one by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """These members leave, or are made to."""

    group: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftMember:
    """What became of one of them."""

    member_id: str
    group_instance_id: str | None
    error: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """What became of each, in the order asked. Below version 3 the one member's error is the request's."""

    members: tuple[LeftMember, ...]


# Offsets


class CommitEntry(NamedTuple):
    """How far a consumer got in one partition. A plain tuple: it is made once per commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: TopicId = TOPIC_ID_ZERO


@dataclass(slots=True, kw_only=True)
class CommitOffsets:
    """Remember how far this group got. `generation` is a member epoch where the group has the consumer protocol.

    Made for every commit, and a frozen one takes twice as long to make; nobody changes it all the same.
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
    """The same within a transaction: nobody sees it before the transaction is committed."""

    producer_id: int
    producer_epoch: int
    commit: CommitOffsets


@dataclass(frozen=True, slots=True)
class CommitReply:
    """Which entries, by their index, were not taken, and why; all others were."""

    failures: Mapping[int, Failure]


ALL_COMMITTED = CommitReply(NO_FAILURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Forget these offsets of a group, in topics that it does not read."""

    group: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsetsReply:
    """Which partitions, by their index, were not done, and why."""

    failures: Mapping[int, Failure]


class CommittedOffset(NamedTuple):
    """What a group remembers of one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: TopicId


# Administration


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """Forget these groups, of this shard, with their offsets, where nobody is in them."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupsReply:
    """Which groups, by name, are still there or never were, and why."""

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
    """A member's whole say: who it is, what it wants, what it has. None is "as before"; the epoch -1 or -2 leaves."""

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
)
