"""Share groups: their members, and how far each has come. librdkafka's admin client knows neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.connection import Address, Connection
from penstock.client.failures import ClientError
from penstock.client.groups import GroupInfo, GroupListing, GroupMember, Place
from penstock.client.wire_calls import WireCalls, refuse, speaks_plaintext
from penstock.wire.api import describe_share_group_offsets, find_coordinator, list_groups, share_group_describe

KIND = "share"
LIST_VERSION = 5
DESCRIBE_VERSION = 1
OFFSETS_VERSION = 1
FIND_COORDINATOR_VERSION = 3
COORDINATOR_OF_GROUPS = 0
DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareProgress:
    """How far a share group has come in one partition."""

    start: int
    """The first offset that is not finished."""
    lag: int | None
    """Records from there on that are not finished; None if the broker does not know."""


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
            asked = find_coordinator.Request(key=name, key_type=COORDINATOR_OF_GROUPS)
            where: find_coordinator.Response = calls.of_anyone(doing, find_coordinator, FIND_COORDINATOR_VERSION, asked)
            refuse(doing, where.error_code)
            address = where.host, where.port
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
                coordinator=where.node_id,
                members=tuple(member_of(each) for each in group.members),
            )
            return info, progress_of(calls, address, name, doing)


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
                    found[topic.topic_name, each.partition_index] = ShareProgress(start=each.start_offset, lag=lag)
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
