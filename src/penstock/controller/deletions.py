"""Completes deletions of topics: a deletion is recorded in the metadata until every broker has removed its logs.

DeleteTopics responds when the metadata is on the disk; the logs are renamed in the same turn and their files removed
later. A broker that stops in between finds the record at its next start and finishes. A log without such a record was
not deleted by a client, and is kept (see `penstock.storage.set_aside`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from penstock.controller.topics import without_broker
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.store import BadVersion, MetadataStore, NoNode, OutcomeUnknown, StoreUnavailable
from penstock.model.ids import BrokerId, TopicId
from penstock.observe.log import Logger

SETTLED_AT_ONCE_MAX = 1_000
"""Most deletions settled in one transaction."""

RETRY_S = 30.0
"""Delay before a retry, after an error of the disk or of the store."""

Gone = Callable[[Collection[TopicId]], Awaitable[frozenset[TopicId]]]
"""Returns the topics whose logs are durably removed from this broker."""


class Deletions:
    """Removes this broker from the deletions that it has completed."""

    def __init__(
        self, *, store: MetadataStore, image: MetadataImage, broker_id: BrokerId, gone: Gone, log: Logger
    ) -> None:
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self._gone = gone
        self._log = log
        self._changed = asyncio.Event()
        self._changed.set()

    def follow(self, delta: ImageDelta) -> None:
        if delta.deletions:
            self._changed.set()

    async def run(self) -> None:
        """Settle recorded deletions until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.settle()
            except (BadVersion, NoNode):
                # Another broker settled one of them first, as happens with every topic of several replicas. Its change
                # is newer than the image that was read, so it calls `follow`.
                continue
            except (StoreUnavailable, OutcomeUnknown, OSError) as error:
                self._log.warning("deletions_unsettled", reason=str(error), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def settle(self) -> None:
        """Settle deletions whose logs are removed from this broker; those in an offline log directory stay recorded."""
        ours = [found for found in self._image.deletions.values() if self._broker_id in found.brokers]
        if not ours:
            return
        gone = await self._gone([found.topic_id for found in ours])
        done = [found for found in ours if found.topic_id in gone]
        at_once = min(SETTLED_AT_ONCE_MAX, self._store.operations_max)
        for first in range(0, len(done), at_once):
            # A transaction of unknown outcome is tried again later: each node's version keeps it from counting twice.
            await self._store.multi([without_broker(found, self._broker_id) for found in done[first : first + at_once]])
