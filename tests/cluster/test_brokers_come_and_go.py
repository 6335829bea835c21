"""A real cluster that grows by a broker and shrinks by one, with the commands that people use, under a producer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata, ConfigResource
from confluent_kafka.cimpl import NewTopic

from cluster.replicated import POLL_S, WAIT_S, SteadyProducer, admin, check, cluster_on, create, until
from penstock.client.connection import Connection
from penstock.client.reassignments import list_reassignments
from penstock.client.wire_calls import WireCalls
from penstock.controller.configs import ResourceType, Step
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from penstock.wire.api import incremental_alter_configs as altered

pytestmark = pytest.mark.xdist_group("zookeeper")

PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
PARTITIONS = 6
NEW = 4
THROTTLE = 20_000
"""Bytes per second: with it, what the producer has written takes longer to copy than a test."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with (
        ZooKeeper() as zookeeper,
        cluster_on(
            zookeeper,
            tmp_path_factory.mktemp("cluster"),
            brokers=4,
            log_segment_delete_delay_ms="0",
            replica_fetch_max_bytes="65536",
        ) as started,
    ):
        yield started


def command(cluster: PenstockCluster, *arguments: str) -> list[str]:
    live = ",".join(broker.bootstrap for broker in cluster.brokers if broker.alive)
    return [*PENSTOCK, "cluster", *arguments, "-b", live]


def penstock(cluster: PenstockCluster, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(cluster, *arguments), capture_output=True, text=True, timeout=3 * WAIT_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def facts(cluster: PenstockCluster, *arguments: str) -> Any:
    return json.loads(penstock(cluster, *arguments, "-o", "json").stdout)


def broker_facts(cluster: PenstockCluster, number: int) -> dict[str, Any]:
    found = {each["broker"]: each for each in facts(cluster, "status")["brokers"]}
    return dict(found[number])


def counted(found: ClusterMetadata) -> Counter[int]:
    """Replicas by broker."""
    return Counter(
        broker for topic in found.topics.values() for each in topic.partitions.values() for broker in each.replicas
    )


def replicas_of(cluster: PenstockCluster, without: int = 0) -> Counter[int]:
    return counted(until(cluster, lambda _: True, without=without))


def ongoing(cluster: PenstockCluster) -> int:
    live = ",".join(broker.bootstrap for broker in cluster.brokers if broker.alive)
    with WireCalls(Connection(bootstrap=live)) as calls:
        return len(list_reassignments(calls))


def stop(cluster: PenstockCluster, number: int) -> None:
    cluster.broker(number).stop()
    until(cluster, lambda found: number not in found.brokers, without=number)


def start(cluster: PenstockCluster, number: int) -> None:
    cluster.broker(number).start()
    until(cluster, lambda found: number in found.brokers)


def set_for_all(cluster: PenstockCluster, settings: dict[str, str]) -> None:
    """Change settings of all brokers at once, which librdkafka cannot."""
    resource = altered.AlterConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name="",
        configs=[
            altered.AlterableConfig(name=name, config_operation=Step.SET, value=value)
            for name, value in settings.items()
        ],
    )
    with WireCalls(Connection(bootstrap=cluster.bootstrap)) as calls:
        response = calls.of_anyone("cannot set", altered, 1, altered.Request(resources=[resource]))
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def await_reassigned(cluster: PenstockCluster) -> None:
    deadline = Deadline(WAIT_S)
    while ongoing(cluster):
        assert not deadline.passed, "reassignments do not end"
        time.sleep(POLL_S)


def test_a_broker_that_joins_gets_its_share_and_one_that_leaves_is_emptied(cluster: PenstockCluster) -> None:
    """One story: the fourth broker is away, joins, gets its share, is drained, gets it back, is drained and removed."""
    stop(cluster, NEW)
    create(cluster, "orders", partitions=PARTITIONS)
    create(cluster, "kept", partitions=3)
    start(cluster, NEW)
    with SteadyProducer(cluster, "orders", PARTITIONS, value_bytes=2_000) as producer:
        producer.wait_for_more(1_000)

        # Rebalance: the plan first, then interrupted and gone on with, then nothing is left to do.
        plan = facts(cluster, "rebalance", "--dry-run", "--sample", "1")
        shares = {each["broker"]: (each["before"], each["after"]) for each in plan["brokers"]}
        assert shares[NEW][0]["replicas"] == 0
        assert shares[NEW][1]["replicas"] >= 6
        assert sum(before["bytes_per_s"] for before, _ in shares.values()) > 0
        assert plan["bytes"] > 0
        assert not ongoing(cluster), "a dry run has moved something"

        interrupted = subprocess.Popen(
            command(cluster, "rebalance", "--yes", "--sample", "0", "--throttle", str(THROTTLE)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = Deadline(WAIT_S)
        while not ongoing(cluster):
            assert not deadline.passed, "the command begins nothing"
            assert interrupted.poll() is None, interrupted.communicate()
            time.sleep(POLL_S)
        os.kill(interrupted.pid, signal.SIGINT)
        _, said = interrupted.communicate(timeout=WAIT_S)
        assert "call the command again to go on" in said, said
        assert "cancelled" in penstock(cluster, "rebalance", "--cancel", "--yes").stdout
        await_reassigned(cluster)
        assert "brokers are even" in penstock(cluster, "rebalance", "--yes", "--sample", "0").stdout
        await_reassigned(cluster)
        assert replicas_of(cluster)[NEW] >= 6
        assert facts(cluster, "rebalance", "--dry-run", "--sample", "0")["copies"] == 0
        producer.wait_for_more(300)

        # Drain, with undo on the way.
        drained = penstock(cluster, "drain", str(NEW), "--yes")
        assert f"broker {NEW} is empty: stop it" in drained.stdout
        found = broker_facts(cluster, NEW)
        assert (found["drain"], found["leaders"], found["replicas"]) == ("drained", 0, 0)
        refused = NewTopic("four", num_partitions=1, replication_factor=4)
        client = admin(cluster)
        with pytest.raises(KafkaException, match="cordoned"):
            client.create_topics([refused])["four"].result(WAIT_S)
        create(cluster, "elsewhere", partitions=4)
        assert NEW not in replicas_of(cluster), "a new topic is on a broker that is drained"
        # It is a setting of Kafka's, so any admin client can see it, and undo it.
        resource = ConfigResource("broker", str(NEW))
        [described] = client.describe_configs([resource]).values()
        assert described.result(WAIT_S)["cordoned.log.dirs"].value == "*"
        assert "gets new replicas again" in penstock(cluster, "drain", str(NEW), "--undo").stdout
        assert broker_facts(cluster, NEW)["drain"] is None
        penstock(cluster, "rebalance", "--yes", "--sample", "0")
        assert replicas_of(cluster)[NEW] >= 6
        producer.wait_for_more(300)

        # Drain and remove.
        assert "replicas" in penstock(cluster, "remove", str(NEW), "--yes", status=1).stderr
        penstock(cluster, "drain", str(NEW), "--yes")
        assert "is up" in penstock(cluster, "remove", str(NEW), "--yes", status=1).stderr
        stop(cluster, NEW)
        assert f"broker {NEW} is removed" in penstock(cluster, "remove", str(NEW), "--yes").stdout
        assert [each["broker"] for each in facts(cluster, "status")["brokers"]] == [1, 2, 3]
        producer.wait_for_more(300)
    check(cluster, producer)


def test_auto_balance_gives_a_broker_its_share_without_a_command(cluster: PenstockCluster) -> None:
    """Another broker joins with the id of the one that was removed; it is not cordoned."""
    shutil.rmtree(cluster.broker(NEW).data)
    start(cluster, NEW)
    set_for_all(cluster, {"auto.balance": "true", "auto.balance.check.interval.seconds": "1"})

    def is_even(found: ClusterMetadata) -> bool:
        counts = counted(found)
        return counts[NEW] > 0 and max(counts.values()) - min(counts.values()) <= 1

    until(cluster, is_even)
    # A dead broker is drained from the other replicas.
    cluster.broker(NEW).kill()
    until(cluster, lambda found: NEW not in found.brokers, without=NEW)
    assert replicas_of(cluster, without=NEW)[NEW] > 0
    penstock(cluster, "drain", str(NEW), "--yes")
    assert "is removed" in penstock(cluster, "remove", str(NEW), "--yes").stdout
