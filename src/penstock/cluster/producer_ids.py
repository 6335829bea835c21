"""Handing out producer ids without a disk write for each."""

from penstock.cluster.controller import Controller


class ProducerIds:
    """Ids from a block that the store has marked as used before the first of it is given away."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block = iter(range(0))

    def next_at_hand(self) -> int | None:
        """The next id, or None when the block is used up: then `await next()`."""
        return next(self._block, None)

    async def next(self) -> int:
        """The next id, from a new block where needed."""
        while (producer_id := next(self._block, None)) is None:
            # Two callers may each claim a block here; the ids of one are then never used, which costs nothing.
            self._block = iter(await self._controller.claim_producer_ids())
        return producer_id
