"""Rules of a supervisor: when a broker that ended is started again, and when starting is given up."""

RESTART_S_FIRST = 0.5
RESTART_S_MAX = 30.0
STEADY_S = 60.0
"""A broker that ran for this long is no longer one that fails again and again."""


class Restarts:
    """How one broker has been doing."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def ended(self, lived_s: float) -> float:
        """The seconds to wait before the next start: twice as many each time, up to a bound."""
        if lived_s >= STEADY_S:
            self._failures = 0
        wait_s = min(RESTART_S_FIRST * (1 << self._failures), RESTART_S_MAX)
        if wait_s < RESTART_S_MAX:
            self._failures += 1
        return wait_s


class FirstStart:
    """Whether the brokers can start at all.

    One that fails is started again, since the others may serve without it. Where every one fails at its first start,
    the reason is theirs in common, and an operator who waits for a prompt has to be told.
    """

    __slots__ = ("_failed", "_number", "_ready")

    def __init__(self, number: int) -> None:
        self._number = number
        self._failed: set[int] = set()
        self._ready = False

    def ready(self) -> None:
        self._ready = True

    def failed(self, broker_id: int, *, wrong_settings: bool) -> bool:
        """Note that a broker ended before it was ready; whether to give up. Settings do not get better by waiting."""
        self._failed.add(broker_id)
        return not self._ready and (wrong_settings or len(self._failed) == self._number)
