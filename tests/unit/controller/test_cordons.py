"""Cordoned brokers get no new replica, and the balance by itself goes in steps."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.controller.cluster_image import ClusterImage, partition
from tests.unit.controller.test_isr_changes import change, outcome

from penstock.config.broker import BrokerConfig
from penstock.controller.auto_balance import COPIES_MAX, plan_balance_step
from penstock.controller.brokers import brokers_of
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, plan_config_changes
from penstock.controller.leaders import plan_unregistration
from penstock.controller.plan import Plan
from penstock.controller.reassignments import Reassignment, plan_reassignments
from penstock.controller.topics import Growth, NewTopic, plan_creations, plan_growths
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import PartitionState, TopicState

CORDONED = "cordoned.log.dirs"


def cluster_of(brokers: int, *replicas: tuple[int, ...]) -> ClusterImage:
    cluster = ClusterImage()
    cluster.start(*range(1, brokers + 1))
    cluster.topic(*(partition(*each, index=index) for index, each in enumerate(replicas)))
    cluster.settle()
    return cluster


def cordon(cluster: ClusterImage, broker: int, value: str | None = "*") -> object:
    """Cordon a broker as an admin client does, or undo it with None."""
    setting = SettingStep(name=CORDONED, step=Step.DELETE if value is None else Step.SET, value=value)
    wanted = ConfigChange(resource_type=ResourceType.BROKER, name=str(broker), steps=(setting,))
    [found] = cluster.carry_out(plan_config_changes(cluster.image, [wanted], config=BrokerConfig()))
    return found


def create(cluster: ClusterImage, **facts: object) -> TopicState | BrokerError:
    topic = NewTopic(name="new", **facts)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    plan: Plan[TopicState] = plan_creations(
        cluster.image, [topic], config=BrokerConfig(), make_id=lambda: b"n" * 16, first=0
    )
    [found] = plan.outcomes
    return found


def reassign(cluster: ClusterImage, replicas: tuple[int, ...]) -> PartitionState | BrokerError:
    wanted = Reassignment(tp=TopicPartition("t", 0), replicas=tuple(map(BrokerId, replicas)))
    plan = plan_reassignments(cluster.image, [wanted], brokers=brokers_of(cluster.image))
    [found] = cluster.carry_out(plan)
    assert isinstance(found, PartitionState | BrokerError)
    return found


def test_a_new_topic_is_on_other_brokers_than_a_cordoned_one() -> None:
    cluster = cluster_of(3, (1, 2))
    cordon(cluster, 2)
    made = create(cluster, partitions=6, replication_factor=2)
    assert isinstance(made, TopicState)
    assert {each for state in made.partitions for each in state.replicas} == {1, 3}
    refused = create(cluster, partitions=1, replication_factor=3)
    assert isinstance(refused, InvalidReplicationFactor)
    assert "only 2 broker(s)" in str(refused)
    cordon(cluster, 2, None)
    assert isinstance(create(cluster, partitions=1, replication_factor=3), TopicState)


def test_an_assignment_to_a_cordoned_broker_is_refused() -> None:
    cluster = cluster_of(3, (1, 2))
    cordon(cluster, 3)
    refused = create(cluster, assignments=((0, (BrokerId(1), BrokerId(3))),))
    assert isinstance(refused, InvalidReplicaAssignment)
    grown = plan_growths(
        cluster.image, [Growth(name="t", count=2, assignments=((BrokerId(3), BrokerId(1)),))], first=0
    ).outcomes
    assert isinstance(grown[0], InvalidReplicaAssignment)
    assert "cordoned" in str(grown[0])


def test_new_partitions_are_on_other_brokers_than_a_cordoned_one() -> None:
    cluster = cluster_of(3, (1, 2))
    cordon(cluster, 1)
    [grown] = plan_growths(cluster.image, [Growth(name="t", count=8)], first=0).outcomes
    assert isinstance(grown, TopicState)
    assert {each for state in grown.partitions[1:] for each in state.replicas} == {2, 3}


def test_a_reassignment_may_keep_a_replica_on_a_cordoned_broker_and_not_add_one() -> None:
    cluster = cluster_of(4, (1, 2))
    cordon(cluster, 1)
    cordon(cluster, 4)
    assert isinstance(reassign(cluster, (2, 4)), InvalidReplicaAssignment)
    kept = reassign(cluster, (2, 1))
    assert isinstance(kept, PartitionState)
    assert kept.replicas == (2, 1)


def test_a_broker_that_is_away_can_be_cordoned() -> None:
    cluster = cluster_of(3, (1, 2))
    cluster.gone(3)
    cluster.settle()
    cordon(cluster, 3)
    cluster.start(3)
    made = create(cluster, partitions=4, replication_factor=1)
    assert isinstance(made, TopicState)
    assert {each for state in made.partitions for each in state.replicas} == {1, 2}


def test_only_the_whole_broker_can_be_cordoned_and_only_while_it_runs() -> None:
    cluster = cluster_of(2, (1, 2))
    assert isinstance(cordon(cluster, 1, "/some/directory"), InvalidRequest)
    setting = SettingStep(name=CORDONED, step=Step.SET, value="*")
    for_all = ConfigChange(resource_type=ResourceType.BROKER, name="", steps=(setting,))
    [found] = plan_config_changes(cluster.image, [for_all], config=BrokerConfig()).outcomes
    assert isinstance(found, InvalidRequest)
    with pytest.raises(InvalidConfig, match="penstock cluster drain"):
        BrokerConfig.from_settings({CORDONED: "*"})


def test_a_broker_that_is_forgotten_loses_its_settings() -> None:
    cluster = cluster_of(3, (1, 2))
    cordon(cluster, 3)
    cluster.gone(3)
    cluster.settle()
    cluster.carry_out(plan_unregistration(cluster.image, BrokerId(3)))
    assert "3" not in cluster.image.broker_configs
    assert 3 not in cluster.image.admissions


# Balance by itself


def step(cluster: ClusterImage) -> int:
    """Carry out one step to its end; how many partitions it changed."""
    wanted = plan_balance_step(cluster.image)
    plan = plan_reassignments(cluster.image, wanted, brokers=brokers_of(cluster.image))
    copies = 0
    for begun in cluster.carry_out(plan):
        assert isinstance(begun, PartitionState)
        copies += len(begun.adding_replicas)
    assert copies <= COPIES_MAX
    for one in wanted:
        state = cluster.state(one.tp.partition)
        if state.is_reassigning:
            join_all(cluster, state)
    return len(wanted)


def join_all(cluster: ClusterImage, state: PartitionState) -> None:
    proposal = change(
        cluster,
        *state.replicas,
        partition=state.index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
    found = outcome(cluster, proposal, broker=state.leader)
    assert isinstance(found, PartitionState), found


def test_a_new_broker_gets_its_share_in_steps_that_end() -> None:
    cluster = cluster_of(3, *([(1, 2), (2, 3), (3, 1)] * 20))
    assert plan_balance_step(cluster.image) == ()
    cluster.start(4)
    steps = 0
    while step(cluster):
        steps += 1
        assert steps < 20
    replicas = Counter(each for state in cluster.image.topics["t"].partitions for each in state.replicas)
    assert set(replicas.values()) == {30}
    assert steps >= 30 / COPIES_MAX


def test_no_step_begins_while_a_replica_is_not_in_sync() -> None:
    cluster = cluster_of(3, (1, 2), (1, 2), (1, 2), (1, 2))
    assert plan_balance_step(cluster.image)
    cluster.gone(2)
    cluster.settle()
    assert plan_balance_step(cluster.image) == ()


def test_a_cordoned_broker_is_no_target_of_the_balance() -> None:
    cluster = cluster_of(3, (1, 2), (1, 2), (1, 2), (1, 2))
    cordon(cluster, 3)
    assert all(3 not in (one.replicas or ()) for one in plan_balance_step(cluster.image))
