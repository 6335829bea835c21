"""Waiters for an offset complete in later turns of the loop, each when its offset is reached."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.model.ids import Offset
from penstock.partition.offset_waiters import OffsetWaiters


def completed(*ends: int, reach: int, failing: int | None = None) -> tuple[list[int], list[Any], int]:
    """Wait for some offsets and reach one; which waiters completed, what the loop was told, how many still wait."""
    done: list[int] = []
    told: list[Any] = []

    def consumer(end: int) -> Callable[[None], object]:
        def sink(_: None) -> None:
            done.append(end)
            if end == failing:
                raise RuntimeError("a bug of the consumer")

        return sink

    async def scenario() -> int:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        waiters = OffsetWaiters()
        for end in ends:
            waiters.wait(Offset(end)).deliver_to(consumer(end), told.append)
        waiters.reach(Offset(reach))
        assert not done, "the code that moves an offset is in the middle of an append"
        for _ in range(5):
            await asyncio.sleep(0)
        return len(waiters)

    return done, told, asyncio.run(scenario())


def test_waiters_complete_in_order_up_to_the_offset() -> None:
    assert completed(1, 2, 2, 3, 4, reach=2) == ([1, 2, 2], [], 2)


def test_a_waiter_for_an_earlier_offset_that_came_later_completes_too() -> None:
    assert completed(3, 5, 2, 6, 4, reach=4) == ([3, 2, 4], [], 2)


def test_waiters_in_order_after_all_others_have_left_are_in_order_again() -> None:
    async def scenario() -> list[int]:
        done: list[int] = []
        waiters = OffsetWaiters()
        for end in (5, 2):
            waiters.wait(Offset(end)).deliver_to(lambda _, end=end: done.append(end), done.append)
        waiters.reach(Offset(5))
        await asyncio.sleep(0)
        for end in (7, 8, 6):
            waiters.wait(Offset(end)).deliver_to(lambda _, end=end: done.append(end), done.append)
        waiters.reach(Offset(6))
        await asyncio.sleep(0)
        return done

    assert asyncio.run(scenario()) == [5, 2, 6]


def test_a_consumer_that_fails_leaves_no_other_waiting() -> None:
    done, told, waiting = completed(1, 2, 3, reach=3, failing=2)

    assert (done, waiting) == ([1, 2, 3], 0)
    assert [str(error) for error in told] == ["a bug of the consumer"]
