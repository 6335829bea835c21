"""ShareGroupHeartbeat (76), ShareGroupDescribe (77), DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and
DeleteShareGroupOffsets (92): share groups. Version 0 of the first two was for early access, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.api.coordinator_requests import describe_in_turns, submit
from penstock.api.groups import GROUP_OPERATIONS, OPERATIONS_NOT_REQUESTED, client_host
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.coordinator.step import Result
from penstock.groups.commands import ShareHeartbeat
from penstock.groups.consumer.responses import DescribedPartitions
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.service import GroupCoordinatorService
from penstock.groups.share.offsets import OffsetsAltered, OffsetsDeleted, ShareOffset, ShareOffsets, TopicDeleted
from penstock.groups.share.responses import DescribedShareMember, ShareHeartbeatReply
from penstock.metadata.image import MetadataImage
from penstock.model.cluster_versions import SHARE_GROUPS
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidGroupId, UnsupportedVersion
from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.model.turns import Turns
from penstock.wire.api import alter_share_group_offsets as alter_api
from penstock.wire.api import delete_share_group_offsets as delete_api
from penstock.wire.api import describe_share_group_offsets as offsets_api
from penstock.wire.api import share_group_describe as describe_api
from penstock.wire.api import share_group_heartbeat as beat_api


class ShareGroups:
    """Passes heartbeats to the coordinators of share groups, describes the groups, and changes their offsets."""

    def __init__(
        self, *, coordinators: GroupCoordinatorService, offsets: ShareOffsets, image: MetadataImage, turns: Turns
    ) -> None:
        self._coordinators = coordinators
        self._offsets = offsets
        self._image = image
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=76, versions=range(1, 2), handle=self.heartbeat),
            Api(key=77, versions=range(1, 2), handle=self.describe),
            Api(key=90, versions=range(2), handle=self.describe_offsets),
            Api(key=91, versions=range(1), handle=self.alter_offsets),
            Api(key=92, versions=range(1), handle=self.delete_offsets),
        )

    def _is_enabled(self) -> bool:
        """Whether every broker of the cluster knows share groups."""
        return self._image.level >= SHARE_GROUPS

    def heartbeat(self, context: RequestContext, request: beat_api.Request) -> Eventual[beat_api.Response]:
        if not self._is_enabled():
            return heartbeat_response(UnsupportedVersion())
        topics = request.subscribed_topic_names
        command = ShareHeartbeat(
            group=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            subscribed_topics=None if topics is None else tuple(topics),
            client_id=context.client_id or "",
            client_host=client_host(context),
        )
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

    # Offsets

    @in_turns
    async def describe_offsets(
        self, context: RequestContext, request: offsets_api.Request
    ) -> Eventual[offsets_api.Response]:
        described: list[Eventual[offsets_api.DescribeShareGroupOffsetsResponseGroup]] = []
        for wanted in request.groups:
            described.append(self._describe_offsets(wanted))
            if self._turns.spent():
                await self._turns.pause()
        return after(Deferred.all(described), lambda groups: offsets_api.Response(groups=groups))

    def _describe_offsets(
        self, wanted: offsets_api.DescribeShareGroupOffsetsRequestGroup
    ) -> Eventual[offsets_api.DescribeShareGroupOffsetsResponseGroup]:
        group = wanted.group_id

        def refused(error: BrokerError) -> offsets_api.DescribeShareGroupOffsetsResponseGroup:
            return offsets_api.DescribeShareGroupOffsetsResponseGroup(
                group_id=group, error_code=error.code, error_message=error.wire_message
            )

        def ask(topics: Mapping[str, Sequence[int]]) -> Eventual[offsets_api.DescribeShareGroupOffsetsResponseGroup]:
            found = self._offsets.describe(group, topics)
            return after(found, lambda offsets: self._offsets_response(group, topics, offsets))

        try:
            if not self._is_enabled():
                raise UnsupportedVersion()
            if not group:
                raise InvalidGroupId()
            if wanted.topics is not None:
                return ask({topic.topic_name: topic.partitions for topic in wanted.topics})
            known = after(self._offsets.known(group), ask)
        except BrokerError as error:
            return refused(error)
        return known.catch(BrokerError, refused) if isinstance(known, Deferred) else known

    def _offsets_response(
        self, group: str, topics: Mapping[str, Sequence[int]], offsets: Mapping[TopicPartition, ShareOffset]
    ) -> offsets_api.DescribeShareGroupOffsetsResponseGroup:
        return offsets_api.DescribeShareGroupOffsetsResponseGroup(
            group_id=group,
            topics=[
                offsets_api.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=self._topic_id(name),
                    partitions=[offset_row(index, offsets[TopicPartition(name, index)]) for index in indexes],
                )
                for name, indexes in topics.items()
            ],
            error_code=0,
            error_message=None,
        )

    def _topic_id(self, name: str) -> bytes:
        found = self._image.topics.get(name)
        return TOPIC_ID_ZERO if found is None else found.topic_id

    def alter_offsets(self, context: RequestContext, request: alter_api.Request) -> Eventual[alter_api.Response]:
        wanted = [
            (topic.topic_name, [(each.partition_index, each.start_offset) for each in topic.partitions])
            for topic in request.topics
        ]

        def respond(result: OffsetsAltered) -> alter_api.Response:
            if result.error is not None:
                return alter_api.Response(error_code=result.error.code, error_message=result.error.wire_message)
            return alter_api.Response(
                responses=[
                    alter_api.AlterShareGroupOffsetsResponseTopic(
                        topic_name=name,
                        topic_id=result.topics.get(name, TOPIC_ID_ZERO),
                        partitions=[
                            altered_row(index, result.errors[TopicPartition(name, index)]) for index, _ in offsets
                        ],
                    )
                    for name, offsets in wanted
                ]
            )

        if not self._is_enabled():
            return respond(OffsetsAltered(error=UnsupportedVersion()))
        return after(self._offsets.alter(request.group_id, wanted), respond)

    def delete_offsets(self, context: RequestContext, request: delete_api.Request) -> Eventual[delete_api.Response]:
        names = [topic.topic_name for topic in request.topics]

        def respond(result: OffsetsDeleted) -> delete_api.Response:
            if result.error is not None:
                return delete_api.Response(error_code=result.error.code, error_message=result.error.wire_message)
            return delete_api.Response(responses=[deleted_row(name, result.topics[name]) for name in names])

        if not self._is_enabled():
            return respond(OffsetsDeleted(error=UnsupportedVersion()))
        if not request.group_id:
            return respond(OffsetsDeleted(error=InvalidGroupId()))
        return after(self._offsets.delete(request.group_id, names), respond)


def heartbeat_response(reply: Result) -> beat_api.Response:
    if isinstance(reply, BrokerError):
        return beat_api.Response(error_code=reply.code, error_message=str(reply) or None)
    assert isinstance(reply, ShareHeartbeatReply), f"a response to a heartbeat: {reply!r}"
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
    group = coordinator.shard().share_group(name).described_share()
    return describe_api.DescribedGroup(
        group_id=name,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[described_member(member) for member in group.members],
        authorized_operations=operations,
    )


def described_member(member: DescribedShareMember) -> describe_api.Member:
    return describe_api.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        assignment=describe_api.Assignment(
            topic_partitions=[assigned_partitions(one) for one in member.assigned],
        ),
    )


def assigned_partitions(one: DescribedPartitions) -> describe_api.TopicPartitions:
    return describe_api.TopicPartitions(topic_id=one.topic_id, topic_name=one.topic, partitions=list(one.partitions))


def offset_row(index: int, found: ShareOffset) -> offsets_api.DescribeShareGroupOffsetsResponsePartition:
    return offsets_api.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=found.start_offset,
        leader_epoch=found.leader_epoch,
        lag=found.lag,
        error_code=0 if found.error is None else found.error.code,
        error_message=None if found.error is None else found.error.wire_message,
    )


def altered_row(index: int, error: BrokerError | None) -> alter_api.AlterShareGroupOffsetsResponsePartition:
    return alter_api.AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.wire_message,
    )


def deleted_row(name: str, found: TopicDeleted) -> delete_api.DeleteShareGroupOffsetsResponseTopic:
    error = found.error
    return delete_api.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=TOPIC_ID_ZERO if found.topic_id is None else found.topic_id,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.wire_message,
    )
