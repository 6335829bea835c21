"""Telling those who wait that a partition has moved, once per turn of the event loop.

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
    from penstock.partition.served_replica import ServedPartition


class Watcher(Protocol):
    """Someone who waits for a partition to move."""

    def notify(self, host: "ServedPartition", /) -> None:
        """Readers can see more than before, or less, or the host is gone."""
        ...


class Stirred(Protocol):
    """A partition that has news for those who watch it."""

    def tell(self) -> Iterator[None]:
        """Notify its watchers, one a step."""
        ...


class Wakes:
    """Partitions to be told about before the loop goes to sleep, as many of their watchers as a turn has time for."""

    __slots__ = ("_call_soon", "_scheduled", "_stirred", "_telling", "_turns")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], turns: Turns) -> None:
        self._call_soon = call_soon
        self._turns = turns
        self._stirred: deque[Stirred] = deque()
        self._telling: Iterator[None] | None = None
        """The watchers of a partition that the last turn had no time for."""
        self._scheduled = False

    def add(self, stirred: Stirred) -> None:
        """Tell this partition's watchers in the next turn; the caller adds it once until it is told of."""
        self._stirred.append(stirred)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._tell)

    def _tell(self) -> None:
        self._scheduled = False
        failure: Exception | None = None
        # What is stirred meanwhile has its turn after this one.
        for _ in range(len(self._stirred) + (self._telling is not None)):
            if self._telling is None:
                self._telling = self._stirred.popleft().tell()
            try:
                if not self._notify(self._telling):
                    break
            except Exception as error:
                failure = error
            self._telling = None
        if self._stirred or self._telling is not None:
            self._schedule()
        if failure is not None:
            raise failure

    def _notify(self, watchers: Iterator[None]) -> bool:
        """Notify the watchers of one partition; False when the turn has no time for the rest of them."""
        for notified, _ in enumerate(watchers, 1):
            if notified % NOTIFIED_PER_LOOK == 0 and self._turns.spent():
                return False
        return True
