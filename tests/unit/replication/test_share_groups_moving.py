"""Share groups on three brokers: their coordinators, share coordinators and partition leaders move."""

from __future__ import annotations

from typing import Any

from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import create, leader_of, write

from penstock.model.generated_errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from penstock.model.ids import TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC
from penstock.testing.sim.client import Disconnected
from penstock.wire.api import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    find_coordinator,
    share_group_describe,
    share_group_heartbeat,
)

GROUP, MEMBER = "jobs", "member-1"
SETTINGS = {"share.coordinator.state.topic.num.partitions": "3", "offsets.topic.num.partitions": "3"}
LATER = {NotCoordinator.code, CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code}


class Member:
    """A member of a share group, and an administrator: finds the coordinator as a client does."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.epoch = 0
        self.assigned: dict[bytes, list[int]] = {}

    async def coordinator(self) -> int:
        cluster = self.cluster
        while True:
            asked = next(each for each in cluster.brokers if cluster.brokers[each].running)
            request = find_coordinator.Request(key_type=0, coordinator_keys=[GROUP])
            response = await cluster.ask(asked, find_coordinator, 6, request)
            [found] = response.coordinators
            if not found.error_code and cluster.brokers[found.node_id].running:
                return int(found.node_id)
            await cluster.until(lambda: True)
            await self.pause()

    async def pause(self) -> None:
        ends = self.cluster.world.now + 0.2
        await self.cluster.until(lambda: self.cluster.world.now >= ends)

    async def ask(self, api: Any, version: int, request: Any, code: Any) -> Any:
        """The response of the coordinator, once there is one."""
        while True:
            try:
                response = await self.cluster.ask(await self.coordinator(), api, version, request, timeout_s=40.0)
            except Disconnected:
                continue
            if code(response) not in LATER:
                return response
            await self.pause()

    async def beat(self, *topics: str) -> int:
        """A heartbeat; returns the error code."""
        request = share_group_heartbeat.Request(
            group_id=GROUP,
            member_id=MEMBER,
            member_epoch=self.epoch,
            subscribed_topic_names=list(topics) or None,
        )
        response = await self.ask(share_group_heartbeat, 1, request, lambda each: each.error_code)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return int(response.error_code)

    async def has(self, count: int) -> None:
        """Heartbeat until the member has so many partitions."""

        async def counted() -> bool:
            assert await self.beat() == 0
            return sum(map(len, self.assigned.values())) == count

        await self.cluster.until(counted, limit_s=120.0)

    async def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Start offset and lag of every share partition of the group."""
        wanted = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        request = describe_share_group_offsets.Request(groups=[wanted])
        response = await self.ask(describe_share_group_offsets, 1, request, lambda each: each.groups[0].error_code)
        [group] = response.groups
        assert group.error_code == 0, group
        assert not any(each.error_code for topic in group.topics for each in topic.partitions), group
        return {
            (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
            for topic in group.topics
            for each in topic.partitions
        }


def state_leaders(cluster: SimCluster, topic: str) -> set[int]:
    image = cluster.parts(cluster.controller).ground.catalog.image
    return {partition.leader for partition in image.topics[topic].partitions}


def test_a_group_goes_on_when_its_coordinator_dies() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=4)
        member = Member(cluster)
        assert await member.beat("orders") == 0
        await member.has(4)
        epoch, former = member.epoch, await member.coordinator()

        cluster.brokers[former].kill()

        await member.has(4)
        assert member.epoch == epoch, "the next coordinator has the same assignment"
        assert await member.coordinator() != former
        cluster.brokers[former].start()
        await cluster.brokers[former].ready()
        request = share_group_describe.Request(group_ids=[GROUP])
        described = await member.ask(share_group_describe, 1, request, lambda each: each.groups[0].error_code)
        assert [(each.group_state, len(each.members)) for each in described.groups] == [("Stable", 1)]

    SimCluster(settings=SETTINGS).run(story)


def test_partitions_begin_although_coordinators_die_on_the_way() -> None:
    """The group coordinator dies right after it was told to begin share partitions; the next one finishes that."""

    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=6)
        member = Member(cluster)
        assert await member.beat("orders") == 0
        former = await member.coordinator()
        cluster.brokers[former].kill()
        await member.has(6)
        assert state_leaders(cluster, SHARE_STATE_TOPIC) <= {1, 2, 3} - {former}
        cluster.brokers[former].start()
        await cluster.brokers[former].ready()

    for seed in (1, 2, 3):
        SimCluster(settings=SETTINGS, seed=seed).run(story)


def test_offsets_are_described_altered_and_deleted_wherever_leaders_are() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster, partitions=3)
        for index in range(3):
            assert await write(cluster, TopicPartition("orders", index), values=10 + index) == 0
        leaders = {leader_of(cluster, TopicPartition("orders", index)) for index in range(3)}
        assert len(leaders) > 1, "the test needs leaders on other brokers"
        member = Member(cluster)
        assert await member.beat("orders") == 0
        await member.has(3)
        assert await member.offsets() == {("orders", index): (-1, -1) for index in range(3)}

        def altered(*offsets: tuple[int, int]) -> Any:
            parts = [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=offset
                )
                for index, offset in offsets
            ]
            topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=parts)
            return alter_share_group_offsets.Request(group_id=GROUP, topics=[topic])

        refused = await member.ask(alter_share_group_offsets, 0, altered((0, 4)), lambda each: each.error_code)
        assert refused.error_message == "The group is not empty."
        member.epoch = -1
        assert await member.beat() == 0
        response = await member.ask(
            alter_share_group_offsets, 0, altered((0, 4), (1, 11), (9, 0)), lambda each: each.error_code
        )
        assert [each.error_code for each in response.responses[0].partitions] == [0, 0, 3]
        assert await member.offsets() == {("orders", 0): (4, 6), ("orders", 1): (11, 0), ("orders", 2): (-1, -1)}

        cluster.brokers[await member.coordinator()].kill()
        gone = delete_share_group_offsets.Request(
            group_id=GROUP,
            topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="orders")],
        )
        response = await member.ask(delete_share_group_offsets, 0, gone, lambda each: each.error_code)
        assert [each.error_code for each in response.responses] == [0]
        assert await member.offsets() == {}
        deleted = await member.ask(
            delete_groups, 2, delete_groups.Request(groups_names=[GROUP]), lambda each: each.results[0].error_code
        )
        assert deleted.results[0].error_code == 0
        known = {
            context.shard().count
            for each in cluster.brokers
            if cluster.brokers[each].running
            for context in cluster.parts(each).share_states.loaded()
        }
        assert known <= {0}, "no share coordinator keeps anything of it"
        for broker in cluster.brokers.values():
            if not broker.running:
                broker.start()
                await broker.ready()

    SimCluster(settings=SETTINGS).run(story)


def test_the_cluster_has_both_topics_with_their_settings() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        member = Member(cluster)
        assert await member.beat("orders") == 0
        await member.has(1)
        image = cluster.parts(cluster.controller).ground.catalog.image
        configs = image.topics[SHARE_STATE_TOPIC].configs
        assert (configs["cleanup.policy"], configs["min.insync.replicas"], configs["retention.ms"]) == (
            "delete",
            "2",
            "-1",
        )
        assert {len(each.replicas) for each in image.topics[SHARE_STATE_TOPIC].partitions} == {3}
        assert GROUP_OFFSETS_TOPIC in image.topics

    SimCluster(settings=SETTINGS).run(story)
