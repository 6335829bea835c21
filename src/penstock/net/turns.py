"""The queue of connections with more requests than one may have served in a turn of the event loop.

Each connection here has used its share. It is served further shares in later turns, few enough that the loop still
serves all others. A connection whose requests fit into its share is never queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_S = 0.005
"""The time in one turn of the loop for all queued connections together; a request that exceeds it is finished."""


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
        """Give a connection its next share in a later turn. It adds itself again where that is not enough."""
        if not self._queue:
            self._call_soon(self._run)
        self._queue.append(waiter)

    def _run(self) -> None:
        queue = self._queue
        end_s = self._monotonic() + TURN_S
        try:
            # Connections that add themselves again wait for the next turn: `add` has to find a queue that is not empty.
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
