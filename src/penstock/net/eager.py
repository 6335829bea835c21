"""Coroutines that begin at once: most handlers that may have to wait do not wait, and then need no task."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def begun(work: Coroutine[Any, Any, T]) -> T | Coroutine[Any, Any, T]:
    """Run a coroutine up to its first wait: its result if it has none, else a coroutine that goes on from there."""
    try:
        waited_for = work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    return _resumed(work, waited_for)


async def _resumed(work: Coroutine[Any, Any, T], waited_for: object) -> T:
    return cast("T", await _rest(work, waited_for))


@coroutine
def _rest(work: Coroutine[Any, Any, Any], waited_for: object) -> Generator[Any, Any, Any]:
    """Pass what the coroutine awaits to the task, and the outcome of the wait to the coroutine."""
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
