"""What the controller plans when brokers come, go and return."""

from __future__ import annotations

import time

import pytest
from tests.unit.controller.cluster_image import TOPIC_ID, ClusterImage, partition, replicated

from penstock.config.broker import BrokerConfig
from penstock.controller.brokers import brokers_of, plan_settlement, plan_stop
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, plan_config_changes
from penstock.metadata.operations import Create, Set
from penstock.metadata.records import ADMISSIONS, BrokerState, pack_broker, runs, unpack_broker
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import NO_LEADER


def test_a_registered_broker_is_admitted_and_then_live() -> None:
    cluster = ClusterImage()
    epoch = cluster.register(1)
    assert not cluster.image.is_live(1)
    cluster.settle()
    assert cluster.image.is_live(1)
    assert cluster.image.admissions[1].epoch == epoch
    assert cluster.image.admissions[1].directories == ("d1",)


def test_nothing_is_planned_for_a_cluster_that_is_settled() -> None:
    assert plan_settlement(replicated().image).steps == ()


def test_a_dead_leader_leaves_the_isr_and_the_next_replica_leads_in_a_new_epoch() -> None:
    cluster = replicated()
    cluster.gone(1)
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.leader_epoch, state.isr) == (2, 6, (2, 3))
    assert state.partition_epoch == 1
    assert state.eligible_leader_replicas == ()


def test_a_dead_follower_leaves_the_isr_and_the_leader_epoch_stays() -> None:
    cluster = replicated()
    cluster.gone(3)
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.leader_epoch, state.isr) == (1, 5, (1, 2))


def test_replicas_that_leave_an_isr_below_its_minimum_stay_eligible() -> None:
    cluster = replicated(in_sync_min=2)
    cluster.gone(3)
    cluster.settle()
    assert cluster.state().eligible_leader_replicas == ()
    cluster.gone(2)
    cluster.settle()
    # Broker 3 left an ISR of three, which went on without it; broker 2 left one that commits nothing any more.
    assert (cluster.state().isr, cluster.state().eligible_leader_replicas) == ((1,), (2,))


def test_the_last_member_of_an_isr_stays_eligible_and_leads_when_it_returns() -> None:
    cluster = replicated(in_sync_min=1)
    for broker in (3, 2, 1):
        cluster.gone(broker)
        cluster.settle()
    state = cluster.state()
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (NO_LEADER, (), (1,))
    assert state.last_known_leader == 1
    cluster.start(2, 3)
    assert cluster.state().leader == NO_LEADER
    cluster.start(1)
    state = cluster.state()
    assert (state.leader, state.isr, state.last_known_leader) == (1, (1,), NO_LEADER)


def test_an_eligible_replica_is_elected_when_the_isr_is_gone() -> None:
    cluster = replicated(in_sync_min=2)
    cluster.gone(3)
    cluster.settle()
    cluster.gone(2)
    cluster.settle()
    cluster.gone(1)
    cluster.settle()
    assert set(cluster.state().eligible_leader_replicas) == {1, 2}
    cluster.start(3)
    assert cluster.state().leader == NO_LEADER
    cluster.start(2)
    state = cluster.state()
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), (1,))


def test_leaderships_of_a_former_life_end_before_its_broker_is_admitted_again() -> None:
    cluster = replicated()
    cluster.restart(1)
    settlement = plan_settlement(cluster.image)
    paths = [operation.path for step in settlement.steps for operation in step]
    assert paths[-1] == f"{ADMISSIONS}/1", "the admission comes last"
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.leader_epoch) == (2, 6)
    assert state.isr == (1, 2, 3), "it has lost nothing"


def test_a_leadership_without_another_candidate_gets_a_new_epoch_all_the_same() -> None:
    cluster = replicated()
    for broker in (2, 3):
        cluster.gone(broker)
        cluster.settle()
    before = cluster.state().leader_epoch
    cluster.restart(1)
    cluster.settle()
    assert cluster.state().leader == 1
    assert cluster.state().leader_epoch > before


@pytest.mark.parametrize(
    "facts",
    [
        {"may_have_lost": True},
        {"admitted_before": 1},
        {"admitted_before": -1},
        {"directories": ("new",)},
        {"directories": ()},
    ],
    ids=["it says so", "an older disk", "a disk without a record", "a replaced directory", "a failed directory"],
)
def test_a_broker_that_may_have_lost_records_leaves_isr_and_eligible_replicas_before_it_is_admitted(
    facts: dict[str, object],
) -> None:
    cluster = replicated(in_sync_min=3)
    cluster.gone(2)
    cluster.settle()
    assert cluster.state().eligible_leader_replicas == (2,)
    cluster.register(2, **facts)
    cluster.restart(3, **facts)
    settlement = plan_settlement(cluster.image)
    assert settlement.steps[-1][0].path.startswith(ADMISSIONS)
    cluster.write(settlement.steps[0])
    assert not cluster.image.is_live(3)
    assert (cluster.state().isr, cluster.state().eligible_leader_replicas) == ((1,), ())
    cluster.settle()
    assert cluster.image.is_live(3)
    assert cluster.state().isr == (1,)


KEPT = {TOPIC_ID: frozenset({0})}
OTHER_ID = TopicId(b"o" * 16)


@pytest.mark.parametrize(
    "facts",
    [{"may_have_lost": True}, {"directories": ("a",)}, {"directories": ("a", "new")}],
    ids=["it says so", "a failed directory", "a replaced directory"],
)
def test_what_a_broker_has_kept_in_other_directories_stays_in_sync(facts: dict[str, object]) -> None:
    cluster = ClusterImage()
    cluster.start(2, 3)
    cluster.register(1, directories=("a", "b"))
    cluster.settle()
    cluster.topic(
        *(partition(1, 2, 3, index=index, in_sync_min=2) for index in (0, 1)),
        partition(1, index=2),
        min_insync_replicas="2",
    )
    cluster.restart(1, **{"directories": ("a", "b"), **facts, "kept": {TOPIC_ID: frozenset({0, 2})}})
    cluster.settle()
    assert cluster.image.is_live(1)
    kept, lost, single = (cluster.state(index) for index in (0, 1, 2))
    assert (kept.isr, kept.replaced_replicas) == ((1, 2, 3), ())
    assert kept.leader_epoch > 5, "a life of its own"
    assert lost.isr == (2, 3)
    assert (single.leader, single.isr, single.replaced_replicas) == (1, (1,), ())


def test_what_a_broker_has_kept_does_not_count_if_its_disk_is_not_that_of_its_last_life() -> None:
    cluster = replicated(in_sync_min=2)
    cluster.restart(1, admitted_before=0, may_have_lost=True, kept=KEPT)
    cluster.settle()
    assert cluster.state().isr == (2, 3)


def test_what_a_broker_has_kept_is_in_its_registration() -> None:
    broker = BrokerState(
        broker_id=1, endpoints=(), rack=None, kept={TOPIC_ID: frozenset({0, 1, 2, 5}), OTHER_ID: frozenset({9})}
    )
    assert unpack_broker(1, pack_broker(broker), 3).kept == broker.kept
    assert runs({5, 0, 2, 1}) == [[0, 3], [5, 1]]


def test_a_new_controller_finishes_an_admission_that_stopped_half_way() -> None:
    cluster = replicated()
    cluster.topic(partition(3, 1, in_sync_min=1), name="u")
    cluster.restart(1, may_have_lost=True)
    first = plan_settlement(cluster.image)
    cluster.write(first.steps[0])
    assert not cluster.image.is_live(1)
    cluster.settle()
    assert cluster.image.is_live(1)
    assert (cluster.state().isr, cluster.state(name="u").isr) == ((2, 3), (3,))


def test_no_election_considers_a_broker_that_is_registered_and_not_admitted() -> None:
    cluster = replicated(in_sync_min=1)
    for broker in (1, 2, 3):
        cluster.gone(broker)
    cluster.settle()
    cluster.register(2)
    cluster.settle_once()
    # The same plan that admits it has not elected it yet.
    assert (cluster.state().leader, cluster.image.is_live(2)) == (NO_LEADER, True)
    cluster.settle()
    assert cluster.state().leader == 2


def test_a_partition_is_led_again_when_all_that_lost_power_are_back_only_at_risk() -> None:
    cluster = replicated(in_sync_min=2)
    for broker in (1, 2, 3):
        cluster.gone(broker)
    cluster.settle()
    for broker in (1, 2, 3):
        cluster.register(broker, may_have_lost=True)
        cluster.settle()
    state = cluster.state()
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (NO_LEADER, (), ())
    assert state.replaced_replicas == ()


# Single replicas


def test_the_only_replica_keeps_its_leader_epoch_after_a_clean_stop() -> None:
    cluster = ClusterImage()
    cluster.start(1)
    cluster.topic(partition(1))
    cluster.restart(1, clean=True)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().isr) == (1, 5, (1,))


@pytest.mark.parametrize("facts", [{"clean": False}, {"may_have_lost": True}, {"admitted_before": -1}])
def test_the_only_replica_gets_a_new_leader_epoch_after_any_other_stop(facts: dict[str, object]) -> None:
    cluster = ClusterImage()
    cluster.start(1)
    cluster.topic(partition(1))
    cluster.restart(1, **facts)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().isr) == (1, 6, (1,))


def test_the_only_replica_leads_again_when_its_broker_returns() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2)
    cluster.topic(partition(1))
    cluster.gone(1)
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    cluster.register(1, may_have_lost=True)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    assert cluster.state().leader_epoch > 5


def test_the_only_replica_on_a_replaced_disk_does_not_lead() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2)
    cluster.topic(partition(1))
    cluster.restart(1, directories=("empty",))
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.isr, state.replaced_replicas) == (NO_LEADER, (), (1,))
    cluster.restart(1, directories=("empty",))
    cluster.settle()
    assert cluster.state().leader == NO_LEADER, "the next start does not forget it"


def test_a_directory_that_is_added_or_fails_replaces_none() -> None:
    cluster = ClusterImage()
    cluster.register(1, directories=("a", "b"))
    cluster.settle()
    cluster.topic(partition(1))
    for directories in (("a", "b", "c"), ("a",)):
        cluster.restart(1, directories=directories)
        cluster.settle()
        assert (cluster.state().leader, cluster.state().replaced_replicas) == (1, ())


# min.insync.replicas


def test_a_change_of_the_minimum_reaches_every_replicated_partition() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    cluster.topic(partition(1, 2, 3), name="default")
    cluster.topic(partition(1, 2, 3), name="own", min_insync_replicas="3")
    cluster.topic(partition(1), name="single")
    cluster.set_default(min_insync_replicas="2")
    cluster.settle()
    minima = [cluster.state(name=name).in_sync_min for name in ("default", "own", "single")]
    assert minima == [2, 3, 0]


def test_a_lower_minimum_empties_the_eligible_replicas_in_the_same_write() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    cluster.topic(partition(1, 2, 3, isr=(1, 2), in_sync_min=3, eligible_leader_replicas=(3,)))
    cluster.set_default(min_insync_replicas="2")
    cluster.settle_once()
    state = cluster.state()
    assert (state.in_sync_min, state.eligible_leader_replicas, state.partition_epoch) == (2, (), 1)


def test_a_lower_minimum_that_is_not_reached_either_keeps_the_eligible_replicas() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    cluster.topic(partition(1, 2, 3, isr=(1,), in_sync_min=3, eligible_leader_replicas=(2, 3)))
    cluster.set_default(min_insync_replicas="2")
    cluster.settle()
    assert cluster.state().eligible_leader_replicas == (2, 3)


@pytest.mark.parametrize("partitions", [3, 200])
def test_a_topics_own_minimum_is_written_together_with_its_states(partitions: int) -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    cluster.topic(*(partition(1, 2, 3, index=each) for each in range(partitions)))
    step = SettingStep(name="min.insync.replicas", step=Step.SET, value="2")
    change = ConfigChange(resource_type=ResourceType.TOPIC, name="t", steps=(step,))
    plan = plan_config_changes(cluster.image, [change], config=BrokerConfig())
    assert len(plan.steps) == 1
    cluster.carry_out(plan)
    assert {state.in_sync_min for state in cluster.image.topics["t"].partitions} == {2}
    assert plan_settlement(cluster.image).steps == ()


# Controlled shutdown


def test_a_broker_that_stops_hands_its_leaderships_over_and_leaves_the_isrs() -> None:
    cluster = replicated()
    cluster.settle(stopping=[1])
    state = cluster.state()
    assert (state.leader, state.leader_epoch, state.isr) == (2, 6, (2, 3))
    cluster.settle(stopping=[1, 3])
    assert cluster.state().isr == (2,)
    assert cluster.state().eligible_leader_replicas == (3,)


def test_a_stop_is_in_the_metadata_until_the_broker_registers_again() -> None:
    cluster = replicated()
    cluster.settle(stopping=[1])
    # A later controller plans from the same image.
    assert brokers_of(cluster.image).stopping == {1}
    assert plan_stop(cluster.image, BrokerId(1)).steps == ()
    cluster.register(1)
    cluster.settle()
    assert brokers_of(cluster.image).stopping == frozenset()


def test_a_broker_that_stops_keeps_what_no_other_can_lead() -> None:
    cluster = replicated(brokers=2, in_sync_min=1)
    cluster.topic(partition(1), name="single")
    cluster.gone(2)
    cluster.settle()
    cluster.settle(stopping=[1])
    assert (cluster.state().leader, cluster.state(name="single").leader) == (1, 1)


def test_ten_thousand_partitions_are_settled_quickly() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    for number in range(100):
        cluster.topic(*(partition(*orders[each % 3], index=each) for each in range(100)), name=f"t{number}")
    begun_s = time.perf_counter()
    assert plan_settlement(cluster.image).steps == ()
    idle_s = time.perf_counter() - begun_s
    cluster.gone(1)
    begun_s = time.perf_counter()
    settlement = plan_settlement(cluster.image)
    busy_s = time.perf_counter() - begun_s
    assert len(settlement.changes) == 10_000
    assert all(isinstance(operation, Create | Set) for step in settlement.steps for operation in step)
    # Generous: a slow machine takes several times as long as these few milliseconds.
    assert (idle_s < 0.2, busy_s < 2.0) == (True, True), f"{idle_s:.3f} s, {busy_s:.3f} s"
