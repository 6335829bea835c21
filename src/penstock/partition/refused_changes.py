"""Partitions in which a log directory refused what the metadata wants, until it is done.

A full disk or a lack of descriptors refuses single operations, and passes. The metadata tells a change once, so what
could not be followed is tried again here.
"""

from collections.abc import Callable
from itertools import islice

from penstock.model.ids import TopicPartition
from penstock.model.timers import Timer, Timers

RETRY_MS = 1_000
"""Pause before the next try: the disk may have room by then."""
TRIES_AT_ONCE_MAX = 100
"""Partitions tried in one turn of the loop."""


class RefusedChanges:
    """Tries refused partitions in turn. The first that is refused again ends a round: the disk is still full."""

    __slots__ = ("_follow", "_timer", "_timers", "_tried", "_waiting")

    def __init__(self, timers: Timers, follow: Callable[[TopicPartition], None]) -> None:
        """`follow` does what the metadata wants of a partition now; it calls `add` where that is refused again."""
        self._timers = timers
        self._follow = follow
        self._waiting: dict[TopicPartition, None] = {}
        self._tried: TopicPartition | None = None
        self._timer: Timer | None = None

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._waiting or tp == self._tried

    def add(self, tp: TopicPartition) -> None:
        """Try a partition again later."""
        self._waiting[tp] = None
        self._try_after(RETRY_MS)

    def close(self) -> None:
        """Try nothing more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _try_after(self, pause_ms: int) -> None:
        if self._timer is None:
            self._timer = self._timers.after_ms(pause_ms, self._try)

    def _try(self) -> None:
        self._timer = None
        pause_ms = RETRY_MS
        try:
            for tp in list(islice(self._waiting, TRIES_AT_ONCE_MAX)):
                # It goes to the end where it is refused again.
                del self._waiting[tp]
                self._tried = tp
                self._follow(tp)
                if tp in self._waiting:
                    return
            pause_ms = 0
        finally:
            self._tried = None
            if self._waiting:
                self._try_after(pause_ms)
