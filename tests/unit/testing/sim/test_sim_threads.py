"""Simulated threads: work takes virtual time, belongs to a life, and is done even where nothing waits for it."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.testing.sim.node import LifeEnded
from penstock.testing.sim.threads import SimThreads
from penstock.testing.sim.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(2)
    world.node("a").start()
    yield world
    world.close()


def test_work_is_done_later_and_its_result_or_error_awaited(world: World) -> None:
    threads = SimThreads(world, world.node("a").life)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = world.now
        assert await loop.run_in_executor(threads.executor, pow, 2, 10) == 1024
        assert world.now > began
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(threads.executor, divmod, 1, 0)

    world.run(world.node("a").spawn(main()))
    assert threads.run_all(abs, [3, -2, 1], at_once=2) == [3, 2, 1]


def test_a_crash_drops_work_and_a_pause_holds_it(world: World) -> None:
    done: list[str] = []

    async def submit(name: str) -> None:
        threads = SimThreads(world, world.node(name).life)
        await asyncio.get_running_loop().run_in_executor(threads.executor, done.append, name)
        done.append(f"{name} awaited")

    async def main() -> None:
        world.node("b").start()
        for name in "ab":
            world.node(name).spawn(submit(name))
        await asyncio.sleep(0)
        world.node("a").kill()
        world.node("b").pause()
        await asyncio.sleep(10)
        assert done == []
        world.node("b").resume()
        await asyncio.sleep(10)

    world.run(main())
    assert done == ["b", "b awaited"]
    with pytest.raises(LifeEnded):
        SimThreads(world, world.node("a").life).run_all(abs, [1], at_once=1)


def test_a_cancelled_call_may_be_done_all_the_same(world: World) -> None:
    done: list[int] = []
    threads = SimThreads(world, world.node("a").life)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.run_in_executor(threads.executor, done.append, number).cancel()
        await asyncio.sleep(1)

    world.run(world.node("a").spawn(main()))
    assert 10 < len(done) < 90


def test_shutdown_does_what_was_submitted_and_takes_no_more(world: World) -> None:
    done: list[int] = []
    threads = SimThreads(world, world.node("a").life)

    async def main() -> None:
        futures = [threads.executor.submit(done.append, number) for number in range(10)]
        threads.shutdown()
        assert done == list(range(10))
        assert all(future.done() for future in futures)
        with pytest.raises(RuntimeError):
            threads.executor.submit(done.append, 11)

    world.run(world.node("a").spawn(main()))


def test_a_caller_that_blocks_for_a_result_gets_it_at_once(world: World) -> None:
    threads = SimThreads(world, world.node("a").life)

    async def main() -> None:
        began = world.now
        assert threads.executor.submit(pow, 2, 3).result() == 8
        with pytest.raises(ZeroDivisionError):
            threads.executor.submit(divmod, 1, 0).result()
        assert world.now == began

    world.run(world.node("a").spawn(main()))
