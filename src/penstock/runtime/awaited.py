"""Answers that wait for a log to be as safe as was asked for."""

from asyncio import Future, get_running_loop

from penstock.model.errors import BrokerError

SWEEP_FROM = 1024
"""Waiters beyond which those that gave up are looked for at each new one."""


class Awaited:
    """Futures, each with the offset that has to be reached before it completes. Cancel one to stop waiting."""

    __slots__ = ("_sweep_at", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Future[None]]] = []
        self._sweep_at = SWEEP_FROM

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end: int) -> "Future[None]":
        """Completes when everything below `end` is safe."""
        waiting = self._waiting
        if len(waiting) >= self._sweep_at:
            waiting[:] = [entry for entry in waiting if not entry[1].done()]
            self._sweep_at = max(SWEEP_FROM, 2 * len(waiting))
        future: Future[None] = get_running_loop().create_future()
        waiting.append((end, future))
        return future

    def reach(self, end: int) -> None:
        """Everything below `end` is safe now."""
        waiting = self._waiting
        if waiting:
            ready = [entry[1] for entry in waiting if entry[0] <= end]
            waiting[:] = [entry for entry in waiting if entry[0] > end]
            for future in ready:
                if not future.done():
                    future.set_result(None)

    def fail(self, reason: BrokerError) -> None:
        """It never will be."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(reason)
