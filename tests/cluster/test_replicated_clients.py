"""Clients and tools that others wrote, on a cluster of three brokers that lose their leaders and coordinators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cluster.replicated import WAIT_S, cluster_on, create, in_sync, leader_of, until
from cluster.steady_clients import AioKafkaGroup, KafkaPythonGroup, SteadyGroup, SteadyTransactions
from penstock.coordinator.runtime import partition_of
from penstock.testing.cluster import PenstockCluster
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients.java import TOOLS, on, tool
from protocol.clients.kafka_python import FORGETS_SOCKETS
from protocol.clients.kcat import kcat
from protocol.topics import fresh_name

pytestmark = pytest.mark.xdist_group("zookeeper")
STATE_PARTITIONS = 3


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def cluster(running: PenstockCluster) -> PenstockCluster:
    """The cluster with all its brokers, however the test before left it."""
    running.start()
    until(running, lambda found: len(found.brokers) == len(running.brokers))
    return running


@pytest.fixture
def topic(cluster: PenstockCluster, request: pytest.FixtureRequest) -> str:
    name = fresh_name(request.node.name.removeprefix("test_")[:40])
    create(cluster, name)
    return name


def coordinator_of(cluster: PenstockCluster, state_topic: str, key: str) -> int:
    return leader_of(cluster, state_topic, partition_of(key, STATE_PARTITIONS))


def committed(cluster: PenstockCluster, group: str, topic: str) -> int:
    """The committed offset of the first partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        [place] = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    finally:
        consumer.close()
    return place.offset


@pytest.mark.parametrize(
    "client", [pytest.param(KafkaPythonGroup, marks=FORGETS_SOCKETS), AioKafkaGroup], ids=["kafka-python", "aiokafka"]
)
def test_a_group_goes_on_while_its_leader_and_its_coordinator_are_killed(
    cluster: PenstockCluster, topic: str, client: type[SteadyGroup]
) -> None:
    with client(cluster.bootstrap, topic, topic) as steady:
        steady.wait_for_more()
        for victim in (leader_of(cluster, topic), coordinator_of(cluster, "__consumer_offsets", topic)):
            cluster.broker(victim).kill()
            steady.wait_for_more()
            cluster.broker(victim).start()
            until(cluster, lambda found: in_sync(found, topic, 3) and in_sync(found, "__consumer_offsets", 3))
        steady.wait_for_more()
    assert not steady.failures
    assert len(set(steady.read)) == len(steady.read), "a record was read twice"
    assert committed(cluster, topic, topic) == steady.committed


def test_transactions_are_read_once_while_their_coordinator_is_killed(cluster: PenstockCluster, topic: str) -> None:
    with SteadyTransactions(cluster.bootstrap, topic, topic) as steady:
        steady.wait_for_more()
        for _ in range(2):
            victim = coordinator_of(cluster, "__transaction_state", topic)
            cluster.broker(victim).kill()
            steady.wait_for_more()
            cluster.broker(victim).start()
            until(cluster, lambda found: in_sync(found, topic, 3) and in_sync(found, "__transaction_state", 3))
        steady.wait_for_more()
    assert not steady.failures
    assert steady.aborted
    assert sorted(steady.read, key=int) == steady.committed


@pytest.mark.needs("kafka-jars")
def test_the_topics_tool_shows_what_a_dead_broker_leaves_and_its_leaders_are_elected_again(
    cluster: PenstockCluster,
) -> None:
    name, alone = fresh_name("three"), fresh_name("one")
    topics = (f"{TOOLS}.TopicCommand", *on(cluster))
    shape = ("--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=3")
    tool(*topics, "--create", "--topic", name, *shape)
    tool(*topics, "--create", "--topic", alone, "--replica-assignment", "1")
    until(cluster, lambda found: in_sync(found, name, 3) and in_sync(found, alone, 1))
    [led] = [number for number in range(3) if leader_of(cluster, name, number) == 1]

    cluster.broker(1).kill()
    until(cluster, lambda found: all(part.leader in (2, 3) for part in found.topics[name].partitions.values()))
    shown = {
        which: tool(*topics, "--describe", "--topic", f"{name}|{alone}", f"--{which}-partitions")
        for which in ("under-replicated", "under-min-isr", "unavailable")
    }
    listed = json.loads(kcat(cluster.bootstrap, "-L", "-J", "-t", name))

    assert [line.split("\t")[5] for line in lines_of(shown["under-replicated"], name)] == ["Isr: 2,3"] * 3
    assert len(lines_of(shown["under-min-isr"], name)) == 3
    [unavailable] = lines_of(shown["unavailable"], "")
    assert f"Topic: {alone}\tPartition: 0\tLeader: none\tReplicas: 1" in unavailable
    assert {node["id"] for node in listed["brokers"]} == {2, 3}
    assert all(len(part["isrs"]) == 2 for part in listed["topics"][0]["partitions"])

    cluster.broker(1).start()
    until(cluster, lambda found: in_sync(found, name, 3) and in_sync(found, alone, 1))
    assert leader_of(cluster, name, led) != 1
    election = ("--election-type", "preferred", "--topic", name, "--partition", str(led))
    elected = tool(f"{TOOLS}.LeaderElectionCommand", *on(cluster), *election)
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-{led}" in elected
    assert leader_of(cluster, name, led) == 1


def lines_of(described: str, topic: str) -> list[str]:
    """The lines of a topic's partitions, with the members of an ISR in the order of their ids."""
    return [
        re.sub(r"(?<=Isr: )[\d,]+", lambda found: ",".join(sorted(found[0].split(","))), line)
        for line in described.splitlines()
        if line.startswith(f"\tTopic: {topic}")
    ]


@pytest.mark.needs("kafka-jars")
def test_the_offsets_that_the_groups_tool_shows_and_resets_outlive_their_coordinator(
    cluster: PenstockCluster, topic: str
) -> None:
    groups = (f"{TOOLS}.consumer.group.ConsumerGroupCommand", *on(cluster), "--group", topic)
    load = ("--num-records", "200", "--record-size", "100", "--throughput", "-1")
    tool(f"{TOOLS}.ProducerPerformance", *on(cluster), "--topic", topic, *load)
    read = tool(
        f"{TOOLS}.ConsumerPerformance", *on(cluster), "--topic", topic, "--group", topic, "--num-records", "200"
    )
    assert ", 200, " in read

    cluster.broker(coordinator_of(cluster, "__consumer_offsets", topic)).kill()
    until(cluster, lambda found: len(found.brokers) == 2)
    described = tool(*groups, "--describe")
    tool(*groups, "--reset-offsets", "--topic", topic, "--to-offset", "50", "--execute")
    offsets = tool(f"{TOOLS}.GetOffsetShell", *on(cluster), "--topic", topic)

    assert re.search(rf"{topic} +0 +200 +200 +0 ", described), described
    assert f"{topic}:0:200" in offsets
    assert committed(cluster, topic, topic) == 50


@pytest.mark.needs("kafka-jars")
def test_an_open_transaction_is_shown_by_the_next_coordinator_and_can_be_committed(
    cluster: PenstockCluster, topic: str
) -> None:
    transactions = (f"{TOOLS}.TransactionsCommand", *on(cluster))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(WAIT_S)
    former = coordinator_of(cluster, "__transaction_state", topic)
    cluster.broker(former).kill()
    until(cluster, lambda found: len(found.brokers) == 2)

    listed = tool(*transactions, "list")
    described = tool(*transactions, "describe", "--transactional-id", topic)
    producer.commit_transaction(WAIT_S)

    assert re.search(rf"^{topic}\s+\d\s+\d+\s+Ongoing", listed, re.MULTILINE), listed
    [[found, *_, places]] = [line.split() for line in described.splitlines() if f"\t{topic}" in line]
    assert int(found) == coordinator_of(cluster, "__transaction_state", topic) != former
    assert places == f"{topic}-0"
    assert read_committed(cluster, topic) == [b"one"]


def read_committed(cluster: PenstockCluster, topic: str) -> list[bytes]:
    """The committed records of the first partition."""
    printed = kcat(cluster.bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-X", "isolation.level=read_committed")
    return printed.splitlines()


@pytest.mark.needs("kafka-jars")
def test_every_broker_has_the_same_apis(cluster: PenstockCluster) -> None:
    printed = tool(f"{TOOLS}.BrokerApiVersionsCommand", *on(cluster))

    apis = re.split(r"^.*\(id: \d+ .*\) -> \($", printed, flags=re.MULTILINE)[1:]
    assert len(apis) == 3
    assert len({text.split(")\n")[0].strip() for text in apis}) == 1, printed
    assert "Exception" not in printed
