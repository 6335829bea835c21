"""Positions in a partition as users name them, and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """The oldest record."""


@dataclass(frozen=True, slots=True)
class End:
    """After the newest record."""


@dataclass(frozen=True, slots=True)
class At:
    """An absolute offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """This many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with this timestamp or a later one; the end if there is none."""

    timestamp_ms: int


Position = Beginning | End | At | BeforeEnd | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRange:
    """From one position up to another, exclusive; without a stop, to the end."""

    start: Position
    stop: Position | None = None

    def times(self) -> frozenset[int]:
        """The timestamps whose offsets must be looked up before `resolve`."""
        return frozenset(place.timestamp_ms for place in (self.start, self.stop) if isinstance(place, AtTime))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The range of one partition, [start, end), and the offsets of the requested timestamps."""

    start: int
    end: int
    by_time: Mapping[int, int]

    def offset_of(self, place: Position) -> int:
        """The offset of a position, clamped to the partition's range."""
        match place:
            case Beginning():
                return self.start
            case End():
                return self.end
            case At(offset):
                return min(max(offset, self.start), self.end)
            case BeforeEnd(count):
                return max(self.start, self.end - count)
            case AtTime(timestamp_ms):
                found = self.by_time[timestamp_ms]
                return self.end if found < 0 else min(max(found, self.start), self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The part of one partition to read: from `start` up to `stop`, or without an end if that is None."""

    partition: int
    start: int
    stop: int | None

    @property
    def empty(self) -> bool:
        return self.stop is not None and self.stop <= self.start


def resolve(wanted: PositionRange, bounds: Mapping[int, Bounds], *, follow: bool) -> tuple[Span, ...]:
    """The span of each partition. Without `follow`, reading ends at the current end."""
    spans: list[Span] = []
    for partition, held in sorted(bounds.items()):
        stop: int | None
        if wanted.stop is not None:
            stop = held.offset_of(wanted.stop)
        else:
            stop = None if follow else held.end
        spans.append(Span(partition=partition, start=held.offset_of(wanted.start), stop=stop))
    return tuple(spans)


def total(spans: Iterable[Span]) -> int | None:
    """How many offsets the spans cover; None when one of them is open."""
    count = 0
    for span in spans:
        if span.stop is None:
            return None
        count += max(0, span.stop - span.start)
    return count
