"""Waiters for an offset to be committed, or flushed, before a response goes out."""

from asyncio import get_running_loop
from collections import deque

from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.ids import OFFSET_ZERO, Offset


class OffsetWaiters:
    """Waiters, each with the offset at which it completes; an abandoned one is removed.

    They complete in later turns of the event loop: the code that moves an offset is in the middle of an append.
    """

    __slots__ = ("_last", "_ordered", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Deferred[None], Offset] = {}
        self._last = OFFSET_ZERO
        """The offset of the newest waiter."""
        self._ordered = True
        """Whether the waiters are in the order of their offsets, as those of appends are."""

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end: Offset) -> Deferred[None]:
        """A waiter that completes when everything below `end` is safe."""
        waiter: Deferred[None] = Deferred()
        waiter.on_abandon = lambda: self._waiting.pop(waiter, None)
        if not self._waiting:
            self._ordered = True
        elif end < self._last:
            # The producer of an earlier batch sent it again.
            self._ordered = False
        self._last = end
        self._waiting[waiter] = end
        return waiter

    def reach(self, end: Offset) -> None:
        """Complete the waiters for offsets up to `end`."""
        waiting = self._waiting
        if not waiting:
            return
        ready: deque[Deferred[None]] = deque()
        for waiter, wanted in waiting.items():
            if wanted <= end:
                ready.append(waiter)
            elif self._ordered:
                break
        if ready:
            for waiter in ready:
                del waiting[waiter]
            get_running_loop().call_soon(complete, ready)

    def fail(self, reason: BrokerError) -> None:
        """The offsets will never be safe: fail every waiter."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            get_running_loop().call_soon(waiter.fail, reason)


def complete(ready: deque[Deferred[None]]) -> None:
    """Complete waiters in order. One whose consumer fails is a bug of its own and must not leave the others waiting."""
    try:
        while ready:
            ready.popleft().resolve(None)
    finally:
        if ready:
            get_running_loop().call_soon(complete, ready)
