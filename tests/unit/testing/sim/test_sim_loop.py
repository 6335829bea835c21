"""Virtual time: asyncio's own tools work on it, and nodes are paused and killed by their context."""

import asyncio
import gc
import warnings
from collections.abc import Iterator

import pytest

from penstock.testing.sim.loop import Stuck
from penstock.testing.sim.node import LifeEnded
from penstock.testing.sim.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


def test_time_jumps_to_the_next_event(world: World) -> None:
    async def main() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time() - began

    assert world.run(main()) == 86_400


def test_timeouts_task_groups_events_and_locks_work(world: World) -> None:
    async def main() -> list[str]:
        said: list[str] = []
        lock = asyncio.Lock()
        go = asyncio.Event()

        async def speak(name: str, delay_s: float) -> None:
            await go.wait()
            async with lock:
                await asyncio.sleep(delay_s)
                said.append(name)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(speak("slow", 5.0))
            tasks.create_task(speak("fast", 1.0))
            await asyncio.sleep(1)
            go.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3)
        return said

    assert world.run(main()) == ["slow", "fast"]
    assert world.now == 1000 + 1 + 6 + 3 + 3


def test_callbacks_of_equal_time_run_in_order(world: World) -> None:
    order: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_at(2000.0, order.append, number)
        await asyncio.sleep(1500)

    world.run(main())
    assert order == list(range(20))


def test_a_shuffled_world_runs_callbacks_of_equal_time_in_an_order_of_its_seed() -> None:
    def order_of(seed: int) -> list[int]:
        world = World(seed, shuffled=True)
        order: list[int] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for number in range(20):
                loop.call_at(2000.0, order.append, number)
            await asyncio.sleep(1500)

        world.run(main())
        world.close()
        return order

    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)
    assert sorted(order_of(1)) == list(range(20))


def test_a_cancelled_timer_does_not_run(world: World) -> None:
    ran: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        handle = loop.call_later(1, ran.append, "cancelled")
        loop.call_later(2, ran.append, "kept")
        handle.cancel()
        assert handle.cancelled()
        await asyncio.sleep(3)

    world.run(main())
    assert ran == ["kept"]


def test_a_deadlock_names_what_waits(world: World) -> None:
    async def waits_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        world.node("a").start()
        await world.node("a").spawn(waits_for_nothing(), name="poor thing")

    with pytest.raises(Stuck, match=r"nothing will ever happen(.|\n)*poor thing waits in .*Event\.wait"):
        world.run(main())


def test_a_run_that_takes_too_long_is_stuck(world: World) -> None:
    async def forever() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    with pytest.raises(Stuck, match="not done within 30 s"):
        world.run(forever(), limit_s=30)
    assert world.now == 1030


def test_a_loop_that_never_waits_is_stuck(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.testing.sim.loop.CALLBACKS_AT_ONE_TIME_MAX", 1000)

    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="time stands still"):
        world.run(main())


def test_a_paused_node_does_nothing_until_it_is_resumed(world: World) -> None:
    ticks: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append((name, world.now - 1000))

    async def main() -> None:
        for name in "ab":
            world.node(name).start()
            world.node(name).spawn(tick(name))
        await asyncio.sleep(1.5)
        world.node("a").pause()
        assert world.node("a").paused
        await asyncio.sleep(3)
        world.node("a").resume()
        await asyncio.sleep(1.2)

    world.run(main())
    assert [at for name, at in ticks if name == "b"] == [1, 2, 3, 4, 5]
    assert [at for name, at in ticks if name == "a"] == [1, 4.5, 5.5]


def test_callbacks_held_by_a_pause_run_in_order(world: World) -> None:
    order: list[int] = []

    async def main() -> None:
        life = world.node("a").start()
        life.pause()
        for number in range(5):
            asyncio.get_running_loop().call_later(number, order.append, number, context=life.context())
        await asyncio.sleep(10)
        assert order == []
        asyncio.get_running_loop().call_soon(order.append, 5, context=life.context())
        life.resume()
        await asyncio.sleep(0.001)

    world.run(main())
    assert order == list(range(6))


@pytest.mark.parametrize("how", ["kill", "cut_power"])
def test_a_dead_node_never_goes_on_and_leaves_without_a_word(world: World, how: str) -> None:
    reached: list[str] = []

    async def child() -> None:
        await asyncio.sleep(100)
        reached.append("child")

    async def works() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child())
                await asyncio.sleep(100)
                reached.append("parent")
        finally:
            world.node("a").life.check()
            reached.append("cleaned up")

    async def main() -> None:
        node = world.node("a")
        node.start()
        node.spawn(works())
        node.spawn(child())
        await asyncio.sleep(1)
        getattr(node, how)()
        assert not node.running
        await asyncio.sleep(200)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.run(main())
        gc.collect()
    assert reached == []
    assert world.failures == []
    assert caught == []


def test_a_task_may_kill_its_own_node(world: World) -> None:
    reached: list[str] = []

    async def dies() -> None:
        try:
            world.node("a").kill()
            world.node("a").life.check()
            reached.append("checked")
        finally:
            await asyncio.sleep(1)
            reached.append("slept")

    async def main() -> None:
        world.node("a").start()
        world.node("a").spawn(dies())
        await asyncio.sleep(10)

    world.run(main())
    assert reached == []
    assert world.failures == []


def test_a_dead_life_starts_no_task_and_a_new_one_does(world: World) -> None:
    async def says() -> str:
        return "alive"

    async def main() -> str:
        old = world.node("a").start()
        world.node("a").kill()
        with pytest.raises(LifeEnded):
            old.spawn(says())
        world.node("a").start()
        return await world.node("a").spawn(says())

    assert world.run(main()) == "alive"


def test_an_exception_that_nothing_handles_is_reported_with_its_node(world: World) -> None:
    def fails() -> None:
        raise ValueError("a bug")

    async def main() -> None:
        life = world.node("a").start()
        asyncio.get_running_loop().call_soon(fails, context=life.context())
        await asyncio.sleep(1)

    world.run(main())
    [failure] = world.failures
    assert failure.node == "a"
    assert isinstance(failure.error, ValueError)


def test_streams_depend_on_the_seed_and_the_name_only() -> None:
    first, second = World(7), World(7)
    first.stream("other").random()
    assert first.stream("x").random() == second.stream("x").random()
    assert first.stream("x").random() != first.stream("y").random()
    assert first.stream("x").random() != World(8).stream("x").random()
