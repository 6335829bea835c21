"""Simulated threads: work is done whole, after a delay on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future
from enum import Enum
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar, cast

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


class Progress(Enum):
    """How far a call is."""

    PENDING = "pending"
    RUNNING = "running"
    CANCELLED = "cancelled"
    FINISHED = "finished"


OVER = frozenset({Progress.CANCELLED, Progress.FINISHED})


class SimFuture(Future[Result]):
    """The result of a call. A caller that blocks for it has the call done at once: nothing else can run meanwhile.

    Nothing of the superclass is used but its name: its locks are for threads, of which a simulation has one, and
    brokers submit much work.
    """

    def __init__(self, executor: SimExecutor) -> None:
        self._executor = executor
        self._progress = Progress.PENDING
        self._outcome: Result | None = None
        self._failure: BaseException | None = None
        self._callbacks: list[Callable[[Future[Result]], object]] = []
        self.work: Work | None = None

    def __repr__(self) -> str:
        return f"<SimFuture {self._progress.value}>"

    def cancel(self) -> bool:
        if self._progress in (Progress.RUNNING, Progress.FINISHED):
            return False
        if self._progress is Progress.PENDING:
            self._end(Progress.CANCELLED)
        return True

    def cancelled(self) -> bool:
        return self._progress is Progress.CANCELLED

    def running(self) -> bool:
        return self._progress is Progress.RUNNING

    def done(self) -> bool:
        return self._progress in OVER

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        if self._progress in OVER:
            fn(self)
        else:
            self._callbacks.append(fn)

    def set_running_or_notify_cancel(self) -> bool:
        if self._progress is Progress.CANCELLED:
            return False
        assert self._progress is Progress.PENDING, "a call begins once"
        self._progress = Progress.RUNNING
        return True

    def set_result(self, result: Result) -> None:
        self._outcome = result
        self._end(Progress.FINISHED)

    def set_exception(self, exception: BaseException | None) -> None:
        self._failure = exception
        self._end(Progress.FINISHED)

    def _end(self, progress: Progress) -> None:
        assert self._progress not in OVER, "a call ends once"
        self._progress = progress
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def result(self, timeout: float | None = None) -> Result:
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return cast("Result", self._outcome)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._progress not in OVER and self.work is not None:
            self._executor.do(self.work)
        if self._progress is Progress.CANCELLED:
            raise CancelledError
        if self._progress is not Progress.FINISHED:
            raise TimeoutError
        return self._failure


class Work:
    """One call that was submitted."""

    __slots__ = ("args", "fn", "future", "kwargs", "number")

    def __init__(
        self,
        number: int,
        future: SimFuture[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.number = number
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
