"""Reassignments: begun, completed, replaced and cancelled, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.cluster_image import TOPIC, ClusterImage, partition
from tests.unit.controller.test_isr_changes import change, outcome

from penstock.controller.brokers import brokers_of, plan_stop
from penstock.controller.elections import in_sync_needed
from penstock.controller.reassignments import Reassignment, plan_reassignments
from penstock.controller.topics import Growth, plan_growths
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState

TP = TopicPartition(TOPIC, 0)


def cluster_of(*replicas: int, brokers: int = 6, in_sync_min: int = 2, **facts: Any) -> ClusterImage:
    """Live brokers, and a partition on some of them."""
    cluster = ClusterImage()
    cluster.start(*range(1, brokers + 1))
    minimum = in_sync_min if len(replicas) > 1 else 0
    cluster.topic(partition(*replicas, in_sync_min=minimum, **facts), min_insync_replicas=str(in_sync_min))
    cluster.settle()
    return cluster


def reassign(
    cluster: ClusterImage, replicas: Sequence[int] | None, *, tp: TopicPartition = TP, **options: bool
) -> PartitionState | BrokerError:
    wanted = Reassignment(tp=tp, replicas=None if replicas is None else tuple(map(BrokerId, replicas)))
    plan = plan_reassignments(cluster.image, [wanted], brokers=brokers_of(cluster.image), **options)
    [found] = cluster.carry_out(plan)
    assert isinstance(found, PartitionState | BrokerError)
    return found


def join(cluster: ClusterImage, *members: int) -> PartitionState:
    """The leader proposes an ISR with more members."""
    state = cluster.state()
    found = outcome(cluster, change(cluster, *{*state.isr, *members}), broker=state.leader)
    assert isinstance(found, PartitionState), found
    return found


def test_a_move_adds_the_new_replicas_first_and_removes_the_old_ones_when_they_are_in_sync() -> None:
    cluster = cluster_of(1, 2, 3)
    begun = reassign(cluster, (4, 5, 1))
    assert isinstance(begun, PartitionState)
    assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ((4, 5, 1, 2, 3), (4, 5), (2, 3))
    assert (begun.leader, begun.leader_epoch, begun.partition_epoch) == (1, 5, 1)
    assert set(begun.isr) == {1, 2, 3}

    assert join(cluster, 4).is_reassigning
    done = join(cluster, 5)
    assert (done.replicas, done.isr, done.is_reassigning) == ((4, 5, 1), (4, 5, 1), False)
    assert (done.leader, done.leader_epoch) == (1, 6), "the leader stays, and a removal begins a new leader epoch"
    assert cluster.state() == done


def test_a_leader_that_is_removed_hands_over_with_the_removal() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, (4, 5, 6))
    join(cluster, 4, 5)
    done = join(cluster, 6)
    assert (done.leader, done.leader_epoch, done.replicas) == (4, 6, (4, 5, 6))


def test_a_removal_waits_for_a_leader_among_those_that_stay() -> None:
    cluster = cluster_of(1, 2)
    reassign(cluster, (3, 2))
    cluster.gone(2)
    cluster.settle()
    cluster.carry_out(plan_stop(cluster.image, BrokerId(1)))
    assert cluster.state().leader == 1
    cluster.start(2)
    assert cluster.state().is_reassigning
    done = join(cluster, 2, 3)
    assert (done.leader, done.replicas) == (3, (3, 2))


def test_more_replicas_are_complete_when_they_are_in_sync_and_begin_no_epoch() -> None:
    cluster = cluster_of(1)
    begun = reassign(cluster, (1, 2, 3))
    assert isinstance(begun, PartitionState)
    assert (begun.in_sync_min, in_sync_needed(begun)) == (2, 1), "writes go on while others copy"
    join(cluster, 2)
    assert in_sync_needed(cluster.state()) == 1
    done = join(cluster, 3)
    assert (done.replicas, done.leader_epoch, in_sync_needed(done)) == ((1, 2, 3), 5, 2)


def test_fewer_replicas_need_all_of_them_in_sync() -> None:
    cluster = cluster_of(1, 2, 3)
    outcome(cluster, change(cluster, 1, 3))
    begun = reassign(cluster, (1, 2))
    assert isinstance(begun, PartitionState)
    assert begun.removing_replicas == (3,)
    done = join(cluster, 2)
    assert (done.replicas, done.isr, done.leader_epoch) == ((1, 2), (1, 2), 6)


def test_fewer_replicas_that_are_in_sync_are_complete_at_once() -> None:
    cluster = cluster_of(1, 2, 3)
    done = reassign(cluster, (3,))
    assert isinstance(done, PartitionState)
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((3,), (3,), 3, 6)
    assert (done.in_sync_min, done.is_reassigning) == (0, False)


def test_another_order_is_written_at_once_and_keeps_the_leader() -> None:
    cluster = cluster_of(1, 2, 3)
    done = reassign(cluster, (3, 1, 2))
    assert isinstance(done, PartitionState)
    assert (done.replicas, done.leader, done.leader_epoch, done.is_reassigning) == ((3, 1, 2), 1, 5, False)
    assert done.partition_epoch == 1
    assert reassign(cluster, (3, 1, 2)) == done, "the same replicas change nothing"


def test_a_removal_waits_while_too_few_would_be_in_sync() -> None:
    cluster = cluster_of(1, 2, 3)
    outcome(cluster, change(cluster, 1, 3))
    reassign(cluster, (1, 2, 4))
    state = join(cluster, 4)
    assert (state.is_reassigning, state.isr) == (False, (1, 4))

    cluster = cluster_of(1, 2, 3, in_sync_min=3)
    outcome(cluster, change(cluster, 1, 3))
    reassign(cluster, (1, 2, 4))
    assert join(cluster, 4).is_reassigning, "without 3 only two of three would be in sync"
    assert not join(cluster, 2).is_reassigning


def test_the_next_controller_completes_what_is_left() -> None:
    cluster = cluster_of(1, 2, 3, in_sync_min=3)
    outcome(cluster, change(cluster, 1, 3))
    reassign(cluster, (1, 2, 4))
    join(cluster, 4)
    assert cluster.state().is_reassigning
    cluster.set_default(min_insync_replicas="1")
    topic = cluster.image.topics[TOPIC]
    cluster.image.topics[TOPIC] = type(topic)(
        name=TOPIC,
        topic_id=topic.topic_id,
        configs={},
        partitions=topic.partitions,
        chunk_versions=topic.chunk_versions,
    )
    cluster.image.topics_by_id[topic.topic_id] = cluster.image.topics[TOPIC]
    cluster.settle()
    assert (cluster.state().replicas, cluster.state().leader_epoch) == ((1, 2, 4), 6)


def test_a_replica_that_dies_while_it_is_added_does_not_hold_up_the_others() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, (4, 2, 3))
    cluster.gone(4)
    cluster.settle()
    assert cluster.state().is_reassigning
    moved = reassign(cluster, (5, 2, 3))
    assert isinstance(moved, PartitionState)
    assert (moved.adding_replicas, moved.removing_replicas) == ((4, 5), (1, 4))
    done = join(cluster, 5)
    assert (done.replicas, done.leader_epoch) == ((5, 2, 3), 6)


@pytest.mark.parametrize("then", [(1, 2, 3), (5, 2, 3), (1, 2, 3, 4), None])
def test_a_cancellation_returns_to_the_replicas_before_the_first_of_several(then: tuple[int, ...] | None) -> None:
    cluster = cluster_of(1, 2, 3)
    outcome(cluster, change(cluster, 1, 2))
    reassign(cluster, (4, 2, 3))
    if then is not None and isinstance(replaced := reassign(cluster, then), PartitionState) and replaced.is_reassigning:
        assert set(replaced.original_replicas) == {1, 2, 3}
    if cluster.state().is_reassigning:
        cancelled = reassign(cluster, None)
        assert isinstance(cancelled, PartitionState)
    state = cluster.state()
    assert set(state.replicas) == {1, 2, 3}
    assert (state.is_reassigning, state.leader_epoch, state.leader) == (False, 6, 1)
    assert isinstance(reassign(cluster, None), NoReassignmentInProgress)


def test_an_added_leader_hands_back_when_the_reassignment_is_cancelled() -> None:
    cluster = cluster_of(1, 2, 3)
    reassign(cluster, (4, 5, 3))
    join(cluster, 4)
    cluster.gone(1)
    cluster.gone(2)
    cluster.settle()
    assert cluster.state().leader == 4
    state = reassign(cluster, None)
    assert isinstance(state, PartitionState)
    assert (state.leader, state.isr, set(state.replicas), state.leader_epoch) == (3, (3,), {1, 2, 3}, 7)


def test_a_cancellation_that_would_lose_every_replica_in_sync_is_refused() -> None:
    cluster = cluster_of(1, 2)
    reassign(cluster, (3, 4, 5))
    join(cluster, 3, 4)
    for broker in (1, 2):
        cluster.gone(broker)
    cluster.settle()
    state = cluster.state()
    assert (state.leader, set(state.isr), state.eligible_leader_replicas) == (3, {3, 4}, ())
    refused = reassign(cluster, None)
    assert isinstance(refused, InvalidReplicaAssignment)
    assert refused.wire_message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
    )
    assert cluster.state() == state

    allowed = reassign(cluster, None, unclean_by_default=True)
    assert isinstance(allowed, PartitionState)
    assert (allowed.leader, allowed.isr, allowed.last_known_leader) == (NO_LEADER, (), NO_LEADER)


def test_requests_that_no_partition_could_follow_are_refused() -> None:
    cluster = cluster_of(1, 2, 3)
    refusals = (
        (reassign(cluster, (1, 9)), InvalidReplicaAssignment),
        (reassign(cluster, ()), InvalidReplicaAssignment),
        (reassign(cluster, (1, 1)), InvalidReplicaAssignment),
        (reassign(cluster, (1,), tp=TopicPartition("x", 0)), UnknownTopicOrPartition),
        (reassign(cluster, (1,), tp=TopicPartition(TOPIC, 1)), UnknownTopicOrPartition),
        (reassign(cluster, (1, 2), allow_factor_change=False), InvalidReplicationFactor),
        (reassign(cluster, None), NoReassignmentInProgress),
    )
    for found, error in refusals:
        assert isinstance(found, error), found
    assert cluster.state().partition_epoch == 0

    reassign(cluster, (4, 5))
    assert isinstance(reassign(cluster, (4, 5, 6), allow_factor_change=False), InvalidReplicationFactor)
    assert isinstance(reassign(cluster, (4, 6), allow_factor_change=False), PartitionState)


def test_new_partitions_have_as_many_replicas_as_the_reassignment_in_progress_will_leave() -> None:
    cluster = cluster_of(1, 2, 3)
    outcome(cluster, change(cluster, 1, 2))
    reassign(cluster, (4, 3))
    assert len(cluster.state().replicas) == 4
    cluster.carry_out(plan_growths(cluster.image, [Growth(name=TOPIC, count=2)], first=0))
    assert len(cluster.state(1).replicas) == 2


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reassign"), st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("cancel"), st.just([])),
        st.tuples(st.just("join"), st.lists(st.integers(1, 5), min_size=1, max_size=2)),
        st.tuples(st.just("leave"), st.lists(st.integers(1, 5), min_size=1, max_size=2)),
        st.tuples(st.just("die"), st.lists(st.integers(1, 5), min_size=1, max_size=1)),
        st.tuples(st.just("return"), st.lists(st.integers(1, 5), min_size=1, max_size=1)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(steps=STEPS, replicas=st.sampled_from([(1,), (1, 2), (1, 2, 3)]), in_sync_min=st.integers(1, 3))
def test_every_state_is_sound_whatever_happens(
    steps: list[tuple[str, list[int]]], replicas: tuple[int, ...], in_sync_min: int
) -> None:
    cluster = cluster_of(*replicas, brokers=5, in_sync_min=in_sync_min)
    for step, brokers in steps:
        before = cluster.state()
        act(cluster, step, brokers)
        cluster.settle()
        after = cluster.state()
        check_sound(before, after)
        if not after.is_reassigning:
            assert after.replicas == after.target_replicas == after.original_replicas


def act(cluster: ClusterImage, step: str, brokers: list[int]) -> None:
    state = cluster.state()
    if step == "reassign":
        reassign(cluster, brokers)
    elif step == "cancel":
        reassign(cluster, None)
    elif step == "die" and brokers[0] in cluster.image.brokers:
        cluster.gone(brokers[0])
    elif step == "return" and brokers[0] not in cluster.image.brokers:
        cluster.register(brokers[0])
    elif step in ("join", "leave") and state.leader != NO_LEADER:
        known = {each for each in brokers if each in state.replicas and each in cluster.image.brokers}
        isr = {*state.isr, *known} if step == "join" else {*state.isr} - known | {state.leader}
        if isr != set(state.isr):
            outcome(cluster, change(cluster, *isr), broker=state.leader)


def check_sound(before: PartitionState, after: PartitionState) -> None:
    replicas = set(after.replicas)
    assert len(replicas) == len(after.replicas) > 0
    for some in (after.isr, after.eligible_leader_replicas, after.adding_replicas, after.removing_replicas):
        assert set(some) <= replicas, after
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.last_known_leader == NO_LEADER or after.last_known_leader in replicas
    assert after.original_replicas
    assert after.target_replicas
    if before.isr or before.eligible_leader_replicas:
        assert after.isr or after.eligible_leader_replicas, "a replica with every committed record is left"
    if len(after.isr) >= in_sync_needed(after):
        assert not after.eligible_leader_replicas
    if set(before.replicas) - replicas:
        assert after.leader_epoch > before.leader_epoch, "a removal begins a leader epoch"
    if after.leader not in (before.leader, NO_LEADER):
        assert after.leader_epoch > before.leader_epoch
        # The proposal that completes a reassignment may make its new member the leader.
        joined = after.isr if before.is_reassigning and not after.is_reassigning else ()
        assert after.leader in (*before.isr, *before.eligible_leader_replicas, *joined)
