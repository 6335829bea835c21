"""The handle of a callback in a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.sim.node import Life


class SimHandle(asyncio.TimerHandle):
    """A callback that is due now or later."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "life", "when_s")

    def __init__(
        self,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: Context | None,
        life: Life | None,
        when_s: float,
    ) -> None:
        # The superclass's fields stay unset: every method that uses them is replaced, and this is made very often.
        self.callback = callback
        self.args = args
        self.context = context
        """None: done by the world itself, whose errors end the simulation."""
        self.life = life
        self.when_s = when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<SimHandle {self.callback!r} at {self.when_s:.6f}>"
