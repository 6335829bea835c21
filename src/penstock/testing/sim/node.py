"""Nodes: simulated machines that run one process at a time, and pause, crash or lose power.

A `Life` is one run of a node's process. Every callback carries the life it belongs to in its context (contextvars), so
the loop can hold the callbacks of a paused life and drop those of an ended one. Whatever a life was given (its disk,
its network) raises `LifeEnded` once the life is over: the `finally` blocks of tasks that never resume run when their
coroutines are closed, and must not change anything.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from penstock.testing.sim.handle import SimHandle
    from penstock.testing.sim.world import World

T = TypeVar("T")

CLOSES_MAX = 1000
"""How often a coroutine may await something else while it is closed."""


class LifeEnded(BaseException):
    """This process is gone: no handler of errors may take it for a fault that it survives."""


class Ending(enum.Enum):
    """How a process ends."""

    EXITED = "exited"
    KILLED = "killed"
    POWER_CUT = "power cut"


class Life:
    """One run of a node's process."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.active = True
        """Whether its callbacks run: not while it is paused, and never after its end."""
        self.ended: Ending | None = None
        self._paused = False
        self._stalls = 0
        """Blocking calls that are not over yet."""
        self.held: deque[SimHandle] = deque()
        """Callbacks that wait for the end of a pause."""
        self._context = Context()
        self._context.run(LIFE.set, self)
        self._tasks: WeakValueDictionary[int, asyncio.Task[Any]] = WeakValueDictionary()
        self._tasks_made = 0
        self._unreleased: list[asyncio.Task[Any]] = []
        """Its tasks between its end and their release. What they wait for may be gone: nothing else refers to them."""
        self._at_end: list[Callable[[Ending], None]] = []

    def __repr__(self) -> str:
        return f"<life {self.number} of {self.node.name}>"

    def context(self) -> Context:
        """A context for one more task or callback of this life."""
        return self._context.copy()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task that is paused with this life and dropped with it."""
        return self.node.world.loop.create_task(work, name=name, context=self.context())

    def check(self) -> None:
        """Raise `LifeEnded` if this process is gone."""
        if self.ended is not None:
            raise LifeEnded(f"{self!r} has ended: {self.ended.value}")

    def at_end(self, callback: Callable[[Ending], None]) -> None:
        """Call back when this life ends, whichever way."""
        self._at_end.append(callback)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remember a task, to release it with this life."""
        self._tasks_made += 1
        self._tasks[self._tasks_made] = task

    @property
    def paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        self.check()
        self._paused = True
        self.active = False

    def resume(self) -> None:
        self.check()
        self._paused = False
        self._go_on()

    def stall(self, delay_s: float) -> None:
        """Block this process for a while: what runs now ends, and the rest of its callbacks wait."""
        self._stalls += 1
        self.active = False
        self.node.world.after(delay_s, self._end_stall)

    def _end_stall(self) -> None:
        self._stalls -= 1
        self._go_on()

    def _go_on(self) -> None:
        if self.ended is None and not self._paused and not self._stalls:
            self.active = True
            self.node.world.ready.extendleft(reversed(self.held))
            self.held.clear()

    def end(self, ending: Ending) -> None:
        """End the process: what it was about to do is never done."""
        if self.ended is not None:
            return
        world = self.node.world
        self.ended = ending
        self.active = False
        self._unreleased = list(self._tasks.values())
        self.held.clear()
        world.trace.fact(f"{self.node.name} {ending.value}")
        world.fabric.life_ended(self, ending)
        for callback in self._at_end:
            callback(ending)
        # Later, as a task of this life may be running: it may have called this.
        world.after(0.0, self.release)

    def release(self) -> None:
        """Close what is suspended in this life, so that it is collected without a word."""
        assert self.ended is not None, "only an ended life is released"
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._unreleased.clear()
        for task in tasks:
            if task.done():
                if not task.cancelled():
                    task.exception()
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore
            coroutine = task.get_coro()
            assert asyncio.iscoroutine(coroutine)
            self.context().run(close, coroutine)


LIFE: ContextVar[Life | None] = ContextVar("penstock_sim_life", default=None)


def close(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine however its `finally` blocks protest: they may await again, or find their disk gone."""
    for _ in range(CLOSES_MAX):
        with suppress(Exception, LifeEnded, asyncio.CancelledError, BaseExceptionGroup):
            coroutine.close()
            return


class Node:
    """A machine: it has a name, which is its host name, and one process at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.powered = True
        """Whether its kernel responds; the process may be gone all the same."""
        self.lives = 0
        self._life: Life | None = None

    @property
    def life(self) -> Life:
        """The process that runs or ran last."""
        assert self._life is not None, f"{self.name} was never started"
        return self._life

    @property
    def running(self) -> bool:
        return self._life is not None and self._life.ended is None

    @property
    def paused(self) -> bool:
        return self.running and self.life.paused

    def start(self) -> Life:
        """Begin a new life."""
        assert not self.running, f"{self.name} is running"
        self.lives += 1
        self._life = Life(self, self.lives)
        self.powered = True
        self.world.trace.fact(f"{self.name} starts, life {self.lives}")
        self.world.fabric.booted(self)
        return self._life

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        return self.life.spawn(work, name=name)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: time passes, messages arrive, and it does nothing."""
        if self.running:
            self.world.trace.fact(f"{self.name} paused")
            self.life.pause()

    def resume(self) -> None:
        if self.paused:
            self.world.trace.fact(f"{self.name} resumed")
            self.life.resume()

    def kill(self) -> None:
        """End the process as SIGKILL does: the kernel closes its connections, and the page cache stays."""
        if self.running:
            self.life.end(Ending.KILLED)

    def cut_power(self) -> None:
        """Stop the machine: peers hear nothing, and what was not fsynced may be lost."""
        self.powered = False
        if self.running:
            self.life.end(Ending.POWER_CUT)
