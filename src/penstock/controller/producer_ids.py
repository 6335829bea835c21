"""Allocates producer ids in blocks, without a disk write or a request to the controller for each id."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    NotController,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from penstock.model.ids import ProducerId

PREFETCH_AT = 100
"""With so many ids left the next block is claimed, so that producers rarely wait for the controller."""

CONTROLLER_AWAY = (NotController, RequestTimedOut, StaleBrokerEpoch)
"""Errors of a claim while the controller changes, or before it knows this broker's registration."""


class IdAllocator(Protocol):
    """The controller, or a way to it."""

    async def claim_producer_ids(self) -> range:
        """Allocate a block of producer ids that were never assigned and will not be assigned again."""
        ...


Spawn = Callable[[Coroutine[Any, Any, None]], object]


class ProducerIds:
    """Producer ids from a block that the store has marked as used before the first id is assigned."""

    def __init__(self, controller: IdAllocator, *, spawn: Spawn | None = None) -> None:
        """`spawn` starts a task that ends with the broker, for the next block; None claims it when it is needed."""
        self._controller = controller
        self._spawn = spawn
        self._block = range(0)
        self._next_block = range(0)
        self._is_prefetching = False

    def next_at_hand(self) -> ProducerId | None:
        """The next id, or None when the blocks are used up: then `await next()`."""
        block = self._block
        if not block:
            block, self._next_block = self._next_block, range(0)
            if not block:
                return None
        self._block = block[1:]
        if len(block) <= PREFETCH_AT and not self._next_block and not self._is_prefetching:
            self._prefetch()
        return ProducerId(block[0])

    @property
    def stocked(self) -> bool:
        """Whether a block has an id left."""
        return bool(self._block) or bool(self._next_block)

    async def stock(self) -> None:
        """Claim a block if the current one is used up; other callers may take all of its ids first."""
        while not self.stocked:
            # Two callers may each claim a block; the ids of one block are then never used, which costs nothing.
            try:
                self._block = await self._controller.claim_producer_ids()
            except CONTROLLER_AWAY:
                # Producers do not know these errors here: let them retry, as in Kafka.
                raise CoordinatorLoadInProgress() from None

    async def next(self) -> ProducerId:
        """The next id, from a new block where needed."""
        while (producer_id := self.next_at_hand()) is None:
            await self.stock()
        return producer_id

    def _prefetch(self) -> None:
        if self._spawn is None:
            return
        claiming = self._claim_next()
        self._is_prefetching = True
        try:
            self._spawn(claiming)
        except RuntimeError:
            # The broker is stopping.
            claiming.close()

    async def _claim_next(self) -> None:
        """Claim the next block. Where that fails, the next id that is assigned tries again."""
        try:
            with suppress(BrokerError):
                self._next_block = await self._controller.claim_producer_ids()
        finally:
            self._is_prefetching = False
