"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69), every version: groups of the consumer protocol."""

from __future__ import annotations

from penstock.api.coordinator_requests import describe_in_turns, submit
from penstock.api.groups import GROUP_OPERATIONS, OPERATIONS_NOT_REQUESTED, client_host
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.coordinator.step import Result
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.responses import ConsumerHeartbeatReply, DescribedConsumer, DescribedPartitions
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.live_config import LiveConfig
from penstock.model.deferred import Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidGroupId, UnsupportedVersion
from penstock.model.ids import TopicId
from penstock.model.turns import Turns
from penstock.wire.api import consumer_group_describe as describe_api
from penstock.wire.api import consumer_group_heartbeat as beat_api

CONSUMER = "consumer"


class ConsumerGroups:
    """Passes heartbeats to the coordinators of their groups, and describes the groups."""

    def __init__(self, *, coordinators: GroupCoordinatorService, config: LiveConfig, turns: Turns) -> None:
        self._turns = turns
        self._coordinators = coordinators
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=68, versions=range(2), handle=self.heartbeat),
            Api(key=69, versions=range(2), handle=self.describe),
        )

    def _is_enabled(self) -> bool:
        return CONSUMER in self._config.current.group_coordinator_rebalance_protocols

    def heartbeat(self, context: RequestContext, request: beat_api.Request) -> Eventual[beat_api.Response]:
        owned = request.topic_partitions
        command = ConsumerHeartbeat(
            group=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            group_instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topics=(
                None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names)
            ),
            subscribed_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=None if owned is None else tuple((TopicId(one.topic_id), tuple(one.partitions)) for one in owned),
            client_id=context.client_id or "",
            client_host=client_host(context),
            version=context.api_version,
        )
        if not self._is_enabled():
            return heartbeat_response(UnsupportedVersion())
        return submit(self._coordinators, request.group_id, command, heartbeat_response)

    @in_turns
    async def describe(self, context: RequestContext, request: describe_api.Request) -> Eventual[describe_api.Response]:
        operations = GROUP_OPERATIONS if request.include_authorized_operations else OPERATIONS_NOT_REQUESTED
        groups = await describe_in_turns(
            request.group_ids,
            self._turns,
            find=self._find,
            describe=lambda coordinator, name: described(coordinator, name, operations),
            refuse=refused_group,
        )
        return after(groups, lambda found: describe_api.Response(groups=found))

    def _find(self, group: str) -> GroupCoordinatorContext:
        if not self._is_enabled():
            raise UnsupportedVersion()
        if not group:
            raise InvalidGroupId()
        return self._coordinators.of(group)


def heartbeat_response(reply: Result) -> beat_api.Response:
    if isinstance(reply, BrokerError):
        return beat_api.Response(error_code=reply.code, error_message=str(reply) or None)
    assert isinstance(reply, ConsumerHeartbeatReply), f"a response to a heartbeat: {reply!r}"
    assignment: beat_api.Assignment | None = None
    if reply.assignment is not None:
        assignment = beat_api.Assignment(
            topic_partitions=[
                beat_api.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in reply.assignment
            ]
        )
    return beat_api.Response(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def refused_group(name: str, error: BrokerError) -> describe_api.DescribedGroup:
    return describe_api.DescribedGroup(group_id=name, error_code=error.code, error_message=str(error) or None)


def described(coordinator: GroupCoordinatorContext, name: str, operations: int) -> describe_api.DescribedGroup:
    group = coordinator.shard().describe_consumer(name)
    return describe_api.DescribedGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[described_member(member) for member in group.members],
        authorized_operations=operations,
    )


def described_member(member: DescribedConsumer) -> describe_api.Member:
    return describe_api.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=assignment_of(member.assigned),
        target_assignment=assignment_of(member.target),
        member_type=member.member_type,
    )


def assignment_of(partitions: tuple[DescribedPartitions, ...]) -> describe_api.Assignment:
    return describe_api.Assignment(
        topic_partitions=[
            describe_api.TopicPartitions(topic_id=one.topic_id, topic_name=one.topic, partitions=list(one.partitions))
            for one in partitions
        ]
    )
