"""Members of groups as bare requests, so that a thousand of them cost the client next to nothing."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from penstock.wire.api import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from penstock.wire.channel import LENGTH, Channel

CLIENT_ID = "penstock-bench"
SETTLE_SECONDS_MAX = 120.0
NOT_YET = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
MEMBER_ID_REQUIRED = 79
REBALANCE_MS = 60_000

JOIN, SYNC, BEAT, LEAVE, COMMIT, FETCH, CONSUMER_BEAT, FIND = 5, 3, 3, 1, 7, 7, 1, 3
"""Versions that both brokers know."""


class Refused(Exception):
    """A response with an unexpected error code."""


class GroupWire:
    """One connection with one request in flight at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._channel = Channel(CLIENT_ID)

    @classmethod
    async def open(cls, bootstrap: str) -> GroupWire:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, api: ModuleType, version: int, request: Any) -> Any:
        self._writer.write(self._channel.request(api, version, request))
        length = self._channel.length(await self._reader.readexactly(LENGTH.size))
        return self._channel.response(await self._reader.readexactly(length)).decode(api)

    async def close(self) -> None:
        self._writer.close()

    async def await_coordinator(self, group: str) -> None:
        """Wait for the group's coordinator; both brokers create their internal topic at the first request."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS_MAX
        while asyncio.get_running_loop().time() < deadline:
            found = await self.call(find_coordinator, FIND, find_coordinator.Request(key=group))
            if found.error_code == 0 and await self.has_loaded(group):
                return
            await asyncio.sleep(0.05)
        raise Refused(f"no coordinator of {group} within {SETTLE_SECONDS_MAX:g} s")

    async def has_loaded(self, group: str) -> bool:
        """Whether the coordinator has loaded the group."""
        response = await self.call(offset_fetch, FETCH, offset_fetch.Request(group_id=group, topics=[]))
        return response.error_code not in NOT_YET

    async def join_alone(self, group: str) -> tuple[str, int]:
        """Become the only member of a classic group; its member id and generation."""
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        request = join_group.Request(
            group_id=group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response = await self.call(join_group, JOIN, request)
        if response.error_code == MEMBER_ID_REQUIRED:
            request.member_id = response.member_id
            response = await self.call(join_group, JOIN, request)
        check(response, f"join {group}")
        mine = sync_group.SyncGroupRequestAssignment(member_id=response.member_id, assignment=b"")
        synced = await self.call(
            sync_group,
            SYNC,
            sync_group.Request(
                group_id=group,
                generation_id=response.generation_id,
                member_id=response.member_id,
                assignments=[mine],
            ),
        )
        check(synced, f"sync {group}")
        return response.member_id, response.generation_id

    async def beat(self, group: str, member_id: str, generation: int) -> None:
        request = heartbeat.Request(group_id=group, generation_id=generation, member_id=member_id)
        check(await self.call(heartbeat, BEAT, request), f"heartbeat of {group}")

    async def leave(self, group: str, member_id: str) -> None:
        request = leave_group.Request(group_id=group, member_id=member_id)
        check(await self.call(leave_group, LEAVE, request), f"leave {group}")

    async def commit_many(self, group: str, topic: str, partitions: int, offset: int) -> None:
        """One request for the partitions 0, 1, ... of a topic."""
        parts = [
            offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index in range(partitions)
        ]
        request = offset_commit.Request(
            group_id=group, topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=parts)]
        )
        response = await self.call(offset_commit, COMMIT, request)
        for part in response.topics[0].partitions:
            check(part, f"commit of {group}")

    async def consumer_beat(self, group: str, member_id: str, epoch: int, topics: list[str] | None = None) -> Any:
        """A heartbeat of the new protocol: the first one with the topics."""
        request = consumer_group_heartbeat.Request(group_id=group, member_id=member_id, member_epoch=epoch)
        if topics is not None:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = topics
            request.topic_partitions = []
        response = await self.call(consumer_group_heartbeat, CONSUMER_BEAT, request)
        check(response, f"heartbeat of {member_id}")
        return response


def check(response: Any, what: str) -> None:
    if response.error_code != 0:
        raise Refused(f"{what}: error code {response.error_code}")
