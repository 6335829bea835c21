"""Partitions that move between the brokers of a real cluster: with Kafka's tool, under load, and past dead brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ClusterMetadata

from cluster.replicated import POLL_S, WAIT_S, SteadyProducer, check, cluster_on, create, in_sync, leader_of, until
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.client.reassignments import alter_reassignments
from penstock.client.wire_calls import WireCalls
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients.java import TOOLS, on, tool
from protocol.topics import fresh_name

pytestmark = pytest.mark.xdist_group("zookeeper")

PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
BYTES = 2_000_000
THROTTLE = 10_000
"""Bytes per second: a copy of `BYTES` takes longer than a test."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with (
        ZooKeeper() as zookeeper,
        cluster_on(
            zookeeper,
            tmp_path_factory.mktemp("cluster"),
            brokers=4,
            log_segment_delete_delay_ms="0",
            # One response must not have all of a throttled partition.
            replica_fetch_max_bytes="65536",
        ) as started,
    ):
        yield started


@pytest.fixture
def cluster(running: PenstockCluster) -> PenstockCluster:
    """The cluster with all its brokers, however the test before left it."""
    running.start()
    until(running, lambda found: len(found.brokers) == len(running.brokers))
    return running


def reassign(cluster: PenstockCluster, *arguments: str, status: int = 0) -> str:
    return tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", *on(cluster), *arguments, status=status)


def plan(folder: Path, topic: str, *replicas: int) -> str:
    """A file of the tool: the first partition of a topic on some brokers."""
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": list(replicas)}]}
    path = folder / f"{topic}-{'-'.join(map(str, replicas))}.json"
    path.write_text(json.dumps(wanted))
    return str(path)


def is_on(found: ClusterMetadata, topic: str, *replicas: int) -> bool:
    """Whether the first partition is on these brokers, in this order, and all are in sync."""
    state = found.topics[topic].partitions[0]
    return state.replicas == list(replicas) and set(state.isrs) == set(replicas) and state.leader in replicas


def others(cluster: PenstockCluster, topic: str) -> tuple[list[int], int]:
    """The brokers of the first partition, its leader first, and the one without a replica."""
    leader = leader_of(cluster, topic)
    replicas = until(cluster, lambda found: topic in found.topics).topics[topic].partitions[0].replicas
    [free] = {broker.node_id for broker in cluster.brokers} - set(replicas)
    return [leader, *(each for each in replicas if each != leader)], free


def fill(cluster: PenstockCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "batch.size": 20_000})
    for _ in range(BYTES // 1_000):
        producer.produce(topic, b"x" * 1_000)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def log_of(cluster: PenstockCluster, broker: int, topic: str) -> Path:
    return cluster.broker(broker).data / f"{topic}-0"


def await_no_log(cluster: PenstockCluster, broker: int, topic: str) -> None:
    """Wait until a broker has no directory of the first partition left, also none that waits for deletion."""
    deadline = Deadline(WAIT_S)
    while left := list(cluster.broker(broker).data.glob(f"{topic}-0*")):
        assert not deadline.passed, f"broker {broker} still has {left}"
        time.sleep(POLL_S)


@pytest.mark.needs("kafka-jars")
def test_kafkas_tool_moves_a_partition_verifies_it_and_moves_it_back(cluster: PenstockCluster, tmp_path: Path) -> None:
    topic = fresh_name("moved")
    create(cluster, topic)
    [leader, *rest], free = others(cluster, topic)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = reassign(
        cluster, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", f"{free},{rest[0]},{rest[1]}"
    )
    assert "Proposed partition reassignment configuration" in generated
    assert sorted(json.loads(generated.splitlines()[-1])["partitions"][0]["replicas"]) == sorted([free, *rest])

    wanted = plan(tmp_path, topic, free, *rest)
    started = reassign(cluster, "--execute", "--reassignment-json-file", wanted)
    assert f"Successfully started partition reassignment for {topic}-0" in started
    until(cluster, lambda found: is_on(found, topic, free, *rest))
    verified = reassign(cluster, "--verify", "--reassignment-json-file", wanted)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "No partition reassignments found." in reassign(cluster, "--list")
    await_no_log(cluster, leader, topic)

    reassign(cluster, "--execute", "--reassignment-json-file", plan(tmp_path, topic, leader, rest[0]))
    until(cluster, lambda found: is_on(found, topic, leader, rest[0]))
    for gone in (free, rest[1]):
        await_no_log(cluster, gone, topic)


@pytest.mark.needs("kafka-jars")
def test_a_throttled_reassignment_is_listed_and_cancelled_by_kafkas_tool(
    cluster: PenstockCluster, tmp_path: Path
) -> None:
    topic = fresh_name("throttled")
    create(cluster, topic)
    fill(cluster, topic)
    [leader, *rest], free = others(cluster, topic)
    wanted = plan(tmp_path, topic, free, *rest)
    throttle = ("--throttle", str(THROTTLE))
    started = reassign(cluster, "--execute", "--reassignment-json-file", wanted, *throttle)
    assert f"The inter-broker throttle limit was set to {THROTTLE} B/s" in started
    listed = reassign(cluster, "--list")
    assert re.search(rf"{topic}-0: replicas: [\d,]+\. adding: {free}\. removing: {leader}\.", listed), listed
    assert f"Reassignment of partition {topic}-0 is still in progress." in reassign(
        cluster, "--verify", "--reassignment-json-file", wanted
    )

    cancelled = reassign(cluster, "--cancel", "--reassignment-json-file", wanted)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert "Clearing broker-level throttles" in cancelled
    until(cluster, lambda found: set(found.topics[topic].partitions[0].replicas) == {leader, *rest})
    await_no_log(cluster, free, topic)

    reassign(cluster, "--execute", "--reassignment-json-file", wanted)
    until(cluster, lambda found: is_on(found, topic, free, *rest))


def test_a_partition_moves_under_load_while_its_leader_is_killed(cluster: PenstockCluster) -> None:
    create(cluster)
    with SteadyProducer(cluster) as producer:
        for _ in range(2):
            [leader, *rest], free = others(cluster, "orders")
            alter(cluster, "orders", [free, *rest])
            cluster.broker(leader).kill()
            producer.wait_for_more()
            until(cluster, lambda found, to=(free, *rest): is_on(found, "orders", *to))
            cluster.broker(leader).start()
            until(cluster, lambda found: len(found.brokers) == len(cluster.brokers))
            await_no_log(cluster, leader, "orders")
        producer.wait_for_more()
    assert not producer.errors
    check(cluster, producer)


def alter(cluster: PenstockCluster, topic: str, replicas: list[int]) -> None:
    """Reassign the first partition, with a retry while the cluster has no controller."""
    deadline = Deadline(WAIT_S)
    while True:
        try:
            with WireCalls(Connection(bootstrap=cluster.bootstrap)) as calls:
                refused = alter_reassignments(calls, {(topic, 0): tuple(replicas)})
        except ClientError:
            assert not deadline.passed, "no controller took the reassignment"
            time.sleep(POLL_S)
        else:
            assert not refused
            return


def penstock(cluster: PenstockCluster, *arguments: str) -> Any:
    """What `penstock topic reassign` prints as JSON."""
    command = [*PENSTOCK, "topic", "reassign", *arguments, "-b", cluster.bootstrap, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_shows_its_plan_moves_replicas_and_changes_their_number(
    cluster: PenstockCluster, tmp_path: Path
) -> None:
    topic = fresh_name("commanded")
    create(cluster, topic, partitions=2)
    fill(cluster, topic)
    before = until(cluster, lambda found: topic in found.topics).topics[topic].partitions

    planned = penstock(cluster, topic, "--factor", "4", "--dry-run")
    assert [len(move["after"]) for move in planned] == [4, 4]
    assert all(len(move["adding"]) == 1 and not move["removing"] for move in planned)
    found = until(cluster, lambda found: topic in found.topics).topics[topic].partitions
    assert {at: each.replicas for at, each in found.items()} == {at: each.replicas for at, each in before.items()}

    assert penstock(cluster, topic, "--factor", "4", "--yes") == planned
    assert penstock(cluster, topic, "--status") == []
    until(cluster, lambda found: in_sync(found, topic, 4))

    moved = penstock(cluster, topic, "--replicas", "2,3", "--yes")
    assert [move["after"] for move in moved] == [[2, 3], [3, 2]]
    until(cluster, lambda found: in_sync(found, topic, 2))

    moved = penstock(cluster, "--from", plan(tmp_path, topic, 1, 4), "--yes")
    assert [(move["partition"], move["after"]) for move in moved] == [(0, [1, 4])]
    until(cluster, lambda found: is_on(found, topic, 1, 4))


def test_the_command_throttles_shows_what_is_left_and_cancels(cluster: PenstockCluster) -> None:
    topic = fresh_name("slow")
    create(cluster, topic)
    fill(cluster, topic)
    [leader, *rest], free = others(cluster, topic)
    target = ",".join(map(str, (free, *rest)))
    penstock(cluster, topic, "--replicas", target, "--throttle", str(THROTTLE), "--no-wait", "--yes")
    [left] = penstock(cluster, topic, "--status")
    assert (left["adding"], left["removing"], left["in_sync"]) == ([free], [leader], 0)
    assert 0 < left["bytes_left"] <= left["bytes_total"]
    assert left["bytes_total"] >= BYTES

    [cancelled] = penstock(cluster, topic, "--cancel", "--yes")
    assert set(cancelled["after"]) == {leader, *rest}
    assert penstock(cluster, "--status") == []
    [again] = penstock(cluster, topic, "--replicas", target, "--yes")
    assert again["after"] == [free, *rest]
    until(cluster, lambda found: is_on(found, topic, free, *rest))
