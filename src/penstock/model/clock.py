"""Time and randomness, the only file that asks the operating system for either.

Everything else takes a `Clock` and a `Randomness`, so that a simulation can own both.
"""

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """What time it is, twice: for people and for durations."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """The function itself: every request asks three times, and a method around it would double the cost."""


class Randomness(Protocol):
    """Where identifiers and jitter come from."""

    def uuid_bytes(self) -> bytes:
        """Sixteen bytes nobody else has."""
        ...

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        ...


class SystemRandomness:
    """The machine's own randomness."""

    def uuid_bytes(self) -> bytes:
        # Kafka prints ids in URL-safe base64 and refuses a leading dash, which a command line would take for an option.
        while True:
            value = uuid.uuid4().bytes
            if value[0] >> 2 != 62:
                return value

    def below(self, bound: int) -> int:
        return random.randrange(bound)
