"""Consumers with client.rack on a real cluster: they read from the follower of their rack, and go on without it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.request import urlopen

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from cluster.replicated import POLL_S, WAIT_S, SteadyProducer, cluster_on, create, in_sync, leader_of, until
from cluster.steady_clients import SteadyTransactions
from penstock.config.replica import RACK_AWARE_SELECTOR
from penstock.testing.apache_kafka import tool_command
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import LOOPBACK, Child, Deadline, free_ports
from penstock.testing.zookeeper import ZooKeeper
from protocol.clients.java import TOOLS
from protocol.topics import fresh_name

pytestmark = pytest.mark.xdist_group("zookeeper")
RACKS = {1: "a", 2: "b", 3: "c"}
TIMEOUT_MS = 4_000
"""Of a request to a broker that does not respond."""
METADATA_AGE_MS = 5_000
"""After which a consumer asks the leader again which replica to read from."""


class RackCluster:
    """A cluster whose brokers are in three racks, and the bytes of records that each has sent to consumers."""

    def __init__(self, cluster: PenstockCluster, pages: dict[int, int]) -> None:
        self.brokers = cluster
        self._pages = pages

    def bytes_out(self, broker: int, topic: str) -> int:
        with urlopen(f"http://{LOOPBACK}:{self._pages[broker]}/metrics", timeout=WAIT_S) as page:
            text = page.read().decode()
        found = re.search(rf'^penstock_topic_bytes_out_total{{topic="{re.escape(topic)}"}} (\d+)', text, re.MULTILINE)
        return int(found[1]) if found else 0

    def sent_by(self, topic: str, brokers: Collection[int]) -> dict[int, int]:
        return {broker: self.bytes_out(broker, topic) for broker in brokers}

    def heal(self, topic: str) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync."""
        self.brokers.start()
        until(self.brokers, lambda found: in_sync(found, topic, len(RACKS)))


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackCluster]:
    pages = dict(zip(RACKS, free_ports(len(RACKS), LOOPBACK), strict=True))
    settings_of = {
        broker: {"broker.rack": rack, "metrics.listener": f"{LOOPBACK}:{pages[broker]}"}
        for broker, rack in RACKS.items()
    }
    with (
        ZooKeeper() as zookeeper,
        cluster_on(
            zookeeper,
            tmp_path_factory.mktemp("racks"),
            settings_of=settings_of,
            replica_selector_class=RACK_AWARE_SELECTOR,
        ) as cluster,
    ):
        yield RackCluster(cluster, pages)


@pytest.fixture
def topic(racks: RackCluster) -> str:
    racks.brokers.start()
    name = fresh_name("near")
    create(racks.brokers, name)
    return name


class RackReader(Protocol):
    """Reads partition 0 of a topic from its start, as a client of one rack, until the test leaves it."""

    @property
    def values(self) -> list[bytes]: ...


class ThreadedReader:
    """A reader with a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.rack = rack
        self.values: list[bytes] = []
        self.stop = threading.Event()

    def work(self) -> None:
        raise NotImplementedError

    @classmethod
    @contextlib.contextmanager
    def running(cls, bootstrap: str, topic: str, rack: str, folder: Path) -> Iterator[RackReader]:
        reader = cls(bootstrap, topic, rack)
        thread = threading.Thread(target=reader.work)
        thread.start()
        try:
            yield reader
        finally:
            reader.stop.set()
            thread.join()


class ConfluentReader(ThreadedReader):
    def work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.rack": self.rack,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "socket.timeout.ms": TIMEOUT_MS,
                "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        try:
            while not self.stop.is_set():
                for message in consumer.consume(1000, timeout=0.2):
                    if message.error() is None:
                        self.values.append(message.value() or b"")
        finally:
            consumer.close()


class AioKafkaReader(ThreadedReader):
    def work(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_rack=self.rack,
            group_id=None,
            auto_offset_reset="none",
            request_timeout_ms=TIMEOUT_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        await consumer.start()
        place = AioTopicPartition(self.topic, 0)
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            while not self.stop.is_set():
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    self.values.extend(record.value or b"" for record in batch)
        finally:
            await consumer.stop()


class PrintingReader:
    """A program that prints the values it reads, a line each."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @staticmethod
    def command(bootstrap: str, topic: str, rack: str) -> Sequence[str]:
        raise NotImplementedError

    @property
    def values(self) -> list[bytes]:
        # The last line may be only half there.
        lines = self._child.log.read_bytes().rpartition(b"\n")[0].splitlines()
        return [line for line in lines if line.isdigit()]

    @classmethod
    @contextlib.contextmanager
    def running(cls, bootstrap: str, topic: str, rack: str, folder: Path) -> Iterator[RackReader]:
        child = Child(cls.command(bootstrap, topic, rack), log=folder / "reader.log")
        try:
            yield cls(child)
        finally:
            child.stop()


class KafkaPythonReader(PrintingReader):
    @staticmethod
    def command(bootstrap: str, topic: str, rack: str) -> Sequence[str]:
        program = str(Path(__file__).with_name("rack_reader_program.py"))
        return (sys.executable, program, bootstrap, topic, rack, str(TIMEOUT_MS), str(METADATA_AGE_MS))


class ConsoleConsumer(PrintingReader):
    @staticmethod
    def command(bootstrap: str, topic: str, rack: str) -> Sequence[str]:
        properties = {
            "client.rack": rack,
            "auto.offset.reset": "none",
            "request.timeout.ms": TIMEOUT_MS,
            "metadata.max.age.ms": METADATA_AGE_MS,
        }
        given = [part for name, value in properties.items() for part in ("--command-property", f"{name}={value}")]
        what = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "0")
        return tool_command(f"{TOOLS}.consumer.ConsoleConsumer", *what, *given)


READERS = [
    pytest.param(ConfluentReader, id="confluent-kafka"),
    pytest.param(ConsoleConsumer, id="java", marks=pytest.mark.needs("kafka-jars")),
    pytest.param(AioKafkaReader, id="aiokafka"),
    pytest.param(KafkaPythonReader, id="kafka-python"),
]


def wait_for(fact: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = Deadline(WAIT_S)
    while not fact():
        assert not deadline.passed, f"not within {WAIT_S} s: {what()}"
        time.sleep(POLL_S)


def wait_until_read(reader: RackReader, producer: SteadyProducer, more: int = 50) -> None:
    """Wait until more records are acknowledged, and all that are by then are read."""
    producer.wait_for_more(more)
    wanted = {value for _, value in producer.acknowledged}
    wait_for(lambda: wanted <= set(reader.values), lambda: f"{len(reader.values)} of {len(wanted)} read")


def wait_until_read_from(
    racks: RackCluster, topic: str, broker: int, reader: RackReader, producer: SteadyProducer
) -> None:
    """Wait until the reader gets its records from one broker and from no other."""
    sent: dict[int, int] = {}

    def alone() -> bool:
        nonlocal sent
        before = racks.sent_by(topic, RACKS)
        wait_until_read(reader, producer, more=20)
        after = racks.sent_by(topic, RACKS)
        sent = {each: after[each] - before[each] for each in RACKS}
        return sent[broker] > 0 and not any(sent[each] for each in RACKS if each != broker)

    wait_for(alone, lambda: f"broker {broker} is to be read from, and the brokers have sent {sent}")


@pytest.mark.parametrize("client", READERS)
def test_a_consumer_reads_from_the_follower_of_its_rack_and_goes_on_when_that_is_gone(
    racks: RackCluster, topic: str, client: Any, tmp_path: Path
) -> None:
    cluster = racks.brokers
    leader = leader_of(cluster, topic)
    near, _ = (broker for broker in RACKS if broker != leader)
    others = [broker for broker in RACKS if broker != near]
    with (
        SteadyProducer(cluster, topic) as producer,
        client.running(cluster.bootstrap, topic, RACKS[near], tmp_path) as reader,
    ):
        wait_until_read_from(racks, topic, near, reader, producer)

        before = racks.sent_by(topic, others)
        cluster.broker(near).kill()
        wait_until_read(reader, producer)
        assert racks.sent_by(topic, others) != before, "the consumer has gone on at another broker"
        racks.heal(topic)
        wait_until_read_from(racks, topic, near, reader, producer)

        cluster.broker(near).pause()
        wait_until_read(reader, producer)
        cluster.broker(near).resume()
        racks.heal(topic)
        wait_until_read(reader, producer)

        cluster.broker(leader_of(cluster, topic)).kill()
        wait_until_read(reader, producer)
        racks.heal(topic)
        wait_until_read(reader, producer)
    assert not producer.errors

    values = reader.values
    assert values == [b"%d" % number for number in range(len(values))], "each record once, in the order of sending"


def test_a_reader_of_committed_data_gets_each_committed_record_from_a_follower(racks: RackCluster, topic: str) -> None:
    cluster = racks.brokers
    near = next(broker for broker in RACKS if broker != leader_of(cluster, topic))
    with SteadyTransactions(cluster.bootstrap, topic, topic, rack=RACKS[near]) as steady:
        steady.wait_for_more()
        cluster.broker(leader_of(cluster, topic)).kill()
        steady.wait_for_more()
        racks.heal(topic)
        steady.wait_for_more()
        assert racks.bytes_out(near, topic) > 0
    assert not steady.failures
    assert steady.aborted
    assert sorted(steady.read, key=int) == steady.committed
