"""Share groups: their members, how far each has come, and moves of them. librdkafka's admin client knows none of it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import sleep

from penstock.client.connection import Address, Connection
from penstock.client.failures import ClientError
from penstock.client.groups import GroupInfo, GroupListing, GroupMember, Place
from penstock.client.wire_calls import WireCalls, refuse, speaks_plaintext
from penstock.wire import share_states
from penstock.wire.api import (
    alter_share_group_offsets,
    describe_share_group_offsets,
    find_coordinator,
    list_groups,
    read_share_group_state,
    share_acknowledge,
    share_group_describe,
    share_group_heartbeat,
)

KIND = "share"
LIST_VERSION = 5
DESCRIBE_VERSION = 1
OFFSETS_VERSION = 1
ALTER_VERSION = 0
READ_STATE_VERSION = 0
ACKNOWLEDGE_VERSION = 1
HEARTBEAT_VERSION = 1
FIND_COORDINATOR_VERSION = 3
FIND_COORDINATORS_VERSION = 6
"""The first that knows coordinators of share partitions."""

COORDINATOR_OF_GROUPS = 0
COORDINATOR_OF_SHARES = 2
DEAD = "Dead"
EPOCH_FINAL = -1
"""Of the last request of a share session."""

EPOCH_LEFT = -1
"""Of a member that leaves its group."""

NO_LEADER_EPOCH = -1
SETTLE_TRIES = 100
SETTLE_PAUSE_SECONDS = 0.1
COORDINATOR_MOVES = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""

UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
SHARE_SESSION_NOT_FOUND = 122
ACKNOWLEDGED, ARCHIVING, ARCHIVED = 2, 3, 4
"""States of records in ReadShareGroupState."""

FINISHED = (ACKNOWLEDGED, ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareProgress:
    """How far a share group has come in one partition."""

    start: int
    """The first offset that is not finished."""
    topic_id: bytes
    lag: int | None
    """Records from there on that are not finished; None if the broker does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """What the share coordinator has of the records of one partition, as of the last write of its leader."""

    start: int
    ranges: tuple[share_states.ReadBatch, ...]
    """By offset, without overlaps; what lies between and after them is as it was when it was produced."""

    @property
    def finished(self) -> int:
        """Records after the start that are finished."""
        return sum(each.last_offset + 1 - each.first_offset for each in self.ranges if each.delivery_state in FINISHED)

    def waiting(self, now_ms: int) -> int:
        """Records that wait for the end of their backoff."""
        return sum(each.last_offset + 1 - each.first_offset for each in self.ranges if each.not_before_ms > now_ms)

    def of(self, offset: int) -> share_states.ReadBatch | None:
        """The range of an offset; None of one that nothing has been written of."""
        at = bisect_right(self.ranges, offset, key=lambda each: each.first_offset) - 1
        return self.ranges[at] if at >= 0 and offset <= self.ranges[at].last_offset else None


class ShareGroups:
    """The share groups of a cluster."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> tuple[GroupListing, ...]:
        """Every share group, by name; none where brokers cannot be asked, or do not know of any."""
        if not speaks_plaintext(self._connection):
            return ()
        found: dict[str, GroupListing] = {}
        try:
            with WireCalls(self._connection) as calls:
                for address in calls.cluster().brokers.values():
                    request = list_groups.Request(types_filter=[KIND])
                    doing = "cannot list share groups"
                    response: list_groups.Response = calls.ask(doing, address, list_groups, LIST_VERSION, request)
                    refuse(doing, response.error_code)
                    for each in response.groups:
                        found[each.group_id] = GroupListing(
                            name=each.group_id, kind=KIND, state=each.group_state.lower()
                        )
        except ClientError:
            # A broker of before share groups.
            return ()
        return tuple(found[name] for name in sorted(found))

    def describe(self, name: str) -> tuple[GroupInfo, Mapping[Place, ShareProgress]] | None:
        """A share group and its progress; None if there is no share group of the name."""
        if not speaks_plaintext(self._connection):
            return None
        doing = f"cannot describe share group {name}"
        with WireCalls(self._connection) as calls:
            node, address = coordinator_of(calls, name, doing)
            request = share_group_describe.Request(group_ids=[name])
            response: share_group_describe.Response = calls.ask(
                doing, address, share_group_describe, DESCRIBE_VERSION, request
            )
            [group] = response.groups
            if group.error_code or group.group_state == DEAD:
                return None
            info = GroupInfo(
                name=name,
                kind=KIND,
                state=group.group_state.lower(),
                assignor=group.assignor_name,
                coordinator=node,
                members=tuple(member_of(each) for each in group.members),
            )
            return info, progress_of(calls, address, name, doing)

    def states(self, name: str, progress: Mapping[Place, ShareProgress]) -> dict[Place, ShareState]:
        """What is written of the records of these partitions; a partition whose coordinator does not say is left out.

        It is what brokers ask when they begin to lead, without a leader epoch, so that no leader is fenced.
        """
        doing = f"cannot read the state of share group {name}"
        places = {(each.topic_id, place[1]): place for place, each in progress.items()}
        found: dict[Place, ShareState] = {}
        if not places:
            return found
        with WireCalls(self._connection) as calls:
            wanted = [share_key(name, topic_id, index) for topic_id, index in places]
            asked = find_coordinator.Request(key_type=COORDINATOR_OF_SHARES, coordinator_keys=wanted)
            where: find_coordinator.Response = calls.of_anyone(
                doing, find_coordinator, FIND_COORDINATORS_VERSION, asked
            )
            addresses = {each.key: (each.host, each.port) for each in where.coordinators if not each.error_code}
            by_address: dict[Address, dict[bytes, list[int]]] = {}
            for topic_id, index in places:
                address = addresses.get(share_key(name, topic_id, index))
                if address is not None:
                    by_address.setdefault(address, {}).setdefault(topic_id, []).append(index)
            for address, topics in by_address.items():
                response: read_share_group_state.Response = calls.ask(
                    doing, address, share_states.READ_STATES, READ_STATE_VERSION, read_request(name, topics)
                )
                for topic in response.results:
                    for each in topic.partitions:
                        if not each.error_code:
                            ranges = tuple(one for one in each.state_batches if isinstance(one, share_states.ReadBatch))
                            state = ShareState(start=each.start_offset, ranges=ranges)
                            found[places[topic.topic_id, each.partition]] = state
        return found

    def alter(self, name: str, offsets: Mapping[Place, int]) -> None:
        """Let a share group without members begin at these offsets; it forgets what it knew of these partitions.

        A group that is new begins to exist.
        """
        doing = f"cannot move share group {name}"
        topics: dict[str, list[alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition]] = {}
        for (topic, index), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=offset
                )
            )
        request = alter_share_group_offsets.Request(
            group_id=name,
            topics=[
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

        def once() -> None:
            _, address = coordinator_of(calls, name, doing)
            response: alter_share_group_offsets.Response = calls.ask(
                doing, address, alter_share_group_offsets, ALTER_VERSION, request
            )
            refuse(doing, response.error_code)
            for topic in response.responses:
                for each in topic.partitions:
                    refuse(f"{doing}: {topic.topic_name} partition {each.partition_index}", each.error_code)

        with WireCalls(self._connection) as calls:
            settled(once)

    def end_member(self, name: str, member_id: str) -> bool:
        """End a member's sessions at all brokers, which release what it holds, and remove it from the group.

        Returns whether there was anything to end. A member that lives joins again.
        """
        doing = f"cannot release what {member_id} holds"
        known = False
        with WireCalls(self._connection) as calls:
            last = share_acknowledge.Request(group_id=name, member_id=member_id, share_session_epoch=EPOCH_FINAL)
            for address in calls.cluster().brokers.values():
                ended: share_acknowledge.Response = calls.ask(
                    doing, address, share_acknowledge, ACKNOWLEDGE_VERSION, last
                )
                if ended.error_code != SHARE_SESSION_NOT_FOUND:
                    refuse(doing, ended.error_code)
                    known = True
            _, address = coordinator_of(calls, name, doing)
            leave = share_group_heartbeat.Request(group_id=name, member_id=member_id, member_epoch=EPOCH_LEFT)
            left: share_group_heartbeat.Response = calls.ask(
                doing, address, share_group_heartbeat, HEARTBEAT_VERSION, leave
            )
            if left.error_code not in (UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND):
                refuse(doing, left.error_code)
                known = True
        return known


def settled(once: Callable[[], None]) -> None:
    """Do something of a coordinator, and again while it is made, moves or loads."""
    for left in reversed(range(SETTLE_TRIES)):
        try:
            once()
        except ClientError as error:
            if error.code not in COORDINATOR_MOVES or not left:
                raise
            sleep(SETTLE_PAUSE_SECONDS)
        else:
            return


def coordinator_of(calls: WireCalls, name: str, doing: str) -> tuple[int, Address]:
    """The id and the address of a group's coordinator."""
    asked = find_coordinator.Request(key=name, key_type=COORDINATOR_OF_GROUPS)
    where: find_coordinator.Response = calls.of_anyone(doing, find_coordinator, FIND_COORDINATOR_VERSION, asked)
    refuse(doing, where.error_code)
    return where.node_id, (where.host, where.port)


def share_key(group: str, topic_id: bytes, partition: int) -> str:
    """The key of a share partition in FindCoordinator."""
    return f"{group}:{urlsafe_b64encode(topic_id).decode().rstrip('=')}:{partition}"


def read_request(group: str, topics: Mapping[bytes, Sequence[int]]) -> read_share_group_state.Request:
    return read_share_group_state.Request(
        group_id=group,
        topics=[
            read_share_group_state.ReadStateData(
                topic_id=topic_id,
                partitions=[
                    read_share_group_state.PartitionData(partition=index, leader_epoch=NO_LEADER_EPOCH)
                    for index in indexes
                ],
            )
            for topic_id, indexes in topics.items()
        ],
    )


def progress_of(calls: WireCalls, address: Address, name: str, doing: str) -> dict[Place, ShareProgress]:
    wanted = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    response: describe_share_group_offsets.Response = calls.ask(
        doing,
        address,
        describe_share_group_offsets,
        OFFSETS_VERSION,
        describe_share_group_offsets.Request(groups=[wanted]),
    )
    found: dict[Place, ShareProgress] = {}
    for group in response.groups:
        refuse(doing, group.error_code)
        for topic in group.topics:
            for each in topic.partitions:
                if not each.error_code and each.start_offset >= 0:
                    lag = None if each.lag < 0 else each.lag
                    found[topic.topic_name, each.partition_index] = ShareProgress(
                        start=each.start_offset, topic_id=topic.topic_id, lag=lag
                    )
    return found


def member_of(found: share_group_describe.Member) -> GroupMember:
    places = [(topic.topic_name, index) for topic in found.assignment.topic_partitions for index in topic.partitions]
    return GroupMember(
        member_id=found.member_id,
        client_id=found.client_id,
        host=found.client_host.lstrip("/"),
        instance_id=None,
        places=tuple(sorted(places)),
    )
