"""How late the event loop is: the one number that shows work on the loop that took too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.observe import catalog
from penstock.observe.histogram import MICROS, Histogram
from penstock.observe.metric import Sample

PERIOD_SECONDS = 0.25


class LoopLag:
    """Asks the loop to wake it on a fixed beat and counts how much later it did. Run it as a task."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        self._period_seconds = period_seconds
        self._late = Histogram()
        self._late_us_max = 0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._period_seconds
            await asyncio.sleep(self._period_seconds)
            self.add(int((loop.time() - due) * MICROS))

    def add(self, late_us: int) -> None:
        """One beat came this late; a timer may also fire a clock tick early."""
        late_us = max(0, late_us)
        self._late.add(late_us)
        self._late_us_max = max(self._late_us_max, late_us)

    def samples(self) -> Iterator[Sample]:
        yield catalog.LOOP_LAG_SECONDS.sample(self._late.copy())
        yield catalog.LOOP_LAG_SECONDS_MAX.sample(self._late_us_max / MICROS)
        self._late_us_max = 0
