"""Durations counted by powers of two: one addition into an array of integers, no search and no float."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

BUCKETS = 26
"""Bucket i holds durations below 2**i microseconds; the last holds everything from 16.8 seconds on."""

LAST = BUCKETS - 1
SHOWN_FROM = 5
"""Buckets below 32 microseconds are shown as one: they answer no question and cost a line each."""

MICROS = 1_000_000


class Histogram:
    """How often something took how long. `add` is for hot paths."""

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
        """The numbers now, which later additions leave alone."""
        return type(self).merged((self,))

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Self:
        """The histogram of everything the parts have counted."""
        whole = cls()
        for part in parts:
            whole.sum_us += part.sum_us
            for index, count in enumerate(part.buckets):
                whole.buckets[index] += count
        return whole

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: (upper bound in seconds, how many were at most that), ending with +Inf."""
        rows: list[tuple[str, float]] = []
        running = 0
        for index, count in enumerate(self.buckets):
            running += count
            if index == LAST:
                rows.append(("+Inf", float(running)))
            elif index >= SHOWN_FROM:
                rows.append((repr((1 << index) / MICROS), float(running)))
        return rows
