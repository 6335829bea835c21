"""`cluster status`, `topic describe` and `check` on a real cluster that loses its brokers one by one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline, free_port
from penstock.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.xdist_group("zookeeper")
PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
SECONDS_MAX = 60.0
TOPIC = "orders"
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.num.partitions": "2",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with (
        ZooKeeper() as zookeeper,
        PenstockCluster(
            zookeeper=f"{zookeeper.connect}/commands", folder=tmp_path_factory.mktemp("brokers"), settings=SETTINGS
        ) as running,
    ):
        until(running, "check", fact=lambda found: found["brokers"] == [1, 2, 3])
        made = penstock(
            running.bootstrap, "topic", "create", TOPIC, "-p", "2", "-r", "3", "-c", "min.insync.replicas=2"
        )
        assert made.returncode == 0, made.stderr
        yield running


def penstock(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PENSTOCK, *arguments, "-b", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def facts(cluster: PenstockCluster, *arguments: str) -> Any:
    done = penstock(cluster.bootstrap, *arguments, "-o", "json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def until(cluster: PenstockCluster, *arguments: str, fact: Callable[[Any], bool]) -> Any:
    """What a command says, once a fact holds."""
    deadline = Deadline(SECONDS_MAX)
    while not fact(found := facts(cluster, *arguments)):
        assert not deadline.passed, f"{found}\n{cluster.tail()}"
        time.sleep(0.2)
    return found


def test_a_cluster_in_order_is_ok(cluster: PenstockCluster) -> None:
    found = facts(cluster, "cluster", "status")
    assert found["waiting"] == []
    assert [(each["broker"], each["port"], each["live"]) for each in found["brokers"]] == [
        (each.node_id, each.port, True) for each in cluster.brokers
    ]
    assert found["controller"] in (1, 2, 3)
    assert (found["offline"], found["under_replicated"], found["under_min_isr"]) == (0, 0, 0)
    assert sum(each["leaders"] for each in found["brokers"]) == sum(each["partitions"] for each in found["topics"])

    done = penstock(cluster.bootstrap, "check")
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "OK"), done.stdout
    assert "all in sync" in penstock(cluster.bootstrap, "cluster", "status").stdout


def test_lag_above_the_limit_is_a_warning(cluster: PenstockCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    producer.flush(SECONDS_MAX)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "slow", "enable.auto.commit": False})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
    reader.close()

    assert facts(cluster, "check", "--lag-max", "5")["problems"] == [
        {"severity": "warning", "problem": "group slow is 6 records behind"}
    ]
    assert penstock(cluster.bootstrap, "check", "--lag-max", "5").returncode == 1
    assert penstock(cluster.bootstrap, "check", "--lag-max", "6").returncode == 0
    assert penstock(cluster.bootstrap, "check", "--lag-max", "5", "-g", "other").returncode == 0


def test_a_cluster_that_cannot_be_reached_is_critical() -> None:
    done = penstock(f"127.0.0.1:{free_port()}", "check")
    assert done.returncode == 2
    assert done.stdout.startswith("CRITICAL: cannot connect")


def test_the_loss_of_one_broker_after_the_other_is_shown(cluster: PenstockCluster) -> None:
    assert all(each["eligible"] == [] for each in facts(cluster, "topic", "describe", TOPIC)["partitions"])
    cluster.broker(3).kill()
    found = until(
        cluster,
        *("cluster", "status"),
        fact=lambda now: now["under_replicated"] > 0 and now["offline"] == 0 and now["controller"] in (1, 2),
    )
    assert found["under_min_isr"] == 0
    assert (found["brokers"][2]["broker"], found["brokers"][2]["live"], found["brokers"][2]["leaders"]) == (3, False, 0)
    warned = until(cluster, "check", fact=lambda now: now["code"] == 1)
    assert warned["problems"][0]["problem"].startswith(f"{found['under_replicated']} partitions under-replicated (")
    waits = "__transaction_state waits for 3 brokers, 2 are live: transactional ids have no coordinator until then"
    assert any(each["problem"].startswith(waits) for each in warned["problems"])
    assert found["waiting"][0].startswith(waits)
    assert [each.split()[0] for each in found["waiting"]] == ["__transaction_state", "__share_group_state"]
    assert waits in penstock(cluster.bootstrap, "cluster", "status").stdout

    cluster.broker(2).kill()
    until(cluster, "cluster", "status", fact=lambda now: now["under_min_isr"] > 0 and now["offline"] == 0)
    (one, _) = facts(cluster, "topic", "describe", TOPIC)["partitions"]
    assert (one["leader"], one["isr"], one["eligible"]) == (1, [1], [2])
    done = penstock(cluster.bootstrap, "check")
    assert done.returncode == 2
    assert "under min ISR" in done.stdout

    # In this order: broker 3 would join the ISR of a leader that still runs.
    cluster.broker(1).kill()
    cluster.broker(3).start()
    found = until(cluster, "check", fact=lambda now: now["offline"] > 0)
    assert found["problems"][0]["severity"] == "critical"
    (one, _) = facts(cluster, "topic", "describe", TOPIC)["partitions"]
    assert (one["leader"], sorted(one["eligible"]), one["last_known"]) == (-1, [1, 2], [1])
