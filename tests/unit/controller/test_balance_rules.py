"""What a plan of the balance keeps to, whatever the cluster: racks, spread, few copies, and the same plan each time."""

from __future__ import annotations

from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.balance import (
    BAND,
    BrokerPlace,
    Load,
    PartitionLoad,
    ReplicaMove,
    loads_of,
    plan_balance,
)
from penstock.model.ids import BrokerId, TopicPartition

KINDS = ("replicas", "leaders", "size_bytes", "bytes_per_s")


def place(number: int, rack: str | None = None, host: str = "", *, emptied: bool = False) -> BrokerPlace:
    return BrokerPlace(broker_id=BrokerId(number), rack=rack, host=host, emptied=emptied)


def load(index: int, replicas: tuple[int, ...], size: int = 0, rate: int = 0) -> PartitionLoad:
    return PartitionLoad(
        tp=TopicPartition("orders", index),
        replicas=tuple(map(BrokerId, replicas)),
        size_bytes=size,
        bytes_per_s=rate,
    )


@st.composite
def clusters(
    draw: st.DrawFn, *, racks: bool = True, sized: bool = True, emptied: bool = False
) -> tuple[list[BrokerPlace], list[PartitionLoad]]:
    count = draw(st.integers(1, 8))
    names = st.sampled_from(("a", "b", "c")) if draw(st.booleans()) else st.sampled_from((None, "a", "b"))
    brokers = [
        BrokerPlace(
            broker_id=BrokerId(each),
            rack=draw(names) if racks else None,
            host=f"host-{draw(st.integers(0, 3))}" if racks else "",
            emptied=emptied and draw(st.integers(0, 4)) == 0,
        )
        for each in range(count)
    ]
    sizes = st.integers(0, 1_000_000) if sized else st.just(0)
    # Most partitions are on the first brokers, as after others were added.
    ids = st.one_of(st.integers(0, count - 1), st.integers(0, min(2, count - 1)))
    factor = draw(st.integers(1, min(3, count)))
    replicas = st.lists(ids, min_size=1, max_size=factor, unique=True)
    partitions = [
        load(index, tuple(draw(replicas)), draw(sizes), draw(sizes)) for index in range(draw(st.integers(0, 40)))
    ]
    return brokers, partitions


def places_of(brokers: list[BrokerPlace], replicas: tuple[BrokerId, ...]) -> tuple[int, int]:
    """Over how many racks and hosts replicas are."""
    chosen = [each for each in brokers if each.broker_id in replicas]
    return len({each.rack for each in chosen if each.rack}), len({each.host for each in chosen if each.host})


def values(loads: dict[BrokerId, Load], brokers: list[BrokerPlace], kind: str) -> list[int]:
    return [int(getattr(loads.get(each.broker_id, Load()), kind)) for each in brokers if each.is_open]


def check_moves(brokers: list[BrokerPlace], partitions: list[PartitionLoad], moves: tuple[ReplicaMove, ...]) -> None:
    """What holds for every plan."""
    by_tp = {each.tp: each for each in partitions}
    open_ids = {each.broker_id for each in brokers if each.is_open}
    for move in moves:
        assert by_tp[move.tp].replicas == move.before != move.after
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert set(move.adding) <= open_ids


@given(clusters())
def test_no_partition_is_on_fewer_racks_or_hosts_than_before(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    check_moves(brokers, partitions, moves)
    for move in moves:
        racks, hosts = places_of(brokers, move.after)
        racks_before, hosts_before = places_of(brokers, move.before)
        assert racks >= racks_before
        # A rack of its own is worth more than a host of its own.
        assert hosts >= hosts_before or racks > racks_before


@given(clusters())
def test_replicas_are_on_as_many_racks_as_there_are(cluster: tuple[list[BrokerPlace], list[PartitionLoad]]) -> None:
    brokers, partitions = cluster
    after = {move.tp: move.after for move in plan_balance(brokers, partitions)}
    racks = len({each.rack for each in brokers if each.rack})
    for each in partitions:
        if all(broker.rack for broker in brokers):
            assert places_of(brokers, after.get(each.tp, each.replicas))[0] == min(racks, len(each.replicas))


@given(clusters(racks=False))
def test_no_kind_of_load_is_spread_worse_than_before(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    """No broker ends above the most, or below the least, that some broker had, unless that is within the band."""
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    before, after = loads_of(partitions), loads_of(partitions, moves)
    for kind in KINDS:
        was, now = values(before, brokers, kind), values(after, brokers, kind)
        share = sum(was) / len(was)
        counted = kind in ("replicas", "leaders")
        high = ceil(share) if counted else share * (1 + BAND)
        low = floor(share) if counted else share * (1 - BAND)
        if kind == "bytes_per_s":
            # Another preferred leader has the same traffic elsewhere, so only the total stays.
            assert sum(now) == sum(was)
        assert max(now) <= max(high, *was, 0) + 1e-6, kind
        assert min(now) >= min(low, *was, share) - 1e-6, kind


@given(clusters(racks=False, sized=False))
def test_numbers_become_even_with_no_copy_more_than_needed(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    before, after = loads_of(partitions), loads_of(partitions, moves)
    was, now = values(before, brokers, "replicas"), values(after, brokers, "replicas")
    share = sum(was) / len(was)
    above, below = sum(max(each - ceil(share), 0) for each in was), sum(max(floor(share) - each, 0) for each in was)
    assert sum(len(move.adding) for move in moves) <= max(above, below)
    replicas = {each.tp: each.replicas for each in partitions} | {move.tp: move.after for move in moves}
    for source, much in zip(brokers, now, strict=True):
        for target, little in zip(brokers, now, strict=True):
            if much - little > 1 and (much > ceil(share) or little < floor(share)):
                # All that one has, the other has as well.
                held = [each for each in replicas.values() if source.broker_id in each]
                assert all(target.broker_id in each for each in held), (source, target)


@given(clusters(sized=False))
def test_racks_cost_at_most_a_few_copies_more(cluster: tuple[list[BrokerPlace], list[PartitionLoad]]) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    was = values(loads_of(partitions), brokers, "replicas")
    share = sum(was) / len(was)
    above, below = sum(max(each - ceil(share), 0) for each in was), sum(max(floor(share) - each, 0) for each in was)
    racks = len({each.rack for each in brokers if each.rack})
    hosts = len({each.host for each in brokers if each.host})
    crowded = sum(
        max(
            min(racks, len(each.replicas)) - places_of(brokers, each.replicas)[0],
            min(hosts, len(each.replicas)) - places_of(brokers, each.replicas)[1],
        )
        for each in partitions
    )
    needed = max(above, below) + 2 * crowded
    assert sum(len(move.adding) for move in moves) <= needed + len(brokers)


@given(clusters())
def test_the_same_cluster_gets_the_same_plan(cluster: tuple[list[BrokerPlace], list[PartitionLoad]]) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    assert plan_balance(list(reversed(brokers)), partitions) == moves


@given(clusters())
def test_a_second_plan_copies_nothing_but_what_is_worth_it(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    """A plan that is done is not followed by one that moves the same things back."""
    brokers, partitions = cluster
    copies: list[int] = []
    for _ in range(4):
        moves = plan_balance(brokers, partitions)
        after = {move.tp: move.after for move in moves}
        partitions = [
            PartitionLoad(
                tp=each.tp,
                replicas=after.get(each.tp, each.replicas),
                size_bytes=each.size_bytes,
                bytes_per_s=each.bytes_per_s,
            )
            for each in partitions
        ]
        copies.append(sum(len(move.adding) for move in moves))
    assert copies[-1] == 0, copies


@given(clusters(), st.integers(0, 5))
def test_a_bound_on_copies_is_kept(cluster: tuple[list[BrokerPlace], list[PartitionLoad]], bound: int) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions, copies_max=bound)
    assert sum(len(move.adding) for move in moves) <= bound


@given(clusters(emptied=True), st.booleans())
def test_an_emptied_broker_keeps_only_what_fits_nowhere_else(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]], even: bool
) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions, even=even)
    check_moves(brokers, partitions, moves)
    after = {move.tp: move.after for move in moves}
    open_ids = {each.broker_id for each in brokers if each.is_open}
    emptied = {each.broker_id for each in brokers if each.emptied}
    for each in partitions:
        replicas = after.get(each.tp, each.replicas)
        if emptied & set(replicas):
            assert open_ids <= set(replicas)
    if not even:
        # Nothing else is touched.
        assert all(emptied & set(move.before) for move in moves)


@settings(max_examples=20)
@given(clusters(sized=False), st.integers(1, 3))
def test_steps_of_bounded_size_end_where_one_plan_does(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]], bound: int
) -> None:
    """The balance by itself: each step is a plan of its own, made from what the step before left."""
    brokers, partitions = cluster
    for _ in range(200):
        moves = plan_balance(brokers, partitions, copies_max=bound)
        if not moves:
            break
        after = {move.tp: move.after for move in moves}
        partitions = [load(each.tp.partition, after.get(each.tp, each.replicas)) for each in partitions]
    else:
        pytest.fail("the steps do not end")


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    brokers = [place(each) for each in (1, 2, 3, 4)]
    partitions = [load(each, [(1, 2, 3), (2, 3, 1), (3, 1, 2)][each % 3]) for each in range(12)]
    moves = plan_balance(brokers, partitions)
    after = loads_of(partitions, moves)
    assert {each.replicas for each in after.values()} == {9}
    assert {each.leaders for each in after.values()} == {3}
    assert [move.adding for move in moves if move.adding] == [(4,)] * 9


def test_ten_new_brokers_among_a_hundred_get_their_share_of_ten_thousand_partitions() -> None:
    brokers = [place(each) for each in range(100)]
    partitions = [load(each, ((7 * each) % 90, (7 * each + 1) % 90, (7 * each + 31) % 90)) for each in range(10_000)]
    was = loads_of(partitions)
    needed = sum(max(each.replicas - 300, 0) for each in was.values())
    moves = plan_balance(brokers, partitions)
    assert sum(len(move.adding) for move in moves) == needed
    after = loads_of(partitions, moves)
    assert {each.replicas for each in after.values()} == {300}
    assert {each.leaders for each in after.values()} == {100}


def test_bytes_decide_where_numbers_are_even() -> None:
    brokers = [place(1), place(2)]
    partitions = [load(0, (1,), 1_000), load(1, (1,), 1_000), load(2, (2,), 10), load(3, (2,), 10)]
    after = loads_of(partitions, plan_balance(brokers, partitions))
    assert {each.size_bytes for each in after.values()} == {1_010}
    assert {each.replicas for each in after.values()} == {2}


def test_a_leadership_is_passed_on_over_a_broker_between_and_nothing_is_copied() -> None:
    brokers = [place(1), place(2), place(3)]
    # The last one stays as it is, since broker 9 is away; without it broker 3 would be due another replica.
    partitions = [load(0, (1, 2)), load(1, (1, 2)), load(2, (2, 3)), load(3, (9, 3))]
    moves = plan_balance(brokers, partitions)
    assert [move.after for move in moves] == [(2, 1), (3, 2)]
    assert not any(move.adding for move in moves)


def test_one_plan_evens_the_leaders_of_thousands_of_partitions_with_no_change_more_than_needed() -> None:
    """A broker that is alone in its rack has a replica of all partitions, and leads them all."""
    brokers = [place(0, "c"), place(1, "a"), place(2, "b"), place(3, "a"), place(4, "b")]
    partitions = [load(each, (0, 1, 2) if each % 2 else (0, 3, 4)) for each in range(4_000)]
    moves = plan_balance(brokers, partitions)
    assert {each.leaders for each in loads_of(partitions, moves).values()} == {800}
    assert len(moves) == 3_200


def test_a_broker_does_not_get_a_leadership_that_it_cannot_pass_on() -> None:
    """To move the only replica of a partition would even out numbers, and leave one broker without a leadership."""
    brokers = [place(0), place(1), place(2)]
    partitions = [load(0, (1,)), load(1, (2, 1), rate=1), load(2, (0, 1), rate=10)]
    after = loads_of(partitions, plan_balance(brokers, partitions))
    assert [after[each.broker_id].leaders for each in brokers] == [1, 1, 1]


def test_a_partition_of_a_broker_that_is_away_stays_as_it_is() -> None:
    brokers = [place(1), place(2), place(3)]
    partitions = [load(each, (1, 9)) for each in range(6)]
    assert plan_balance(brokers, partitions) == ()


def test_an_emptied_broker_gives_its_replicas_to_its_own_rack() -> None:
    brokers = [place(1, "a", emptied=True), place(2, "a"), place(3, "b"), place(4, "b")]
    partitions = [load(each, (1, 3)) for each in range(4)]
    moves = plan_balance(brokers, partitions, even=False)
    assert [move.after for move in moves] == [(2, 3)] * 4
