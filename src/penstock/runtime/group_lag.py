"""How far each group is behind, read from memory: its offsets from the coordinators, the ends from the partitions."""

from itertools import islice

from penstock.model.ids import TopicPartition
from penstock.observe.groups import GroupsView, LagView
from penstock.runtime.coordinators import GroupCoordinators
from penstock.runtime.hosts import Hosts
from penstock.storage.store import LogStore

OFFSETS_TOLD_MAX = 20_000
"""Committed offsets of one scrape: it is taken on the loop, and must not hold up anybody's heartbeat."""


class GroupLag:
    """What a scrape reads of groups. The end that counts is the high watermark: what any reader may come to see."""

    def __init__(self, *, coordinators: GroupCoordinators, hosts: Hosts, logs: LogStore) -> None:
        self._coordinators = coordinators
        self._hosts = hosts
        self._logs = logs

    def view(self) -> GroupsView:
        lags: list[LagView] = []
        members: list[tuple[str, int]] = []
        bounds: dict[tuple[str, int], tuple[int, int] | None] = {}
        live = {host.tp: host.state for host in self._hosts.live()}
        left = OFFSETS_TOLD_MAX
        untold = False
        for coordinator in self._coordinators.loaded():
            shard = coordinator.shard()
            members += islice(shard.members_by_group(), left)
            offsets = shard.committed()
            for group, committed in islice(offsets, left):
                left -= 1
                tp = TopicPartition(committed.topic, committed.partition)
                if tp not in bounds:
                    state = live.get(tp)
                    bounds[tp] = self._bounds(tp) if state is None else (state.log_start, state.high_watermark)
                bound = bounds[tp]
                if bound is not None:
                    lags.append(LagView(group, tp.topic, tp.partition, committed.offset, *bound))
            untold = untold or next(offsets, None) is not None
        return GroupsView(lags, members, self._coordinators.loading, untold)

    def _bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Start and end of a partition that nobody has used since the start; None where it is not here."""
        topic = self._hosts.topic(tp.topic)
        log = self._logs.get(tp)
        if topic is None or log is None or tp.partition >= len(topic.partitions):
            return None
        return log.log_start, log.log_end
