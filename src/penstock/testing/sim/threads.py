"""Simulated threads: work is done whole, after a delay on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.testing.sim.node import Life

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

Item = TypeVar("Item")
Result = TypeVar("Result")

DELAY_MIN_S = 0.0001
DELAY_MAX_S = 0.003


class SimThreads:
    """The threads of one life of a node: a pause holds their work, a crash drops it."""

    def __init__(self, world: World, life: Life) -> None:
        self.executor = SimExecutor(world, life)

    def run_all(self, work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int) -> list[Result]:
        self.executor.life.check()
        return [work(item) for item in items]

    def pause(self, seconds: float, until: Event) -> None:
        """Let the work that runs now return so much later; the event cannot be set while it runs."""
        self.executor.life.check()
        if not until.is_set():
            self.executor.extra_s += seconds

    def shutdown(self) -> None:
        self.executor.shutdown()


class SimExecutor(Executor):
    """Takes work as a pool of threads does. Work that has begun is done even if its caller stops waiting for it."""

    def __init__(self, world: World, life: Life) -> None:
        self.life = life
        self.extra_s = 0.0
        """What a slow disk adds: the work that runs now returns this much later."""
        self.working = False
        self._world = world
        self._random = world.stream(f"threads of {life.node.name}, life {life.number}").random
        self._pending: dict[int, Work] = {}
        self._submitted = 0
        self._closed = False

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        self.life.check()
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: SimFuture[Result] = SimFuture(self)
        if self._random() < 0.5:
            # Begun at once: nothing can cancel it any more.
            future.set_running_or_notify_cancel()
        self._submitted += 1
        work = future.work = Work(self._submitted, future, fn, args, kwargs)
        self._pending[work.number] = work
        delay_s = DELAY_MIN_S + (DELAY_MAX_S - DELAY_MIN_S) * self._random()
        asyncio.get_running_loop().call_later(delay_s, self.do, work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do what was submitted, now: the caller waits for it, and nothing else may run meanwhile."""
        self.life.check()
        self._closed = True
        for work in list(self._pending.values()):
            if cancel_futures:
                work.future.cancel()
            self.do(work)

    def do(self, work: Work) -> None:
        """Do the work, once, unless it was cancelled before it began."""
        if self._pending.pop(work.number, None) is None:
            return
        future = work.future
        if not future.running() and not future.set_running_or_notify_cancel():
            return
        self.working = True
        self.extra_s = 0.0
        try:
            result = work.fn(*work.args, **work.kwargs)
        except Exception as error:
            self._finish(future.set_exception, error)
        else:
            self._finish(future.set_result, result)
        finally:
            self.working = False

    def _finish(self, finish: Callable[[Any], None], outcome: Any) -> None:
        if self.extra_s and not self._closed:
            asyncio.get_running_loop().call_later(self.extra_s, finish, outcome)
        else:
            finish(outcome)


class SimFuture(Future[Result]):
    """The result of a call. A caller that blocks for it has the call done at once: nothing else can run meanwhile."""

    def __init__(self, executor: SimExecutor) -> None:
        super().__init__()
        self._executor = executor
        self.work: Work | None = None

    def result(self, timeout: float | None = None) -> Result:
        if not self.done() and self.work is not None:
            self._executor.do(self.work)
        return super().result(timeout)


class Work:
    """One call that was submitted."""

    __slots__ = ("args", "fn", "future", "kwargs", "number")

    def __init__(
        self,
        number: int,
        future: Future[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.number = number
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
