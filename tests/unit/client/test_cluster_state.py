"""What a cluster lacks, from its metadata."""

from __future__ import annotations

from penstock.client.admin import PartitionInfo, TopicInfo
from penstock.client.cluster import BrokerInfo
from penstock.client.cluster_state import live_first, make_state, topic_health
from penstock.client.connection import Connection

BROKERS = tuple(BrokerInfo(broker_id=each, host=f"h{each}", port=9092, rack=None) for each in (1, 2))
REPLICAS = (1, 2, 3)


def topic(*isrs: tuple[int, ...], replicas: tuple[int, ...] = REPLICAS) -> TopicInfo:
    partitions = (
        PartitionInfo(partition=index, leader=isr[0] if isr else -1, replicas=replicas, isr=isr)
        for index, isr in enumerate(isrs)
    )
    return TopicInfo(name="t", internal=False, partitions=tuple(partitions))


def test_a_partition_lacks_a_leader_replicas_or_enough_of_them_for_acks_all() -> None:
    found = topic_health(topic((1, 2, 3), (1, 2), (1,), ()), min_isr=2)
    assert (found.partitions, found.offline, found.under_replicated, found.under_min_isr) == (4, 1, 3, 2)
    assert not found.is_healthy
    assert topic_health(topic((1, 2, 3)), min_isr=2).is_healthy


def test_a_partition_with_fewer_replicas_than_min_isr_needs_all_of_them() -> None:
    assert topic_health(topic((1,), replicas=(1,)), min_isr=2).under_min_isr == 0
    assert topic_health(topic((), replicas=(1,)), min_isr=2).under_min_isr == 1


def test_a_controller_that_is_not_live_is_none() -> None:
    assert make_state("c", 2, BROKERS, ()).controller == 2
    assert make_state("c", 3, BROKERS, ()).controller is None
    assert make_state("c", -1, BROKERS, ()).controller is None


def test_leaders_and_replicas_are_counted_for_each_broker() -> None:
    state = make_state("c", 1, BROKERS, (topic((1, 2), (2,), ()),))
    assert state.leaders() == {1: 1, 2: 1}
    assert state.replicas() == {1: 3, 2: 3, 3: 3}
    assert state.in_sync() == {1: 1, 2: 2}
    assert (state.offline, state.under_replicated) == (1, 3)


def test_live_brokers_are_asked_before_the_bootstrap_addresses() -> None:
    found = live_first(make_state("c", 1, BROKERS, ()), Connection(bootstrap="hangs:1"))
    assert found.bootstrap == "h1:9092,h2:9092,hangs:1"
