"""Keeps the metadata image current, and notifies the parts that act on a change."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count

from penstock.metadata.following import Following
from penstock.metadata.image import ImageDelta, MetadataImage, TopicChange, ViewChange
from penstock.metadata.nodes import Changes, Gap
from penstock.metadata.records import RecordTooNew
from penstock.metadata.store import MetadataStore, SessionEvent, StoreUnavailable
from penstock.model.cluster_versions import SUPPORTED, VersionRange

Listener = Callable[[ImageDelta], None]

REREAD_RETRY_S = 0.5
"""After the store could not be read."""


class Catalog:
    """The image of one store: complete from `open` on, and never going back.

    When the store reports a gap or a session that was interrupted, the tree is read again and what differs reaches the
    listeners as one delta. A record of a later version of penstock ends it: the image would lack that, and not say so.
    """

    def __init__(self, supported: VersionRange = SUPPORTED) -> None:
        """`supported` are the cluster versions of this broker."""
        self.image = MetadataImage(supported)
        self._following = Following()
        self._listeners: list[Listener] = []
        self._unwatch: list[Callable[[], None]] = []
        self._store: MetadataStore | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._closed = False
        self._unreadable = ""
        """Why nothing is followed any more, if that is so."""
        self.on_unreadable: Callable[[str], None] = lambda _: None
        """Called with the reason when a record cannot be read, and the image is no longer current."""

    @property
    def number(self) -> int:
        """The last transaction in the image."""
        return self._following.number

    async def open(self, store: MetadataStore) -> None:
        """Load everything there is, and follow from there. Raises `StoreUnavailable`, and may then be called again.

        Raises `RecordTooNew` where a later version of penstock wrote what this one cannot read.
        """
        if not self._unwatch:
            self._unwatch = [store.watch("/", self._arrived), store.on_session(self._session_changed)]
        await self._read(store)
        self._store = store
        self._read_if_stale()

    def listen(self, listener: Listener) -> None:
        """Call with every change from now on, in order, before `at_least` of its number is done."""
        self._listeners.append(listener)

    def at_least(self, number: int) -> Awaitable[None]:
        """Done when the image has transaction `number`, and listeners have acted on it.

        Fails with `StoreUnavailable` when the catalog is closed first.
        """
        waiting = asyncio.get_running_loop().create_future()
        if self._unreadable:
            waiting.set_exception(StoreUnavailable(self._unreadable))
        elif self._following.number >= number:
            waiting.set_result(None)
        elif self._closed:
            waiting.set_exception(StoreUnavailable("the metadata is no longer followed"))
        else:
            heapq.heappush(self._waiting, (number, next(self._order), waiting))
        return waiting

    def everything(self) -> ImageDelta:
        """All there is, as a change from nothing: what a listener starts from."""
        image = self.image
        return ImageDelta(
            topics=tuple(TopicChange(before=None, after=topic) for topic in image.topics.values()),
            views=tuple(ViewChange(before=None, after=view) for view in image.views.values()),
            brokers=True,
            broker_configs=frozenset(image.broker_configs),
            quotas=tuple(image.quotas.items()),
            group_configs=frozenset(image.group_configs),
        )

    def close(self) -> None:
        """Stop following; the image stays as it is."""
        self._closed = True
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._reading is not None:
            self._reading.cancel()
        for _, _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(StoreUnavailable(self._unreadable or "the metadata is no longer followed"))
        self._waiting.clear()

    def _give_up(self, error: RecordTooNew) -> None:
        self._unreadable = str(error)
        self.close()
        self.on_unreadable(self._unreadable)

    def _arrived(self, report: Changes | Gap) -> None:
        changes = self._following.arrived(report)
        if changes is not None:
            try:
                delta = self.image.apply(changes.changes)
            except RecordTooNew as error:
                self._give_up(error)
                return
            self._publish(delta)
        self._read_if_stale()

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RESUMED, SessionEvent.RENEWED):
            # Changes made while the store could not be reached may never be reported.
            self._arrived(Gap())

    def _read_if_stale(self) -> None:
        if self._following.stale and self._store is not None and self._reading is None and not self._closed:
            self._reading = asyncio.get_running_loop().create_task(self._read_again(self._store))

    async def _read_again(self, store: MetadataStore) -> None:
        try:
            while self._following.stale:
                try:
                    await self._read(store)
                except StoreUnavailable:
                    await asyncio.sleep(REREAD_RETRY_S)
                except RecordTooNew as error:
                    self._give_up(error)
                    return
        finally:
            self._reading = None

    async def _read(self, store: MetadataStore) -> None:
        """Make the image what the tree is now, and apply the reports that came meanwhile."""
        following = self._following
        while following.stale:
            gaps = following.gaps
            await store.sync()
            snapshot = await store.tree("/")
            if not following.is_newer(snapshot):
                continue
            delta = self.image.replace_with(snapshot.nodes)
            held = following.read(snapshot, gaps)
            self._publish(delta)
            for report in held:
                self._arrived(report)

    def _publish(self, delta: ImageDelta) -> None:
        for listener in self._listeners:
            try:
                listener(delta)
            except Exception as error:
                # A listener's bug must be reported, and must not keep the change from the others.
                context = {"message": "a listener of the metadata failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._following.number:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(None)
