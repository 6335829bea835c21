"""Clocks and random numbers of simulated nodes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

EPOCH_MS = 1_700_000_000_000
"""Wall-clock time at virtual time 0."""

LEADING_DASH = 62
"""What base64 writes as a dash at the beginning of an id; a command line would take it for an option."""


class SimClock:
    """A node's clock: virtual time for durations, and a wall clock that may be wrong and may jump."""

    def __init__(self, world: World, *, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms
        """How far the wall clock is ahead; change it to make the clock jump."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._world.now * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._world.now


class SimRandomness:
    """Ids and jitter from a seed."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def uuid_bytes(self) -> bytes:
        while True:
            value = self._stream.randbytes(16)
            if value[0] >> 2 != LEADING_DASH:
                return value

    def below(self, bound: int) -> int:
        return self._stream.randrange(bound)
