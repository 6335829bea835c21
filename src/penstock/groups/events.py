"""What the coordinator of classic groups and committed offsets remembers: one value per record of `__consumer_offsets`.

A record has a key, and the latest of a key counts; a value that ends in `Forgotten` is the tombstone of its key. The
events of groups with the consumer protocol stand beside their group, in `consumer.events`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.ids import TOPIC_ID_ZERO, TopicId
from penstock.wire.group_values import ClassicGroupValue

if TYPE_CHECKING:
    from penstock.groups.classic.rebalance import Rebalance

NO_LEADER_EPOCH = -1
NO_EXPIRY_MS = -1
"""The broker's own retention counts: the commit named none, as every commit since version 5."""

NO_STATE_MS = -1
"""Written by a broker so old that its records do not say since when a group is in its state."""


class OffsetCommitted(NamedTuple):
    """How far a group got in one partition; key (group, topic, partition). A tuple: one is made per commit."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY_MS
    topic_id: TopicId = TOPIC_ID_ZERO


class OffsetForgotten(NamedTuple):
    """The group has no offset there any more."""

    group: str
    topic: str
    partition: int


class TxnOffsetPending(NamedTuple):
    """An offset committed within a transaction: a record of a batch that is the producer's, and not yet the group's."""

    producer_id: int
    producer_epoch: int
    offset: OffsetCommitted


class TxnOffsetsDecided(NamedTuple):
    """A producer's transaction ended, as a marker in the log says; there is no record of its own for it."""

    producer_id: int
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupSaved:
    """A classic group as it came to rest; key (group)."""

    group: str
    value: ClassicGroupValue
    becomes: "Rebalance | None" = field(default=None, compare=False, repr=False)
    """What the group is once this is in the log, with what no record holds: requests that wait, members that join.

    None where the event was read from a log.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupForgotten:
    """There is no such classic group any more."""

    group: str


OffsetEvent = OffsetCommitted | OffsetForgotten | TxnOffsetPending | TxnOffsetsDecided

ClassicEvent = OffsetEvent | ClassicGroupSaved | ClassicGroupForgotten
