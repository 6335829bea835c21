"""Coroutines that begin at once: most handlers that may have to wait do not, and then need no task."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any


def begun(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine up to its first wait: its result if it has none, else a coroutine that goes on from there."""
    try:
        waited_for = work.send(None)
    except StopIteration as done:
        return done.value
    return _resumed(work, waited_for)


async def _resumed(work: Coroutine[Any, Any, Any], waited_for: Any) -> Any:
    return await _rest(work, waited_for)


@coroutine
def _rest(work: Coroutine[Any, Any, Any], waited_for: Any) -> Generator[Any, Any, Any]:
    """Pass on to the task what the coroutine waits for, and to the coroutine how the wait ended."""
    while True:
        go_on: Callable[[], Any]
        try:
            yield waited_for
        except BaseException as ended:
            go_on = partial(work.throw, ended)
        else:
            go_on = partial(work.send, None)
        try:
            waited_for = go_on()
        except StopIteration as done:
            return done.value
