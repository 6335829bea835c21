"""What a controller writes grows with what changes, and not with the square of the cluster: counted, not timed."""

from __future__ import annotations

from itertools import count

import pytest
from tests.unit.controller.cluster_image import ClusterImage

from penstock.config.broker import BrokerConfig
from penstock.controller.topics import NewTopic, plan_creations
from penstock.model.topic import TopicState
from penstock.testing.sim.control_plane import FACTOR, ControlPlane
from penstock.testing.sim.world import World

PER_TOPIC = 20
LOST = 3
LEADERSHIPS_AT_ONCE = 50
"""Partitions whose leaders one transaction returns, see `controller.CHANGES_AT_ONCE_MAX`."""


def measured(*, brokers: int, partitions: int) -> ControlPlane:
    """A cluster that lost its controller, lost a broker and got it back."""
    world = World(1)

    async def story() -> ControlPlane:
        plane = ControlPlane(world, brokers=brokers)
        await plane.start()
        await plane.create_topics(partitions, per_topic=PER_TOPIC)
        await plane.load_standby()
        held, led = plane.in_isr(LOST), plane.led_by(LOST)
        await plane.take_over()
        assert plane.in_isr(1) == plane.led_by(1) == 0
        await plane.lose(LOST)
        assert plane.in_isr(LOST) == plane.led_by(LOST) == 0
        await plane.bring_back(LOST)
        assert plane.in_isr(LOST) == held
        assert plane.led_by(LOST) >= led
        await plane.stop()
        return plane

    try:
        plane = world.run(story())
    finally:
        world.close()
    assert not world.failures
    return plane


@pytest.fixture(scope="module")
def small() -> ControlPlane:
    return measured(brokers=6, partitions=600)


@pytest.fixture(scope="module")
def large() -> ControlPlane:
    return measured(brokers=6, partitions=2400)


def test_a_topic_is_created_with_two_writes_of_nodes_in_few_transactions(small: ControlPlane) -> None:
    cost = small.meter.cost("creation of all topics")
    topics = 600 // PER_TOPIC

    assert cost.transactions == 1
    assert cost.operations <= 2 * topics + 2 * cost.transactions


def test_a_take_over_and_a_loss_write_each_topic_once(small: ControlPlane) -> None:
    topics = 600 // PER_TOPIC
    for phase in ("take-over", "loss of a broker"):
        cost = small.meter.cost(phase)
        # The end of the session, the election and one settlement.
        assert cost.transactions <= 3
        assert cost.operations <= topics + 8


def test_the_start_of_a_broker_writes_nothing_but_its_registration_and_admission(large: ControlPlane) -> None:
    assert large.meter.cost("start of a broker").transactions == 2


def test_a_return_costs_a_request_of_each_leader(small: ControlPlane) -> None:
    assert small.meter.cost("its return: admission").transactions == 2
    assert small.meter.cost("its return: ISRs").transactions <= 6
    assert small.meter.cost("its return: leaderships").transactions <= 600 // FACTOR // LEADERSHIPS_AT_ONCE


def test_every_broker_in_another_rack_leads_a_part_of_what_a_lost_one_led(small: ControlPlane) -> None:
    """Broker 6 is in its rack, so they share no partition; broker 1 is lost, too, and broker 2 has no partitions."""
    assert set(small.heirs) == {4, 5}
    assert min(small.heirs.values()) >= small.heirs.total() * 0.2


@pytest.mark.parametrize(
    "phase",
    ["creation of all topics", "take-over", "loss of a broker", "its return: ISRs", "its return: leaderships"],
)
def test_four_times_the_partitions_are_at_most_four_times_the_operations_and_bytes(
    small: ControlPlane, large: ControlPlane, phase: str
) -> None:
    before, after = small.meter.cost(phase), large.meter.cost(phase)

    assert after.operations <= 4 * before.operations + 8
    assert after.bytes <= 4.5 * before.bytes


def test_small_topics_of_one_request_pair_a_leader_with_most_other_brokers() -> None:
    cluster = ClusterImage()
    cluster.start(*range(1, 9))
    numbers = count()

    plan = plan_creations(
        cluster.image,
        [NewTopic(name=f"t{number}", partitions=8, replication_factor=2) for number in range(7)],
        config=BrokerConfig(),
        make_id=lambda: next(numbers).to_bytes(16, "big"),
        first=0,
    )

    made = [each for each in plan.outcomes if isinstance(each, TopicState)]
    pairs = {state.replicas for topic in made for state in topic.partitions}
    assert len({follower for leader, follower in pairs if leader == 1}) >= 6
