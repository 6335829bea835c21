"""Where the other brokers of a cluster are, as the metadata has it."""

from collections.abc import Callable

from penstock.metadata.image import MetadataImage
from penstock.model.ids import BrokerId
from penstock.replication.peers import PeerAddress


def registered_address(image: MetadataImage, listener: str | None) -> Callable[[BrokerId], PeerAddress | None]:
    """A function that gives the address of a broker in its present registration, None while it has none.

    `listener` is the name of the listener that brokers use among themselves; without one it is the first of each.
    """

    def address_of(broker_id: BrokerId) -> PeerAddress | None:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            return None
        found = broker.endpoints[0] if listener is None else broker.endpoint(listener)
        return None if found is None else PeerAddress(host=found.host, port=found.port, epoch=broker.epoch)

    return address_of
