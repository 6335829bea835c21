"""Connections that have more requests at hand than one may have served in a turn of the event loop.

Each has had its share; the rest is served here, a share at a time, so long that the loop still turns for everybody
else. A connection that fits in its share never comes here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.005
"""How much of one turn of the loop all who wait here may use together; the request that exceeds it is finished."""


class Waiter(Protocol):
    """A connection with requests left over."""

    def take_turn(self) -> None: ...


class Turns:
    """The queue of one event loop."""

    __slots__ = ("_call_soon", "_monotonic", "_queue")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], monotonic: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._queue: deque[Waiter] = deque()

    def add(self, waiter: Waiter) -> None:
        """Give a connection its next share in a later turn. It comes back by itself if that is not enough either."""
        if not self._queue:
            self._call_soon(self._run)
        self._queue.append(waiter)

    def _run(self) -> None:
        queue = self._queue
        end_s = self._monotonic() + TURN_S
        try:
            # Those that come back wait for the next turn: `add` must find them a queue that is being served.
            for _ in range(len(queue)):
                try:
                    queue[0].take_turn()
                finally:
                    queue.popleft()
                if self._monotonic() >= end_s:
                    break
        finally:
            if queue:
                self._call_soon(self._run)
