"""Waiters for an offset to be committed, or flushed, before a response goes out."""

from asyncio import get_running_loop

from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.ids import Offset


class OffsetWaiters:
    """Waiters, each with the offset at which it completes; an abandoned one is removed.

    They complete in later turns of the event loop: the code that moves an offset is in the middle of an append.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Deferred[None], Offset] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end: Offset) -> Deferred[None]:
        """A waiter that completes when everything below `end` is safe."""
        waiter: Deferred[None] = Deferred()
        waiter.on_abandon = lambda: self._waiting.pop(waiter, None)
        self._waiting[waiter] = end
        return waiter

    def reach(self, end: Offset) -> None:
        """Complete the waiters for offsets up to `end`."""
        waiting = self._waiting
        if waiting:
            ready = [waiter for waiter, wanted in waiting.items() if wanted <= end]
            loop = get_running_loop()
            for waiter in ready:
                del waiting[waiter]
                loop.call_soon(waiter.resolve, None)

    def fail(self, reason: BrokerError) -> None:
        """The offsets will never be safe: fail every waiter."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            get_running_loop().call_soon(waiter.fail, reason)
