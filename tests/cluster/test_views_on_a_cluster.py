"""Filtered views on a real cluster: their readers go on through lost leaders, and read from followers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from cluster.replicated import (
    POLL_S,
    WAIT_S,
    SteadyProducer,
    admin,
    cluster_on,
    create,
    in_sync,
    leader_of,
    read,
    until,
)
from penstock.config.replica import RACK_AWARE_SELECTOR
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import LOOPBACK, Deadline, free_ports
from penstock.testing.zookeeper import ZooKeeper
from protocol.topics import fresh_name

pytestmark = pytest.mark.xdist_group("zookeeper")
RACKS = {1: "a", 2: "b", 3: "c"}
PAGES = dict(zip(RACKS, free_ports(len(RACKS), LOOPBACK), strict=True))
WHERE = "value LIKE '%7'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    settings_of = {
        broker: {"broker.rack": rack, "metrics.listener": f"{LOOPBACK}:{PAGES[broker]}"}
        for broker, rack in RACKS.items()
    }
    folder = tmp_path_factory.mktemp("views")
    with (
        ZooKeeper() as zookeeper,
        cluster_on(zookeeper, folder, settings_of=settings_of, replica_selector_class=RACK_AWARE_SELECTOR) as started,
    ):
        yield started


def make_view(cluster: PenstockCluster) -> tuple[str, str]:
    topic = fresh_name("orders")
    create(cluster, topic)
    view = f"{topic}-view"
    wanted = NewTopic(view, config={"view.of": topic, "view.filter": WHERE})
    client = admin(cluster)
    client.create_topics([wanted])[view].result(WAIT_S)
    until(cluster, lambda found: in_sync(found, view, 3))
    return topic, view


class Reader:
    """A member of a group that reads a view."""

    def __init__(self, cluster: PenstockCluster, view: str, **settings: str) -> None:
        given = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": fresh_name("group"),
            "auto.offset.reset": "earliest",
            "socket.timeout.ms": 4_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.consumer = Consumer(given)
        self.consumer.subscribe([view])
        self.place = TopicPartition(view, 0)
        self.values: list[bytes] = []

    def read_to(self, end: int) -> None:
        """Go on until the position is at an offset, or behind it."""
        deadline = Deadline(2 * WAIT_S)
        while self.position < end:
            assert not deadline.passed, f"at {self.position} of {end}, {len(self.values)} read"
            for message in self.consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self.values.append(message.value() or b"")

    @property
    def position(self) -> int:
        return self.consumer.position([self.place])[0].offset


def view_records(broker: int, view: str) -> int:
    """How many records of a view's parent a broker has looked at."""
    with urlopen(f"http://{LOOPBACK}:{PAGES[broker]}/metrics", timeout=WAIT_S) as page:
        text = page.read().decode()
    found = re.search(rf'^penstock_view_records_total{{view="{re.escape(view)}"}} (\d+)', text, re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_reader_loses_and_doubles_nothing_when_the_leader_is_lost(cluster: PenstockCluster) -> None:
    topic, view = make_view(cluster)
    reader = Reader(cluster, view)
    with SteadyProducer(cluster, topic) as producer:
        producer.wait_for_more(60)
        reader.read_to(len(producer.acknowledged) - 20)
        leader = leader_of(cluster, view)
        assert leader == leader_of(cluster, topic)
        cluster.broker(leader).kill()
        producer.wait_for_more(60)
        reader.read_to(len(producer.acknowledged) - 20)
        cluster.start()
        until(cluster, lambda found: in_sync(found, view, 3))
        producer.wait_for_more(60)
    everything = read(cluster, topic)

    reader.read_to(len(everything))
    reader.consumer.commit(asynchronous=False)

    assert not producer.errors
    assert reader.values == [value for value in everything if value.endswith(b"7")]
    assert len(reader.values) >= 15
    assert reader.consumer.committed([reader.place])[0].offset == len(everything)
    reader.consumer.close()


def test_a_view_is_read_from_the_follower_of_the_readers_rack(cluster: PenstockCluster) -> None:
    topic, view = make_view(cluster)
    leader = leader_of(cluster, topic)
    follower = next(broker for broker in RACKS if broker != leader)
    reader = Reader(cluster, view, client_rack=RACKS[follower])
    with SteadyProducer(cluster, topic) as producer:
        deadline = Deadline(2 * WAIT_S)
        while not view_records(follower, view):
            assert not deadline.passed, "the follower looks at nothing"
            producer.wait_for_more(10)
            reader.read_to(len(producer.acknowledged) - 5)
            time.sleep(POLL_S)
    everything = read(cluster, topic)

    reader.read_to(len(everything))

    assert reader.values == [value for value in everything if value.endswith(b"7")]
    reader.consumer.close()
