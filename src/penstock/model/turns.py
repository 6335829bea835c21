"""A time budget for each turn of the event loop, so that long work does not block it.

A handler with much work calls `spent` after each step, and awaits `pause` when it returns true: the rest runs in later
turns. The budget belongs to the turn, not to the request, so that a hundred large requests together do not take a
hundred times as long per turn. One paused task resumes per turn, in the order in which they paused.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

TURN_BUDGET_S = 0.005
"""Half of the 10 ms that a turn may take; the other half is for the last step and for work without a budget."""


class Turns:
    """The budget of the current turn, and the tasks that wait for a later one."""

    __slots__ = ("_budget_s", "_call_soon", "_ends_s", "_monotonic", "_ticking", "_waiting", "pauses")

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        monotonic: Callable[[], float],
        budget_s: float = TURN_BUDGET_S,
    ) -> None:
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._budget_s = budget_s
        self._ends_s = 0.0
        """When the budget of this turn ends; 0 while it is unused."""
        self._ticking = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.pauses = 0
        """How often a task paused."""

    def spent(self) -> bool:
        """Whether the budget of this turn is used up."""
        now_s = self._monotonic()
        if not self._ends_s:
            self._ends_s = now_s + self._budget_s
            self._tick()
            return False
        return now_s >= self._ends_s

    async def pause(self) -> None:
        """Resume in a later turn."""
        self.pauses += 1
        until = asyncio.get_running_loop().create_future()
        self._waiting.append(until)
        self._tick()
        await until

    async def run(self, steps: Iterable[object]) -> None:
        """Run every step, over as many turns as needed."""
        for _ in steps:
            if self.spent():
                await self.pause()

    def _tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._ends_s = 0.0
        if not self._waiting:
            self._ticking = False
            return
        # Scheduled before a task resumes, so that it also comes first in the next turn.
        self._call_soon(self._begin_turn)
        while self._waiting:
            until = self._waiting.popleft()
            if not until.done():
                until.set_result(None)
                return
