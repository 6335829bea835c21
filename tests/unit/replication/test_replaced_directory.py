"""A broker with two log directories, one of which is replaced: the replicas in the other stay in sync."""

from __future__ import annotations

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import create, ends, isr_of, leader_of, write

from penstock.metadata.image import ImageDelta
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import PartitionState

PARTITIONS = [TopicPartition("orders", index) for index in range(6)]


def test_a_replaced_directory_takes_only_its_own_replicas_out_of_their_isrs() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=len(PARTITIONS))
        for tp in PARTITIONS:
            assert await write(cluster, tp) == 0
        await cluster.until(lambda: all(ends(cluster, tp) == [1, 1, 1] for tp in PARTITIONS))
        victim = next(each for each in cluster.brokers if each != cluster.controller)
        logs = cluster.parts(victim).ground.logs
        places = {tp: log.directory.path for tp in PARTITIONS if (log := logs.get(tp)) is not None}
        assert set(places.values()) == {"/data", "/more"}
        states: dict[TopicPartition, list[PartitionState]] = {tp: [] for tp in PARTITIONS}

        def note(delta: ImageDelta) -> None:
            for change in delta.topics:
                for state in () if change.after is None else change.after.partitions:
                    states[TopicPartition("orders", state.index)].append(state)

        catalog = cluster.parts(cluster.controller).ground.catalog
        catalog.listen(note)
        before = catalog.image.admissions[victim].epoch
        broker = cluster.brokers[victim]
        broker.kill()
        broker.disk.files.remove_tree("/more")
        broker.disk.files.make_directory("/more")
        # Before its session ends, so that its death takes it out of no ISR.
        broker.start()
        await broker.ready()
        await cluster.until(lambda: catalog.image.admissions[victim].epoch > before)
        await cluster.until(lambda: all(isr_of(cluster, tp) == {1, 2, 3} for tp in PARTITIONS))

        for tp, path in places.items():
            left = [state for state in states[tp] if victim not in state.isr]
            if path == "/data":
                assert not left, f"{tp} left the ISR: {left[0]}"
            else:
                assert left, f"{tp} stayed in the ISR with an empty disk"
                assert all(state.replaced_replicas == (BrokerId(victim),) for state in left)
            assert leader_of(cluster, tp) > 0
        await cluster.until(lambda: all(ends(cluster, tp) == [1, 1, 1] for tp in PARTITIONS))

    SimCluster(settings={"log.dirs": "/data,/more", "broker.session.timeout.ms": "30000"}).run(story)
