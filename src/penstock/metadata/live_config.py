"""A broker's settings while it runs: those of its start, overridden by the dynamic ones in the metadata."""

from collections.abc import Callable

from penstock.config.broker import BrokerConfig, readable
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.records import ALL_BROKERS

Listener = Callable[[BrokerConfig, BrokerConfig], None]


class LiveConfig:
    """The settings in force. A part that keeps a value of its own from them listens for changes."""

    def __init__(self, started_with: BrokerConfig) -> None:
        self.current = started_with
        self._started_with = started_with
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call with the settings before and after a change, when `current` has changed."""
        self._listeners.append(listener)

    def follow(self, catalog: Catalog) -> None:
        """Apply the dynamic settings in the metadata, now and whenever they change.

        Follow before others listen to the catalog: what they do about a topic depends on these settings.
        """
        self._take(catalog.image)
        catalog.listen(lambda delta: self._apply(catalog.image, delta))

    def _apply(self, image: MetadataImage, delta: ImageDelta) -> None:
        if delta.broker_configs & {ALL_BROKERS, str(self.current.broker_id)}:
            before = self.current
            self._take(image)
            for listener in self._listeners:
                listener(before, self.current)

    def _take(self, image: MetadataImage) -> None:
        own = str(self._started_with.broker_id)
        cluster, broker = readable(image.broker_settings(ALL_BROKERS)), readable(image.broker_settings(own))
        self.current = self._started_with.with_dynamic(cluster=cluster, broker=broker)
