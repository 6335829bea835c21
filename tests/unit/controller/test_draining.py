"""Plans of fewer active partitions, and of the return to all of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.cluster_image import TOPIC, TOPIC_ID, ClusterImage, partition

from penstock.config.broker import BrokerConfig
from penstock.controller.auto_balance import plan_balance_step
from penstock.controller.brokers import brokers_of
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, plan_config_changes
from penstock.controller.isr import IsrChange, plan_isr_changes
from penstock.controller.leaders import elect_preferred, not_preferred, plan_elections
from penstock.controller.reassignments import Reassignment, plan_reassignments
from penstock.controller.topics import Growth, NewTopic, plan_creations, plan_growths
from penstock.metadata.operations import Create, Set
from penstock.metadata.records import (
    FEATURES,
    FORMAT_COMPACT,
    FORMAT_DRAINING,
    FORMAT_GHOSTS,
    Features,
    pack_features,
    pack_partitions,
    unpack,
    unpack_partitions,
)
from penstock.model.cluster_versions import COMPACT_PARTITIONS, DRAINED_PARTITIONS, GHOST_PARTITIONS
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ElectionNotNeeded,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from penstock.model.ids import NO_LEADER_EPOCH, BrokerId, Offset, TopicPartition
from penstock.model.topic import NO_LEADER, NO_PARTITION, TopicState

CONFIG = BrokerConfig(broker_id=1)
ACTIVE = "partitions.active"


def cluster(partitions: int = 4, *, level: int = DRAINED_PARTITIONS, **configs: str) -> ClusterImage:
    made = ClusterImage()
    made.write([Create(FEATURES, pack_features(Features(level=level)))])
    made.start(1, 2, 3)
    made.topic(*(partition(1, 2, 3, index=index) for index in range(partitions)), **configs)
    made.settle()
    return made


def set_active(on: ClusterImage, count: int | None, **others: str) -> Any:
    """Change the setting, and others with it; the outcome."""
    step = Step.DELETE if count is None else Step.SET
    steps = [SettingStep(name=ACTIVE, step=step, value=None if count is None else str(count))]
    steps += [SettingStep(name=name.replace("_", "."), step=Step.SET, value=value) for name, value in others.items()]
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=tuple(steps))
    [outcome] = on.carry_out(plan_config_changes(on.image, [change], config=CONFIG))
    return outcome


def refused(outcome: Any, error: type[BrokerError] = InvalidConfig) -> str:
    assert isinstance(outcome, error), outcome
    return str(outcome)


def resume(on: ClusterImage, index: int) -> None:
    """The leader of a partition reports that it has resumed."""
    state = on.state(index)
    broker = on.image.brokers[state.leader]
    change = IsrChange(
        topic_id=TOPIC_ID,
        partition=index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=tuple((each, on.image.brokers[each].epoch) for each in state.isr),
        resumed=True,
    )
    [outcome] = on.carry_out(plan_isr_changes(on.image, BrokerId(state.leader), broker.epoch, [change]))
    assert not isinstance(outcome, BrokerError), outcome


def test_partitions_beyond_the_active_ones_are_drained_in_a_new_leader_epoch() -> None:
    on = cluster()
    before = [on.state(index) for index in range(4)]

    set_active(on, 2)

    after = [on.state(index) for index in range(4)]
    assert [state.drained_into for state in after] == [NO_PARTITION, NO_PARTITION, 0, 1]
    assert after[:2] == before[:2]
    for was, state in zip(before[2:], after[2:], strict=True):
        assert state.leader_epoch == was.leader_epoch + 1
        assert state.partition_epoch == was.partition_epoch + 1
        assert (state.leader, state.isr) == (was.leader, was.isr)
    assert on.image.topics[TOPIC].configs[ACTIVE] == "2"


def test_the_undo_begins_another_leader_epoch_and_ends_with_the_leaders_report() -> None:
    on = cluster()
    set_active(on, 2)
    drained = on.state(3)

    set_active(on, None)

    state = on.state(3)
    assert (state.drained_into, state.resumes_from) == (NO_PARTITION, 1)
    assert state.leader_epoch == drained.leader_epoch + 1
    resume(on, 3)
    assert on.state(3).resumes_from == NO_PARTITION
    assert on.state(3).leader_epoch == state.leader_epoch
    assert on.state(3).partition_epoch == state.partition_epoch + 1


def test_an_election_keeps_a_partition_drained() -> None:
    on = cluster()
    set_active(on, 2)
    before = on.state(2)

    on.gone(before.leader)
    on.settle()

    assert on.state(2).leader != before.leader
    assert on.state(2).drained_into == 0


def test_an_isr_change_does_not_end_an_undo() -> None:
    on = cluster()
    set_active(on, 2)
    set_active(on, None)

    on.gone(3)
    on.settle()

    assert 3 not in on.state(2).isr
    assert on.state(2).resumes_from == 0


def test_another_number_is_refused_until_every_partition_has_resumed() -> None:
    on = cluster()
    set_active(on, 2)

    assert "remove it" in refused(set_active(on, 3))
    set_active(on, None)
    assert "yet to resume" in refused(set_active(on, 3))
    resume(on, 2)
    assert "yet to resume" in refused(set_active(on, 3))
    resume(on, 3)
    set_active(on, 3)
    assert [on.state(index).drained_into for index in range(4)] == [-1, -1, -1, 0]


def test_compacted_topics_cannot_be_drained_nor_drained_ones_compacted() -> None:
    on = cluster(cleanup_policy="compact")
    assert "cleanup.policy=delete" in refused(set_active(on, 2))

    on = cluster()
    assert "cleanup.policy=delete" in refused(set_active(on, 2, cleanup_policy="compact,delete"))
    set_active(on, 2)
    compacted = SettingStep(name="cleanup.policy", step=Step.SET, value="compact")
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=(compacted,))
    refused(plan_config_changes(on.image, [change], config=CONFIG).outcomes[0])


@pytest.mark.parametrize("count", [4, 5])
def test_there_is_no_shrink_to_as_many_partitions_or_more(count: int) -> None:
    assert "has 4 partition(s)" in refused(set_active(cluster(), count))


@pytest.mark.parametrize("value", ["0", "-2", "x"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    step = SettingStep(name=ACTIVE, step=Step.SET, value=value)
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=(step,))
    refused(plan_config_changes(cluster().image, [change], config=CONFIG).outcomes[0])


def test_a_drained_topic_does_not_grow_before_it_has_resumed() -> None:
    on = cluster()
    set_active(on, 2)

    def grown() -> Any:
        wanted = Growth(name=TOPIC, count=5, assignments=None)
        return plan_growths(on.image, [wanted], first=0).outcomes[0]

    assert ACTIVE in refused(grown(), InvalidPartitions)
    set_active(on, None)
    refused(grown(), InvalidPartitions)
    resume(on, 2)
    resume(on, 3)
    assert len(grown().partitions) == 5


def test_a_topic_is_not_created_with_fewer_active_partitions() -> None:
    wanted = NewTopic(name="new", partitions=4, replication_factor=1, assignments=(), configs=((ACTIVE, "2"),))
    plan = plan_creations(cluster().image, [wanted], config=CONFIG, make_id=lambda: b"n" * 16, first=0)

    assert "create the topic with fewer" in refused(plan.outcomes[0])


def test_a_topic_is_created_with_the_default_of_active_partitions() -> None:
    configs = ((ACTIVE, "-1"), ("partitions.finalized", "false"))
    wanted = NewTopic(name="new", partitions=4, replication_factor=1, assignments=(), configs=configs)
    plan = plan_creations(cluster().image, [wanted], config=CONFIG, make_id=lambda: b"n" * 16, first=0)

    [made] = plan.outcomes
    assert isinstance(made, TopicState)
    assert not made.is_finalized


def test_partitions_are_not_drained_while_a_broker_of_the_cluster_may_not_know_of_it() -> None:
    on = cluster(level=COMPACT_PARTITIONS)

    assert "penstock cluster upgrade" in refused(set_active(on, 2))
    assert all(state.drained_into == NO_PARTITION for state in on.image.topics[TOPIC].partitions)


def test_the_minimum_isr_changes_together_with_the_active_partitions() -> None:
    on = cluster()

    set_active(on, 2, min_insync_replicas="2")

    assert [on.state(index).in_sync_min for index in range(4)] == [2, 2, 2, 2]
    assert on.state(2).drained_into == 0


def empty(on: ClusterImage, index: int, end: int) -> Any:
    """The leader of a drained partition reports that its log is empty; the outcome."""
    state = on.state(index)
    broker = on.image.brokers[state.leader]
    change = IsrChange(
        topic_id=TOPIC_ID,
        partition=index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=tuple((each, on.image.brokers[each].epoch) for each in state.isr),
        emptied=Offset(end),
    )
    [outcome] = on.carry_out(plan_isr_changes(on.image, BrokerId(state.leader), broker.epoch, [change]))
    return outcome


def test_a_drained_partition_that_is_empty_loses_its_replicas_and_is_shown_with_those_of_its_target() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    set_active(on, 2)
    drained = on.state(3)
    assert drained.drained_since == drained.leader_epoch

    empty(on, 3, 70)

    state = on.state(3)
    assert state.is_ghost
    assert (state.leader, state.isr, state.drained_into, state.log_base) == (NO_LEADER, (), 1, 70)
    assert state.leader_epoch == drained.leader_epoch + 1
    topic, target = on.image.topics[TOPIC], on.state(1)
    shown = topic.shown(3)
    assert (shown.index, shown.leader, shown.replicas, shown.isr) == (3, target.leader, target.replicas, target.isr)
    assert shown.leader_epoch == state.leader_epoch + target.leader_epoch
    assert topic.shown_partitions[:3] == topic.partitions[:3]
    assert unpack_partitions(pack_partitions(topic.partitions, on.image.level), 0) == topic.partitions
    assert format_of(on) == FORMAT_GHOSTS


def test_only_a_drained_partition_of_a_cluster_that_knows_of_ghosts_becomes_one() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    refused(empty(on, 3, 70), InvalidRequest)
    set_active(on, 2)
    on.write([Set(FEATURES, pack_features(Features(level=DRAINED_PARTITIONS)), on.image.features.version)])

    refused(empty(on, 3, 70), InvalidRequest)

    on = cluster(level=DRAINED_PARTITIONS)
    set_active(on, 2)
    assert on.state(3).drained_since == NO_LEADER_EPOCH
    assert format_of(on) == FORMAT_DRAINING


def test_deaths_and_settings_leave_a_ghost_as_it_is_and_operators_are_told_why() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    set_active(on, 2)
    empty(on, 3, 70)
    before = on.state(3)
    assert all(each.tp.partition != 3 for each in plan_balance_step(on.image))

    on.gone(1)
    on.settle()
    step = SettingStep(name="min.insync.replicas", step=Step.SET, value="2")
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=(step,))
    on.carry_out(plan_config_changes(on.image, [change], config=CONFIG))

    assert on.state(2).in_sync_min == 2
    assert on.state(3) == before
    moved = Reassignment(tp=TopicPartition(TOPIC, 3), replicas=(BrokerId(2), BrokerId(3)))
    [outcome] = plan_reassignments(on.image, [moved], brokers=brokers_of(on.image)).outcomes
    assert "has no replicas" in refused(outcome, InvalidReplicaAssignment)
    brokers = brokers_of(on.image)
    [outcome] = plan_elections(on.image, [TopicPartition(TOPIC, 3)], elect_preferred(brokers)).outcomes
    refused(outcome, ElectionNotNeeded)
    assert all(tp.partition != 3 for tp in not_preferred(on.image, brokers))


def test_a_ghost_that_resumes_gets_replicas_in_an_epoch_that_nobody_has_seen_and_begins_at_its_end() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    set_active(on, 2)
    empty(on, 3, 70)
    for _ in range(3):
        # The target has other leaders meanwhile.
        gone = on.state(1).leader
        on.gone(gone)
        on.settle()
        on.start(gone)
        on.settle()
    shown = on.image.topics[TOPIC].shown(3)

    set_active(on, None)

    state = on.state(3)
    assert len(state.replicas) == 3
    assert state.leader in state.isr
    assert (state.drained_into, state.resumes_from, state.log_base) == (NO_PARTITION, 1, 70)
    assert state.leader_epoch > shown.leader_epoch
    resume(on, 3)
    resume(on, 2)
    assert on.state(3).log_base == 70
    set_active(on, 2)
    empty(on, 3, 90)
    assert on.image.topics[TOPIC].shown(3).leader_epoch > state.leader_epoch


def test_a_ghost_does_not_resume_with_fewer_replicas_than_its_topic_has() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    set_active(on, 2)
    empty(on, 3, 70)
    on.gone(3)
    on.settle()

    assert "only 2 broker" in refused(set_active(on, None), InvalidReplicationFactor)
    assert on.state(3).is_ghost
    assert on.image.topics[TOPIC].configs[ACTIVE] == "2"


FINALIZED = "partitions.finalized"


def set_finalized(on: ClusterImage) -> Any:
    step = SettingStep(name=FINALIZED, step=Step.SET, value="true")
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=(step,))
    [outcome] = on.carry_out(plan_config_changes(on.image, [change], config=CONFIG))
    return outcome


def finalized() -> ClusterImage:
    on = cluster(level=GHOST_PARTITIONS)
    set_active(on, 2)
    empty(on, 2, 60)
    empty(on, 3, 70)
    set_finalized(on)
    return on


def test_clients_of_a_finalized_topic_see_its_active_partitions() -> None:
    on = finalized()

    topic = on.image.topics[TOPIC]
    assert topic.shown_count == 2
    assert topic.shown_partitions == topic.partitions[:2]
    # What is sent to the others by clients that know them still has a place.
    assert topic.shown(3).leader == on.state(1).leader
    assert len(topic.partitions) == 4


def test_only_a_topic_whose_drained_partitions_are_empty_is_finalized() -> None:
    on = cluster(level=GHOST_PARTITIONS)
    assert ACTIVE in refused(set_finalized(on))
    set_active(on, 2)
    empty(on, 3, 70)
    assert "[2]" in refused(set_finalized(on))
    assert "cluster upgrade" in refused(set_finalized(cluster(level=DRAINED_PARTITIONS)))
    wanted = NewTopic(name="new", partitions=4, replication_factor=1, configs=((FINALIZED, "true"),))
    plan = plan_creations(on.image, [wanted], config=CONFIG, make_id=lambda: b"n" * 16, first=0)
    refused(plan.outcomes[0])


def test_a_finalized_topic_is_undone_as_a_whole() -> None:
    on = finalized()
    assert FINALIZED in refused(set_active(on, None))

    steps = tuple(SettingStep(name=name, step=Step.DELETE, value=None) for name in (ACTIVE, FINALIZED))
    change = ConfigChange(resource_type=ResourceType.TOPIC, name=TOPIC, steps=steps)
    on.carry_out(plan_config_changes(on.image, [change], config=CONFIG))

    topic = on.image.topics[TOPIC]
    assert topic.shown_partitions == topic.partitions
    assert [state.resumes_from for state in topic.partitions] == [-1, -1, 0, 1]


@pytest.mark.parametrize("count", [4, 6])
def test_a_finalized_topic_that_grows_goes_on_at_the_offsets_where_its_partitions_ended(count: int) -> None:
    on = finalized()
    seen = [on.image.topics[TOPIC].shown(index).leader_epoch for index in (2, 3)]

    def grown(to: int) -> Any:
        return plan_growths(on.image, [Growth(name=TOPIC, count=to)], first=0)

    assert "would not be an increase" in refused(grown(1).outcomes[0], InvalidPartitions)
    assert "ask for 4" in refused(grown(3).outcomes[0], InvalidPartitions)
    plan = grown(count)
    assert len(plan.steps) == 1, "in one transaction, or records could be in partitions that clients do not see"
    on.carry_out(plan)

    topic = on.image.topics[TOPIC]
    assert topic.shown_count == len(topic.partitions) == count
    assert ACTIVE not in topic.configs
    assert [(state.log_base, state.resumes_from) for state in topic.partitions[2:4]] == [(60, 0), (70, 1)]
    assert all(state.leader_epoch > was for state, was in zip(topic.partitions[2:4], seen, strict=True))
    assert all(len(state.replicas) == 3 for state in topic.partitions)
    assert all(state.log_base == 0 for state in topic.partitions[4:])


def format_of(on: ClusterImage) -> int:
    found: int = unpack(pack_partitions(on.image.topics[TOPIC].partitions, on.image.level))["v"]
    return found


def test_partitions_that_are_drained_are_stored_in_a_format_that_earlier_versions_refuse() -> None:
    on = cluster()
    assert format_of(on) == FORMAT_COMPACT
    set_active(on, 2)
    states = on.image.topics[TOPIC].partitions
    data = pack_partitions(states, on.image.level)

    assert format_of(on) == FORMAT_DRAINING
    assert unpack_partitions(data, 0) == states
    set_active(on, None)
    assert format_of(on) == FORMAT_DRAINING
