"""The ISR follows the replicas that keep up, and is frozen while the metadata store is out of reach."""

from __future__ import annotations

import asyncio

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import ORDERS, create, ends, isr_of, leader_of, write

from penstock.model.generated_errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from penstock.model.ids import TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState
from penstock.partition.leader import Leader
from penstock.replication.isr import RETRY_S
from penstock.testing.mem_disk import CAPACITY_BYTES

SETTINGS = {"replica.lag.time.max.ms": "2000", "replica.socket.timeout.ms": "3000"}


def followers(cluster: SimCluster) -> list[int]:
    return [each for each in cluster.brokers if each != leader_of(cluster, ORDERS)]


def cut(cluster: SimCluster, one: int, other: int) -> None:
    for source, target in ((one, other), (other, one)):
        cluster.world.fabric.cut(cluster.brokers[source].name, cluster.brokers[target].name)


def heal(cluster: SimCluster, one: int, other: int) -> None:
    for source, target in ((one, other), (other, one)):
        cluster.world.fabric.heal(cluster.brokers[source].name, cluster.brokers[target].name)


def led_by_the_controller(cluster: SimCluster) -> TopicPartition:
    """A partition of three whose leader can propose, whatever is cut between brokers."""
    partitions = (TopicPartition("orders", index) for index in range(3))
    return next(tp for tp in partitions if leader_of(cluster, tp) == cluster.controller)


def test_a_follower_that_cannot_fetch_leaves_the_isr_and_returns() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        leader, follower = leader_of(cluster, ORDERS), followers(cluster)[0]
        assert await write(cluster, ORDERS) == 0
        cut(cluster, leader, follower)

        # It is acknowledged once the ISR is smaller.
        assert await write(cluster, ORDERS) == 0
        assert follower not in isr_of(cluster, ORDERS)

        heal(cluster, leader, follower)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert ends(cluster, ORDERS) == [2, 2, 2]

    SimCluster(settings=SETTINGS).run(story)


def test_a_write_is_refused_while_too_few_replicas_are_in_sync() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=3)
        tp = led_by_the_controller(cluster)
        leader = leader_of(cluster, tp)
        others = [each for each in cluster.brokers if each != leader]
        assert await write(cluster, tp) == 0
        for other in others:
            cut(cluster, leader, other)

        assert await write(cluster, tp) in (NotEnoughReplicasAfterAppend.code, RequestTimedOut.code)
        assert isr_of(cluster, tp) == {leader}
        assert await write(cluster, tp) == NotEnoughReplicas.code

        for other in others:
            heal(cluster, leader, other)
        await cluster.until(lambda: isr_of(cluster, tp) == {1, 2, 3})
        assert await write(cluster, tp) == 0

    SimCluster(settings=SETTINGS).run(story)


def test_the_isr_is_frozen_while_the_leaders_session_is_suspended() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        leader, follower = leader_of(cluster, ORDERS), followers(cluster)[0]
        assert await write(cluster, ORDERS) == 0
        parts = cluster.parts(leader)
        broker = cluster.brokers[leader].broker
        assert broker is not None
        session = broker._controller._store.session  # pyright: ignore[reportPrivateUsage]

        cluster.store.suspend(session, 5.0)
        await cluster.until(lambda: not parts.isr.may_propose())
        cut(cluster, leader, follower)
        writing = asyncio.ensure_future(write(cluster, ORDERS))
        while not parts.isr.may_propose():
            role = parts.replicas.get(*ORDERS).role
            if isinstance(role, Leader):
                assert role.isr_maximal == {1, 2, 3}
                assert not role.is_proposing
            await asyncio.sleep(0.1)

        await writing
        await cluster.until(lambda: isr_of(cluster, ORDERS) != {1, 2, 3})
        heal(cluster, leader, follower)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})

    SimCluster(settings=SETTINGS).run(story)


def suspend(cluster: SimCluster, broker_id: int, seconds: float) -> None:
    session = cluster.brokers[broker_id].session
    assert session is not None
    cluster.store.suspend(session, seconds)


def successor_of(cluster: SimCluster, former: int) -> int | None:
    """The leader that the other brokers know, once it is another one."""
    for each in cluster.brokers:
        leader = cluster.parts(each).ground.catalog.image.topics["orders"].partitions[0].leader
        if each != former and leader not in (former, -1):
            return leader
    return None


def test_a_leader_that_is_cut_off_from_the_store_alone_sends_its_clients_to_its_successor() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=3)
        former = leader_of(cluster, ORDERS)
        assert await write(cluster, ORDERS) == 0

        suspend(cluster, former, 30.0)
        await cluster.until(lambda: cluster.brokers[former].log.counts["registration_over"] == 1)

        assert not cluster.parts(former).isr.may_propose()
        assert await write(cluster, ORDERS, leader=former) == NotLeaderOrFollower.code
        successor = successor_of(cluster, former)
        assert successor is not None
        assert await write(cluster, ORDERS, leader=successor) == 0
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert ends(cluster, ORDERS) == [2, 2, 2]

    SimCluster(settings=SETTINGS).run(story)


def test_while_the_store_is_away_from_all_brokers_none_takes_its_registration_for_over() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=3)
        for each in cluster.brokers:
            suspend(cluster, each, 5.0)
        await cluster.until(lambda: not any(cluster.parts(each).isr.may_propose() for each in cluster.brokers))

        while not any(cluster.parts(each).isr.may_propose() for each in cluster.brokers):
            assert await write(cluster, ORDERS) == 0
            await asyncio.sleep(0.1)

        assert not any(cluster.brokers[each].log.counts["registration_over"] for each in cluster.brokers)

    SimCluster(settings=SETTINGS).run(story)


def test_a_leader_that_only_clients_reach_lets_them_look_for_its_successor() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        former = leader_of(cluster, ORDERS)
        assert await write(cluster, ORDERS) == 0
        for other in followers(cluster):
            cut(cluster, former, other)
        suspend(cluster, former, 60.0)
        await cluster.until(lambda: successor_of(cluster, former) is not None)

        assert await write(cluster, ORDERS, leader=former) == NotLeaderOrFollower.code

        others = [each for each in cluster.brokers if each != former]
        for other in others:
            heal(cluster, former, other)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3}, limit_s=120.0)
        assert ends(cluster, ORDERS) == [1, 1, 1], "what it appended alone is truncated"

    SimCluster(settings=SETTINGS).run(story)


def test_a_proposal_reaches_the_controllers_successor() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        controller = cluster.controller
        leader = leader_of(cluster, ORDERS)
        if leader == controller:
            await cluster.brokers[leader].stop()
            await cluster.until(cluster.has_controller)
            cluster.brokers[leader].start()
            await cluster.brokers[leader].ready()
            await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
            controller, leader = cluster.controller, leader_of(cluster, ORDERS)
        follower = next(each for each in cluster.brokers if each not in (leader, controller))
        assert await write(cluster, ORDERS) == 0

        cut(cluster, leader, follower)
        writing = asyncio.ensure_future(write(cluster, ORDERS))
        await cluster.until(lambda: cluster.brokers[leader].log.counts["isr_shrinks"] > 0)
        cluster.brokers[controller].kill()
        heal(cluster, leader, follower)

        await cluster.until(cluster.has_controller)
        await writing
        cluster.brokers[controller].start()
        await cluster.brokers[controller].ready()
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        assert len(set(ends(cluster, ORDERS))) == 1

    SimCluster(settings=SETTINGS).run(story)


def test_a_leader_that_was_paused_past_its_session_acknowledges_nothing_that_its_successor_lacks() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        former = leader_of(cluster, ORDERS)
        assert await write(cluster, ORDERS) == 0
        cluster.brokers[former].pause()
        await cluster.until(
            lambda: any(
                cluster.parts(each).ground.catalog.image.topics["orders"].partitions[0].leader not in (former, -1)
                for each in cluster.brokers
                if each != former
            )
        )
        successor = next(
            leader
            for each in cluster.brokers
            if each != former
            if (leader := cluster.parts(each).ground.catalog.image.topics["orders"].partitions[0].leader) != former
        )
        assert await write(cluster, ORDERS, leader=successor, values=2) == 0

        cluster.brokers[former].resume()
        await asyncio.sleep(0)
        code = await write(cluster, ORDERS, leader=former)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})

        assert set(ends(cluster, ORDERS)) == {3 if code else 4}

    SimCluster(settings=SETTINGS).run(story)


def test_a_partition_waits_for_the_last_member_of_its_isr_when_the_directory_of_its_log_fails() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=3, min_isr=1)
        tp = led_by_the_controller(cluster)
        leader = leader_of(cluster, tp)
        others = [each for each in cluster.brokers if each != leader]
        for other in others:
            cut(cluster, leader, other)
        assert await write(cluster, tp) == 0
        assert isr_of(cluster, tp) == {leader}, "it alone has the record"
        cluster.parts(leader).replicas.get(*tp).log.directory.go_offline("the disk failed")
        for other in others:
            heal(cluster, leader, other)

        def state() -> PartitionState:
            return cluster.parts(others[0]).ground.catalog.image.topics[tp.topic].partitions[tp.partition]

        await cluster.until(lambda: state().failed_replicas == (leader,))
        await asyncio.sleep(30)
        assert (state().leader, state().isr, state().eligible_leader_replicas) == (NO_LEADER, (), (leader,))
        assert cluster.brokers[leader].running

        await cluster.brokers[leader].stop()
        cluster.brokers[leader].start()
        await cluster.brokers[leader].ready()
        await cluster.until(lambda: set(state().isr) == {1, 2, 3})
        assert state().failed_replicas == ()
        assert ends(cluster, tp) == [1, 1, 1]
        for broker in cluster.brokers.values():
            assert not broker.log.counts["election_may_have_lost_records"]

    SimCluster(settings={**SETTINGS, "log.dirs": "/data,/more"}).run(story)


def test_a_disk_that_was_full_before_a_broker_registered_again_is_not_reported_after_it() -> None:
    """The controller takes a reported replica for failed until the next registration, which is over already."""

    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        follower = next(each for each in followers(cluster) if each != cluster.controller)
        broker = cluster.brokers[follower]
        assert await write(cluster, ORDERS) == 0
        registered = cluster.parts(follower).controller_client.broker_epoch

        suspend(cluster, follower, 30.0)
        await cluster.until(lambda: not cluster.parts(follower).isr.may_propose())
        files = broker.disk.files
        files.capacity_bytes = files.used_bytes()
        writing = asyncio.ensure_future(write(cluster, ORDERS))
        await cluster.until(lambda: broker.log.counts["directory_refuses"] > 0)
        files.capacity_bytes = CAPACITY_BYTES
        session = broker.session
        assert session is not None
        cluster.store.expire(session)
        await writing
        await cluster.until(lambda: cluster.parts(follower).controller_client.broker_epoch > registered)
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})
        # In virtual time: what was not heard would have been sent again by now.
        await asyncio.sleep(5 * RETRY_S)

        assert not any(each.log.counts["replicas_failed"] for each in cluster.brokers.values())

    SimCluster(settings=SETTINGS).run(story)
