"""Blocks of producer ids: the next one is claimed before the current one is used up."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.controller.producer_ids import PREFETCH_AT, ProducerIds
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)

BLOCK = 1_000


class Allocator:
    """Stands for the controller."""

    def __init__(self) -> None:
        self.claims = 0
        self.failing: BrokerError | None = None

    async def claim_producer_ids(self) -> range:
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing
        self.claims += 1
        return range(self.claims * BLOCK, (self.claims + 1) * BLOCK)


class Spawned:
    """Tasks of a broker that runs or is stopping."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.stopping = False

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        if self.stopping:
            raise RuntimeError("the broker is stopping")
        self.tasks.append(asyncio.create_task(work))

    async def done(self) -> None:
        await asyncio.gather(*self.tasks)


async def used_but(ids: ProducerIds, left: int) -> None:
    """Take all ids of the first block but so many."""
    first = await ids.next()
    for at in range(1, BLOCK - left):
        assert ids.next_at_hand() == first + at


def test_the_next_block_is_there_when_the_first_is_used_up() -> None:
    async def act() -> None:
        allocator, spawned = Allocator(), Spawned()
        ids = ProducerIds(allocator, spawn=spawned)
        await used_but(ids, PREFETCH_AT)
        assert spawned.tasks == []

        given = [ids.next_at_hand() for _ in range(2)]
        assert len(spawned.tasks) == 1, "one claim at a time"
        await spawned.done()
        given += [ids.next_at_hand() for _ in range(PREFETCH_AT)]

        assert None not in given
        assert len(set(given)) == len(given)
        assert allocator.claims == 2

    asyncio.run(act())


def test_a_claim_that_failed_is_tried_again_with_the_next_id() -> None:
    async def act() -> None:
        allocator, spawned = Allocator(), Spawned()
        ids = ProducerIds(allocator, spawn=spawned)
        await used_but(ids, PREFETCH_AT)
        allocator.failing = NotController()
        ids.next_at_hand()
        await spawned.done()
        allocator.failing = None

        ids.next_at_hand()
        await spawned.done()

        assert allocator.claims == 2

    asyncio.run(act())


def test_a_broker_that_is_stopping_claims_no_further_block() -> None:
    async def act() -> None:
        allocator, spawned = Allocator(), Spawned()
        ids = ProducerIds(allocator, spawn=spawned)
        await used_but(ids, PREFETCH_AT)
        spawned.stopping = True

        assert [ids.next_at_hand() is None for _ in range(PREFETCH_AT + 1)] == [False] * PREFETCH_AT + [True]

    asyncio.run(act())


@pytest.mark.parametrize("error", [NotController, RequestTimedOut, StaleBrokerEpoch])
def test_producers_retry_while_the_controller_is_away(error: type[BrokerError]) -> None:
    async def act() -> None:
        allocator = Allocator()
        allocator.failing = error()

        with pytest.raises(CoordinatorLoadInProgress):
            await ProducerIds(allocator).next()

    asyncio.run(act())
