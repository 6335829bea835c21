"""Notification of watchers that a partition has moved, once per turn of the event loop.

Several appends in one turn (a pipelined producer, a request for many partitions) make one call, so that a long poll is
answered with all of them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from penstock.model.turns import Turns

NOTIFIED_PER_LOOK = 32
"""Watchers that are notified between two looks at the clock."""

if TYPE_CHECKING:
    from penstock.partition.served_replica import ServedReplica


class Watcher(Protocol):
    """Waits for a partition to move."""

    def notify(self, replica: "ServedReplica", /) -> None:
        """Readers can see more than before, or less, or the replica is gone."""
        ...


class Watched(Protocol):
    """A partition whose watchers are to be notified."""

    def notify_watchers(self) -> Iterator[None]:
        """Notify its watchers, one a step."""
        ...


class WatcherNotifier:
    """Notifies the watchers of partitions before the loop goes to sleep, as many as a turn has time for."""

    __slots__ = ("_call_soon", "_due", "_notifying", "_scheduled", "_turns")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], turns: Turns) -> None:
        self._call_soon = call_soon
        self._turns = turns
        self._due: deque[Watched] = deque()
        self._notifying: Iterator[None] | None = None
        """The watchers of a partition that the last turn had no time for."""
        self._scheduled = False

    def add(self, watched: Watched) -> None:
        """Notify this partition's watchers in the next turn; the caller adds it once until they are notified."""
        self._due.append(watched)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        failure: Exception | None = None
        # Partitions that are added meanwhile have their turn after this one.
        for _ in range(len(self._due) + (self._notifying is not None)):
            if self._notifying is None:
                self._notifying = self._due.popleft().notify_watchers()
            try:
                if not self._notify(self._notifying):
                    break
            except Exception as error:
                failure = error
            self._notifying = None
        if self._due or self._notifying is not None:
            self._schedule()
        if failure is not None:
            raise failure

    def _notify(self, watchers: Iterator[None]) -> bool:
        """Notify the watchers of one partition; False when the turn has no time for the rest of them."""
        for notified, _ in enumerate(watchers, 1):
            if notified % NOTIFIED_PER_LOOK == 0 and self._turns.spent():
                return False
        return True
