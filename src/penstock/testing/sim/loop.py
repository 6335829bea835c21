"""An asyncio event loop on virtual time: no selector, no threads, no waiting.

It runs what is ready in order, and when nothing is, moves the world's time to the next event. All nodes of a world
share it; each callback carries its node's life in its context, and runs only while that life is active.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

from penstock.testing.sim.handle import SimHandle
from penstock.testing.sim.node import LIFE, Ending, Life, LifeEnded, close

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALLBACKS_AT_ONE_TIME_MAX = 1_000_000
"""More callbacks than this without any time passing are a loop that never ends."""

GC_THRESHOLDS = (50_000, 20, 50)
"""As a broker's process has them: few cycles are made, and looking for them takes time."""

TASKS_SHOWN_MAX = 40
NEVER_RETRIEVED = "Future exception was never retrieved"


class Stuck(Exception):
    """The simulation cannot go on; the message says what waits for what."""


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number: a TaskGroup keeps its tasks in a set, and cancels them in that set's order."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: Context | None,
        number: int,
    ) -> None:
        self._number = number
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready = world.ready
        self._stopping = False
        self._running = False
        self._closed = False
        self._stuck: str | None = None
        self._tasks_made = 0
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # Callbacks

    def time(self) -> float:
        return self._world.now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, context, context.get(LIFE), self._world.now)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon
    """There is one thread."""

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, context, context.get(LIFE), when)
        world = self._world
        heappush(world.events, (when, world.tie(), next(world.numbers), handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = copy_context()
        world = self._world
        when = world.now + delay
        handle = SimHandle(callback, args, context, context.get(LIFE), when)
        heappush(world.events, (when, world.tie(), next(world.numbers), handle))
        return handle

    # Futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        assert asyncio.iscoroutine(coro), f"a task runs a coroutine, not {coro!r}"
        life = LIFE.get() if context is None else context.get(LIFE)
        if life is not None and life.ended is not None:
            coro.close()
            life.check()
        self._tasks_made += 1
        task = SimTask(coro, loop=self, name=name, context=context, number=self._tasks_made)
        if life is not None:
            life.keep(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        assert executor is not None, "a simulation has no threads but those of a node"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    # Running

    def run_forever(self) -> None:
        assert not self._running, "this loop is running"
        assert not self._closed, "this loop is closed"
        self._running = True
        self._stopping = False
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        thresholds = gc.get_threshold()
        gc.set_threshold(*GC_THRESHOLDS)
        try:
            self._run()
        finally:
            gc.set_threshold(*thresholds)
            self._running = False
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]

    def _run(self) -> None:
        world = self._world
        ready = self._ready
        events = world.events
        budget = CALLBACKS_AT_ONE_TIME_MAX
        while not self._stopping:
            if not ready:
                while True:
                    if not events:
                        raise Stuck(self._described("nothing will ever happen"))
                    when, _, _, handle = heappop(events)
                    if not handle.is_cancelled:
                        break
                if when > world.now:
                    world.now = when
                    world.callbacks += CALLBACKS_AT_ONE_TIME_MAX - budget
                    budget = CALLBACKS_AT_ONE_TIME_MAX
            else:
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
            life = handle.life
            if life is not None and not life.active:
                if life.ended is None:
                    life.held.append(handle)
                continue
            budget -= 1
            callback = handle.callback
            assert callback is not None, "only a cancelled handle has no callback"
            if handle.context is None:
                callback(*handle.args)
            else:
                try:
                    handle.context.run(callback, *handle.args)
                except BaseException as error:
                    self._raised(life, callback, error)
            if self._stuck is not None:
                raise Stuck(self._described(self._stuck))
            if not budget:
                raise Stuck(self._described(f"time stands still; the last callback was {callback!r}"))

    def enter(self, life: Life, context: Context, callback: Callable[[], object]) -> None:
        """Run a callback of a life at once, on behalf of the world."""
        try:
            context.run(callback)
        except BaseException as error:
            self._raised(life, callback, error)

    def _raised(self, life: Life | None, callback: Callable[..., object], error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        if not isinstance(error, LifeEnded):
            self._failed(life, f"exception in {callback!r}", error)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        task = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        task.add_done_callback(lambda _: self.stop())
        try:
            self.run_forever()
        except BaseException:
            if not task.done():
                task.cancel()
            raise
        return task.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End all lives, and release every task that is suspended."""
        if self._closed:
            return
        assert not self._running, "a running loop cannot be closed"
        self._closed = True
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            for node in self._world.nodes.values():
                if node.lives:
                    node.life.end(Ending.EXITED)
                    node.life.release()
            for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore
                coroutine = task.get_coro()
                assert asyncio.iscoroutine(coroutine)
                close(coroutine)
        finally:
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]
        self._world.events.clear()
        self._ready.clear()
        if gc.isenabled():
            gc.collect()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: what is suspended is released by `close`."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is none."""

    # What went wrong

    def stuck(self, reason: str) -> None:
        """Give up after the callback that runs now."""
        self._stuck = reason

    def _failed(self, life: Life | None, message: str, error: BaseException | None) -> None:
        self._world.failed("" if life is None else life.node.name, message, error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is not None:
            self._exception_handler(self, context)
            return
        error = cast("BaseException | None", context.get("exception"))
        message = str(context["message"])
        # A future of a life that ended may hold an error that nothing was left to read.
        if not isinstance(error, LifeEnded) and message != NEVER_RETRIEVED:
            self._failed(LIFE.get(), message, error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def _described(self, reason: str) -> str:
        """The reason, and where every task waits."""
        world = self._world
        lines = [f"seed {world.seed}, {world.now:.6f}: {reason}"]
        lines += [
            f"  {node.name} is paused, {len(node.life.held)} callbacks" for node in world.nodes.values() if node.paused
        ]
        tasks = sorted((task for task in asyncio.all_tasks(self) if suspended(task)), key=lambda task: task.get_name())
        lines += [f"  {task.get_name()} waits in {where(task.get_coro())}" for task in tasks[:TASKS_SHOWN_MAX]]
        if len(tasks) > TASKS_SHOWN_MAX:
            lines.append(f"  and {len(tasks) - TASKS_SHOWN_MAX} more tasks")
        return "\n".join(lines)

    # What else asyncio may ask

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Nothing to do."""

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Nothing to do: no signal arrives in a simulation."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None


def suspended(task: asyncio.Task[Any]) -> bool:
    """Whether a task can go on: that of an ended life cannot."""
    return getattr(task.get_coro(), "cr_frame", None) is not None


def where(waiting: object) -> str:
    """The innermost place at which a coroutine waits."""
    place = "an unknown place"
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return place
