"""Timers for timeouts, such as those of long polls and acknowledgements.

Nearly all of them are cancelled, so setting and cancelling one costs a dictionary entry each; the event loop has a
single timer, for the next tick. A timer never fires early, and at most a tick late.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

TICK_MS = 10


class Alarm(Protocol):
    """A scheduled call of the event loop that can be cancelled."""

    def cancel(self) -> object: ...


class EventLoop(Protocol):
    """The part of an event loop that timers need, so that tests can replace it."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Alarm: ...


class Timer:
    """One pending call."""

    __slots__ = ("_bucket", "callback")

    def __init__(self, bucket: "dict[Timer, None]", callback: Callable[[], None]) -> None:
        self._bucket = bucket
        self.callback = callback

    def cancel(self) -> None:
        """Cancel the call; harmless after it has fired."""
        self._bucket.pop(self, None)
        # Who holds a timer is mostly what it calls: without this, each request that waits would leave a cycle.
        self.callback = _nothing

    def fire(self) -> None:
        """Make the call, unless it has been cancelled or has fired."""
        if self._bucket.pop(self, self) is None:
            callback, self.callback = self.callback, _nothing
            callback()


def _nothing() -> None:
    """What a timer that has fired or was cancelled calls."""


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
        """The number of pending timers."""
        return sum(map(len, self._buckets.values()))

    def after_ms(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back once `delay_ms` have passed, on the loop, unless cancelled."""
        # The next tick may be less than a whole one away, so one is added: late, never early.
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
        """Cancel every timer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, tick: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_tick = tick
        self._alarm = self._loop.call_at(tick * TICK_MS / 1000, self._fire_due)

    def _fire_due(self) -> None:
        self._alarm = None
        due: list[Timer] = []
        ticks = self._ticks
        # A loop may call back slightly early.
        now_tick = max(self._alarm_tick, int(self._loop.time() * 1000 // TICK_MS))
        while ticks and ticks[0] <= now_tick:
            due.extend(self._buckets.pop(heappop(ticks)))
        if ticks:
            self._arm(ticks[0])
        failure: Exception | None = None
        for timer in due:
            # A timer of the same tick may have cancelled it, which `fire` checks. An exception does not stop the rest.
            try:
                timer.fire()
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
