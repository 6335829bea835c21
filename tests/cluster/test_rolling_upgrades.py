"""A cluster of an earlier commit's brokers is upgraded one broker at a time, under clients that count."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from cluster.replicated import cluster_on, create, in_sync, until
from cluster.steady_clients import ConfluentGroup
from penstock.model.cluster_versions import SUPPORTED
from penstock.testing.cluster import ClusterBroker, PenstockCluster
from penstock.testing.processes import ProcessFailed
from penstock.testing.zookeeper import ZooKeeper
from programs import ROOT

pytestmark = pytest.mark.xdist_group("rolling-upgrades")

PREVIOUS = "eba6596881070996595a0d399f3c69fdcc4d61a1"
"""The last commit whose brokers support version 3 of clusters and none after it."""
NEWEST = str(SUPPORTED.highest)
PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
COMMAND_S = 60.0
TOPIC = "orders"


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the earlier commit; its brokers run uncompiled."""
    if not (ROOT / ".git").exists():
        pytest.skip("the earlier commit is in the history of git, and this is not a git checkout")
    git = ("git", "-C", str(ROOT))
    if subprocess.run((*git, "cat-file", "-e", f"{PREVIOUS}^{{commit}}"), capture_output=True, check=False).returncode:
        pytest.skip(f"the history lacks commit {PREVIOUS[:10]}: fetch it with `git fetch --unshallow`")
    archive = subprocess.run((*git, "archive", PREVIOUS, "src/penstock"), capture_output=True, check=True)
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, previous: Path) -> Iterator[PenstockCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, folder, environment=software(previous)) as running:
        until(running, lambda found: len(found.brokers) == 3)
        create(running, TOPIC)
        yield running


def software(source: Path | None = None) -> dict[str, str]:
    """The environment of brokers of a version of penstock; None is the one under test."""
    return {"PYTHONPATH": os.environ.get("PYTHONPATH", "") if source is None else str(source)}


def restart_with(broker: ClusterBroker, environment: dict[str, str]) -> None:
    broker.stop()
    broker.environment = environment
    broker.start()


def upgrade(cluster: PenstockCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (*PENSTOCK, "cluster", "upgrade", "--yes", "-b", cluster.bootstrap, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)


def test_brokers_are_replaced_one_by_one_and_then_the_version_is_finalized(
    cluster: PenstockCluster, previous: Path
) -> None:
    with ConfluentGroup(cluster.bootstrap, TOPIC, "counting") as clients:
        clients.wait_for_more()
        for broker in cluster.brokers:
            refused = upgrade(cluster, "--to", NEWEST)
            assert refused.returncode != 0, refused.stdout
            assert f"broker {broker.node_id} supports version 1 to 3 and not {NEWEST}" in refused.stderr

            restart_with(broker, software())

            until(cluster, lambda found: in_sync(found, TOPIC, 3) and in_sync(found, "__consumer_offsets", 3))
            clients.wait_for_more()

        finalized = upgrade(cluster)
        assert finalized.returncode == 0, finalized.stderr
        assert f"the cluster has version {NEWEST}" in finalized.stdout
        create(cluster, "later")
        clients.wait_for_more()

        back = upgrade(cluster, "--to", "1")
        assert back.returncode != 0, back.stdout
        assert f"There is no way back to before {NEWEST}" in back.stderr

        late = cluster.brokers[2]
        with pytest.raises(ProcessFailed, match="this broker supports 1 to 3"):
            restart_with(late, software(previous))
        late.environment = software()
        late.start()
        until(cluster, lambda found: in_sync(found, TOPIC, 3) and in_sync(found, "later", 3))
        clients.wait_for_more()

    stored = stored_values(cluster)
    assert not clients.failures
    assert set(clients.acknowledged) <= set(stored), "a record was lost"
    assert len(set(stored)) == len(stored), "a record was written twice"
    assert len(set(clients.read)) == len(clients.read), "a record was read twice"


def stored_values(cluster: PenstockCluster) -> list[bytes]:
    """All that is in the topic, in its one partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "all", "enable.auto.commit": False})
    place = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=COMMAND_S)
    consumer.assign([place])
    found: list[bytes] = []
    while len(found) < end:
        messages = consumer.consume(end - len(found), COMMAND_S)
        assert messages, f"{len(found)} of {end} records"
        found += (message.value() or b"" for message in messages if message.error() is None)
    consumer.close()
    return found
