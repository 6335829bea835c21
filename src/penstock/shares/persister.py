"""The interface through which a partition's leader keeps the state of a share partition at the share coordinator.

A share partition is one partition of a topic as one share group sees it. Its leader decides; the coordinator on
`__share_group_state` keeps what survives the leader, and fences an older leader by the leader epoch, and every leader
by the state epoch, which altering the group's offsets raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock.model.deferred import Deferred
from penstock.model.ids import LeaderEpoch, Offset, TopicId

# The delivery states of the records, as in Kafka's requests. ACQUIRED (1) is never written.
AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
ARCHIVING = 3
"""On its way to the dead letters: not handed out again, and not final yet."""

ARCHIVED = 4

FINAL = (ACKNOWLEDGED, ARCHIVED)
"""States that no offset leaves."""

WRITTEN = (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED)
"""States that are written."""

JOINED_FROM = 2_000
"""With so many ranges, adjacent finished ones become one, so that a snapshot stays far below the largest record."""

LOADED_SPAN_MAX = 16 * 1024 * 1024
"""Offsets from the start to the end of a state that is loaded: far more than a leader hands out, which is bounded by
its window and the size of one batch."""

UNINITIALIZED_OFFSET = Offset(-1)
"""The start of a share partition that has not been read yet: its leader applies `share.auto.offset.reset`."""

UNKNOWN_COUNT = -1
"""The delivery complete count of a writer that does not know it."""


class StateBatch(NamedTuple):
    """A range of offsets in one state with one delivery count; both ends belong to it."""

    first: int
    last: int
    state: int
    """AVAILABLE, ACKNOWLEDGED, ARCHIVING or ARCHIVED."""
    deliveries: int
    not_before_ms: int = 0
    """When a released record may be handed out again; 0 for at once. Tagged field 10000 on the wire and on disk, and
    left out there if it is 0, so that Kafka reads what has none."""


def check_batches(batches: Sequence[StateBatch], start_offset: int) -> None:
    """Raise a ValueError for ranges that no leader writes, and that none could load.

    A start offset of -1 is unknown.
    """
    for first, last, state, deliveries, _ in batches:
        if not (0 <= first <= last and state in WRITTEN and deliveries >= 0):
            raise ValueError(f"no range of a share partition: {first} to {last}, {state}, {deliveries} deliveries")
        if start_offset >= 0 and last - start_offset >= LOADED_SPAN_MAX:
            raise ValueError(f"range {first} to {last} is too far from the start {start_offset}")


def finished_joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """The ranges with adjacent finished ones as one: how each was finished, and after how many deliveries, is lost.

    Without this there could be a range for each record behind one that is never finished.
    """
    joined: list[StateBatch] = []
    for each in batches:
        before = joined[-1] if joined else None
        if before is not None and before.state in FINAL and each.state in FINAL and before.last + 1 == each.first:
            state = each.state if each.state == before.state else ARCHIVED
            joined[-1] = StateBatch(before.first, each.last, state, max(before.deliveries, each.deliveries))
        else:
            joined.append(each)
    return joined


class SharePartitionState(NamedTuple):
    """What the coordinator knows of a share partition. Offsets between batches are AVAILABLE."""

    state_epoch: int
    start_offset: Offset
    """SPSO, or `UNINITIALIZED_OFFSET`."""
    delivery_complete_count: int
    """Final records at or above the start offset, or `UNKNOWN_COUNT`."""
    batches: Sequence[StateBatch]
    """By offset, without overlaps, none below the start offset."""


class SharePartitionSummary(NamedTuple):
    """What admin APIs ask for."""

    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int


class SharePersister(Protocol):
    """Reads and writes the state of share partitions, wherever their coordinators are.

    It retries while a coordinator moves or loads, for a bounded time. It fails with the `BrokerError` of the response:
    `FencedLeaderEpoch` and `FencedStateEpoch` for a writer whose time is over, `UnknownTopicOrPartition` for a share
    partition that was not initialized or is deleted, `GroupIdNotFound`, `CoordinatorNotAvailable` after the last retry.
    """

    def read(
        self, group: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch
    ) -> Deferred[SharePartitionState]:
        """The state as committed. The coordinator writes the leader epoch before it responds, which fences others."""
        ...

    def write(
        self,
        group: str,
        topic_id: TopicId,
        partition: int,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Deferred[None]:
        """Add these ranges to the state; complete when the write is committed.

        A start offset of -1 leaves the start as it is. Later ranges override earlier ones where they overlap.
        """
        ...

    def initialize(
        self, group: str, topic_id: TopicId, partition: int, state_epoch: int, start_offset: Offset
    ) -> Deferred[None]:
        """Begin a share partition, or begin it again with a higher state epoch."""
        ...

    def delete(self, group: str, topic_id: TopicId, partition: int) -> Deferred[None]:
        """Forget a share partition; one that is unknown is deleted already."""
        ...

    def read_summary(
        self, group: str, topic_id: TopicId, partition: int, leader_epoch: LeaderEpoch
    ) -> Deferred[SharePartitionSummary]:
        """The start and counts as committed, which fences no leader."""
        ...
