"""The lag of the event loop, which shows work on the loop that took too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.observe import catalog
from penstock.observe.histogram import MICROS, Histogram
from penstock.observe.metric import Sample

PERIOD_SECONDS = 0.25


class LoopLag:
    """Measures how late the loop runs a periodic timer. Run it as a task."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        self._period_seconds = period_seconds
        self._late = Histogram()
        self._late_us_max = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._period_seconds
            await asyncio.sleep(self._period_seconds)
            self.add(int((loop.time() - due) * MICROS))

    def add(self, late_us: int) -> None:
        """Count one delay; negative ones, of a timer that fired a clock tick early, count as 0."""
        late_us = max(0, late_us)
        self._late.add(late_us)
        self._late_us_max = max(self._late_us_max, late_us)

    def samples(self) -> Iterator[Sample]:
        yield catalog.LOOP_LAG_SECONDS.sample(self._late.copy())
        yield catalog.LOOP_LAG_SECONDS_MAX.sample(self._late_us_max / MICROS)
        self._late_us_max = 0
