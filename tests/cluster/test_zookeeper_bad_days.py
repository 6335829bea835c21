"""Bad days of the ZooKeeper of a running cluster: it is away, loses its leader, its data, or its newest data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.replicated import (
    SESSION_MS,
    SteadyProducer,
    check,
    cluster_on,
    create,
    in_sync,
    leader_of,
    until,
)
from penstock.testing.cluster import ClusterBroker, PenstockCluster
from penstock.testing.processes import ProcessFailed
from penstock.testing.zookeeper import ZooKeeper, ZooKeeperServer
from protocol.topics import fresh_name, wait_until

pytestmark = pytest.mark.xdist_group("zookeeper-bad-days")

RECORDS_OF_A_SESSION = 2 * SESSION_MS // 5
"""A producer that sends one every 5 ms needs longer for them than a session lasts."""


class Kept:
    """A cluster on one ZooKeeper whose data can be put aside and brought back."""

    def __init__(self, cluster: PenstockCluster, server: ZooKeeperServer) -> None:
        self.cluster = cluster
        self.server = server
        self.topic = ""

    @property
    def data(self) -> Path:
        return self.server.folder / "data"

    def copy(self) -> Path:
        """A backup of ZooKeeper's data, made while it does not run."""
        backup = self.server.folder / fresh_name("backup")
        self.server.kill()
        shutil.copytree(self.data, backup)
        self.server.start()
        return backup

    def replace(self, backup: Path | None) -> Path:
        """Start ZooKeeper on other data, or on none; returns where its own data is."""
        newest = self.server.folder / fresh_name("newest")
        self.server.kill()
        self.data.rename(newest)
        if backup is not None:
            shutil.copytree(backup, self.data)
        self.server.start()
        return newest

    def until_refused(self) -> None:
        """Wait until every broker has said that ZooKeeper lacks what it has seen."""
        for broker in self.cluster.brokers:
            wait_until(lambda broker=broker: "went back" in said(broker), what=f"refusal of broker {broker.node_id}")

    def producer(self) -> SteadyProducer:
        return SteadyProducer(self.cluster, self.topic)


def said(broker: ClusterBroker) -> str:
    return broker.log.read_text()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path_factory.mktemp("kept")) as cluster:
        yield Kept(cluster, zookeeper.servers[0])


@pytest.fixture
def kept(running: Kept) -> Kept:
    running.topic = fresh_name("orders")
    create(running.cluster, running.topic)
    for broker in running.cluster.brokers:
        # What a test before this one made it say is not this test's.
        broker.log.write_text("")
    return running


def test_leaders_serve_with_their_isr_frozen_while_zookeeper_is_away(kept: Kept) -> None:
    with kept.producer() as producer:
        kept.server.kill()
        # Longer than sessions last.
        producer.wait_for_more(RECORDS_OF_A_SESSION)
        follower = next(each for each in kept.cluster.brokers if each.node_id != leader_of(kept.cluster, kept.topic))
        follower.kill()
        frozen = until(kept.cluster, lambda found: kept.topic in found.topics, without=follower.node_id)
        assert len(frozen.topics[kept.topic].partitions[0].isrs) == 3
        follower_is_back = len(producer.acknowledged)
        kept.server.start()
        follower.start()
        until(kept.cluster, lambda found: in_sync(found, kept.topic, 3))
        producer.wait_for_more()
    assert len(producer.acknowledged) > follower_is_back
    check(kept.cluster, producer)


def test_a_zookeeper_whose_data_is_gone_is_refused_and_nothing_is_lost(kept: Kept) -> None:
    with kept.producer() as producer:
        newest = kept.replace(None)
        kept.until_refused()
        kept.cluster.broker(3).kill()
        with pytest.raises(ProcessFailed, match="holds logs of cluster"):
            kept.cluster.broker(3).start()
        kept.replace(newest)
        kept.cluster.broker(3).start()
        until(kept.cluster, lambda found: in_sync(found, kept.topic, 3))
        producer.wait_for_more()
    check(kept.cluster, producer)


def test_a_zookeeper_restored_from_an_old_backup_is_refused_and_nothing_is_lost(kept: Kept) -> None:
    backup = kept.copy()
    kept.cluster.broker(3).restart()
    for _ in range(5):
        create(kept.cluster, fresh_name("later"))
    with kept.producer() as producer:
        newest = kept.replace(backup)
        kept.until_refused()
        kept.cluster.broker(3).kill()
        with pytest.raises(ProcessFailed, match="has gone back"):
            kept.cluster.broker(3).start()
        kept.replace(newest)
        kept.cluster.broker(3).start()
        until(kept.cluster, lambda found: in_sync(found, kept.topic, 3))
        producer.wait_for_more()
    check(kept.cluster, producer)


def test_a_cluster_goes_on_when_the_leader_of_its_ensemble_is_killed(tmp_path: Path) -> None:
    with ZooKeeper(3) as zookeeper, cluster_on(zookeeper, tmp_path) as cluster:
        create(cluster)
        with SteadyProducer(cluster) as producer:
            killed = zookeeper.leader()
            killed.kill()
            # Only a ZooKeeper with a leader can move the leadership.
            cluster.broker(leader_of(cluster)).kill()
            producer.wait_for_more()
            killed.start()
            cluster.start()
            until(cluster, lambda found: in_sync(found, "orders", 3))
            producer.wait_for_more()
        check(cluster, producer)
