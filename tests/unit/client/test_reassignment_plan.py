"""Plans of reassignments, without a cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.admin import PartitionInfo
from penstock.client.reassignment_plan import (
    Move,
    PlanError,
    parse_plan,
    rotated,
    throttled_brokers,
    throttled_replicas,
    with_factor,
)


def partition(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionInfo:
    return PartitionInfo(
        partition=0,
        leader=replicas[0] if leader is None else leader,
        replicas=replicas,
        isr=replicas if isr is None else isr,
    )


def test_a_greater_factor_adds_the_least_loaded_brokers_of_other_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: None}
    load = Counter({1: 1, 2: 0, 3: 7, 4: 3, 5: 9})
    assert with_factor(partition(1), 2, racks=racks, load=load) == (1, 4)
    assert load[4] == 4
    assert with_factor(partition(1), 3, racks=racks, load=load) == (1, 4, 5)


def test_a_smaller_factor_removes_replicas_that_lag_first_and_never_the_leader() -> None:
    racks = dict.fromkeys(range(1, 5))
    assert with_factor(partition(1, 2, 3, 4, isr=(1, 3, 4)), 3, racks=racks, load=Counter()) == (1, 3, 4)
    assert with_factor(partition(1, 2, 3, leader=3), 1, racks=racks, load=Counter()) == (3,)


def test_a_factor_above_the_number_of_live_brokers_is_refused() -> None:
    for replicas in ((1, 2), (1, 9)):
        with pytest.raises(PlanError, match="3 live brokers, and there are 2"):
            with_factor(partition(*replicas), 3, racks=dict.fromkeys(replicas), load=Counter())


def test_a_cordoned_broker_gets_no_replica_and_is_the_first_to_lose_one() -> None:
    racks = dict.fromkeys(range(1, 5))
    load = Counter({1: 3, 2: 3, 3: 3})
    assert with_factor(partition(1), 2, racks=racks, load=load, cordoned={4}) == (1, 2)
    with pytest.raises(PlanError, match="there are 4, 1 of them cordoned"):
        with_factor(partition(1), 4, racks=racks, load=load, cordoned={4})
    assert with_factor(partition(1, 4, 2), 2, racks=racks, load=load, cordoned={4}) == (1, 2)
    assert with_factor(partition(1, 4, 2, isr=(1, 4)), 2, racks=racks, load=load, cordoned={4}) == (1, 4)


@given(
    replicas=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True),
    factor=st.integers(1, 6),
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=6, max_size=8),
)
def test_a_plan_has_the_factor_and_moves_no_more_than_it_must(
    replicas: list[int], factor: int, racks: list[str | None]
) -> None:
    places = dict(enumerate(racks, 1))
    before = partition(*replicas)
    try:
        after = with_factor(before, factor, racks=places, load=Counter(replicas))
    except PlanError:
        assert factor > len(places)
        return
    assert len(after) == len(set(after)) == factor
    assert before.leader in after
    kept = set(after) & set(replicas)
    assert len(kept) == min(len(replicas), factor)
    assert set(after) - kept <= set(places)


def test_partitions_on_the_same_brokers_take_turns_at_being_led() -> None:
    assert [rotated((1, 2, 3), at) for at in range(4)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3)]


def test_a_plan_of_kafkas_tool_is_read() -> None:
    text = """{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3,1],"log_dirs":["any","any"]}]}"""
    assert parse_plan(text) == {("t", 1): (3, 1)}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "{}",
        '{"version":2,"partitions":[]}',
        '{"partitions":[{"topic":"t","partition":0}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}',
    ],
)
def test_any_other_file_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(text)


def test_throttles_name_the_replicas_before_and_the_added_ones() -> None:
    moves = [
        Move(topic="t", partition=0, before=(1, 2), after=(2, 3)),
        Move(topic="t", partition=1, before=(1, 2), after=(1,)),
        Move(topic="u", partition=4, before=(5,), after=(5, 6)),
    ]
    assert throttled_replicas(moves) == {"t": ("0:1,0:2", "0:3"), "u": ("4:5", "4:6")}
    assert throttled_brokers(moves) == {1, 2, 3, 5, 6}
    assert (moves[0].adding, moves[0].removing) == ((3,), (1,))
