"""Throttle for background work in threads, which also stops the work when the broker stops."""

from collections.abc import Awaitable, Callable
from threading import Event
from typing import Protocol, TypeVar

from penstock.model.clock import Clock
from penstock.storage.throttle import Throttle

BYTES_PER_SECOND_MAX = 1e15
"""Used for an unlimited rate."""


Result = TypeVar("Result")

Pause = Callable[[float, Event], None]
"""Waits in a thread for so many seconds, or until the event is set."""


class OffLoop(Protocol):
    """Runs a call in a thread."""

    def __call__(self, call: Callable[[], Result], /) -> Awaitable[Result]: ...


class Stopped(Exception):
    """The broker stops, and so must the work."""


class StoppableThrottle(Throttle):
    """A throttle that raises `Stopped` when the broker stops, even while it sleeps. Off the loop."""

    __slots__ = ("_pause", "_stopping")

    def __init__(self, bytes_per_second: float, clock: Clock, stopping: Event, pause: Pause) -> None:
        self._stopping = stopping
        self._pause = pause
        super().__init__(min(bytes_per_second, BYTES_PER_SECOND_MAX), clock, self._pause_unless_stopped)

    def done(self, count: int) -> None:
        if self._stopping.is_set():
            raise Stopped
        super().done(count)

    def _pause_unless_stopped(self, seconds: float) -> None:
        self._pause(seconds, self._stopping)
        if self._stopping.is_set():
            raise Stopped
