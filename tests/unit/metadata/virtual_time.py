"""An event loop whose time passes only while everything waits for it."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class InstantSelector(selectors.SelectSelector):
    """Lets the loop's time pass in place of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what takes hours of timers at once."""

    def __init__(self) -> None:
        self._instant = InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now


class SeededRandomness:
    """A `Randomness` that repeats itself for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid_bytes(self) -> bytes:
        return bytes([1]) + self._random.randbytes(15)


def run_virtual(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on virtual time; an error in a callback fails the test."""
    failures: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: failures.append(context))
        result = runner.run(work)
    assert not failures, failures
    return result
