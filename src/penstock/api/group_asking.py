"""How a request gets to a coordinator, and its response back: at once, or when it is there."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.coordinator.context import CoordinatorContext, Sink, coordinator_error
from penstock.coordinator.step import Reply, Ticket
from penstock.model.errors import BrokerError
from penstock.net.reply import Pending

C = TypeVar("C", contravariant=True)
"""What a coordinator can be asked."""


class Asked(Protocol[C]):
    """A coordinator: of groups, or of transactions."""

    def submit(self, command: C, sink: Sink) -> Ticket: ...

    def abandon(self, ticket: Ticket) -> None: ...


def ask(coordinator: Asked[C], command: C, response: Callable[[Reply | BrokerError], Any]) -> Any:
    """The response to a command, made from the coordinator's by `response`, or what it will be in.

    Raises a `BrokerError` where the coordinator cannot be asked.
    """
    replies: list[Reply | BrokerError] = []
    pending: Pending | None = None

    def take(reply: Reply | BrokerError) -> None:
        # The coordinator calls this in the middle of its work for everybody: nothing may be raised here.
        if pending is None:
            replies.append(reply)
        else:
            waiting = pending
            waiting.attempt(lambda: waiting.resolve(response(reply)))

    ticket = coordinator.submit(command, take)
    if replies:
        return response(replies[0])
    pending = Pending(on_abandon=lambda: coordinator.abandon(ticket))
    return pending


class Gathering:
    """Responses of several coordinators that go out as one: `finish` makes it when the last is there."""

    __slots__ = ("_finish", "_left", "_pending")

    def __init__(self, left: int, finish: Callable[[], Any]) -> None:
        self._left = left
        self._finish = finish
        self._pending: Pending | None = None

    def arrived(self) -> None:
        """One more is there."""
        self._left -= 1
        pending = self._pending
        if not self._left and pending is not None:
            pending.attempt(lambda: pending.resolve(self._finish()))

    def outcome(self) -> Any:
        """The response, if everything is there; else what it will be in."""
        if not self._left:
            return self._finish()
        self._pending = Pending()
        return self._pending


def when_committed(
    coordinators: Sequence[CoordinatorContext[Any]], response: Any, failed: Callable[[BrokerError], Any]
) -> Any:
    """A response that tells what was read: it goes out when nothing it tells can be undone any more."""
    waits: dict[Future[None], CoordinatorContext[Any]] = {}

    def stop_waiting() -> None:
        for wait, coordinator in waits.items():
            coordinator.stop_waiting(wait)
        waits.clear()

    try:
        for coordinator in dict.fromkeys(coordinators):
            wait = coordinator.committed()
            if wait is not None:
                waits[wait] = coordinator
    except BrokerError as error:
        stop_waiting()
        return failed(coordinator_error(error))
    if not waits:
        return response
    pending = Pending(on_abandon=stop_waiting)

    def done(wait: Future[None]) -> None:
        if waits.pop(wait, None) is None:
            return
        error = None if wait.cancelled() else wait.exception()
        if isinstance(error, BrokerError):
            stop_waiting()
            pending.resolve(failed(coordinator_error(error)))
        elif not waits:
            pending.resolve(response)

    for wait in waits:
        wait.add_done_callback(done)
    return pending
