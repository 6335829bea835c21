"""Submits commands to the coordinator of a group or a transactional id, and makes responses of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from penstock.coordinator.context import CoordinatorContext, coordinator_error
from penstock.coordinator.step import Result
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError

C = TypeVar("C", contravariant=True)
"""The commands of one kind of coordinator."""
R = TypeVar("R")


class Coordinator(Protocol[C]):
    """The context of one partition of a coordinator, of groups or of transactions."""

    def submit(self, command: C) -> Eventual[Result]: ...


class Coordinators(Protocol[C]):
    """Finds the coordinator of a group or of a transactional id; raises where it is not on this broker."""

    def of(self, key: str, /) -> Coordinator[C]: ...


def submit(coordinators: Coordinators[C], key: str, command: C, respond: Callable[[Result], R]) -> R | Deferred[R]:
    """Submit a command to the coordinator of `key`; `respond` makes the response of its result or error."""
    try:
        result = coordinators.of(key).submit(command)
    except BrokerError as error:
        return respond(error)
    if isinstance(result, Deferred):
        return result.mapped(respond)  # pyright: ignore[reportUnknownMemberType]
    return respond(result)


def when_committed(
    coordinators: Sequence[CoordinatorContext[Any]], response: R, failed: Callable[[BrokerError], R]
) -> R | Deferred[R]:
    """Delay a response until everything that was read for it is committed."""
    waits: list[Deferred[None]] = []
    try:
        for coordinator in dict.fromkeys(coordinators):
            wait = coordinator.committed()
            if wait is not None:
                waits.append(wait)
    except BrokerError as error:
        for wait in waits:
            wait.abandon()
        return failed(coordinator_error(error))
    if not waits:
        return response
    committed = cast("Deferred[list[None]]", Deferred.all(waits))
    return committed.then(lambda _: response).catch(BrokerError, lambda error: failed(coordinator_error(error)))
