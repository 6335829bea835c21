"""Filters of a batch query on partitions, offsets or times, which reduce what is fetched."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyspark_penstock.cluster import NO_SUCH_TIME, Cluster
from pyspark_penstock.offsets import OffsetRange
from pyspark_penstock.spark_internals import HAS_FILTER_PUSHDOWN

if TYPE_CHECKING or HAS_FILTER_PUSHDOWN:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
    )

OFFSET_MAX = 1 << 63
NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Upper bounds on what a query reads; everything without filters."""

    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_end: int = 1 << 31
    topics: frozenset[str] | None = None
    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    time_ms_min: int | None = None

    def applied(self, ranges: Iterable[OffsetRange], cluster: Cluster) -> list[OffsetRange]:
        """The parts of the ranges within the bounds."""
        kept = [self._clamped(each) for each in ranges if self._wants(each)]
        if self.time_ms_min is None or not kept:
            return kept
        # No record before the offset found has the time or a later one: the lookup is exact.
        first = cluster.at({each.place: self.time_ms_min for each in kept})
        return [
            replace(each, start=max(each.start, first[each.place]))
            for each in kept
            if first[each.place] != NO_SUCH_TIME
        ]

    def _wants(self, each: OffsetRange) -> bool:
        return (
            (self.partitions is None or each.partition in self.partitions)
            and (self.topics is None or each.topic in self.topics)
            and self.partition_min <= each.partition < self.partition_end
        )

    def _clamped(self, each: OffsetRange) -> OffsetRange:
        start = max(each.start, self.offset_min)
        return replace(each, start=start, end=max(start, min(each.end, self.offset_end)))


def narrowed(bounds: Bounds, each: Filter) -> tuple[Bounds, bool] | None:
    """The bounds with one more filter, and whether they imply it fully; None if they cannot express it."""
    match each:
        case EqualTo(attribute=("partition",), value=int(value)):
            return _among(bounds, frozenset([value])), True
        case In(attribute=("partition",), value=values) if all(isinstance(one, int) for one in values):
            return _among(bounds, frozenset(values)), True
        case EqualTo(attribute=("topic",), value=str(value)):
            topics = frozenset([value])
            return replace(bounds, topics=topics if bounds.topics is None else bounds.topics & topics), True
        case EqualTo(attribute=("offset",), value=int(value)):
            return _between(bounds, value, value + 1), True
        case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _compared(bounds, each)
        case EqualTo(attribute=("timestamp",), value=datetime.datetime() as value):
            return _since(bounds, value), False
        case IsNotNull(attribute=(str(name),)) if name in NEVER_NULL:
            return bounds, True
        case _:
            return None


def _among(bounds: Bounds, partitions: frozenset[int]) -> Bounds:
    return replace(bounds, partitions=partitions if bounds.partitions is None else bounds.partitions & partitions)


def _between(bounds: Bounds, start: int, end: int) -> Bounds:
    return replace(bounds, offset_min=max(bounds.offset_min, start), offset_end=min(bounds.offset_end, end))


def _since(bounds: Bounds, moment: datetime.datetime) -> Bounds:
    # Rounded down to milliseconds, the precision of record timestamps.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    delta = aware - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    time_ms = max(0, delta // datetime.timedelta(milliseconds=1))
    return replace(bounds, time_ms_min=time_ms if bounds.time_ms_min is None else max(bounds.time_ms_min, time_ms))


def _compared(
    bounds: Bounds, each: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> tuple[Bounds, bool] | None:
    upper = isinstance(each, LessThan | LessThanOrEqual)
    match each.attribute, each.value:
        case ("timestamp",), datetime.datetime() as moment if not upper:
            return _since(bounds, moment), False
        case ("offset" | "partition" as column,), int(value):
            limit = value + 1 if isinstance(each, GreaterThan | LessThanOrEqual) else value
            if column == "offset":
                return (_between(bounds, 0, limit) if upper else _between(bounds, limit, OFFSET_MAX)), True
            if upper:
                return replace(bounds, partition_end=min(bounds.partition_end, limit)), True
            return replace(bounds, partition_min=max(bounds.partition_min, limit)), True
        case _:
            return None


class Bounded(Protocol):
    """A reader with bounds."""

    bounds: Bounds


class FilterPush:
    """Narrows a reader by the filters that Spark pushes."""

    def __init__(self, reader: Bounded) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Returns the filters that Spark still has to evaluate."""
        rest: list[Filter] = []
        for each in filters:
            found = narrowed(self._reader.bounds, each)
            if found is not None:
                self._reader.bounds = found[0]
            if found is None or not found[1]:
                rest.append(each)
        return rest
