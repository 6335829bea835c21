"""Loads of brokers, and moves that begin a few at a time: what `cluster rebalance` and `cluster drain` are made of."""

from __future__ import annotations

import pytest

from penstock.cli.cluster_loads import ClusterLoads, broker_changes, change_cells, partition_loads, together
from penstock.cli.drain import last_of
from penstock.cli.rebalance import grouped, plan_json
from penstock.cli.replica_moves import ATTEMPTS_S, Left, Rolling, duration_text
from penstock.client.admin import PartitionInfo, TopicInfo
from penstock.client.cluster import BrokerInfo
from penstock.client.cluster_state import ClusterState
from penstock.client.failures import ClientError
from penstock.client.reassignment_plan import Move
from penstock.client.reassignments import Ongoing
from penstock.controller.balance import ReplicaMove, plan_balance
from penstock.model.ids import BrokerId, TopicPartition

MIB = 1024 * 1024


def state(*replicas: tuple[int, ...], brokers: int = 3) -> ClusterState:
    partitions = tuple(
        PartitionInfo(partition=index, leader=each[0], replicas=each, isr=each) for index, each in enumerate(replicas)
    )
    return ClusterState(
        cluster_id="c",
        controller=1,
        brokers=tuple(
            BrokerInfo(broker_id=each, host=f"host-{each % 2}", port=9092, rack=f"rack-{each % 2}")
            for each in range(1, brokers + 1)
        ),
        topics=(TopicInfo(name="orders", internal=False, partitions=partitions),),
    )


def loads(*replicas: tuple[int, ...], brokers: int = 3, cordoned: frozenset[int] = frozenset()) -> ClusterLoads:
    found = state(*replicas, brokers=brokers)
    sizes = {(("orders", index), broker): MIB for index, each in enumerate(replicas) for broker in each}
    return ClusterLoads(state=found, partitions=partition_loads(found, sizes, sizes, 1.0, {}), cordoned=cordoned)


def move(index: int, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move(topic="orders", partition=index, before=before, after=after)


def test_traffic_is_what_the_leaders_log_grew_by_and_a_shorter_log_has_none() -> None:
    sizes = {(("orders", 0), 1): 100, (("orders", 0), 2): 50, (("orders", 1), 2): 100}
    grown = {(("orders", 0), 1): 300, (("orders", 0), 2): 90, (("orders", 1), 2): 10}
    first, second = partition_loads(state((1, 2), (2,)), sizes, grown, 2.0, {})
    assert (first.size_bytes, first.bytes_per_s) == (300, 100)
    assert (second.size_bytes, second.bytes_per_s) == (10, 0)


def test_a_partition_that_is_being_reassigned_counts_with_its_target() -> None:
    ongoing = Ongoing(topic="orders", partition=0, replicas=(3, 2, 1), adding=(3,), removing=(1,))
    [found] = partition_loads(state((1, 2)), {}, {}, 1.0, {("orders", 0): ongoing})
    assert found.replicas == (3, 2)


def test_a_cordoned_broker_takes_nothing_and_one_that_is_down_is_listed_to_empty_another() -> None:
    found = loads((1, 9), (2, 3), cordoned=frozenset({3}))
    assert [(each.broker_id, each.accepts) for each in found.places()] == [(1, True), (2, True), (3, False)]
    assert [(each.broker_id, each.is_open) for each in found.places(emptied=2)] == [
        (1, True),
        (2, False),
        (3, False),
        (9, False),
    ]


def test_a_broker_that_is_down_can_be_emptied() -> None:
    found = loads((9, 1), (2, 9))
    planned = plan_balance(found.places(emptied=9), found.partitions, even=False)
    assert all(9 not in each.after for each in planned)
    assert len(planned) == 2


def test_brokers_racks_and_hosts_are_shown_before_and_after() -> None:
    found = loads((1, 2), (1, 2), brokers=4)
    planned = [
        ReplicaMove(
            tp=TopicPartition("orders", 0),
            before=(BrokerId(1), BrokerId(2)),
            after=(BrokerId(3), BrokerId(2)),
            size_bytes=MIB,
        )
    ]
    changes = broker_changes(found, planned)
    assert [change_cells(change)[0] for _, change in changes] == ["2 > 1", "2", "0 > 1", "0"]
    assert change_cells(changes[0][1])[2] == "2.0 MiB > 1.0 MiB"
    racks = together(changes, lambda place: place.rack or "")
    assert [(each.name, each.before.replicas, each.after.replicas) for each in racks] == [
        ("rack-0", 2, 2),
        ("rack-1", 2, 2),
    ]
    assert set(grouped(changes)) == {"rack", "host"}
    facts = plan_json(changes, [move(0, (1, 2), (3, 2))], MIB)
    assert (facts["copies"], facts["bytes"], len(facts["racks"])) == (1, MIB, 2)
    assert facts["brokers"][2]["after"]["replicas"] == 1


def test_a_broker_that_is_being_emptied_is_the_last_choice_of_a_leader() -> None:
    partition = PartitionInfo(partition=0, leader=1, replicas=(1, 2, 3), isr=(1, 3))
    assert last_of(partition, 1) == (3, 2, 1)


def test_moves_begin_a_few_at_a_time_and_in_their_order() -> None:
    moves = [move(index, (1, 2), (3, 2)) for index in range(5)]
    rolling = Rolling(moves, copied=5 * MIB)
    first = rolling.next(2)
    assert first == moves[:2]
    rolling.began(first)
    assert rolling.next(2) == []
    rolling.completed({})
    second = rolling.next(2)
    rolling.put_back(second)
    rest = rolling.next(3)
    assert rest == moves[2:]
    rolling.began(rest)
    assert not rolling.is_done
    rolling.completed({})
    assert rolling.is_done


def test_what_is_left_is_estimated_until_brokers_are_asked() -> None:
    moves = [move(index, (1, 2), (3, 2)) for index in range(4)]
    sizes = {each.place: MIB for each in moves}
    rolling = Rolling(moves, copied=4 * MIB)
    rolling.responded(100.0)
    rolling.began(rolling.next(2))
    assert rolling.bytes_left(sizes) == 4 * MIB
    ongoing = Ongoing(topic="orders", partition=0, replicas=(3, 2, 1), adding=(3,), removing=(1,))
    rolling.measured([Left(ongoing=ongoing, in_sync=0, bytes_total=MIB, bytes_left=0)])
    assert rolling.bytes_left(sizes) == 3 * MIB
    assert rolling.text(110.0, MIB) == "0 of 4 partitions, 3.0 MiB left, about 30 s"


def test_a_cluster_that_refuses_for_too_long_ends_the_command() -> None:
    rolling = Rolling([move(0, (1,), (2,))], copied=0)
    error = ClientError("not controller")
    rolling.check_patience(0.0, error)
    rolling.check_patience(ATTEMPTS_S, error)
    rolling.responded(ATTEMPTS_S)
    rolling.check_patience(2 * ATTEMPTS_S, error)
    with pytest.raises(ClientError):
        rolling.check_patience(3 * ATTEMPTS_S + 1, error)


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (90, "1 min 30 s"), (7_260, "2 h 1 min")])
def test_durations_are_said_in_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
