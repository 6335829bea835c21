"""Handlers as coroutines: they yield to the event loop during long work, or wait for the controller."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.api.registry import RequestContext
from penstock.model.deferred import Deferred

H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")


def in_turns(
    work: Callable[Concatenate[H, RequestContext, P], Coroutine[Any, Any, R | Deferred[R]]],
) -> Callable[Concatenate[H, RequestContext, P], R | Deferred[R]]:
    """Make a handler of a coroutine: it returns the response if the coroutine never waits, otherwise a `Deferred`.

    The connection is held until the coroutine ends: see `Connection.run`.
    """

    @wraps(work)
    def handle(self: H, context: RequestContext, /, *args: P.args, **kwargs: P.kwargs) -> R | Deferred[R]:
        return context.connection.run(work(self, context, *args, **kwargs))

    return handle
