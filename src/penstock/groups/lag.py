"""The lag of each group, from memory: committed offsets from the coordinators, high watermarks from the partitions.

Those of partitions that this broker has no replica of are what their leaders said at an earlier scrape.
"""

from collections.abc import Iterator
from itertools import islice, starmap

from penstock.groups.service import GroupCoordinatorService
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicPartition
from penstock.observe.groups import CoverageView, GroupRow, LagView, MembersView
from penstock.partition.replicas import Replicas
from penstock.replication.remote_bounds import RemoteBounds
from penstock.storage.store import LogStore

OFFSETS_REPORTED_MAX = 20_000
"""Committed offsets in one scrape, which bounds its size whatever clients commit."""


class GroupLag:
    """The group metrics of a scrape. Lag is measured to the high watermark, the end that every consumer can reach."""

    def __init__(
        self,
        *,
        coordinators: GroupCoordinatorService,
        replicas: Replicas,
        logs: LogStore,
        remote: RemoteBounds | None = None,
    ) -> None:
        """`remote` is None for a broker that is the only one of its cluster."""
        self._coordinators = coordinators
        self._replicas = replicas
        self._logs = logs
        self._remote = remote

    def rows(self) -> Iterator[GroupRow]:
        """The rows of every group. The caller may spread the iteration over several turns of the loop."""
        bounds: dict[TopicPartition, tuple[int, int] | None] = {}
        left = OFFSETS_REPORTED_MAX
        truncated = False
        for coordinator in list(self._coordinators.loaded()):
            try:
                shard = coordinator.shard()
            except BrokerError:
                # This broker lost the partition during the iteration.
                continue
            members = list(islice(shard.members_by_group(), left))
            offsets = list(islice(shard.committed(), left + 1))
            truncated = truncated or len(offsets) > left
            yield from starmap(MembersView, members)
            for group, committed in offsets[:left]:
                left -= 1
                tp = TopicPartition(committed.topic, committed.partition)
                if tp not in bounds:
                    bounds[tp] = self._bounds(tp)
                bound = bounds[tp]
                if bound is not None:
                    yield LagView(group, tp.topic, tp.partition, committed.offset, *bound)
        yield CoverageView(self._coordinators.loading, truncated)
        if self._remote is not None:
            self._remote.refresh()

    def _bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Start and end of a partition; None if they are not known."""
        view = self._replicas.views.get(tp.topic)
        if view is not None:
            # A view's partitions are its parent's.
            tp = TopicPartition(view.parent, tp.partition)
        replica = self._replicas.used(tp)
        if replica is not None:
            return replica.offsets.log_start, replica.offsets.high_watermark
        topic = self._replicas.topic(tp.topic)
        log = self._logs.get(tp)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        if topic.partitions[tp.partition].is_ghost:
            end = topic.partitions[tp.partition].log_base
            return end, end
        if log is None:
            return None if self._remote is None else self._remote.get(tp)
        return log.log_start, log.log_end
