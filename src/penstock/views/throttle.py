"""How much of a core the readers of one view may use."""

from __future__ import annotations

BURST_S = 0.2
"""Seconds of work that a view may do at once after it was idle."""

PERCENT = 100.0


class Throttle:
    """A bucket of seconds of work. Work is counted when it is done, so that the bucket may be overdrawn."""

    __slots__ = ("_left_s", "_refilled_s", "spent_s")

    def __init__(self) -> None:
        self.spent_s = 0.0
        """All work so far."""
        self._left_s = BURST_S
        self._refilled_s = 0.0

    def delay_s(self, now_s: float, percent_max: float) -> float:
        """How long work has to wait; 0 if it need not. `percent_max` is the share of a core."""
        self._left_s = min(BURST_S, self._left_s + max(0.0, now_s - self._refilled_s) * percent_max / PERCENT)
        self._refilled_s = now_s
        return 0.0 if self._left_s > 0 else (0.001 - self._left_s) * PERCENT / percent_max

    def worked(self, seconds: float) -> None:
        """Count work that was done."""
        self.spent_s += seconds
        self._left_s -= seconds
