"""JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups (16) and
DeleteGroups (42), every version: members of classic groups, and groups as operators see them.

The coordinator decides; this module translates its results into responses of each version.
"""

from __future__ import annotations

from penstock.api.coordinator_requests import describe_in_turns, submit, when_committed
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.coordinator.step import Reply, Result
from penstock.groups.commands import (
    DeleteGroups,
    DeleteGroupsReply,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    ListedGroup,
    SyncGroup,
    SyncReply,
)
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.service import GroupCoordinatorService
from penstock.groups.share.offsets import ShareOffsets
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    NotCoordinator,
    UnknownMemberId,
)
from penstock.model.turns import Turns
from penstock.wire.api import delete_groups as delete_api
from penstock.wire.api import describe_groups as describe_api
from penstock.wire.api import heartbeat as beat_api
from penstock.wire.api import join_group as join_api
from penstock.wire.api import leave_group as leave_api
from penstock.wire.api import list_groups as list_api
from penstock.wire.api import sync_group as sync_api
from penstock.wire.slices import each

GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, delete, describe, and both of configs: without ACLs every operation is authorized."""

OPERATIONS_NOT_REQUESTED = -(2**31)
DELETED_AT_ONCE_MAX = 50
"""Groups that a coordinator deletes in one step; a larger request takes several."""

DEAD = "Dead"
REBALANCE_TIMEOUT_FROM = 1
MEMBERS_FROM = 3
OPERATIONS_FROM = 3
SYNC_PROTOCOL_FROM = 5
NOT_FOUND_FROM = 6
PROTOCOL_NULLABLE_FROM = 7
SKIP_ASSIGNMENT_FROM = 9
GROUPS_AT_ONCE_MAX = 500
"""Groups of a coordinator that are listed between two reads of the clock."""


class Groups:
    """Passes requests to the coordinators of their groups."""

    def __init__(self, *, coordinators: GroupCoordinatorService, share_offsets: ShareOffsets, turns: Turns) -> None:
        self._coordinators = coordinators
        self._share_offsets = share_offsets
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=11, versions=range(10), handle=self.join_group),
            Api(key=12, versions=range(5), handle=self.heartbeat),
            Api(key=13, versions=range(6), handle=self.leave_group),
            Api(key=14, versions=range(6), handle=self.sync_group),
            Api(key=15, versions=range(7), handle=self.describe_groups),
            Api(key=16, versions=range(6), handle=self.list_groups),
            Api(key=42, versions=range(3), handle=self.delete_groups),
        )

    # Members

    def join_group(self, context: RequestContext, request: join_api.Request) -> Eventual[join_api.Response]:
        version = context.api_version
        if not request.group_id:
            return joined(JoinReply(member_id=request.member_id, error=InvalidGroupId), version)
        command = JoinGroup(
            group=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=client_host(context),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_FROM else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            version=version,
            reason=request.reason,
        )
        return submit(self._coordinators, request.group_id, command, lambda reply: joined(reply, version))

    def sync_group(self, context: RequestContext, request: sync_api.Request) -> Eventual[sync_api.Response]:
        if context.api_version >= SYNC_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
            return synced(InconsistentGroupProtocol())
        if not request.group_id:
            return synced(InvalidGroupId())
        command = SyncGroup(
            group=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments=tuple((given.member_id, given.assignment) for given in request.assignments),
        )
        return submit(self._coordinators, request.group_id, command, synced)

    def heartbeat(self, context: RequestContext, request: beat_api.Request) -> Eventual[beat_api.Response]:
        if not request.group_id:
            return heartbeat_response(InvalidGroupId())
        command = Heartbeat(
            group=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
        return submit(self._coordinators, request.group_id, command, heartbeat_response)

    def leave_group(self, context: RequestContext, request: leave_api.Request) -> Eventual[leave_api.Response]:
        version = context.api_version
        if version < MEMBERS_FROM:
            members: tuple[LeavingMember, ...] = (LeavingMember(member_id=request.member_id),)
        else:
            members = tuple(
                LeavingMember(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, reason=member.reason
                )
                for member in request.members
            )
        if not request.group_id:
            return left(InvalidGroupId(), members, version)
        command = LeaveGroup(group=request.group_id, members=members)
        return submit(self._coordinators, request.group_id, command, lambda reply: left(reply, members, version))

    # Operators

    @in_turns
    async def describe_groups(
        self, context: RequestContext, request: describe_api.Request
    ) -> Eventual[describe_api.Response]:
        version = context.api_version
        with_operations = version >= OPERATIONS_FROM and request.include_authorized_operations
        groups = await describe_in_turns(
            request.groups,
            self._turns,
            find=self._coordinators.of,
            describe=lambda coordinator, name: described(coordinator, name, version, with_operations),
            refuse=refused_group,
        )
        return after(groups, lambda found: describe_api.Response(groups=found))

    @in_turns
    async def list_groups(self, context: RequestContext, request: list_api.Request) -> Eventual[list_api.Response]:
        coordinators: list[GroupCoordinatorContext] = []
        groups: list[ListedGroup] = []
        try:
            for coordinator in list(self._coordinators.serving()):
                if self._turns.spent():
                    await self._turns.pause()
                try:
                    found = await self._listed(coordinator, request)
                except NotCoordinator:
                    continue
                coordinators.append(coordinator)
                groups += found
        except BrokerError as error:
            return list_api.Response(error_code=error.code)
        return when_committed(
            coordinators,
            list_api.Response(groups=each(groups, listed)),
            lambda error: list_api.Response(error_code=error.code),
        )

    async def _listed(self, coordinator: GroupCoordinatorContext, request: list_api.Request) -> list[ListedGroup]:
        """The groups of a coordinator that match a request, some at a time."""
        names = coordinator.shard().group_names()
        found: list[ListedGroup] = []
        for first in range(0, len(names), GROUPS_AT_ONCE_MAX):
            some = names[first : first + GROUPS_AT_ONCE_MAX]
            found += coordinator.shard().list_groups(request.states_filter, request.types_filter, some)
            if self._turns.spent():
                await self._turns.pause()
        return found

    @in_turns
    async def delete_groups(
        self, context: RequestContext, request: delete_api.Request
    ) -> Eventual[delete_api.Response]:
        codes: dict[str, int] = {}
        places: dict[GroupCoordinatorContext, list[str]] = {}
        deleted: list[Eventual[None]] = []
        for name in dict.fromkeys(request.groups_names):
            codes[name] = 0
            try:
                coordinator = self._coordinators.of(name)
                if coordinator.shard().is_share_group(name):
                    deleted.append(self._delete_share_group(name, codes))
                else:
                    places.setdefault(coordinator, []).append(name)
            except BrokerError as error:
                codes[name] = error.code
            if self._turns.spent():
                await self._turns.pause()
        parts = [
            (coordinator, names[first : first + DELETED_AT_ONCE_MAX])
            for coordinator, names in places.items()
            for first in range(0, len(names), DELETED_AT_ONCE_MAX)
        ]
        for coordinator, names in parts:
            if self._turns.spent():
                await self._turns.pause()

            def note(result: Result, names: list[str] = names) -> None:
                for name in names:
                    failure = result if isinstance(result, BrokerError) else deletion_failure(result, name)
                    codes[name] = 0 if failure is None else failure.code

            try:
                deleted.append(after(coordinator.submit(DeleteGroups(groups=tuple(names))), note))
            except BrokerError as error:
                note(error)
        return after(Deferred.all(deleted), lambda _: deletion_response(codes))

    def _delete_share_group(self, name: str, codes: dict[str, int]) -> Eventual[None]:
        """Its share partitions have state with other coordinators, which goes first."""

        def note(error: BrokerError | None) -> None:
            codes[name] = 0 if error is None else error.code

        return after(self._share_offsets.delete_group(name), note)


def deletion_response(codes: dict[str, int]) -> delete_api.Response:
    return delete_api.Response(
        results=each(
            list(codes.items()), lambda one: delete_api.DeletableGroupResult(group_id=one[0], error_code=one[1])
        )
    )


def refused_group(name: str, error: BrokerError) -> describe_api.DescribedGroup:
    return describe_api.DescribedGroup(group_id=name, error_code=error.code, error_message=None)


def listed(group: ListedGroup) -> list_api.ListedGroup:
    return list_api.ListedGroup(
        group_id=group.group,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.type.lower(),
    )


def client_host(context: RequestContext) -> str:
    """The address of a member, in Kafka's notation."""
    return f"/{context.connection.peer}"


def joined(reply: Result, version: int) -> join_api.Response:
    if isinstance(reply, BrokerError):
        reply = JoinReply(member_id="", error=type(reply))
    assert isinstance(reply, JoinReply), f"a response to a join: {reply!r}"
    protocol = reply.protocol or None
    return join_api.Response(
        error_code=0 if reply.error is None else reply.error.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol if version >= PROTOCOL_NULLABLE_FROM else protocol or "",
        leader=reply.leader or "",
        skip_assignment=reply.skip_assignment and version >= SKIP_ASSIGNMENT_FROM,
        member_id=reply.member_id,
        members=[
            join_api.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


def synced(reply: Result) -> sync_api.Response:
    if isinstance(reply, BrokerError):
        return sync_api.Response(error_code=reply.code)
    assert isinstance(reply, SyncReply), f"a response to a sync: {reply!r}"
    return sync_api.Response(
        protocol_type=reply.protocol_type, protocol_name=reply.protocol, assignment=reply.assignment
    )


def heartbeat_response(reply: Result) -> beat_api.Response:
    # While a coordinator loads, its members' sessions are suspended: the error would only make them join again.
    if isinstance(reply, BrokerError) and not isinstance(reply, CoordinatorLoadInProgress):
        return beat_api.Response(error_code=reply.code)
    return beat_api.Response()


def left(reply: Result, members: tuple[LeavingMember, ...], version: int) -> leave_api.Response:
    if isinstance(reply, UnknownMemberId):
        responses = [
            leave_api.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=reply.code
            )
            for member in members
        ]
    elif isinstance(reply, BrokerError):
        return leave_api.Response(error_code=reply.code)
    else:
        assert isinstance(reply, LeaveReply), f"a response to a leave: {reply!r}"
        responses = [
            leave_api.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=0 if member.error is None else member.error.code,
            )
            for member in reply.members
        ]
    if version < MEMBERS_FROM:
        return leave_api.Response(error_code=responses[0].error_code)
    return leave_api.Response(members=responses)


def described(
    coordinator: GroupCoordinatorContext, name: str, version: int, with_operations: bool
) -> describe_api.DescribedGroup:
    try:
        group = coordinator.shard().describe(name)
    except GroupIdNotFound as error:
        found = version >= NOT_FOUND_FROM
        return describe_api.DescribedGroup(
            group_id=name,
            group_state=DEAD,
            error_code=error.code if found else 0,
            error_message=error.wire_message if found else None,
            authorized_operations=GROUP_OPERATIONS if with_operations and not found else OPERATIONS_NOT_REQUESTED,
        )
    return describe_api.DescribedGroup(
        group_id=name,
        error_message=None,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            describe_api.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=GROUP_OPERATIONS if with_operations else OPERATIONS_NOT_REQUESTED,
    )


def deletion_failure(reply: Reply, name: str) -> BrokerError | None:
    assert isinstance(reply, DeleteGroupsReply), f"a response to a deletion: {reply!r}"
    return reply.failures.get(name)
