"""Threads for work that may wait for a disk, as a part of the broker that can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Threads(Protocol):
    """An executor for `loop.run_in_executor`, a way to wait for several pieces of work at once, and a sleep."""

    @property
    def executor(self) -> Executor: ...

    def run_all(self, work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int) -> list[Result]:
        """Do the work for every item in at most `at_once` threads, wait, and return the results in order.

        It keeps the event loop waiting, so it is for a start and a stop.
        """
        ...

    def pause(self, seconds: float, until: Event) -> None:
        """Wait, in one of these threads, for so long or until the event is set."""
        ...

    def shutdown(self) -> None:
        """Wait for what has begun, and start nothing more."""
        ...


class ThreadPool:
    """Threads of the operating system."""

    def __init__(self, size: int) -> None:
        self.executor: Executor = ThreadPoolExecutor(size, "background")

    def run_all(self, work: Callable[[Item], Result], items: Sequence[Item], *, at_once: int) -> list[Result]:
        with ThreadPoolExecutor(at_once, "run-all") as pool:
            return list(pool.map(work, items))

    def pause(self, seconds: float, until: Event) -> None:
        until.wait(seconds)

    def shutdown(self) -> None:
        self.executor.shutdown()
