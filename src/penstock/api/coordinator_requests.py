"""Submits commands to the coordinator of a group or a transactional id, and makes responses of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from penstock.coordinator.context import CoordinatorContext, coordinator_error
from penstock.coordinator.step import Result
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.turns import Turns
from penstock.wire.slices import each

C = TypeVar("C", contravariant=True)
"""The commands of one kind of coordinator."""
R = TypeVar("R")
D = TypeVar("D")
"""The description of a group."""
K = TypeVar("K", bound=CoordinatorContext[Any])


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


async def describe_in_turns(
    names: Sequence[str],
    turns: Turns,
    *,
    find: Callable[[str], K],
    describe: Callable[[K, str], D],
    refuse: Callable[[str, BrokerError], D],
) -> list[D] | Deferred[list[D]]:
    """What each group's coordinator says of it, or why it does not, once all that was read is committed."""
    coordinators: list[K] = []
    found: dict[str, D] = {}
    for name in dict.fromkeys(names):
        try:
            coordinator = find(name)
            found[name] = describe(coordinator, name)
            coordinators.append(coordinator)
        except BrokerError as error:
            found[name] = refuse(name, error)
        if turns.spent():
            await turns.pause()
    return when_committed(
        coordinators,
        each(names, found.__getitem__),
        lambda error: each(names, lambda name: refuse(name, error)),
    )
