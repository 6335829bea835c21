"""Waiters for an offset to be committed, or flushed, before a response goes out."""

from asyncio import Future, get_running_loop

from penstock.model.errors import BrokerError


class OffsetWaiters:
    """Futures, each with the offset at which it completes."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Future[None], int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end: int) -> "Future[None]":
        """Completes when everything below `end` is safe."""
        future: Future[None] = get_running_loop().create_future()
        self._waiting[future] = end
        return future

    def forget(self, future: "Future[None]") -> None:
        """Forget a future that nothing waits for any more; harmless where it is not kept here."""
        self._waiting.pop(future, None)

    def reach(self, end: int) -> None:
        """Everything below `end` is safe now."""
        waiting = self._waiting
        if waiting:
            ready = [future for future, wanted in waiting.items() if wanted <= end]
            for future in ready:
                del waiting[future]
                if not future.done():
                    future.set_result(None)

    def fail(self, reason: BrokerError) -> None:
        """The offsets will never be safe: fail every waiter."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(reason)
