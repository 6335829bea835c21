"""The image of the metadata: what a change does to it, and that it never goes back."""

from __future__ import annotations

from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change
from penstock.metadata.records import BrokerState, broker_path, pack_broker, pack_topic, topic_path
from penstock.model.ids import TopicId
from penstock.model.topic import PartitionState, TopicState


def topic(version: int, *, number: int = 1, partitions: int = 1) -> Change:
    states = tuple(
        PartitionState(index=index, leader=1, leader_epoch=version, replicas=(1,), isr=(1,))
        for index in range(partitions)
    )
    made = TopicState(name="a", topic_id=TopicId(number.to_bytes(16, "big")), configs={}, partitions=states)
    return Change(path=topic_path("a"), data=pack_topic(made), version=version)


def registration(created: int, rack: str) -> Change:
    data = pack_broker(BrokerState(broker_id=1, endpoints=(), rack=rack))
    return Change(path=broker_path(1), data=data, created=created)


def test_a_change_of_a_topic_that_comes_late_changes_nothing() -> None:
    image = MetadataImage()
    image.apply([topic(version=3, partitions=4)])
    before = image.topics["a"]

    delta = image.apply([topic(version=2, partitions=2)])

    assert delta.topics == ()
    assert image.topics["a"] is image.topics_by_id[before.topic_id] is before
    assert image.partition_count == 4


def test_a_topic_created_again_begins_with_version_0() -> None:
    image = MetadataImage()
    image.apply([topic(version=3)])

    delta = image.apply([topic(version=0, number=2, partitions=2)])

    assert len(delta.topics) == 1
    assert (image.topics["a"].topic_id, image.partition_count) == (TopicId((2).to_bytes(16, "big")), 2)


def test_a_registration_that_comes_late_does_not_replace_a_later_one() -> None:
    image = MetadataImage()
    image.apply([registration(created=7, rack="new")])

    delta = image.apply([registration(created=5, rack="old")])

    assert not delta.brokers
    assert (image.brokers[1].epoch, image.brokers[1].rack) == (7, "new")
