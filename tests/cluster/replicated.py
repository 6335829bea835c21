"""Shared by the tests of real clusters: a cluster on ZooKeeper, a steady producer, and what readers find at the end."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from penstock.testing.cluster import PenstockCluster
from penstock.testing.packet_filter import PacketFilter
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper

SESSION_MS = 2_000
WAIT_S = 60.0
PAUSE_S = 0.005
POLL_S = 0.05
CHROOTS = itertools.count()
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
LEADER_MOVES = (
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""What a client is told while a partition has a new leader, and asks again."""


@contextlib.contextmanager
def cluster_on(
    zookeeper: ZooKeeper,
    folder: Path,
    *,
    brokers: int = 3,
    settings_of: Mapping[int, Mapping[str, str]] | None = None,
    packets: PacketFilter | None = None,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[PenstockCluster]:
    """A cluster below a path of its own."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    made = PenstockCluster(
        zookeeper=f"{zookeeper.connect}/cluster-{next(CHROOTS)}",
        folder=folder,
        brokers=brokers,
        settings={**SETTINGS, **named},
        settings_of=settings_of,
        packets=packets,
        python=python,
        environment=environment,
    )
    with made as cluster:
        until(cluster, lambda found: len(found.brokers) == brokers)
        try:
            yield cluster
        except BaseException:
            print(cluster.tail())
            raise


def admin(cluster: PenstockCluster, without: int = 0) -> AdminClient:
    bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers if broker.node_id != without)
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def until(cluster: PenstockCluster, fact: Callable[[ClusterMetadata], bool], without: int = 0) -> ClusterMetadata:
    """The metadata that a client gets, once a fact holds; not from one broker, which may be cut off from the others."""
    deadline = Deadline(WAIT_S)
    found: ClusterMetadata | None = None
    client = admin(cluster, without)
    while not deadline.passed:
        with contextlib.suppress(KafkaException):
            found = client.list_topics(timeout=5)
            if fact(found):
                return found
        if without:
            # It goes on with any broker that it has heard of.
            client = admin(cluster, without)
        time.sleep(POLL_S)
    raise AssertionError(f"not so within {WAIT_S} s: {found and {n: t.partitions for n, t in found.topics.items()}}")


def create(cluster: PenstockCluster, topic: str = "orders", *, partitions: int = 1, **configs: str) -> None:
    named = {"min.insync.replicas": "2", **{name.replace("_", "."): value for name, value in configs.items()}}
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=named)
    client = admin(cluster)
    for result in client.create_topics([wanted]).values():
        result.result(WAIT_S)
    until(cluster, lambda found: in_sync(found, topic, 3))


def in_sync(found: ClusterMetadata, topic: str, members: int) -> bool:
    """Whether every partition has a leader and so many members in its ISR."""
    if topic not in found.topics:
        return False
    partitions = found.topics[topic].partitions.values()
    return bool(partitions) and all(each.leader > 0 and len(each.isrs) == members for each in partitions)


def balance(cluster: PenstockCluster, topic: str, partitions: int) -> dict[int, int]:
    """Let the first replica of each partition lead it, so that each broker leads; returns partitions by leader."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    client = admin(cluster)
    deadline = Deadline(WAIT_S)
    while True:
        client.elect_leaders(ElectionType.PREFERRED, places).result(WAIT_S)
        found = until(cluster, lambda found: in_sync(found, topic, 3)).topics[topic].partitions
        leaders = {each.leader: number for number, each in found.items()}
        if len(leaders) == len(cluster.brokers):
            return leaders
        assert not deadline.passed, f"brokers do not all lead: {leaders}"


def leader_of(cluster: PenstockCluster, topic: str = "orders", partition: int = 0) -> int:
    return (
        until(cluster, lambda found: topic in found.topics and found.topics[topic].partitions[partition].leader > 0)
        .topics[topic]
        .partitions[partition]
        .leader
    )


class SteadyProducer:
    """Sends numbered records with acks=all until it is stopped, and remembers which were acknowledged.

    It goes round the partitions of its topic.
    """

    def __init__(
        self, cluster: PenstockCluster, topic: str = "orders", partitions: int = 1, value_bytes: int = 0
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self._filling = b" " * value_bytes
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 4_000,
            }
        )
        self.acknowledged: list[tuple[float, bytes]] = []
        self.acknowledged_in = dict.fromkeys(range(partitions), 0)
        """How many records each partition has acknowledged."""
        self.errors: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_S):
            value = b"%d" % self.sent + self._filling
            place = self.sent % self.partitions
            self._producer.produce(self.topic, value, key=b"k", partition=place, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(120)

    def _delivered(self, error: object, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append((time.monotonic(), value))
            self.acknowledged_in[message.partition() or 0] += 1

    def wait_for_more(self, records: int = 50, *, partitions: Collection[int] | None = None) -> None:
        """Wait until so many further records are acknowledged, by each of the given partitions or of all."""
        places = range(self.partitions) if partitions is None else partitions
        wanted = {place: self.acknowledged_in[place] + -(-records // len(places)) for place in places}
        deadline = Deadline(WAIT_S)
        while any(self.acknowledged_in[place] < count for place, count in wanted.items()):
            assert not deadline.passed, f"{self.acknowledged_in} of {wanted} acknowledged: {self.errors[:3]}"
            time.sleep(POLL_S)

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def read(cluster: PenstockCluster, topic: str = "orders", partitions: int = 1) -> list[bytes]:
    """Every record of a topic, from its start to its end, in the order of offsets within each partition."""
    return [value for number in range(partitions) for value in read_partition(cluster, topic, number)]


def read_partition(cluster: PenstockCluster, topic: str, number: int) -> list[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    try:
        place = TopicPartition(topic, number, 0)
        end = end_of(reader, place)
        reader.assign([place])
        at = 0
        deadline = Deadline(WAIT_S)
        while at < end:
            assert not deadline.passed, f"{at} of {end} read"
            for message in reader.consume(1000, timeout=1.0):
                assert message.error() is None, message.error()
                at = (message.offset() or 0) + 1
                found.append(message.value() or b"")
    finally:
        reader.close()
    return found


def end_of(reader: Consumer, place: TopicPartition) -> int:
    """The high watermark, as soon as the leader knows it; leaders go back to preferred replicas meanwhile."""
    deadline = Deadline(WAIT_S)
    while True:
        try:
            return int(reader.get_watermark_offsets(place, timeout=WAIT_S)[1])
        except KafkaException as error:
            if deadline.passed or error.args[0].code() not in LEADER_MOVES:
                raise
            time.sleep(POLL_S)


def check(cluster: PenstockCluster, producer: SteadyProducer) -> None:
    """Nothing acknowledged is lost or doubled, the order is that of sending, and no delivery has failed."""
    assert producer.errors == []
    acknowledged = {value for _, value in producer.acknowledged}
    seen: set[bytes] = set()
    for number in range(producer.partitions):
        values = read_partition(cluster, producer.topic, number)
        assert len(values) == len(set(values)), "a record is there twice"
        assert values == sorted(values, key=int), "records are out of order"
        seen |= set(values)
    assert acknowledged <= seen, f"lost: {sorted(acknowledged - seen)[:5]}"
