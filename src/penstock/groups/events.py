"""The events of classic groups and committed offsets: one per record of `__consumer_offsets`.

The latest record of a key counts; an event whose name ends in `Forgotten` is the tombstone of its key. The events of
groups with the consumer protocol are in `consumer.events`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.ids import TOPIC_ID_ZERO, ProducerEpoch, ProducerId, TopicId
from penstock.wire.group_values import ClassicGroupValue

if TYPE_CHECKING:
    from penstock.groups.classic.rebalance import Rebalance

NO_EXPIRY_MS = -1
"""The commit has no retention of its own, as every commit since version 5: the broker's setting applies."""

NO_STATE_MS = -1
"""The record has no state timestamp: its version is older than that field."""


class OffsetCommitted(NamedTuple):
    """A committed offset of one partition; key (group, topic, partition). A tuple: one is made for every commit."""

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
    """The tombstone of a committed offset."""

    group: str
    topic: str
    partition: int


class TxnOffsetPending(NamedTuple):
    """An offset committed within an open transaction: a record of the producer's transactional batch."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    offset: OffsetCommitted


class TxnOffsetsDecided(NamedTuple):
    """A producer's transaction ended. Written by a transaction marker; it has no record of its own."""

    producer_id: ProducerId
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupSaved:
    """A classic group in the state Stable or Empty; key (group)."""

    group: str
    value: ClassicGroupValue
    becomes: "Rebalance | None" = field(default=None, compare=False, repr=False)
    """The group's table once this is in the log, with the state that no record holds, such as requests that wait.

    None if the event was read from a log.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupForgotten:
    """The tombstone of a classic group."""

    group: str


OffsetEvent = OffsetCommitted | OffsetForgotten | TxnOffsetPending | TxnOffsetsDecided

ClassicEvent = OffsetEvent | ClassicGroupSaved | ClassicGroupForgotten
