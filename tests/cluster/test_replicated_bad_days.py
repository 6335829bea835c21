"""Bad days of a cluster of three: real brokers, real ZooKeeper, unmodified clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.replicated import (
    SETTINGS,
    WAIT_S,
    SteadyProducer,
    admin,
    check,
    cluster_on,
    create,
    in_sync,
    leader_of,
    read,
    until,
)
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import ProcessFailed
from penstock.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.xdist_group("replicated-bad-days")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


@pytest.fixture(scope="module")
def running(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with cluster_on(zookeeper, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def cluster(running: PenstockCluster) -> PenstockCluster:
    """The cluster with all its brokers and without the topic, however the test before left it."""
    running.start()
    found = until(running, lambda found: len(found.brokers) == 3)
    if "orders" in found.topics:
        client = admin(running)
        for result in client.delete_topics(["orders"]).values():
            result.result(WAIT_S)
        until(running, lambda found: "orders" not in found.topics)
    return running


def test_a_killed_leader_loses_nothing_that_was_acknowledged(cluster: PenstockCluster) -> None:
    create(cluster)
    with SteadyProducer(cluster) as producer:
        first = leader_of(cluster)
        cluster.broker(first).kill()
        producer.wait_for_more()
        cluster.broker(first).start()
        until(cluster, lambda found: in_sync(found, "orders", 3))
        cluster.broker(leader_of(cluster)).kill()
        producer.wait_for_more()
    assert producer.errors == []
    check(cluster, producer)


def test_a_leader_paused_past_its_session_acknowledges_nothing_that_its_successor_lacks(
    cluster: PenstockCluster,
) -> None:
    create(cluster)
    with SteadyProducer(cluster) as producer:
        paused = cluster.broker(leader_of(cluster))
        paused.pause()
        until(cluster, lambda found: found.topics["orders"].partitions[0].leader not in (-1, paused.node_id))
        producer.wait_for_more()
        paused.resume()
        until(cluster, lambda found: in_sync(found, "orders", 3))
        producer.wait_for_more()
    assert producer.errors == []
    check(cluster, producer)


def test_brokers_serve_while_zookeeper_is_away(tmp_path: Path) -> None:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path) as cluster:
        create(cluster)
        with SteadyProducer(cluster) as producer:
            zookeeper.servers[0].pause()
            producer.wait_for_more(500)
            zookeeper.servers[0].resume()
            until(cluster, lambda found: in_sync(found, "orders", 3))
            producer.wait_for_more()
        assert producer.errors == []
        check(cluster, producer)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_a_cluster_killed_at_once_has_everything_after_a_start_in_any_order(
    cluster: PenstockCluster, order: tuple[int, ...]
) -> None:
    create(cluster)
    with SteadyProducer(cluster) as producer:
        for broker in cluster.brokers:
            broker.kill()
        for node_id in order:
            cluster.broker(node_id).start()
        producer.wait_for_more()
        until(cluster, lambda found: in_sync(found, "orders", 3))
    assert producer.errors == []
    check(cluster, producer)


def test_a_broker_whose_disk_was_replaced_copies_everything(cluster: PenstockCluster) -> None:
    create(cluster)
    with SteadyProducer(cluster) as producer:
        emptied = cluster.broker(leader_of(cluster))
        emptied.kill()
        producer.wait_for_more()
        emptied.data.rename(emptied.data.with_name("replaced"))
        emptied.start()
        until(cluster, lambda found: in_sync(found, "orders", 3))
        producer.wait_for_more()
    for broker in cluster.brokers:
        if broker is not emptied:
            broker.kill()
    assert producer.errors == []
    cluster.start()
    check(cluster, producer)


def test_a_second_broker_of_an_id_is_refused(cluster: PenstockCluster, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    second = PenstockCluster(zookeeper=cluster.zookeeper, folder=folder, brokers=1, settings=SETTINGS)
    try:
        with pytest.raises(ProcessFailed, match="id 1 is registered"):
            second.start()
    finally:
        second.close()
    assert cluster.broker(1).alive


def test_a_topic_is_created_while_a_broker_is_down_and_deleted_while_another_is(cluster: PenstockCluster) -> None:
    create(cluster)
    assert read(cluster) == []
    cluster.broker(3).stop()
    until(cluster, lambda found: len(found.brokers) == 2)
    client = admin(cluster)
    for result in client.delete_topics(["orders"]).values():
        result.result(30)
    cluster.broker(3).start()
    until(cluster, lambda found: len(found.brokers) == 3 and "orders" not in found.topics)
    create(cluster)
    with SteadyProducer(cluster) as producer:
        producer.wait_for_more()
    check(cluster, producer)
