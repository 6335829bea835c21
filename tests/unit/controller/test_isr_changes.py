"""ISR changes that leaders propose, elections that are asked for, and failed replicas, without a store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.cluster_image import TOPIC, TOPIC_ID, ClusterImage, partition, replicated

from penstock.controller.brokers import brokers_of, plan_stop
from penstock.controller.elections import LogEnd, Risk
from penstock.controller.isr import IsrChange, plan_isr_changes, shows_newer
from penstock.controller.leaders import (
    LogEnds,
    at_risk,
    elect_at_risk,
    elect_preferred,
    elect_uncleanly,
    leave_isr,
    not_preferred,
    plan_elections,
    plan_unregistration,
)
from penstock.metadata.operations import Check
from penstock.metadata.records import admission_path
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState

TP = TopicPartition(TOPIC, 0)


def change(cluster: ClusterImage, *members: int, **facts: Any) -> IsrChange:
    """The change that a leader with a current state proposes."""
    state = cluster.state()
    fields: dict[str, Any] = {
        "topic_id": TOPIC_ID,
        "partition": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": tuple((BrokerId(each), epoch_of(cluster, each)) for each in members),
        **facts,
    }
    return IsrChange(**fields)


def epoch_of(cluster: ClusterImage, broker: int) -> BrokerEpoch:
    found = cluster.image.brokers.get(broker)
    return BrokerEpoch(-1) if found is None else found.epoch


def outcome(cluster: ClusterImage, proposed: IsrChange, broker: int = 1) -> PartitionState | BrokerError:
    [found] = cluster.carry_out(
        plan_isr_changes(
            cluster.image,
            BrokerId(broker),
            epoch_of(cluster, broker),
            [proposed],
        )
    )
    assert isinstance(found, PartitionState | BrokerError)
    return found


def test_a_leader_shrinks_and_expands_its_isr() -> None:
    cluster = replicated()
    shrunk = outcome(cluster, change(cluster, 1, 2))
    assert isinstance(shrunk, PartitionState)
    assert (shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == ((1, 2), 1, 5)
    assert cluster.state() == shrunk
    expanded = outcome(cluster, change(cluster, 1, 2, 3))
    assert isinstance(expanded, PartitionState)
    assert (expanded.isr, expanded.partition_epoch) == ((1, 2, 3), 2)


def test_an_isr_below_its_minimum_keeps_who_leaves_eligible_until_it_is_large_enough() -> None:
    cluster = replicated(in_sync_min=2)
    outcome(cluster, change(cluster, 1))
    assert set(cluster.state().eligible_leader_replicas) == {2, 3}
    outcome(cluster, change(cluster, 1, 3))
    assert cluster.state().eligible_leader_replicas == ()


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"leader_epoch": 4}, FencedLeaderEpoch),
        ({"leader_epoch": 6}, NotController),
        ({"partition_epoch": 1}, NotController),
        ({"topic_id": TopicId(b"x" * 16)}, UnknownTopicId),
        ({"partition": 7}, UnknownTopicOrPartition),
    ],
)
def test_a_change_of_another_state_is_refused(facts: dict[str, Any], error: type[BrokerError]) -> None:
    cluster = replicated()
    assert type(outcome(cluster, change(cluster, 1, 2, **facts))) is error


def test_a_change_made_from_an_older_state_is_refused() -> None:
    cluster = replicated()
    first, second = change(cluster, 1, 2), change(cluster, 1, 3)
    assert isinstance(outcome(cluster, first), PartitionState)
    assert isinstance(outcome(cluster, second), InvalidUpdateVersion)


@pytest.mark.parametrize("members", [(2, 3), (1, 4), (1, 1, 2), ()])
def test_an_isr_without_its_leader_or_with_strangers_is_refused(members: tuple[int, ...]) -> None:
    cluster = replicated()
    cluster.start(4)
    assert isinstance(outcome(cluster, change(cluster, *members)), InvalidRequest)


def test_only_the_leader_changes_the_isr() -> None:
    cluster = replicated()
    assert isinstance(outcome(cluster, change(cluster, 1, 2), broker=2), InvalidRequest)


def test_a_former_life_of_a_leader_is_refused() -> None:
    cluster = replicated()
    with pytest.raises(StaleBrokerEpoch):
        plan_isr_changes(cluster.image, BrokerId(1), BrokerEpoch(0), [change(cluster, 1, 2)])
    epoch = cluster.register(1)
    with pytest.raises(StaleBrokerEpoch):
        plan_isr_changes(cluster.image, BrokerId(1), epoch, [change(cluster, 1, 2)])


def test_a_member_joins_only_with_the_epoch_that_is_registered_and_admitted() -> None:
    cluster = replicated()
    outcome(cluster, change(cluster, 1, 2))
    before = epoch_of(cluster, 3)
    joins = change(cluster, 1, 2, 3)
    after = cluster.register(3)
    # The controller has seen the registration: the epoch in which broker 3 fetched is stale from now on.
    assert isinstance(outcome(cluster, joins), IneligibleReplica)
    assert isinstance(outcome(cluster, change(cluster, 1, 2, 3)), NotController), "not admitted yet"
    cluster.settle()
    assert isinstance(outcome(cluster, joins), IneligibleReplica)
    assert before < after == epoch_of(cluster, 3)
    assert isinstance(outcome(cluster, change(cluster, 1, 2, 3)), PartitionState)


def test_a_member_that_is_gone_or_stops_does_not_join() -> None:
    cluster = replicated()
    outcome(cluster, change(cluster, 1, 2))
    joins = change(cluster, 1, 2, 3)
    cluster.settle(stopping=[3])
    assert isinstance(outcome(cluster, joins), IneligibleReplica)
    cluster.gone(3)
    assert isinstance(outcome(cluster, joins), IneligibleReplica)


def test_an_expansion_checks_the_admission_of_those_who_join_in_its_own_transaction() -> None:
    cluster = replicated()
    outcome(cluster, change(cluster, 1, 2))
    plan = plan_isr_changes(cluster.image, BrokerId(1), epoch_of(cluster, 1), [change(cluster, 1, 2, 3)])
    [step] = plan.steps
    version = cluster.image.admissions[3].version
    assert [each for each in step if isinstance(each, Check)] == [Check(admission_path(BrokerId(3)), version)]


def test_changes_of_one_chunk_are_one_write() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2)
    cluster.topic(*(partition(1, 2, index=each) for each in range(200)))
    epoch = epoch_of(cluster, 1)
    changes = [
        IsrChange(
            topic_id=TOPIC_ID,
            partition=each,
            leader_epoch=LeaderEpoch(5),
            partition_epoch=cluster.state(each).partition_epoch,
            isr=((BrokerId(1), epoch),),
        )
        for each in range(200)
    ]
    plan = plan_isr_changes(cluster.image, BrokerId(1), epoch, changes)
    assert len(plan.steps) == 2
    cluster.carry_out(plan)
    assert {state.isr for state in cluster.image.topics[TOPIC].partitions} == {(1,)}


def test_a_change_of_a_newer_state_is_noticed() -> None:
    cluster = replicated()
    assert not shows_newer(cluster.image, [change(cluster, 1, 2)])
    assert shows_newer(cluster.image, [change(cluster, 1, 2, partition_epoch=1)])
    assert shows_newer(cluster.image, [change(cluster, 1, 2, leader_epoch=6)])
    assert shows_newer(cluster.image, [change(cluster, 1, 2, topic_id=TopicId(b"x" * 16))])


def test_a_member_admitted_after_the_image_is_not_called_ineligible() -> None:
    cluster = replicated()
    newer = BrokerEpoch(epoch_of(cluster, 2) + 100)
    joins = change(cluster, isr=((BrokerId(1), epoch_of(cluster, 1)), (BrokerId(2), newer)))
    # A controller that was elected since may have written it: the leader must not take it for refused.
    assert shows_newer(cluster.image, [joins])
    assert isinstance(outcome(cluster, joins), NotController)


# Elections


def elected(cluster: ClusterImage, decide: Any) -> PartitionState | BrokerError:
    [found] = cluster.carry_out(plan_elections(cluster.image, [TP], decide))
    assert isinstance(found, PartitionState | BrokerError)
    return found


def test_the_preferred_leader_is_elected_on_request_when_it_is_in_sync() -> None:
    cluster = replicated()
    cluster.gone(1)
    cluster.settle()
    preferred = elect_preferred(brokers_of(cluster.image))
    assert isinstance(elected(cluster, preferred), PreferredLeaderNotAvailable)
    cluster.start(1)
    preferred = elect_preferred(brokers_of(cluster.image))
    assert isinstance(elected(cluster, preferred), PreferredLeaderNotAvailable), "not in the ISR yet"
    outcome(cluster, change(cluster, 1, 2, 3), broker=2)
    before = cluster.state().leader_epoch
    led = elected(cluster, preferred)
    assert isinstance(led, PartitionState)
    assert (led.leader, led.leader_epoch) == (1, before + 1)
    assert isinstance(elected(cluster, preferred), ElectionNotNeeded)


def lost(cluster: ClusterImage, *brokers: int, **facts: Any) -> None:
    """All brokers are gone, and some return after a power cut."""
    for broker in list(cluster.image.brokers):
        cluster.gone(broker)
    cluster.settle()
    for broker in brokers:
        cluster.register(broker, may_have_lost=True, **facts)
    cluster.settle()


ENDS: LogEnds = {
    (TP, BrokerId(1)): LogEnd(epoch=LeaderEpoch(4), offset=90),
    (TP, BrokerId(2)): LogEnd(epoch=LeaderEpoch(5), offset=50),
    (TP, BrokerId(3)): LogEnd(epoch=LeaderEpoch(5), offset=60),
}


def test_the_last_resort_is_the_longest_log_of_the_last_epoch_and_is_reported() -> None:
    cluster = replicated()
    lost(cluster, 1, 2, 3)
    assert at_risk(cluster.image) == {TP: Risk.LAST_RESORT}
    found = elected(cluster, elect_at_risk(cluster.image, brokers_of(cluster.image), ENDS))
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr, found.leader_recovery_state) == (3, (3,), LeaderRecoveryState.RECOVERING)
    assert at_risk(cluster.image) == {}
    recovered = outcome(cluster, change(cluster, 3, 1), broker=3)
    assert isinstance(recovered, PartitionState)
    assert recovered.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_no_last_resort_is_elected_while_an_eligible_replica_may_return() -> None:
    cluster = replicated()
    lost(cluster, 1, 2)
    assert cluster.state().eligible_leader_replicas == (3,)
    assert at_risk(cluster.image) == {}
    decide = elect_at_risk(cluster.image, brokers_of(cluster.image), ENDS)
    assert isinstance(elected(cluster, decide), ElectionNotNeeded)
    cluster.start(3)
    assert (cluster.state().leader, cluster.state().leader_recovery_state) == (3, LeaderRecoveryState.RECOVERED)


def test_a_replaced_disk_is_never_the_last_resort_and_an_operator_may_elect_it() -> None:
    cluster = replicated(brokers=2)
    lost(cluster, 1, 2, directories=("new",))
    assert cluster.state().replaced_replicas == (1, 2)
    assert at_risk(cluster.image) == {}
    brokers = brokers_of(cluster.image)
    assert isinstance(elected(cluster, elect_uncleanly(brokers, {})), EligibleLeadersNotAvailable), "none responded"
    found = elected(cluster, elect_uncleanly(brokers, ENDS))
    assert isinstance(found, PartitionState)
    assert (found.leader, found.isr, found.replaced_replicas) == (2, (2,), (1,))


def test_an_unclean_election_is_held_only_where_the_topic_allows_it() -> None:
    cluster = replicated()
    cluster.gone(3)
    cluster.settle()
    lost(cluster, 3)
    assert at_risk(cluster.image) == {}
    assert at_risk(cluster.image, unclean_by_default=True) == {TP: Risk.UNCLEAN}
    refused = elected(cluster, elect_at_risk(cluster.image, brokers_of(cluster.image), ENDS))
    assert isinstance(refused, ElectionNotNeeded)
    decide = elect_at_risk(cluster.image, brokers_of(cluster.image), ENDS, unclean_by_default=True)
    found = elected(cluster, decide)
    assert isinstance(found, PartitionState)
    assert (found.leader, found.eligible_leader_replicas) == (3, ())
    assert found.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_an_operator_elects_without_loss_where_that_is_possible() -> None:
    cluster = replicated()
    assert isinstance(elected(cluster, elect_uncleanly(brokers_of(cluster.image), ENDS)), ElectionNotNeeded)


def test_a_replica_whose_log_failed_leaves_the_isr_and_another_leads() -> None:
    cluster = replicated(in_sync_min=3)
    failed = elected(cluster, leave_isr(brokers_of(cluster.image), BrokerId(1), keeps_records=False))
    assert isinstance(failed, PartitionState)
    assert (failed.leader, failed.isr, failed.eligible_leader_replicas) == (2, (2, 3), ())
    assert failed.leader_epoch == 6


def fail(cluster: ClusterImage, broker: int) -> PartitionState | BrokerError:
    """The directory of a replica's log fails while its broker lives."""
    return elected(cluster, leave_isr(brokers_of(cluster.image), BrokerId(broker), keeps_records=True))


def test_the_last_member_of_an_isr_whose_directory_fails_is_waited_for() -> None:
    cluster = replicated(in_sync_min=1)
    outcome(cluster, change(cluster, 1))
    failed = fail(cluster, 1)
    assert isinstance(failed, PartitionState)
    assert (failed.leader, failed.isr, failed.leader_epoch) == (NO_LEADER, (), 6)
    assert (failed.eligible_leader_replicas, failed.failed_replicas) == ((1,), (1,))
    cluster.settle()
    assert cluster.state() == failed, "its broker lives, and its log cannot be used"
    assert at_risk(cluster.image) == {}, "brokers 2 and 3 lack what it has"
    assert isinstance(fail(cluster, 1), ElectionNotNeeded), "the controller knows"
    cluster.restart(1)
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.isr, state.failed_replicas) == (1, (1,), ())
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_last_member_whose_directory_failed_and_that_may_have_lost_records_is_not_waited_for() -> None:
    cluster = replicated(in_sync_min=1)
    outcome(cluster, change(cluster, 1))
    fail(cluster, 1)
    cluster.restart(1, may_have_lost=True)
    cluster.settle()
    state = cluster.state()
    assert (state.leader, state.eligible_leader_replicas, state.failed_replicas) == (NO_LEADER, (), ())
    assert at_risk(cluster.image) == {TP: Risk.LAST_RESORT}


def test_a_replica_whose_directory_fails_is_eligible_only_below_the_minimum() -> None:
    cluster = replicated(in_sync_min=2)
    failed = fail(cluster, 3)
    assert isinstance(failed, PartitionState)
    assert (failed.leader, failed.isr, failed.eligible_leader_replicas) == (1, (1, 2), ())
    failed = fail(cluster, 1)
    assert isinstance(failed, PartitionState)
    assert (failed.leader, failed.isr, failed.eligible_leader_replicas) == (2, (2,), (1,))
    cluster.gone(2)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().eligible_leader_replicas) == (NO_LEADER, (1, 2))
    cluster.register(2)
    cluster.settle()
    assert cluster.state().leader == 2


def test_an_election_at_risk_chooses_no_replica_that_cannot_use_its_log() -> None:
    cluster = replicated(in_sync_min=1)
    outcome(cluster, change(cluster, 1))
    fail(cluster, 1)
    ordered = elected(cluster, elect_uncleanly(brokers_of(cluster.image), ENDS))
    assert isinstance(ordered, PartitionState)
    assert ordered.leader != 1
    assert ordered.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_a_replica_that_failed_is_in_sync_again_once_it_has_caught_up() -> None:
    cluster = replicated()
    fail(cluster, 3)
    assert cluster.state().failed_replicas == (3,)
    joined = outcome(cluster, change(cluster, 1, 2, 3))
    assert isinstance(joined, PartitionState)
    assert (joined.isr, joined.failed_replicas) == ((1, 2, 3), ())


def test_a_broker_that_is_forgotten_is_not_waited_for() -> None:
    cluster = replicated(in_sync_min=1)
    outcome(cluster, change(cluster, 1))
    fail(cluster, 1)
    cluster.gone(1)
    cluster.carry_out(plan_unregistration(cluster.image, BrokerId(1)))
    assert (cluster.state().eligible_leader_replicas, cluster.state().failed_replicas) == ((), ())


def test_what_a_failed_replica_fetched_no_longer_counts() -> None:
    cluster = replicated()
    outcome(cluster, change(cluster, 1, 2))
    joins = change(cluster, 1, 2, 3)
    failed = elected(cluster, leave_isr(brokers_of(cluster.image), BrokerId(3), keeps_records=False))
    assert isinstance(failed, PartitionState)
    # The leader stays, in a new epoch: no fetch of the former one, and no proposal from it, adds the replica.
    assert (failed.leader, failed.leader_epoch, failed.isr) == (1, 6, (1, 2))
    assert isinstance(outcome(cluster, joins), FencedLeaderEpoch)


def test_the_only_replica_stays_leader_when_its_log_failed() -> None:
    cluster = ClusterImage()
    cluster.start(1)
    cluster.topic(partition(1))
    assert isinstance(
        elected(cluster, leave_isr(brokers_of(cluster.image), BrokerId(1), keeps_records=False)), ElectionNotNeeded
    )


def test_partitions_whose_preferred_leader_could_lead_are_found() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2)
    away = partition(1, 2, leader=2)
    behind = partition(1, 2, index=1, isr=(2,))
    cluster.topic(away, behind, partition(1, 2, index=2))
    assert list(not_preferred(cluster.image, brokers_of(cluster.image))) == [TopicPartition(TOPIC, 0)]
    cluster.carry_out(plan_stop(cluster.image, BrokerId(1)))
    assert list(not_preferred(cluster.image, brokers_of(cluster.image))) == []


def test_a_broker_that_is_unregistered_holds_nothing_up() -> None:
    cluster = replicated()
    lost(cluster, 1, 2)
    assert cluster.state().eligible_leader_replicas == (3,)
    cluster.carry_out(plan_unregistration(cluster.image, BrokerId(3)))
    assert 3 not in cluster.image.admissions
    assert cluster.state().eligible_leader_replicas == ()
    assert at_risk(cluster.image) == {TP: Risk.LAST_RESORT}
    assert cluster.state().leader == NO_LEADER
