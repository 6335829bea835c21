"""The coordinators' topics: created at their configured factor, once enough brokers are live for it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.partition.rig import Notes, topic

from penstock.config.broker import BrokerConfig
from penstock.controller.internal_topics import InternalTopics
from penstock.controller.topics import NewTopic
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import Admission, BrokerState
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable
from penstock.model.topic import TopicState


class Creator:
    """Stands for the controller, wherever it is."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.created: list[NewTopic] = []

    def live(self, *brokers: int, fenced: tuple[int, ...] = ()) -> None:
        for broker in (*brokers, *fenced):
            self.image.brokers[broker] = BrokerState(broker_id=broker, endpoints=(), rack=None, epoch=broker)
        for broker in brokers:
            self.image.admissions[broker] = Admission(broker_id=broker, epoch=broker, directories=())

    async def create_topics(self, topics: Sequence[NewTopic]) -> tuple[TopicState | BrokerError, ...]:
        self.created += topics
        for one in topics:
            self.image.topics[one.name] = topic(one.name)
        return tuple(self.image.topics[one.name] for one in topics)


def internal(creator: Creator, *, alone: bool, notes: Notes | None = None, **settings: Any) -> InternalTopics:
    config = BrokerConfig(**settings)
    return InternalTopics(controller=creator, config=lambda: config, alone=alone, log=notes or Notes())


def in_sync_min(wanted: NewTopic) -> str | None:
    return dict(wanted.configs).get("min.insync.replicas")


def test_a_broker_that_is_alone_holds_the_only_replica() -> None:
    creator = Creator()
    creator.live(1)
    topics = internal(creator, alone=True)

    asyncio.run(topics.ensure_offsets())
    asyncio.run(topics.ensure_transactions())

    assert [(one.replication_factor, in_sync_min(one)) for one in creator.created] == [(1, None), (1, "1")]


def test_a_cluster_waits_until_as_many_brokers_are_live_as_the_factor_asks_for() -> None:
    creator, notes = Creator(), Notes()
    creator.live(1, 2, fenced=(3,))
    topics = internal(creator, alone=False, notes=notes)

    for _ in range(3):
        with pytest.raises(CoordinatorNotAvailable):
            asyncio.run(topics.ensure_offsets())
        with pytest.raises(CoordinatorNotAvailable):
            asyncio.run(topics.ensure_transactions())
    assert creator.created == []
    assert [(note["topic"], note["live"]) for note in notes.named("internal_topic_waits")] == [
        ("__consumer_offsets", 2),
        ("__transaction_state", 2),
    ]
    assert notes.named("internal_topic_waits")[0]["detail"] == (
        "__consumer_offsets waits for 3 brokers, 2 are live: groups have no coordinator until then; start more "
        "brokers, or set offsets.topic.replication.factor on all"
    )

    creator.live(3)
    asyncio.run(topics.ensure_offsets())
    asyncio.run(topics.ensure_transactions())
    assert [(one.replication_factor, in_sync_min(one)) for one in creator.created] == [(3, "2"), (3, "2")]


def test_a_topic_that_exists_waits_for_no_broker() -> None:
    creator = Creator()
    creator.live(1, 2, 3)
    topics = internal(creator, alone=False)
    asyncio.run(topics.ensure_offsets())
    creator.image.brokers.clear()

    asyncio.run(topics.ensure_offsets())

    assert len(creator.created) == 1


def test_a_smaller_factor_is_a_choice_of_the_operator() -> None:
    creator = Creator()
    creator.live(1)
    topics = internal(
        creator, alone=False, offsets_topic_replication_factor=1, transaction_state_log_replication_factor=1
    )

    asyncio.run(topics.ensure_offsets())
    asyncio.run(topics.ensure_transactions())

    assert [(one.replication_factor, in_sync_min(one)) for one in creator.created] == [(1, None), (1, "1")]
