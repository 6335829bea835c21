"""A histogram of durations with powers of two as bounds: adding one is cheap, without search or floats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

BUCKETS = 26
"""Bucket i holds durations below 2**i microseconds; the last holds everything from 16.8 seconds on."""

LAST = BUCKETS - 1
SHOWN_FROM = 5
"""Buckets below 32 microseconds are shown as one: they are not useful and cost a line each."""

MICROS = 1_000_000


class Histogram:
    """Counts of durations. `add` is for hot paths."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.sum_us = 0

    def add(self, elapsed_us: int) -> None:
        """Count one duration in whole microseconds, at least 0."""
        index = elapsed_us.bit_length()
        self.buckets[index if index < LAST else LAST] += 1
        self.sum_us += elapsed_us

    @property
    def count(self) -> int:
        return sum(self.buckets)

    @property
    def sum_seconds(self) -> float:
        return self.sum_us / MICROS

    def copy(self) -> Self:
        """A copy that later additions do not change."""
        return type(self).merged((self,))

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Self:
        """The sum of some histograms."""
        whole = cls()
        for part in parts:
            whole.sum_us += part.sum_us
            for index, count in enumerate(part.buckets):
                whole.buckets[index] += count
        return whole

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: (upper bound in seconds, count up to it), ending with +Inf."""
        rows: list[tuple[str, float]] = []
        running = 0
        for index, count in enumerate(self.buckets):
            running += count
            if index == LAST:
                rows.append(("+Inf", float(running)))
            elif index >= SHOWN_FROM:
                rows.append((repr((1 << index) / MICROS), float(running)))
        return rows
