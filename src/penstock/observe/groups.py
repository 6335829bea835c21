"""The metrics of consumer groups, with kafka_exporter's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.observe import catalog
from penstock.observe.metric import Frozen, Sample


class LagView(NamedTuple):
    """One committed offset of a group; a tuple, because a broker may have thousands.

    `start` and `end` are the partition's log start offset and high watermark.
    """

    group: str
    topic: str
    partition: int
    offset: int
    start: int
    end: int

    @property
    def lag(self) -> int:
        """Offsets left to read; deleted records, below the log start offset, do not count."""
        return max(0, self.end - max(self.offset, self.start))


class MembersView(NamedTuple):
    """How many members a group has."""

    group: str
    members: int


class CoverageView(NamedTuple):
    """What a scrape omits about groups."""

    loading: int
    """Partitions of `__consumer_offsets` that are not loaded yet."""
    truncated: bool
    """There are more committed offsets than the scrape reports."""


GroupRow = LagView | MembersView | CoverageView


class GroupSource:
    """The samples of the groups that this broker coordinates."""

    __slots__ = ("_per_partition", "_rows")

    def __init__(self, rows: Callable[[], Iterable[GroupRow]], *, per_partition: Callable[[], bool]) -> None:
        """`per_partition`: each partition of a group has its own samples; otherwise a topic only has their sums."""
        self._rows = rows
        self._per_partition = per_partition

    def samples(self) -> Frozen:
        per_partition = self._per_partition()
        return Frozen(self._rows(), lambda rows: _samples(rows, per_partition=per_partition))


def _samples(rows: list[GroupRow], *, per_partition: bool) -> Iterator[Sample]:
    for row in rows:
        if isinstance(row, CoverageView):
            yield catalog.GROUPS_LOADING.sample(row.loading)
            yield catalog.GROUP_OFFSETS_TRUNCATED.sample(int(row.truncated))
        elif isinstance(row, MembersView):
            yield catalog.GROUP_MEMBERS.sample(row.members, row.group)
    yield from _lag_samples((row for row in rows if isinstance(row, LagView)), per_partition=per_partition)


def _lag_samples(lags: Iterable[LagView], *, per_partition: bool) -> Iterator[Sample]:
    offsets: dict[tuple[str, str], int] = {}
    behind: dict[tuple[str, str], int] = {}
    for view in lags:
        labels = (view.group, view.topic, str(view.partition))
        lag = view.lag
        if per_partition:
            yield Sample(catalog.GROUP_OFFSET, labels, view.offset)
            yield Sample(catalog.GROUP_LAG, labels, lag)
        of_topic = labels[:2]
        offsets[of_topic] = offsets.get(of_topic, 0) + view.offset
        behind[of_topic] = behind.get(of_topic, 0) + lag
    for of_topic, total in offsets.items():
        yield Sample(catalog.GROUP_OFFSET_SUM, of_topic, total)
        yield Sample(catalog.GROUP_LAG_SUM, of_topic, behind[of_topic])
