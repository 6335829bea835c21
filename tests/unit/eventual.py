"""What a test does with a value that may have to be waited for."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from penstock.model.deferred import Deferred, Eventual

T = TypeVar("T")


async def settled(eventual: Eventual[T]) -> T:
    """The value, when it is there."""
    if not isinstance(eventual, Deferred):
        return eventual
    there: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    eventual.deliver_to(there.set_result, there.set_exception)
    return await there


def deliver(eventual: Eventual[Any], values: list[Any]) -> None:
    """Put the value into a list, now or later; an error as well."""
    if isinstance(eventual, Deferred):
        eventual.deliver_to(values.append, values.append)
    else:
        values.append(eventual)
