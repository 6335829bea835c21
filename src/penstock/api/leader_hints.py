"""The current leader of a partition, and where it listens, for a client that asked the wrong broker (KIP-951).

A client that finds them in the response to a Produce or Fetch goes on without a Metadata request.
"""

from collections.abc import Iterable

from penstock.metadata.image import MetadataImage
from penstock.model.ids import BrokerId

NodeEndpoint = tuple[int, str, int, str | None]
"""Node id, host, port, rack."""


class LeaderHints:
    """Leaders and their endpoints, as the metadata has them."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def leader(self, topic: str | None, partition: int) -> tuple[int, int] | None:
        """Leader and leader epoch of a partition that this broker does not lead, or not in the client's epoch."""
        found = None if topic is None else self._image.shown(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        state = found.shown(partition)
        return state.leader, state.leader_epoch

    def endpoints(self, leaders: Iterable[tuple[int, int] | None], listener: str) -> tuple[NodeEndpoint, ...]:
        """Where a client of a listener reaches leaders that are live, each once."""
        ids = sorted({BrokerId(found[0]) for found in leaders if found is not None})
        endpoints: list[NodeEndpoint] = []
        for broker_id in ids:
            broker = self._image.brokers.get(broker_id)
            at = None if broker is None or not self._image.is_live(broker_id) else broker.endpoint(listener)
            if broker is not None and at is not None:
                endpoints.append((broker_id, at.host, at.port, broker.rack))
        return tuple(endpoints)
