"""Time that a test moves by hand: a clock, and a loop that takes its turns when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

NOW_MS = 1_700_000_000_000


class ManualClock:
    """A clock that stands still until `ms` is changed."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Alarm:
    """A timer of a `ManualLoop`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualLoop:
    """A loop whose turns are taken by `run`, and whose time passes by `pass_ms`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, int, Alarm]] = []
        self._order = count()

    def time(self) -> float:
        return self._clock.monotonic()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_at(self, when: float, callback: Callable[[], None], /) -> Alarm:
        alarm = Alarm(callback)
        heappush(self._later, (when, next(self._order), alarm))
        return alarm

    @property
    def alarms(self) -> int:
        return sum(alarm.callback is not None for _, _, alarm in self._later)

    def run(self) -> None:
        """Take turns until nothing is to be done now."""
        while self._soon or (self._later and self._later[0][0] <= self.time()):
            self.turn()

    def turn(self) -> None:
        """Take one turn."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()
        while self._later and self._later[0][0] <= self.time():
            alarm = heappop(self._later)[2]
            if alarm.callback is not None:
                alarm.callback()

    def pass_ms(self, ms: int) -> None:
        """Let time pass, waking at every alarm on the way."""
        end = self._clock.ms + ms
        self.run()
        while self._later and self._later[0][0] * 1000 <= end:
            self._clock.ms = max(self._clock.ms, int(self._later[0][0] * 1000 + 0.5))
            self.run()
        self._clock.ms = end
        self.run()
