"""A coroutine that begins at once ends as it would in a task, however its waits end."""

from __future__ import annotations

import asyncio
from inspect import iscoroutine
from typing import Any

import pytest

from penstock.net.eager import begun


def test_one_that_never_waits_gives_its_result_at_once() -> None:
    async def work() -> str:
        return "done"

    assert begun(work()) == "done"


def test_one_that_fails_before_it_waits_fails_at_once() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        begun(work())


def test_a_coroutine_that_waits_continues_where_it_stopped() -> None:
    async def story() -> None:
        order: list[str] = []
        first = asyncio.get_running_loop().create_future()
        second = asyncio.get_running_loop().create_future()

        async def work() -> str:
            order.append("begun")
            got = await first
            await asyncio.sleep(0)
            return f"{got} {await second}"

        rest: Any = begun(work())
        assert order == ["begun"]
        assert iscoroutine(rest)
        task = asyncio.create_task(rest)
        first.set_result("one")
        await asyncio.sleep(0)
        second.set_result("two")
        assert await task == "one two"

    asyncio.run(story())


def test_a_failed_wait_can_be_handled_and_a_cancelled_one_ends_it() -> None:
    async def story() -> None:
        failing = asyncio.get_running_loop().create_future()
        ended: list[str] = []

        async def work() -> None:
            try:
                await failing
            except LookupError:
                ended.append("failed")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("cancelled")

        task = asyncio.create_task(begun(work()))
        failing.set_exception(LookupError())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["failed", "cancelled"]

    asyncio.run(story())
