"""Work that is spread over turns of the loop, with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from penstock.model.turns import Turns


class Hand:
    """A manual clock."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_turn_is_spent_with_its_budget_and_the_next_has_a_new_one() -> None:
    soon: list[Callable[[], None]] = []
    clock = Hand()
    turns = Turns(soon.append, clock, budget_s=1.0)

    assert not turns.spent()
    clock.now_s += 0.9
    assert not turns.spent()
    clock.now_s += 0.2
    assert turns.spent()

    while soon:
        soon.pop(0)()
    assert not turns.spent()


def test_no_further_callback_is_scheduled_without_waiting_tasks() -> None:
    soon: list[Callable[[], None]] = []
    turns = Turns(soon.append, Hand(), budget_s=1.0)
    turns.spent()
    assert len(soon) == 1

    soon.pop()()

    assert not soon


def test_one_paused_task_resumes_per_turn_in_order() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        turns = Turns(loop.call_soon, Hand(), budget_s=1.0)
        order: list[str] = []

        async def work(name: str) -> None:
            for _ in range(3):
                order.append(name)
                await turns.pause()

        await asyncio.gather(work("a"), work("b"), work("c"))
        assert order == ["a", "b", "c"] * 3
        assert turns.pauses == 9

    asyncio.run(story())


def test_other_callbacks_run_between_two_slices() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        clock = Hand()
        turns = Turns(loop.call_soon, clock, budget_s=1.0)
        order: list[object] = []

        def steps() -> Iterator[None]:
            for step in range(4):
                clock.now_s += 0.6
                order.append(step)
                yield

        def other() -> None:
            order.append("other")
            if not done:
                loop.call_soon(other)

        done = False
        loop.call_soon(other)
        await turns.run(steps())
        done = True
        assert order.index("other") < order.index(3)
        longest = "".join("o" if each == "other" else "s" for each in order).split("o")
        assert max(map(len, longest)) <= 3

    asyncio.run(story())


def test_a_cancelled_task_does_not_delay_the_others() -> None:
    async def story() -> None:
        turns = Turns(asyncio.get_running_loop().call_soon, Hand(), budget_s=1.0)
        first = asyncio.create_task(turns.pause())
        second = asyncio.create_task(turns.pause())
        await asyncio.sleep(0)
        first.cancel()

        await asyncio.wait_for(second, 60)

        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(story())
