"""Keeps the metadata image current, and tells whoever acts on a change."""

from collections.abc import Callable, Sequence

from penstock.metadata.image import Change, ImageDelta, MetadataImage, TopicChange
from penstock.metadata.store import MetadataStore

Listener = Callable[[ImageDelta], None]


class Catalog:
    """The image of one store. It is whole from `open` on: nothing that follows is missed, nothing comes twice."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[Listener] = []
        self._unwatch: Callable[[], None] | None = None

    async def open(self, store: MetadataStore) -> None:
        """Load everything there is, and follow from there.

        Changes that come while it loads are taken in afterwards. Some are in what was loaded already, which does no
        harm: each says what a node is now, and the last one stands.
        """
        arrived: list[Sequence[Change]] = []
        unwatch = store.watch("/", arrived.append)
        nodes = await store.tree("/")
        loaded = (
            Change(path=path, data=node.data, version=node.version, created=node.created)
            for path, node in nodes.items()
        )
        self.image.apply(loaded)
        for changes in arrived:
            self.image.apply(changes)
        unwatch()
        self._unwatch = store.watch("/", self._follow)

    def listen(self, listener: Listener) -> None:
        """Call with every change from now on, in order, before whoever made the change goes on."""
        self._listeners.append(listener)

    def everything(self) -> ImageDelta:
        """All there is, as a change from nothing: what a listener starts from."""
        image = self.image
        return ImageDelta(
            topics=tuple(TopicChange(before=None, after=topic) for topic in image.topics.values()),
            brokers=True,
            broker_configs=frozenset(image.broker_configs),
            quotas=tuple(image.quotas.items()),
            group_configs=frozenset(image.group_configs),
        )

    def close(self) -> None:
        if self._unwatch is not None:
            self._unwatch()

    def _follow(self, changes: Sequence[Change]) -> None:
        delta = self.image.apply(changes)
        for listener in self._listeners:
            listener(delta)
