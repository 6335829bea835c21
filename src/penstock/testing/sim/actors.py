"""Actors: clients of a simulation as processes on nodes of their own, which pause, crash and start again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.testing.sim.links import Address, Link, Reign
from penstock.testing.sim.recording import Recording

if TYPE_CHECKING:
    from penstock.testing.sim.world import World


class Worker(Protocol):
    """What one life of an actor does."""

    async def run(self) -> None: ...


class Actor:
    """A client program. Each start makes a new worker, with new connections and a new process in the history."""

    def __init__(
        self,
        world: World,
        name: str,
        brokers: Sequence[Address],
        recording: Recording,
        make: Callable[[Link], Worker],
        reign: Reign | None = None,
    ) -> None:
        self._world = world
        self._brokers = brokers
        self._recording = recording
        self._make = make
        self._reign = reign
        self._task: asyncio.Task[None] | None = None
        self.node = world.node(name)

    @property
    def name(self) -> str:
        return self.node.name

    def start(self) -> None:
        life = self.node.start()
        worker = self._make(Link(self._world, self.node, self._brokers, self._recording, self._reign))
        self._task = life.spawn(worker.run(), name=f"{self.name}, life {life.number}")

    def crash(self) -> None:
        self.node.kill()

    async def finish(self, limit_s: float) -> None:
        """Wait until the worker has come to its end; it was asked to stop. An exception of its own is a finding."""
        assert self._task is not None
        done, _ = await asyncio.wait([self._task], timeout=limit_s)
        if not done:
            where = [
                f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" for frame in self._task.get_stack()
            ]
            text = f"{self.name} still waits {limit_s:g} s after everything was healed: {where}"
            self._recording.finding(text, key=None)
        elif (error := self._task.exception()) is not None:
            raise error
