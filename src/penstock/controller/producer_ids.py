"""Allocates producer ids in blocks, without a disk write for each id."""

from penstock.controller.controller import Controller
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotController
from penstock.model.ids import ProducerId


class ProducerIds:
    """Producer ids from a block that the store has marked as used before the first id is assigned."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block = range(0)

    def next_at_hand(self) -> ProducerId | None:
        """The next id, or None when the block is used up: then `await next()`."""
        block = self._block
        if not block:
            return None
        self._block = block[1:]
        return ProducerId(block[0])

    @property
    def stocked(self) -> bool:
        """Whether the block has an id left."""
        return bool(self._block)

    async def stock(self) -> None:
        """Claim a block if the current one is used up; other callers may take all of its ids first."""
        while not self._block:
            # Two callers may each claim a block; the ids of one block are then never used, which costs nothing.
            try:
                self._block = await self._controller.claim_producer_ids()
            except NotController:
                # Producers do not know NotController: let them retry, as in Kafka.
                raise CoordinatorLoadInProgress() from None

    async def next(self) -> ProducerId:
        """The next id, from a new block where needed."""
        while (producer_id := self.next_at_hand()) is None:
            await self.stock()
        return producer_id
