"""Places in a partition as people name them, and the offsets they come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """The oldest record held."""


@dataclass(frozen=True, slots=True)
class End:
    """After the newest record."""


@dataclass(frozen=True, slots=True)
class At:
    """An offset as it stands in the log."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """So many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with this timestamp or a later one; the end if there is none."""

    timestamp_ms: int


Position = Beginning | End | At | BeforeEnd | AtTime


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRange:
    """From one place up to another, which is not included; no stop is as far as there is data."""

    start: Position
    stop: Position | None = None

    def times(self) -> frozenset[int]:
        """The timestamps whose offsets must be looked up before `resolve`."""
        return frozenset(place.timestamp_ms for place in (self.start, self.stop) if isinstance(place, AtTime))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one partition holds: [start, end), and the offsets of the timestamps that were asked for."""

    start: int
    end: int
    by_time: Mapping[int, int]

    def offset_of(self, place: Position) -> int:
        """The offset of a place, moved into what the partition holds."""
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
    """What to read of one partition: from `start` up to `stop`, or on and on where that is None."""

    partition: int
    start: int
    stop: int | None

    @property
    def empty(self) -> bool:
        return self.stop is not None and self.stop <= self.start


def resolve(wanted: PositionRange, bounds: Mapping[int, Bounds], *, follow: bool) -> tuple[Span, ...]:
    """The span of each partition. Without `follow`, reading ends at what is the end now."""
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
