"""Writes transaction markers to the partitions of a transaction.

A marker in a partition of `__consumer_offsets` also commits or discards the transaction's pending offsets in the group
coordinator of that partition.
"""

from penstock.groups.service import GroupCoordinatorService
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred
from penstock.model.ids import CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.wire.records import build_marker

MARKERS_PER_TURN_MAX = 100
"""Markers written for one request in one turn of the loop."""


class MarkerLog:
    """Appends markers to replicas."""

    __slots__ = ("_clock", "_groups", "_replicas")

    def __init__(self, *, replicas: Replicas, groups: GroupCoordinatorService, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(
        self,
        tp: TopicPartition,
        *,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        commit: bool,
        coordinator_epoch: CoordinatorEpoch,
        transaction_version: int,
    ) -> Deferred[None] | None:
        """Append a marker; None if it is committed, else a Deferred that completes then. Raises if the append fails."""
        # A group coordinator that is loading would miss the marker, so this raises until it is loaded.
        group_context = self._groups.at(tp.partition) if tp.topic == GROUP_OFFSETS_TOPIC else None
        if group_context is not None:
            group_context.check()
            group_context.write_pending()
        replica = self._replicas.get(tp.topic, tp.partition)
        now_ms = self._clock.now_ms()
        marker = build_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        appended = replica.append(
            memoryview(marker), now_ms, acks_all=True, internal=True, transaction_version=transaction_version
        )
        assert isinstance(appended, Appended), "a marker is not compressed, so it is appended at once"
        if group_context is not None:
            group_context.decided(producer_id, commit=commit, end=appended.end)
        return replica.committed(appended.end)
