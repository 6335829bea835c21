"""Addresses of other brokers follow their registrations."""

from penstock.metadata.image import MetadataImage
from penstock.metadata.records import BrokerEndpoint, BrokerState
from penstock.model.ids import BrokerEpoch, BrokerId
from penstock.replication.addresses import registered_address
from penstock.replication.peers import PeerAddress

PUBLIC = BrokerEndpoint(listener="PUBLIC", host="public.example", port=1)
INSIDE = BrokerEndpoint(listener="INSIDE", host="inside.example", port=2)


def image_of(*endpoints: BrokerEndpoint, epoch: int = 7) -> MetadataImage:
    image = MetadataImage()
    image.brokers[1] = BrokerState(broker_id=BrokerId(1), endpoints=endpoints, rack=None, epoch=BrokerEpoch(epoch))
    return image


def test_a_broker_is_at_the_listener_that_brokers_use() -> None:
    address_of = registered_address(image_of(PUBLIC, INSIDE), "INSIDE")

    assert address_of(1) == PeerAddress(host="inside.example", port=2, epoch=7)


def test_without_a_name_the_first_listener_is_used() -> None:
    assert registered_address(image_of(PUBLIC, INSIDE), None)(1) == PeerAddress(host="public.example", port=1, epoch=7)


def test_a_broker_without_that_listener_or_registration_has_no_address() -> None:
    image = image_of(PUBLIC)

    assert registered_address(image, "INSIDE")(1) is None
    assert registered_address(image, None)(2) is None


def test_a_new_registration_is_another_address() -> None:
    image = image_of(PUBLIC)
    address_of = registered_address(image, None)
    before = address_of(1)
    image.brokers[1] = image_of(PUBLIC, epoch=9).brokers[1]

    assert address_of(1) != before
