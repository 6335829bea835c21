"""Brokers that a packet filter cuts off from each other and from ZooKeeper, each direction on its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ClusterMetadata

from cluster.replicated import SteadyProducer, balance, check, cluster_on, create, in_sync, until
from penstock.testing.cluster import PenstockCluster
from penstock.testing.packet_filter import PacketFilter
from penstock.testing.zookeeper import ZooKeeper
from protocol.topics import fresh_name

pytestmark = [pytest.mark.needs("packet-filter"), pytest.mark.xdist_group("cut-networks")]

BROKERS = (1, 2, 3)
PARTITIONS = 3


class CutCluster:
    """A cluster whose network can be cut, and the topic of one test, of which each broker leads a partition."""

    def __init__(self, cluster: PenstockCluster, packets: PacketFilter, zookeeper: ZooKeeper) -> None:
        self.cluster = cluster
        self.packets = packets
        self.zookeeper_port = zookeeper.servers[0].port
        self.topic = ""
        self.leaders: dict[int, int] = {}
        """The partition that each broker leads at the beginning of the test."""

    def begin(self, topic: str) -> None:
        self.topic = topic
        create(self.cluster, topic, partitions=PARTITIONS)
        self.leaders = balance(self.cluster, topic, PARTITIONS)

    def port(self, broker: int) -> int:
        return self.cluster.broker(broker).port

    def isolate(self, broker: int) -> None:
        """Cut a broker off from the others, in both directions."""
        for other in BROKERS:
            if other != broker:
                self.packets.cut_both(self.port(broker), self.port(other))

    def is_out_of_sync(self, found: ClusterMetadata, *, leader: int, follower: int) -> bool:
        """Whether a broker leads its partition, and another has left the ISR."""
        state = found.topics[self.topic].partitions[self.leaders[leader]]
        return state.leader == leader and follower not in state.isrs

    def until_deposed(self, broker: int) -> None:
        """Wait until the other brokers have another leader of its partition."""
        partition = self.leaders[broker]

        def fact(found: ClusterMetadata) -> bool:
            leader = found.topics[self.topic].partitions[partition].leader
            return leader not in (-1, broker) and broker not in found.brokers

        until(self.cluster, fact, without=broker)

    def until_in_sync(self) -> None:
        until(self.cluster, lambda found: in_sync(found, self.topic, 3) and len(found.brokers) == 3)

    def producer(self) -> SteadyProducer:
        return SteadyProducer(self.cluster, self.topic, PARTITIONS)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutCluster]:
    with ZooKeeper() as zookeeper, PacketFilter() as packets:
        folder = tmp_path_factory.mktemp("cut")
        with cluster_on(zookeeper, folder, packets=packets, replica_lag_time_max_ms="1500") as cluster:
            yield CutCluster(cluster, packets, zookeeper)


@pytest.fixture
def cut(running: CutCluster, request: pytest.FixtureRequest) -> Iterator[CutCluster]:
    """The cluster with all its brokers and connections, however the test before left it."""
    running.packets.heal()
    running.cluster.start()
    until(running.cluster, lambda found: len(found.brokers) == 3)
    running.begin(fresh_name(request.node.originalname.removeprefix("test_")[:40]))
    try:
        yield running
    finally:
        running.packets.heal()


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(BROKERS, 2)))
def test_two_brokers_of_which_one_does_not_hear_the_other_lose_nothing(
    cut: CutCluster, source: int, target: int
) -> None:
    """One of them leaves an ISR of the other; not both, since one may have to ask the other, which is controller."""
    with cut.producer() as producer:
        cut.packets.cut(cut.port(source), cut.port(target))
        until(
            cut.cluster,
            lambda found: (
                cut.is_out_of_sync(found, leader=source, follower=target)
                or cut.is_out_of_sync(found, leader=target, follower=source)
            ),
        )
        [third] = set(BROKERS) - {source, target}
        producer.wait_for_more(partitions=[cut.leaders[third]])
        assert cut.packets.packets_dropped > 0
        cut.packets.heal()
        cut.until_in_sync()
        producer.wait_for_more()
    check(cut.cluster, producer)


@pytest.mark.parametrize(("broker", "direction"), [(1, "to"), (2, "from"), (3, "both")])
def test_a_broker_cut_off_from_zookeeper_hands_over_and_returns(cut: CutCluster, broker: int, direction: str) -> None:
    with cut.producer() as producer:
        if direction in ("to", "both"):
            cut.packets.cut(cut.port(broker), cut.zookeeper_port)
        if direction in ("from", "both"):
            cut.packets.cut(cut.zookeeper_port, cut.port(broker))
        cut.until_deposed(broker)
        producer.wait_for_more()
        cut.packets.heal()
        cut.until_in_sync()
        producer.wait_for_more()
    check(cut.cluster, producer)


def test_a_leader_that_only_clients_reach_acknowledges_nothing_that_its_successor_lacks(cut: CutCluster) -> None:
    with cut.producer() as producer:
        cut.isolate(1)
        cut.packets.cut_both(cut.port(1), cut.zookeeper_port)
        cut.until_deposed(1)
        producer.wait_for_more()
        cut.packets.heal()
        cut.until_in_sync()
        producer.wait_for_more()
    check(cut.cluster, producer)


def test_a_follower_that_is_cut_off_and_then_killed_copies_what_it_missed(cut: CutCluster) -> None:
    with cut.producer() as producer:
        cut.isolate(3)
        until(
            cut.cluster,
            lambda found: (
                cut.is_out_of_sync(found, leader=1, follower=3) or cut.is_out_of_sync(found, leader=2, follower=3)
            ),
        )
        cut.cluster.broker(3).kill()
        cut.until_deposed(3)
        producer.wait_for_more()
        cut.packets.heal()
        cut.cluster.broker(3).start()
        cut.until_in_sync()
        # What it has is all that is left of some records.
        leader = balance(cut.cluster, cut.topic, PARTITIONS)
        assert set(leader) == set(BROKERS)
        producer.wait_for_more()
    check(cut.cluster, producer)
