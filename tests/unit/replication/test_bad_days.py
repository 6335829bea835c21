"""Bad days of simulated clusters that seeds hardly draw: rot, a full disk in a reassignment, a broker that is alone."""

from __future__ import annotations

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_isr import followers
from tests.unit.replication.test_replicated_writes import ORDERS, create, ends, isr_of, leader_of, write

from penstock.model.generated_errors import InvalidReplicationFactor
from penstock.testing.mem_disk import CAPACITY_BYTES
from penstock.wire.api import alter_partition_reassignments as reassignments
from penstock.wire.api import create_topics

SEGMENT_BYTES = 1 << 20
LARGE = bytes(SEGMENT_BYTES // 4)
SCRUBBED = {"log.segment.bytes": str(SEGMENT_BYTES), "log.scrub.interval.ms": "500"}
FIRST_SEGMENT = "/data/orders-0/00000000000000000000.log"


def test_a_leader_that_finds_rot_hands_over_and_copies_its_log_again() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        leader = leader_of(cluster, ORDERS)
        for _ in range(6):
            assert await write(cluster, ORDERS, value=LARGE) == 0
        files = cluster.brokers[leader].disk.files
        sound = files.read_file(FIRST_SEGMENT)

        files.flip(FIRST_SEGMENT, len(sound) // 2)

        await cluster.until(lambda: leader_of(cluster, ORDERS) not in (leader, -1))
        assert cluster.brokers[leader].log.counts["replica_damaged"] > 0
        assert await write(cluster, ORDERS) == 0
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert set(ends(cluster, ORDERS)) == {7}
        assert files.read_file(FIRST_SEGMENT)[: len(sound)] == sound

    SimCluster(settings=SCRUBBED).run(story)


def test_a_follower_that_finds_rot_leaves_the_isr_and_copies_its_log_again() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        leader, follower = leader_of(cluster, ORDERS), followers(cluster)[0]
        for _ in range(6):
            assert await write(cluster, ORDERS, value=LARGE) == 0
        files = cluster.brokers[follower].disk.files
        sound = files.read_file(FIRST_SEGMENT)

        files.flip(FIRST_SEGMENT, len(sound) // 2)

        await cluster.until(lambda: cluster.brokers[follower].log.counts["replica_damaged"] > 0)
        await cluster.until(lambda: files.read_file(FIRST_SEGMENT)[: len(sound)] == sound)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert leader_of(cluster, ORDERS) == leader
        assert set(ends(cluster, ORDERS)) == {6}

    SimCluster(settings=SCRUBBED).run(story)


def test_a_broker_that_is_up_alone_creates_topics_that_it_can_hold() -> None:
    async def attempt(cluster: SimCluster, name: str, replicas: int) -> int:
        wanted = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
        response = await cluster.ask(1, create_topics, 7, create_topics.Request(topics=[wanted]))
        return int(response.topics[0].error_code)

    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        for other in (2, 3):
            cluster.brokers[other].kill()
        await cluster.until(lambda: len(cluster.parts(1).ground.catalog.image.brokers) == 1)
        await cluster.until(lambda: cluster.has_controller())

        assert await attempt(cluster, "wide", 3) == InvalidReplicationFactor.code
        assert await attempt(cluster, "alone", 1) == 0

        for other in (2, 3):
            cluster.brokers[other].start()
            await cluster.brokers[other].ready()
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert await attempt(cluster, "wide", 3) == 0

    SimCluster().run(story)


def test_a_replica_that_comes_back_to_a_full_disk_completes_its_reassignment_once_there_is_room() -> None:
    async def reassign(cluster: SimCluster, replicas: list[int]) -> None:
        wanted = reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
        topics = [reassignments.ReassignableTopic(name="orders", partitions=[wanted])]
        response = await cluster.ask(cluster.controller, reassignments, 1, reassignments.Request(topics=topics))
        assert response.responses[0].partitions[0].error_code == 0

    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        assert await write(cluster, ORDERS) == 0
        moved = followers(cluster)[0]
        broker, others = cluster.brokers[moved], sorted({1, 2, 3} - {moved})
        # The marks of its log are on the disk when the log is deleted, and have to be lowered for the next one.
        await cluster.parts(moved).maintenance.checkpoint()
        await reassign(cluster, others)
        await cluster.until(lambda: broker.log.counts["replica_removed"] > 0)

        files = broker.disk.files
        files.capacity_bytes = files.used_bytes()
        await reassign(cluster, [*others, moved])
        await cluster.until(lambda: broker.log.counts["metadata_not_followed"] > 0)
        assert isr_of(cluster, ORDERS) == set(others)
        assert await write(cluster, ORDERS) == 0

        files.capacity_bytes = CAPACITY_BYTES
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert set(ends(cluster, ORDERS)) == {2}

    SimCluster().run(story)
