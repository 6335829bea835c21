"""Time and randomness: the only module that gets either from the operating system.

All other code takes a `Clock` and a `Randomness`, so that tests can replace them.
"""

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time and monotonic time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences are meaningful."""
        ...


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds that never go back, for durations that a wrong wall clock must not stretch."""
    return int(clock.monotonic() * 1000)


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """The function itself: every request calls it three times, and a method around it would double the cost."""


class Randomness(Protocol):
    """The source of identifiers and jitter."""

    def uuid_bytes(self) -> bytes:
        """Sixteen unique bytes."""
        ...

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...


class SystemRandomness:
    """The machine's own randomness."""

    def uuid_bytes(self) -> bytes:
        # Kafka prints ids in URL-safe base64 and avoids a leading dash, which a command line would parse as an option.
        while True:
            value = uuid.uuid4().bytes
            if value[0] >> 2 != 62:
                return value

    def below(self, bound: int) -> int:
        return random.randrange(bound)
