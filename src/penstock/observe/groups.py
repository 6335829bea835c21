"""How far each group is behind, in the names that kafka_exporter made common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.observe import catalog
from penstock.observe.metric import Frozen, Sample


class LagView(NamedTuple):
    """One partition that a group has committed in; a tuple, because a broker may have thousands.

    `start` and `end` are what can be read of the partition.
    """

    group: str
    topic: str
    partition: int
    offset: int
    start: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets left to read: a group that is behind the start has lost what was there, and need not read it."""
        return max(0, self.end - max(self.offset, self.start))


class GroupsView(NamedTuple):
    """What a scrape tells of groups."""

    lags: list[LagView]
    members: list[tuple[str, int]]
    loading: int
    """Partitions of coordinators whose groups are not known yet."""
    untold: bool
    """There are more offsets than are told."""


class GroupSource:
    """Turns what the coordinators here remember into samples."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Callable[[], GroupsView]) -> None:
        self._groups = groups

    def samples(self) -> Frozen:
        view = self._groups()
        return Frozen(lambda: _samples(view))


def _samples(view: GroupsView) -> Iterator[Sample]:
    yield catalog.GROUPS_LOADING.sample(view.loading)
    yield catalog.GROUP_OFFSETS_UNTOLD.sample(int(view.untold))
    for group, members in view.members:
        yield catalog.GROUP_MEMBERS.sample(members, group)
    yield from _lag_samples(view.lags)


def _lag_samples(lags: Iterable[LagView]) -> Iterator[Sample]:
    offsets: dict[tuple[str, str], int] = {}
    behind: dict[tuple[str, str], int] = {}
    for view in lags:
        labels = (view.group, view.topic, str(view.partition))
        lag = view.lag
        yield Sample(catalog.GROUP_OFFSET, labels, view.offset)
        yield Sample(catalog.GROUP_LAG, labels, lag)
        of_topic = labels[:2]
        offsets[of_topic] = offsets.get(of_topic, 0) + view.offset
        behind[of_topic] = behind.get(of_topic, 0) + lag
    for of_topic, total in offsets.items():
        yield Sample(catalog.GROUP_OFFSET_SUM, of_topic, total)
        yield Sample(catalog.GROUP_LAG_SUM, of_topic, behind[of_topic])
