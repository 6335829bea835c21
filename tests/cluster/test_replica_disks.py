"""Disks of one broker of a cluster that fill up, fail or rot: other brokers, and its other disks, go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from cluster.replicated import (
    WAIT_S,
    SteadyProducer,
    admin,
    balance,
    check,
    cluster_on,
    create,
    in_sync,
    leader_of,
    until,
)
from cluster.small_disks import SmallDisk, can_mount, vanish
from penstock.testing.cluster import PenstockCluster
from penstock.testing.zookeeper import ZooKeeper
from protocol.topics import fresh_name, wait_until

pytestmark = pytest.mark.xdist_group("replica-disks")

PARTITIONS = 6
SEGMENT_BYTES = 1 << 20
LARGE = 20_000
VICTIM = 3
SETTINGS = {"log.scrub.interval.ms": "500", "log.flush.offset.checkpoint.interval.ms": "500"}


class Disks:
    """A cluster of which one broker has two disks, and the topic of one test."""

    def __init__(self, cluster: PenstockCluster, first: SmallDisk, second: SmallDisk) -> None:
        self.cluster = cluster
        self.first = first
        self.second = second

    def create(self, topic: str) -> None:
        """Create a topic of which each broker leads some partitions."""
        create(self.cluster, topic, partitions=PARTITIONS)
        balance(self.cluster, topic, PARTITIONS)

    def partitions(self, topic: str) -> tuple[set[int], set[int]]:
        """Those on the first and the second disk."""
        first, second = self._on(self.first, topic), self._on(self.second, topic)
        assert len(first) == len(second) == PARTITIONS // 2, f"partitions are not spread: {first}, {second}"
        return first, second

    def _on(self, disk: SmallDisk, topic: str) -> set[int]:
        return {int(log.name.rpartition("-")[2]) for log in (disk.folder / "data").glob(f"{topic}-[0-9]*")}

    def folders(self, broker: int) -> list[Path]:
        """The log directories of a broker."""
        if broker == VICTIM:
            return [disk.folder / "data" for disk in (self.first, self.second)]
        return [self.cluster.broker(broker).data]

    def segments(self, broker: int, topic: str) -> list[Path]:
        """Those of the first partition, the oldest first."""
        return sorted(log for folder in self.folders(broker) for log in (folder / f"{topic}-0").glob("*.log"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    folder = tmp_path_factory.mktemp("disks")
    if not can_mount(folder):
        pytest.skip("mounting a small disk needs root and the right to mount")
    with ExitStack() as stack:
        disks = [SmallDisk(folder / name, 64) for name in ("first", "second")]
        for disk in disks:
            stack.callback(disk.remove)
        where = ",".join(str(disk.folder / "data") for disk in disks)
        zookeeper = stack.enter_context(ZooKeeper())
        cluster = stack.enter_context(
            cluster_on(
                zookeeper,
                folder,
                settings_of={VICTIM: {"log.dirs": where}},
                **{name.replace(".", "_"): value for name, value in SETTINGS.items()},
            )
        )
        yield Disks(cluster, disks[0], disks[1])


@pytest.fixture
def disks(running: Disks) -> Disks:
    """The cluster with all its brokers, however the test before left it."""
    running.cluster.start()
    until(running.cluster, lambda found: len(found.brokers) == 3)
    return running


def in_isr(found: ClusterMetadata, topic: str, broker: int) -> set[int]:
    """The partitions that a broker is in sync with."""
    return {number for number, each in found.topics[topic].partitions.items() if broker in each.isrs}


def test_a_broker_with_a_full_disk_leaves_the_isrs_of_that_disk_and_returns(disks: Disks) -> None:
    cluster, topic = disks.cluster, fresh_name("full")
    disks.create(topic)
    with SteadyProducer(cluster, topic, PARTITIONS) as producer:
        roomy, _ = disks.partitions(topic)
        disks.second.fill()
        until(cluster, lambda found: in_isr(found, topic, VICTIM) == roomy)
        producer.wait_for_more()
        assert cluster.broker(VICTIM).alive
        disks.second.free()
        until(cluster, lambda found: in_sync(found, topic, 3))
        producer.wait_for_more()
    check(cluster, producer)


def test_a_log_directory_that_fails_while_its_broker_lives_hands_over_and_is_replaced(disks: Disks) -> None:
    cluster, topic = disks.cluster, fresh_name("failed")
    disks.create(topic)
    with SteadyProducer(cluster, topic, PARTITIONS) as producer:
        kept, lost = disks.partitions(topic)
        vanish(disks.second.folder / "data")
        until(
            cluster,
            lambda found: (
                in_isr(found, topic, VICTIM) == kept
                and all(found.topics[topic].partitions[number].leader not in (-1, VICTIM) for number in lost)
            ),
        )
        producer.wait_for_more()
        assert cluster.broker(VICTIM).alive
        # An empty disk in its place.
        cluster.broker(VICTIM).restart()
        until(cluster, lambda found: in_sync(found, topic, 3))
        producer.wait_for_more()
    check(cluster, producer)


def test_a_leader_that_finds_rot_hands_over_and_copies_its_log_again(disks: Disks) -> None:
    cluster, topic = disks.cluster, fresh_name("rot")
    create(cluster, topic, segment_bytes=str(SEGMENT_BYTES))
    with SteadyProducer(cluster, topic, value_bytes=LARGE) as producer:
        leader = leader_of(cluster, topic)
        wait_until(lambda: len(disks.segments(leader, topic)) > 1, what="a finished segment")
        damaged = disks.segments(leader, topic)[0]
        with damaged.open("r+b") as segment:
            segment.seek(SEGMENT_BYTES // 2)
            segment.write(b"rot")
        until(cluster, lambda found: found.topics[topic].partitions[0].leader not in (-1, leader))
        producer.wait_for_more()
        until(cluster, lambda found: in_sync(found, topic, 3))
    assert "replica_damaged" in cluster.broker(leader).log.read_text()
    # It is its first replica: what it has copied is what clients read now.
    client = admin(cluster)
    client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(WAIT_S)
    until(cluster, lambda found: found.topics[topic].partitions[0].leader == leader)
    check(cluster, producer)
