"""`penstock check`: which lack is a warning, and which is critical."""

from __future__ import annotations

import pytest

from penstock.cli.check import Severity, lag_problems, problems_of
from penstock.client.admin import PartitionInfo, TopicInfo
from penstock.client.cluster import BrokerInfo
from penstock.client.cluster_state import ClusterState, make_state, topic_health

BROKERS = tuple(BrokerInfo(broker_id=each, host=f"h{each}", port=9092, rack=None) for each in (1, 2, 3))


def state(*, controller: int | None = 1) -> ClusterState:
    return make_state("c", controller, BROKERS, ())


def found(isr: tuple[int, ...], *, controller: int | None = 1) -> list[tuple[Severity, str]]:
    """What is said of one partition of three replicas, of which two have to be in sync."""
    partition = PartitionInfo(partition=0, leader=isr[0] if isr else -1, replicas=(1, 2, 3), isr=isr)
    health = topic_health(TopicInfo(name="orders", internal=False, partitions=(partition,)), min_isr=2)
    return [(each.severity, each.text) for each in problems_of(state(controller=controller), [health])]


def test_nothing_is_wrong_with_a_partition_in_sync() -> None:
    assert found((1, 2, 3)) == []


@pytest.mark.parametrize("controller", [None, -1, 4])
def test_no_live_controller_is_critical(controller: int | None) -> None:
    assert found((1, 2, 3), controller=controller) == [(Severity.CRITICAL, "no controller")]


def test_a_lack_of_replicas_is_a_warning_until_writes_are_refused() -> None:
    behind = (Severity.WARNING, "1 partition under-replicated (orders)")

    assert found((1, 2)) == [behind]
    assert found((1,)) == [(Severity.CRITICAL, "1 partition under min ISR (orders)"), behind]


def test_a_partition_without_a_leader_is_critical() -> None:
    assert (Severity.CRITICAL, "1 partition offline (orders)") in found(())


def test_only_lag_above_the_limit_is_a_warning_and_the_longest_comes_first() -> None:
    problems = lag_problems({"slow": 7, "slower": 9, "quick": 5}, lag_max=5)

    assert [each.text for each in problems] == ["group slower is 9 records behind", "group slow is 7 records behind"]
    assert {each.severity for each in problems} == {Severity.WARNING}
