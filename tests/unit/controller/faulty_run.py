"""Runs a cluster with faults to its end on virtual time, and finds the first rule that one of its seeds breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from tests.unit.metadata.virtual_time import VirtualLoop

SECONDS_MAX = 2_000
"""Many times what a run takes."""


class Violation(AssertionError):
    """A rule was broken; the message says which."""


class Faulty(Protocol):
    """A cluster that does its work under faults, and judges it."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


Cluster = TypeVar("Cluster", bound=Faulty)


def run_to_end(cluster: Cluster) -> Cluster:
    """Run a cluster to its end; raises what was found wrong, in the run or in a callback."""
    found: list[BaseException] = []

    async def run() -> None:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await cluster.run()
        except TimeoutError:
            raise Violation(f"not all was answered within {SECONDS_MAX} s") from None
        finally:
            cluster.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: found.append(context.get("exception") or Violation(str(context))))
        try:
            runner.run(run())
        except AssertionError as error:
            # What happened first is what is wrong; the rest follows from it.
            found.append(error)
    if found:
        raise found[0]
    return cluster


def first_broken(run_seed: Callable[[int], object], seeds: Iterable[int]) -> str:
    """What the first seed that fails says of it, or "nothing"."""
    for seed in seeds:
        try:
            run_seed(seed)
        except AssertionError as found:
            return str(found)
    return "nothing"
