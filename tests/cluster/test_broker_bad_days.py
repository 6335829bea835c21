"""Bad days of single brokers in a cluster: hung, slow, killed while they start, alone, and restarted in turn."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.cimpl import NewTopic

from cluster.replicated import WAIT_S, SteadyProducer, admin, check, cluster_on, create, in_sync, leader_of, until
from cluster.steady_clients import ConfluentGroup, KafkaPythonGroup
from penstock.testing.cluster import ClusterBroker, PenstockCluster
from penstock.testing.processes import ProcessFailed
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients.java import TOOLS, tool
from protocol.clients.kafka_python import FORGETS_SOCKETS
from protocol.topics import fresh_name

pytestmark = pytest.mark.xdist_group("broker-bad-days")

HANGABLE = """#!{python}
# Runs a module as python does. SIGUSR1 hangs the main thread, in which the event loop runs, while a file is there.
import os, runpy, signal, sys, time

def hang(*_):
    while os.path.exists(f"{{__file__}}.{{os.getpid()}}"):
        time.sleep(0.02)

signal.signal(signal.SIGUSR1, hang)
assert sys.argv[1] == "-m"
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
SLOW_S = 0.1
RESTARTS = 4


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python whose main thread can be hung."""
    script = tmp_path_factory.mktemp("python") / "hangable"
    script.write_text(HANGABLE.format(python=sys.executable))
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[PenstockCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, folder, python=str(python)) as started:
        yield started


@pytest.fixture
def cluster(running: PenstockCluster) -> PenstockCluster:
    """The cluster with all its brokers, however the test before left it."""
    running.start()
    until(running, lambda found: len(found.brokers) == len(running.brokers))
    return running


@pytest.fixture
def topic(cluster: PenstockCluster) -> str:
    name = fresh_name("orders")
    create(cluster, name)
    return name


@contextlib.contextmanager
def hung(broker: ClusterBroker, python: Path) -> Iterator[None]:
    """A broker whose event loop does not turn, while its other threads do."""
    flag = python.with_name(f"{python.name}.{broker.pid}")
    flag.touch()
    os.kill(broker.pid, signal.SIGUSR1)
    try:
        yield
    finally:
        flag.unlink()


@contextlib.contextmanager
def slowed(broker: ClusterBroker) -> Iterator[None]:
    """A broker that runs half of the time."""
    over = threading.Event()

    def slow() -> None:
        while not over.wait(SLOW_S):
            broker.pause()
            over.wait(SLOW_S)
            broker.resume()

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_leader_whose_event_loop_hangs_is_replaced(cluster: PenstockCluster, topic: str, python: Path) -> None:
    """The thread of its ZooKeeper session lives, and must not keep the session alive."""
    with SteadyProducer(cluster, topic) as producer:
        leader = leader_of(cluster, topic)
        with hung(cluster.broker(leader), python):
            until(
                cluster,
                lambda found: found.topics[topic].partitions[0].leader not in (-1, leader),
                without=leader,
            )
            producer.wait_for_more()
        until(cluster, lambda found: in_sync(found, topic, 3))
        producer.wait_for_more()
    check(cluster, producer)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_slow_broker_delays_and_loses_nothing(cluster: PenstockCluster, topic: str, role: str) -> None:
    with SteadyProducer(cluster, topic) as producer:
        leader = leader_of(cluster, topic)
        slow = leader if role == "leader" else leader % 3 + 1
        with slowed(cluster.broker(slow)):
            producer.wait_for_more(200)
        until(cluster, lambda found: in_sync(found, topic, 3))
        producer.wait_for_more()
    check(cluster, producer)


def test_a_broker_that_is_killed_again_and_again_while_it_recovers_recovers(
    cluster: PenstockCluster, topic: str
) -> None:
    with SteadyProducer(cluster, topic) as producer:
        broker = cluster.broker(leader_of(cluster, topic))
        broker.kill()
        for number in range(RESTARTS):
            with contextlib.suppress(ProcessFailed):
                # It is killed when it does not serve by then.
                broker.start(seconds_max=0.2 + 0.2 * number)
            broker.kill()
        producer.wait_for_more()
        broker.start()
        until(cluster, lambda found: in_sync(found, topic, 3))
        producer.wait_for_more()
    check(cluster, producer)


def test_a_topic_is_created_while_one_broker_of_three_is_up(cluster: PenstockCluster, topic: str) -> None:
    for broker in cluster.brokers[1:]:
        broker.stop()
    until(cluster, lambda found: set(found.brokers) == {1})
    client, alone, wide = admin(cluster), fresh_name("alone"), fresh_name("wide")

    with pytest.raises(KafkaException) as refused:
        client.create_topics([NewTopic(wide, 1, 3)])[wide].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    client.create_topics([NewTopic(alone, 1, 1)])[alone].result(WAIT_S)

    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    producer.produce(alone, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]
    cluster.start()
    until(cluster, lambda found: in_sync(found, topic, 3))
    create(cluster, wide)


@pytest.mark.needs("kafka-jars")
@FORGETS_SOCKETS[0]
@FORGETS_SOCKETS[1]
def test_a_rolling_restart_under_load_fails_no_delivery_and_raises_nothing(
    cluster: PenstockCluster, topic: str
) -> None:
    topics = [topic, fresh_name("confluent"), fresh_name("kafka-python"), fresh_name("java")]
    for each in topics[1:]:
        create(cluster, each)
    properties = ("--bootstrap-server", cluster.bootstrap, "--command-property", "acks=all")
    load = ("--topic", topics[3], "--num-records", "2000", "--throughput", "100", "--record-size", "100")
    with (
        ThreadPoolExecutor(1) as at_once,
        SteadyProducer(cluster, topic) as producer,
        ConfluentGroup(cluster.bootstrap, topics[1], topics[1]) as confluent,
        KafkaPythonGroup(cluster.bootstrap, topics[2], topics[2]) as kafka_python,
    ):
        java = at_once.submit(tool, f"{TOOLS}.ProducerPerformance", *load, *properties)
        for group in (confluent, kafka_python):
            group.wait_for_more()
        for broker in cluster.brokers:
            broker.restart()
            until(cluster, lambda found: all(in_sync(found, each, 3) for each in (*topics, "__consumer_offsets")))
        for group in (confluent, kafka_python):
            group.wait_for_more()
        producer.wait_for_more()
        printed = java.result(WAIT_S)
    check(cluster, producer)
    assert "2000 records sent" in printed, printed
    assert "Exception" not in printed, printed
    for group in (confluent, kafka_python):
        assert not group.failures
    assert len(set(confluent.read)) == len(confluent.read), "a record was read twice"
