"""Metrics of ISRs, fetchers and the controller, with Kafka's names, on brokers that lose each other and the store."""

from __future__ import annotations

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_isr import SETTINGS, cut, followers, heal, suspend
from tests.unit.replication.test_replicated_writes import ORDERS, create, isr_of, leader_of, write

from penstock.broker.replication_readings import ReplicationReadings
from penstock.model.ids import BrokerId
from penstock.wire.api import create_topics

MANAGER = "kafka_server_replicamanager_"
FETCHERS = "kafka_server_replicafetchermanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
ELECTIONS = "kafka_controller_controllerstats_leaderelections_total"
SUSPENDED = "penstock_metadata_suspended"


def metrics(cluster: SimCluster, broker_id: int) -> dict[str, float]:
    """The values of a broker's metrics without labels."""
    parts = cluster.parts(broker_id)
    readings = ReplicationReadings(
        broker_id=BrokerId(broker_id),
        image=parts.ground.catalog.image,
        fetchers=parts.fetchers,
        isr=parts.isr,
        controller=parts.controller,
        per_partition=lambda: False,
    )
    return {sample.metric.name: float(sample.value) for sample in readings.samples()}


def total(cluster: SimCluster, name: str) -> float:
    return sum(metrics(cluster, each)[name] for each in cluster.brokers if cluster.brokers[each].running)


def test_replicas_out_of_sync_are_counted_where_they_are_led() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        leader, follower = leader_of(cluster, ORDERS), followers(cluster)[0]
        assert await write(cluster, ORDERS) == 0
        healthy = metrics(cluster, leader)
        assert (healthy[f"{MANAGER}underreplicatedpartitions"], healthy[f"{MANAGER}underminisrpartitioncount"]) == (
            0,
            0,
        )
        assert metrics(cluster, follower)[f"{FETCHERS}failedpartitionscount"] == 0
        assert total(cluster, f"{MANAGER}leadercount") == 1
        assert total(cluster, f"{MANAGER}partitioncount") == 3

        cut(cluster, leader, follower)
        assert await write(cluster, ORDERS) == 0
        assert follower not in isr_of(cluster, ORDERS)
        assert metrics(cluster, leader)[f"{MANAGER}underreplicatedpartitions"] == 1
        assert metrics(cluster, leader)[f"{MANAGER}isrshrinks_total"] == 1
        assert metrics(cluster, follower)[f"{MANAGER}underreplicatedpartitions"] == 0, "it does not lead"
        await cluster.until(lambda: metrics(cluster, follower)[f"{FETCHERS}failedpartitionscount"] == 1)

        heal(cluster, leader, follower)
        await cluster.until(lambda: metrics(cluster, leader)[f"{MANAGER}underreplicatedpartitions"] == 0)
        assert metrics(cluster, leader)[f"{MANAGER}isrexpands_total"] == 1
        await cluster.until(lambda: metrics(cluster, follower)[f"{FETCHERS}maxlag"] == 0)

    SimCluster(settings=SETTINGS).run(story)


def test_the_controller_counts_its_elections_and_the_partitions_without_a_leader() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        controller = cluster.controller
        victim = next(each for each in cluster.brokers if each != controller)
        only = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[victim])
        alone = create_topics.CreatableTopic(name="alone", num_partitions=-1, replication_factor=-1, assignments=[only])
        response = await cluster.ask(controller, create_topics, 7, create_topics.Request(topics=[alone]))
        assert [each.error_code for each in response.topics] == [0]
        assert total(cluster, f"{CONTROLLER}activecontrollercount") == 1
        assert metrics(cluster, controller)[f"{CONTROLLER}offlinepartitionscount"] == 0
        before = metrics(cluster, controller)[ELECTIONS]

        cluster.brokers[victim].kill()
        await cluster.until(lambda: metrics(cluster, controller)[f"{CONTROLLER}offlinepartitionscount"] == 1)
        assert total(cluster, f"{CONTROLLER}offlinepartitionscount") == 1, "the controller alone counts them"

        cluster.brokers[victim].start()
        await cluster.until(lambda: metrics(cluster, controller)[f"{CONTROLLER}offlinepartitionscount"] == 0)
        assert metrics(cluster, controller)[ELECTIONS] > before
        assert metrics(cluster, controller)["kafka_controller_controllerstats_uncleanleaderelections_total"] == 0

    SimCluster(settings=SETTINGS).run(story)


def test_a_broker_that_cannot_reach_the_store_says_so() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        assert total(cluster, SUSPENDED) == 0

        suspend(cluster, 1, 3.0)
        await cluster.until(lambda: metrics(cluster, 1)[SUSPENDED] == 1)
        assert metrics(cluster, 2)[SUSPENDED] == 0
        await cluster.until(lambda: total(cluster, SUSPENDED) == 0)

    SimCluster(settings=SETTINGS).run(story)
