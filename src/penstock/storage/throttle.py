"""Throttle of background reads and writes."""

from collections.abc import Callable

from penstock.model.clock import Clock

BURST_S = 0.1
"""Work may run ahead by this much: shorter sleeps cost more than they smooth."""


class Throttle:
    """Limits a worker to a number of bytes per second by letting it sleep. Off the loop."""

    __slots__ = ("_bytes", "_clock", "_per_second", "_sleep", "_start_s")

    def __init__(self, bytes_per_second: float, clock: Clock, sleep: Callable[[float], None]) -> None:
        assert bytes_per_second > 0
        self._per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock.monotonic()
        self._bytes = 0

    def done(self, count: int) -> None:
        """Account for `count` more bytes, and sleep if that was too fast."""
        self._bytes += count
        ahead_s = self._bytes / self._per_second - (self._clock.monotonic() - self._start_s)
        if ahead_s > BURST_S:
            self._sleep(ahead_s)
        elif ahead_s < -1:
            # Idle time does not accumulate.
            self._start_s = self._clock.monotonic()
            self._bytes = 0
