"""Requests to coordinators that cannot serve them, and responses that depend on the request's version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_world import World, in_world
from tests.unit.eventual import deliver

from penstock.api.coordinator_requests import when_committed
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidGroupId,
    NotCoordinator,
    NotEnoughReplicas,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.wire.api import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)

CREATE_TOPICS, FIND_COORDINATOR, ALTER = 19, 10, 44
BROKER = 4
COMMIT, FETCH, DELETE_OFFSETS = 8, 9, 47
JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
CONSUMER_BEAT, CONSUMER_DESCRIBE = 68, 69
GROUP = "g"
IDS_FROM = 10
"""From this version on a commit has topic ids, which are checked first."""


def commit_request(name: str = "orders", *, topic_id: bytes = bytes(16), partitions: tuple[int, ...] = (0,)) -> Any:
    return offset_commit.Request(
        group_id=GROUP,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=100 + index, committed_metadata=None
                    )
                    for index in partitions
                ],
            )
        ],
    )


def fetch_request(version: int) -> Any:
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        return offset_fetch.Request(group_id=GROUP, topics=topics)
    wanted = offset_fetch.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])
    return offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])


def fetch_error(response: Any) -> int:
    """The error of a whole group, in the field that the version has for it."""
    if response.groups:
        return int(response.groups[0].error_code)
    if response.error_code or not response.topics:
        return int(response.error_code)
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    assert len(codes) == 1
    return int(codes.pop())


Case = tuple[int, Callable[[int], Any], Callable[[Any], int]]
CASES: dict[str, Case] = {
    "OffsetCommit": (COMMIT, lambda _: commit_request(), lambda response: response.topics[0].partitions[0].error_code),
    "OffsetFetch": (FETCH, fetch_request, fetch_error),
    "OffsetDelete": (
        DELETE_OFFSETS,
        lambda _: offset_delete.Request(group_id=GROUP),
        lambda response: response.error_code,
    ),
    "JoinGroup": (
        JOIN,
        lambda _: join_group.Request(group_id=GROUP, session_timeout_ms=10_000, protocol_type="consumer"),
        lambda response: response.error_code,
    ),
    "SyncGroup": (
        SYNC,
        lambda _: sync_group.Request(group_id=GROUP, protocol_type="consumer", protocol_name="range"),
        lambda response: response.error_code,
    ),
    "LeaveGroup": (
        LEAVE,
        lambda version: (
            leave_group.Request(group_id=GROUP, member_id="m")
            if version < 3
            else leave_group.Request(group_id=GROUP, members=[leave_group.MemberIdentity(member_id="m")])
        ),
        lambda response: response.error_code,
    ),
    "DescribeGroups": (DESCRIBE, lambda _: describe_groups.Request(groups=[GROUP]), lambda a: a.groups[0].error_code),
    "DeleteGroups": (DELETE, lambda _: delete_groups.Request(groups_names=[GROUP]), lambda a: a.results[0].error_code),
    "ConsumerGroupDescribe": (
        CONSUMER_DESCRIBE,
        lambda _: consumer_group_describe.Request(group_ids=[GROUP]),
        lambda response: response.groups[0].error_code,
    ),
    "ConsumerGroupHeartbeat": (
        CONSUMER_BEAT,
        lambda _: consumer_group_heartbeat.Request(
            group_id=GROUP,
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        ),
        lambda response: response.error_code,
    ),
}


async def make_orders(world: World) -> bytes:
    request = create_topics.Request(
        topics=[create_topics.CreatableTopic(name="orders", num_partitions=2, replication_factor=1)]
    )
    await world.ask(CREATE_TOPICS, request)
    return world.catalog.image.topics["orders"].topic_id


async def find(world: World) -> Any:
    return await world.ask(FIND_COORDINATOR, find_coordinator.Request(key_type=0, coordinator_keys=[GROUP]))


@pytest.mark.parametrize("name", CASES)
def test_without_the_offsets_topic_there_is_no_group_coordinator(tmp_path: Path, name: str) -> None:
    key, make, error = CASES[name]

    async def act(world: World) -> None:
        await make_orders(world)
        for version in world.apis[key].versions:
            if key == COMMIT and version >= IDS_FROM:
                continue
            assert error(await world.ask(key, make(version), version)) == NotCoordinator.code
        beat = heartbeat.Request(group_id=GROUP, member_id="m")
        assert (await world.ask(BEAT, beat)).error_code == NotCoordinator.code
        listed = await world.ask(LIST, list_groups.Request())
        assert (listed.error_code, listed.groups) == (0, [])

    in_world(tmp_path, act)


def test_a_loading_coordinator_refuses_requests_but_accepts_heartbeats(tmp_path: Path) -> None:
    async def fill(world: World) -> None:
        await make_orders(world)
        await find(world)
        response = await world.ask(COMMIT, commit_request(), 9)
        assert response.topics[0].partitions[0].error_code == 0

    async def act(world: World) -> None:
        world.loading.cancel()
        for key, make, error in CASES.values():
            for version in world.apis[key].versions:
                if key == COMMIT and version >= IDS_FROM:
                    continue
                assert error(await world.ask(key, make(version), version)) == CoordinatorLoadInProgress.code
        listed = await world.ask(LIST, list_groups.Request())
        assert listed.error_code == CoordinatorLoadInProgress.code
        beat = heartbeat.Request(group_id=GROUP, member_id="m")
        assert (await world.ask(BEAT, beat)).error_code == 0

    in_world(tmp_path, fill)
    in_world(tmp_path, act)


def test_a_changed_setting_applies_to_existing_groups(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make_orders(world)
        await find(world)
        response = await world.ask(COMMIT, commit_request(), 9)
        assert response.topics[0].partitions[0].error_code == 0

        interval = incremental_alter_configs.AlterableConfig(name="group.consumer.assignment.interval.ms", value="77")
        everywhere = incremental_alter_configs.AlterConfigsResource(
            resource_type=BROKER, resource_name="", configs=[interval]
        )
        changed = await world.ask(ALTER, incremental_alter_configs.Request(resources=[everywhere]))

        assert changed.responses[0].error_code == 0
        shard = world.parts.groups.of(GROUP).shard()
        assert shard.config.group_consumer_assignment_interval_ms == 77

    in_world(tmp_path, act)


def test_a_failed_directory_leaves_its_groups_without_a_coordinator(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await make_orders(world)
        assert (await find(world)).coordinators[0].error_code == 0
        directory = world.replicas.get("orders", 0).log.directory

        directory.go_offline("gone")
        world.parts.went_offline(directory)
        await asyncio.sleep(0)

        assert (await find(world)).coordinators[0].error_code == CoordinatorNotAvailable.code
        response = await world.ask(COMMIT, commit_request(), 9)
        assert response.topics[0].partitions[0].error_code == NotCoordinator.code
        assert (await world.ask(LIST, list_groups.Request())).error_code == 0

    in_world(tmp_path, act)


def test_the_first_find_coordinator_creates_the_topic_once(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        responses = await asyncio.gather(*(find(world) for _ in range(5)))

        assert {response.coordinators[0].error_code for response in responses} == {0}
        made = world.catalog.image.topics["__consumer_offsets"]
        assert len(made.partitions) == 50
        assert made.internal
        assert made.configs["cleanup.policy"] == "compact"
        assert made.configs["segment.bytes"] == str(100 * 1024 * 1024)

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        (JOIN, join_group.Request(session_timeout_ms=10_000)),
        (SYNC, sync_group.Request(protocol_type="consumer", protocol_name="range")),
        (BEAT, heartbeat.Request()),
        (LEAVE, leave_group.Request(members=[leave_group.MemberIdentity(member_id="m")])),
        (DELETE_OFFSETS, offset_delete.Request()),
    ],
)
def test_an_empty_group_id_is_refused(tmp_path: Path, key: int, request_: Any) -> None:
    async def act(world: World) -> None:
        assert (await world.ask(key, request_)).error_code == InvalidGroupId.code

    in_world(tmp_path, act)


def test_offsets_are_committed_and_fetched_at_every_version(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        topic_id = await make_orders(world)
        await find(world)
        for version in world.apis[COMMIT].versions:
            request = commit_request(topic_id=topic_id, partitions=(0, 7, 1, 9))
            [committed_topic] = (await world.ask(COMMIT, request, version)).topics
            assert [(one.partition_index, one.error_code) for one in committed_topic.partitions] == [
                (7, UnknownTopicOrPartition.code),
                (9, UnknownTopicOrPartition.code),
                (0, 0),
                (1, 0),
            ]
        for version in range(1, 10):
            response = await world.ask(FETCH, fetch_request(version), version)
            [topic] = response.topics or response.groups[0].topics
            assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(0, 100), (1, 101)]

    in_world(tmp_path, act)


def test_by_id_unknown_topics_follow_known_ones_and_all_offsets_have_ids(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        topic_id = await make_orders(world)
        await find(world)
        await world.ask(COMMIT, commit_request(topic_id=topic_id), 10)
        wanted = [
            offset_fetch.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (b"?" * 16, topic_id)
        ]

        def asking(topics: Any) -> Any:
            return offset_fetch.Request(groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])

        [some] = (await world.ask(FETCH, asking(wanted), 10)).groups
        [everything] = (await world.ask(FETCH, asking(None), 10)).groups

        assert [(topic.topic_id, topic.partitions[0].error_code) for topic in some.topics] == [
            (topic_id, 0),
            (b"?" * 16, UnknownTopicId.code),
        ]
        assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in everything.topics] == [
            (topic_id, 100)
        ]
        refused = (await world.ask(COMMIT, commit_request(topic_id=b"?" * 16), 10)).topics
        assert refused[0].partitions[0].error_code == UnknownTopicId.code

    in_world(tmp_path, act)


def test_an_unknown_group_is_dead_and_from_version_6_not_found(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await find(world)
        for version in range(7):
            [group] = (await world.ask(DESCRIBE, describe_groups.Request(groups=["nobody"]), version)).groups
            assert group.group_state == "Dead"
            assert group.error_code == (GroupIdNotFound.code if version >= 6 else 0)
            assert group.error_message == ("Group nobody not found." if version >= 6 else None)

    in_world(tmp_path, act)


class Waiting:
    """A coordinator whose log has uncommitted records, or has failed."""

    def __init__(self, wait: Deferred[None] | BrokerError | None) -> None:
        self._wait = wait

    def committed(self) -> Deferred[None] | None:
        if isinstance(self._wait, BrokerError):
            raise self._wait
        return self._wait


def test_a_response_waits_until_everything_read_for_it_is_committed() -> None:
    async def act() -> None:
        first, second = (Deferred[None]() for _ in range(2))
        coordinators: Any = [Waiting(first), Waiting(None), Waiting(second)]
        delivered: list[object] = []

        pending = when_committed(coordinators, "read", lambda error: error)
        assert isinstance(pending, Deferred)
        deliver(pending, delivered)
        first.resolve(None)
        await asyncio.sleep(0)
        assert delivered == []
        second.resolve(None)
        await asyncio.sleep(0)

        assert delivered == ["read"]
        assert when_committed([coordinators[1]], "read", lambda error: error) == "read"

    asyncio.run(act())


def test_a_response_whose_client_disconnects_stops_waiting() -> None:
    async def act() -> None:
        waits = [Deferred[None]() for _ in range(2)]
        coordinators: Any = [Waiting(wait) for wait in waits]
        delivered: list[object] = []

        pending = when_committed(coordinators, "read", lambda error: error)
        deliver(pending, delivered)
        pending.abandon()
        await asyncio.sleep(0)

        assert all(wait.abandoned for wait in waits)
        assert delivered == []

    asyncio.run(act())


def test_a_response_fails_when_what_was_read_is_not_committed() -> None:
    async def act() -> None:
        lost = Deferred[None]()
        gone: Any = [Waiting(NotEnoughReplicas())]
        waiting: Any = [Waiting(lost)]
        delivered: list[object] = []

        assert isinstance(when_committed(gone, "read", lambda error: error), CoordinatorNotAvailable)
        deliver(when_committed(waiting, "read", lambda error: error), delivered)
        lost.fail(NotEnoughReplicas())
        await asyncio.sleep(0)

        assert isinstance(delivered[0], CoordinatorNotAvailable)

    asyncio.run(act())
