"""Turns of the event loop: how long work may keep the others waiting.

Whatever goes through much in one request asks `spent` after each step, and awaits `pause` when it is: the rest is done
in later turns. The budget belongs to the turn, not to the request, so that a hundred large requests at once do not take
a hundred times as long. One paused work goes on per turn, in the order in which they paused.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

TURN_BUDGET_S = 0.005
"""Half of the 10 ms that a turn may take: the other half is for the last step and for all that does not ask."""


class Turns:
    """The budget of the current turn, and those who wait for another."""

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
        """When the budget of this turn ends; 0 while nobody has used it."""
        self._ticking = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.pauses = 0
        """How often work was put off to a later turn."""

    def spent(self) -> bool:
        """Whether the work of this turn has taken long enough."""
        now_s = self._monotonic()
        if not self._ends_s:
            self._ends_s = now_s + self._budget_s
            self._tick()
            return False
        return now_s >= self._ends_s

    async def pause(self) -> None:
        """Go on in a later turn."""
        self.pauses += 1
        until = asyncio.get_running_loop().create_future()
        self._waiting.append(until)
        self._tick()
        await until

    async def run(self, steps: Iterable[object]) -> None:
        """Take every step, in as many turns as that takes."""
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
        # Asked for before any work goes on, so that it is the first thing in the next turn as well.
        self._call_soon(self._begin_turn)
        while self._waiting:
            until = self._waiting.popleft()
            if not until.done():
                until.set_result(None)
                return
