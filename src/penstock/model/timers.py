"""Timers for things that mostly do not happen: long polls that find nothing, acknowledgements that never come.

Nearly all of them are cancelled, so setting and cancelling one costs a dictionary entry each; the event loop holds a
single timer, for the tick that comes next. A timer never fires early, and late by a tick at most.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

TICK_MS = 10


class Alarm(Protocol):
    """A wake-up that can be called off."""

    def cancel(self) -> object: ...


class EventLoop(Protocol):
    """The part of an event loop that timers need; a test brings its own."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Alarm: ...


class Timer:
    """One pending call."""

    __slots__ = ("_bucket", "callback")

    def __init__(self, bucket: "dict[Timer, None]", callback: Callable[[], None]) -> None:
        self._bucket = bucket
        self.callback = callback

    def cancel(self) -> None:
        """Forget the call; harmless when it has happened."""
        self._bucket.pop(self, None)

    def fire(self) -> None:
        """Make the call, unless it has been cancelled or made."""
        if self._bucket.pop(self, self) is None:
            self.callback()


class Timers:
    """All timers of one event loop, in buckets of a tick."""

    __slots__ = ("_alarm", "_alarm_tick", "_buckets", "_loop", "_ticks")

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._ticks: list[int] = []
        """The keys of the buckets, as a heap."""
        self._alarm: Alarm | None = None
        self._alarm_tick = -1

    def __len__(self) -> int:
        """Calls that are pending."""
        return sum(map(len, self._buckets.values()))

    def after_ms(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back once `delay_ms` have passed, on the loop, unless cancelled."""
        # The next tick may be nearer than a whole one, so one is added: late, never early.
        tick = int((self._loop.time() * 1000 + max(delay_ms, 0)) // TICK_MS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._alarm is None or tick < self._alarm_tick:
                self._arm(tick)
        timer = Timer(bucket, callback)
        bucket[timer] = None
        return timer

    def close(self) -> None:
        """Forget every call."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, tick: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_tick = tick
        self._alarm = self._loop.call_at(tick * TICK_MS / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        due: list[Timer] = []
        ticks = self._ticks
        # A loop may wake a hair before the time it was asked for.
        now_tick = max(self._alarm_tick, int(self._loop.time() * 1000 // TICK_MS))
        while ticks and ticks[0] <= now_tick:
            due.extend(self._buckets.pop(heappop(ticks)))
        if ticks:
            self._arm(ticks[0])
        failure: Exception | None = None
        for timer in due:
            # A timer of the same tick may have cancelled it, which `fire` knows; and one that fails fails alone.
            try:
                timer.fire()
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
