"""Telling those who wait that a partition has moved, once per turn of the event loop.

Several appends in one turn (a pipelined producer, a request for many partitions) make one call, so that a long poll is
answered with all of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.runtime.served_partition import ServedPartition


class Watcher(Protocol):
    """Someone who waits for a partition to move."""

    def notify(self, host: "ServedPartition", /) -> None:
        """Readers can see more than before, or less, or the host is gone."""
        ...


class Stirred(Protocol):
    """A partition that has news for those who watch it."""

    def tell(self) -> None: ...


class Wakes:
    """Partitions to be told about before the loop goes to sleep."""

    __slots__ = ("_call_soon", "_stirred")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._stirred: list[Stirred] = []

    def add(self, stirred: Stirred) -> None:
        """Tell this partition's watchers in the next turn; the caller adds it once until it has been told."""
        if not self._stirred:
            self._call_soon(self._tell)
        self._stirred.append(stirred)

    def _tell(self) -> None:
        stirred, self._stirred = self._stirred, []
        failure: Exception | None = None
        for one in stirred:
            # A watcher that fails is a bug of its own and must not leave the others waiting.
            try:
                one.tell()
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
