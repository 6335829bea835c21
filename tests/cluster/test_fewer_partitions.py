"""Topics with fewer active partitions, on a real cluster: clients of every library go on without an error."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from cluster.replicated import LEADER_MOVES, WAIT_S, SteadyProducer, admin, cluster_on, create, leader_of, until
from cluster.steady_clients import (
    AioKafkaGroup,
    ConfluentGroup,
    ConsumerProtocolGroup,
    KafkaPythonGroup,
    SteadyGroup,
    SteadyTransactions,
)
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients.java import TOOLS, console_consume, on, tool
from protocol.clients.kafka_python import FORGETS_SOCKETS
from protocol.topics import fresh_name

pytestmark = [pytest.mark.xdist_group("zookeeper"), *FORGETS_SOCKETS]

PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")
PARTITIONS = 4
ACTIVE = 2
SETTING = "partitions.active"
GHOSTS = "partitions.ghosts"
JAVA_RECORDS = 500
GROUPS: tuple[type[SteadyGroup], ...] = (ConfluentGroup, ConsumerProtocolGroup, KafkaPythonGroup, AioKafkaGroup)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path_factory.mktemp("cluster")) as started:
        yield started


def penstock(cluster: PenstockCluster, *arguments: str, status: int = 0) -> str:
    command = [*PENSTOCK, "topic", *arguments, "-b", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def set_active(cluster: PenstockCluster, topic: str, count: int | None) -> None:
    """Change the number of active partitions as any client does; it may have to wait for partitions that resume."""
    operation = AlterConfigOpType.DELETE if count is None else AlterConfigOpType.SET
    entry = ConfigEntry(SETTING, None if count is None else str(count), incremental_operation=operation)
    wanted = ConfigResource("topic", topic, incremental_configs=[entry])
    deadline = Deadline(WAIT_S)
    client = admin(cluster)
    while True:
        [result] = client.incremental_alter_configs([wanted]).values()
        try:
            result.result(WAIT_S)
        except KafkaException as error:
            if "yet to resume" not in str(error) or deadline.passed:
                raise
        else:
            return


def read_committed(cluster: PenstockCluster, topic: str, partition: int) -> list[bytes]:
    """Every committed record of a partition, which may end with batches that hold none."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "audit", "log_level": 0}
    reading = {"enable.auto.commit": False, "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({**settings, **reading})
    found: list[bytes] = []
    deadline = Deadline(WAIT_S)
    try:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            assert not deadline.passed, f"{topic}-{partition} has no end after {len(found)} records"
            for message in reader.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
    finally:
        reader.close()


def check_topic(
    cluster: PenstockCluster, topic: str, acknowledged: set[bytes], discarded: Sequence[bytes] = ()
) -> list[list[bytes]]:
    """Every acknowledged record is in the topic or was discarded, and none is twice; the records by partition."""
    found = [read_committed(cluster, topic, partition) for partition in range(PARTITIONS)]
    values = [*discarded, *(value for each in found for value in each)]
    assert len(values) == len(set(values)), f"{topic} has a record twice"
    assert acknowledged <= set(values), f"{topic} has lost {sorted(acknowledged - set(values))[:5]}"
    return found


def end_of(cluster: PenstockCluster, topic: str, partition: int) -> int:
    return bounds_of(cluster, topic, partition)[1]


def start_of(cluster: PenstockCluster, topic: str, partition: int) -> int:
    return bounds_of(cluster, topic, partition)[0]


def bounds_of(cluster: PenstockCluster, topic: str, partition: int) -> tuple[int, int]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends", "log_level": 0})
    deadline = Deadline(WAIT_S)
    try:
        while True:
            try:
                low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
            except KafkaException as error:
                if deadline.passed or error.args[0].code() not in LEADER_MOVES:
                    raise
            else:
                return int(low), int(high)
    finally:
        reader.close()


def longest_pause(producer: SteadyProducer) -> float:
    """Seconds between two acknowledgements."""
    return max(later - earlier for (earlier, _), (later, _) in pairwise(producer.acknowledged))


def test_clients_of_every_library_write_and_read_on_through_a_shrink_a_kill_and_an_undo(
    cluster: PenstockCluster,
) -> None:
    names = {kind: fresh_name(kind.__name__.lower()) for kind in GROUPS}
    steady, transactions = fresh_name("steady"), fresh_name("transactions")
    topics = [*names.values(), steady, transactions]
    for topic in topics:
        create(cluster, topic, partitions=PARTITIONS)
    with contextlib.ExitStack() as running:
        groups = [running.enter_context(kind(cluster.bootstrap, topic, topic)) for kind, topic in names.items()]
        written = running.enter_context(SteadyProducer(cluster, steady, PARTITIONS))
        transacted = running.enter_context(SteadyTransactions(cluster.bootstrap, transactions, transactions))

        def all_go_on() -> None:
            for client in (*groups, written, transacted):
                client.wait_for_more(40)

        all_go_on()
        for topic in topics:
            set_active(cluster, topic, ACTIVE)
        all_go_on()
        print(f"longest pause around the shrink: {longest_pause(written):.3f} s")
        frozen = [end_of(cluster, steady, partition) for partition in range(ACTIVE, PARTITIONS)]
        all_go_on()
        assert [end_of(cluster, steady, partition) for partition in range(ACTIVE, PARTITIONS)] == frozen
        victim = cluster.broker(leader_of(cluster, steady, PARTITIONS - 1))
        victim.kill()
        all_go_on()
        victim.start()
        for topic in topics:
            set_active(cluster, topic, None)
        all_go_on()
        assert all(end_of(cluster, steady, ACTIVE + at) > end for at, end in enumerate(frozen))
        # Again, to as many and to fewer: what was adopted counts.
        for topic in topics:
            set_active(cluster, topic, 1)
        all_go_on()
    for client in (*groups, transacted):
        assert client.failures == []
    assert written.errors == []
    for group in groups:
        check_topic(cluster, group.topic, set(group.acknowledged))
    check_topic(cluster, transactions, set(transacted.committed))
    by_partition = check_topic(cluster, steady, {value for _, value in written.acknowledged})
    for values in by_partition:
        for sent_to in range(PARTITIONS):
            numbers = [int(value) for value in values if int(value) % PARTITIONS == sent_to]
            assert numbers == sorted(numbers), "records of one partition are out of order"


def ghosts_of(cluster: PenstockCluster, topic: str) -> str | None:
    """The partitions of a topic that are empty and have no replicas, as every client can find out."""
    wanted = ConfigResource("topic", topic)
    client = admin(cluster)
    [described] = client.describe_configs([wanted]).values()
    found = described.result(WAIT_S).get(GHOSTS)
    return None if found is None else str(found.value)


def discard(cluster: PenstockCluster, topic: str, partition: int) -> bool:
    """Delete all records of a partition; False where its leader has just moved: librdkafka does not ask the next."""
    client = admin(cluster)
    [deleted] = client.delete_records([TopicPartition(topic, partition, -1)]).values()
    try:
        deleted.result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return False
    return True


def become_ghosts(cluster: PenstockCluster, topic: str) -> None:
    """Discard the records of the drained partitions, and wait until these have no replicas."""
    deadline = Deadline(WAIT_S)
    left = list(range(ACTIVE, PARTITIONS))
    while left:
        assert not deadline.passed, f"the records of partitions {left} of {topic} cannot be deleted"
        left = [partition for partition in left if not discard(cluster, topic, partition)]
    wanted = ",".join(map(str, range(ACTIVE, PARTITIONS)))
    while ghosts_of(cluster, topic) != wanted:
        assert not deadline.passed, f"the drained partitions of {topic} keep their replicas"
        time.sleep(0.1)


def logs_of(cluster: PenstockCluster, topic: str, partition: int) -> list[Path]:
    return [path for broker in cluster.brokers for path in Path(broker.data).glob(f"{topic}-{partition}")]


def test_clients_of_every_library_go_on_while_drained_partitions_lose_their_replicas_and_get_new_ones(
    cluster: PenstockCluster,
) -> None:
    names = {kind: fresh_name(kind.__name__.lower()) for kind in GROUPS}
    steady, transactions = fresh_name("steady"), fresh_name("transactions")
    topics = [*names.values(), steady, transactions]
    for topic in topics:
        create(cluster, topic, partitions=PARTITIONS)
    discarded: dict[str, list[bytes]] = {}
    ends: dict[str, list[int]] = {}
    drained = range(ACTIVE, PARTITIONS)
    with contextlib.ExitStack() as running:
        groups = [running.enter_context(kind(cluster.bootstrap, topic, topic)) for kind, topic in names.items()]
        written = running.enter_context(SteadyProducer(cluster, steady, PARTITIONS))
        transacted = running.enter_context(SteadyTransactions(cluster.bootstrap, transactions, transactions))

        def all_go_on() -> None:
            for client in (*groups, written, transacted):
                client.wait_for_more(40)

        all_go_on()
        for topic in topics:
            set_active(cluster, topic, ACTIVE)
        all_go_on()
        for topic in topics:
            discarded[topic] = [value for each in drained for value in read_committed(cluster, topic, each)]
            assert discarded[topic]
            become_ghosts(cluster, topic)
            ends[topic] = [end_of(cluster, topic, each) for each in drained]
            assert not any(logs_of(cluster, topic, each) for each in drained)
        print(f"longest pause up to ghosts: {longest_pause(written):.3f} s")
        for topic in topics:
            for each in drained:
                assert leader_of(cluster, topic, each) == leader_of(cluster, topic, each % ACTIVE)
        all_go_on()
        assert [end_of(cluster, steady, each) for each in drained] == ends[steady]
        victim = cluster.broker(leader_of(cluster, steady, PARTITIONS - 1))
        victim.kill()
        all_go_on()
        victim.start()
        until(cluster, lambda found: len(found.brokers) == len(cluster.brokers))
        for topic in topics:
            set_active(cluster, topic, None)
        all_go_on()
        for topic in topics:
            assert [start_of(cluster, topic, each) for each in drained] == ends[topic], "an offset is used again"
        assert all(end_of(cluster, steady, ACTIVE + at) > end for at, end in enumerate(ends[steady]))
    for client in (*groups, transacted):
        assert client.failures == []
    assert written.errors == []
    for group in groups:
        check_topic(cluster, group.topic, set(group.acknowledged), discarded[group.topic])
    check_topic(cluster, transactions, set(transacted.committed), discarded[transactions])
    check_topic(cluster, steady, {value for _, value in written.acknowledged}, discarded[steady])


def committed_partitions(cluster: PenstockCluster, group: str, topic: str) -> set[int]:
    client = admin(cluster)
    [found] = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.partition for each in found.result(WAIT_S).topic_partitions if each.topic == topic}


def test_a_finalized_topic_has_fewer_partitions_and_gets_them_back_where_they_ended(cluster: PenstockCluster) -> None:
    names = {kind: fresh_name(kind.__name__.lower()) for kind in GROUPS}
    topics = list(names.values())
    for topic in topics:
        create(cluster, topic, partitions=PARTITIONS)
    drained = range(ACTIVE, PARTITIONS)
    discarded: dict[str, list[bytes]] = {}
    ends: dict[str, list[int]] = {}
    with contextlib.ExitStack() as running:
        groups = [running.enter_context(kind(cluster.bootstrap, topic, topic)) for kind, topic in names.items()]

        def all_go_on() -> None:
            for client in groups:
                client.wait_for_more(40)

        all_go_on()
        assert "comes first" in penstock(cluster, "shrink", topics[0], "--finalize", "--yes", status=1)
        for topic in topics:
            set_active(cluster, topic, ACTIVE)
        all_go_on()
        assert "still have logs" in penstock(cluster, "shrink", topics[0], "--finalize", "--yes", status=1)
        for topic in topics:
            discarded[topic] = [value for each in drained for value in read_committed(cluster, topic, each)]
            become_ghosts(cluster, topic)
            ends[topic] = [end_of(cluster, topic, each) for each in drained]
        all_go_on()
        assert "say --yes" in penstock(cluster, "shrink", topics[0], "--finalize", status=1)
        for topic in topics:
            said = penstock(cluster, "shrink", topic, "--finalize", "--yes")
            assert "failOnDataLoss" in said
            assert "goes_on_at" in said
        until(cluster, lambda found: all(len(found.topics[topic].partitions) == ACTIVE for topic in topics))
        assert "taken out" in penstock(cluster, "describe", topics[0])
        all_go_on()
        for topic in topics:
            deadline = Deadline(WAIT_S)
            while committed_partitions(cluster, topic, topic) != set(range(ACTIVE)):
                assert not deadline.passed, "committed offsets of removed partitions are left"
                time.sleep(0.2)
        for topic in topics[:2]:
            penstock(cluster, "shrink", topic, "--undo", "--yes")
        for topic in topics[2:]:
            penstock(cluster, "grow", topic, "--to", str(PARTITIONS))
        until(cluster, lambda found: all(len(found.topics[topic].partitions) == PARTITIONS for topic in topics))
        all_go_on()
        for topic in topics:
            assert [start_of(cluster, topic, each) for each in drained] == ends[topic], "an offset is used again"
    for group in groups:
        assert group.failures == []
        check_topic(cluster, group.topic, set(group.acknowledged), discarded[group.topic])


@pytest.mark.needs("kafka-jars")
def test_kafkas_own_tools_write_to_and_read_from_a_topic_with_drained_partitions(cluster: PenstockCluster) -> None:
    topic = fresh_name("javas")
    create(cluster, topic, partitions=PARTITIONS)
    load = ("--topic", topic, "--num-records", str(JAVA_RECORDS), "--record-size", "50", "--throughput", "-1")
    tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load)
    set_active(cluster, topic, ACTIVE)

    sent = tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load)
    in_txn = ("--transactional-id", topic, "--transaction-duration-ms", "100")
    transacted = tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load, *in_txn)
    read = console_consume(
        cluster.bootstrap, topic, 3 * JAVA_RECORDS, "--from-beginning", "--isolation-level", "read_committed"
    )

    assert f"{JAVA_RECORDS} records sent" in sent
    assert f"{JAVA_RECORDS} records sent" in transacted
    assert len(read) == 3 * JAVA_RECORDS
    described = tool(f"{TOOLS}.TopicCommand", *on(cluster), "--describe", "--topic", topic)
    assert f"PartitionCount: {PARTITIONS}" in described
    fewer = tool(
        f"{TOOLS}.TopicCommand", *on(cluster), "--alter", "--topic", topic, "--partitions", str(ACTIVE), status=1
    )
    assert "would not be an increase" in fewer

    become_ghosts(cluster, topic)
    before = sum(end_of(cluster, topic, each) for each in range(ACTIVE))
    assert f"{JAVA_RECORDS} records sent" in tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load)
    penstock(cluster, "shrink", topic, "--finalize", "--yes")
    assert f"{JAVA_RECORDS} records sent" in tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load)
    assert sum(end_of(cluster, topic, each) for each in range(ACTIVE)) == before + 2 * JAVA_RECORDS
    described = tool(f"{TOOLS}.TopicCommand", *on(cluster), "--describe", "--topic", topic)
    assert f"PartitionCount: {ACTIVE}" in described
    tool(f"{TOOLS}.TopicCommand", *on(cluster), "--alter", "--topic", topic, "--partitions", str(PARTITIONS))
    assert f"{JAVA_RECORDS} records sent" in tool(f"{TOOLS}.ProducerPerformance", *on(cluster), *load)


def test_the_command_shows_what_it_does_and_undoes_it(cluster: PenstockCluster) -> None:
    topic = fresh_name("commanded")
    create(cluster, topic, partitions=PARTITIONS)

    assert "say --yes" in penstock(cluster, "shrink", topic, "--to", "2", status=1)
    planned = penstock(cluster, "shrink", topic, "--to", "3", "--yes")
    assert "written_to" in planned
    assert "no multiple of 3" in planned
    described = penstock(cluster, "describe", topic)
    assert "partition 3 is drained: its records are written to partition 0" in described
    shown = json.loads(penstock(cluster, "describe", topic, "-o", "json"))
    [drained] = shown["drained"]
    assert (drained["partition"], drained["written_to"]) == (3, 0)
    # The partition has no records, so that it is a ghost before long.
    assert drained["state"] in ("draining", "ghost")
    assert "remove it" in penstock(cluster, "shrink", topic, "--to", "2", "--yes", status=1)

    penstock(cluster, "shrink", topic, "--undo", "--yes")
    assert "is drained" not in penstock(cluster, "describe", topic)
    assert "nothing to undo" in penstock(cluster, "shrink", topic, "--undo", "--yes", status=1)


def grows(cluster: PenstockCluster, wanted: NewPartitions) -> bool:
    """Whether a topic gets more partitions; it does not while some have yet to resume."""
    client = admin(cluster)
    [result] = client.create_partitions([wanted]).values()
    try:
        result.result(WAIT_S)
    except KafkaException as error:
        if SETTING not in str(error):
            raise
        return False
    return True


def test_a_topic_grows_after_its_partitions_have_resumed(cluster: PenstockCluster) -> None:
    topic = fresh_name("grown")
    create(cluster, topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})

    def send(value: bytes, partition: int = PARTITIONS - 1) -> None:
        producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_S) == 0

    send(b"before")
    set_active(cluster, topic, ACTIVE)
    # The leader learns of it soon; until then records are written to the partition that they are sent to.
    target, sent = (PARTITIONS - 1) % ACTIVE, [b"before"]
    deadline = Deadline(WAIT_S)
    while not end_of(cluster, topic, target):
        assert not deadline.passed, "the last partition is not drained"
        sent.append(b"sent %d" % len(sent))
        send(sent[-1])
    grown = NewPartitions(topic, PARTITIONS + 1)
    assert not grows(cluster, grown)
    set_active(cluster, topic, None)
    deadline = Deadline(WAIT_S)
    while not grows(cluster, grown):
        assert not deadline.passed, "the last partition has yet to resume"
    send(b"after")
    until(cluster, lambda found: len(found.topics[topic].partitions) == PARTITIONS + 1)

    *kept, drained = sent
    assert read_committed(cluster, topic, PARTITIONS - 1) == [*kept, b"after"]
    assert read_committed(cluster, topic, target) == [drained]
