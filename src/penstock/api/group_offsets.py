"""OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47), every version: committed offsets of groups.

OffsetCommit and OffsetFetch identify topics by name up to version 9 and by id from version 10 on. OffsetCommit is the
most frequent request to a coordinator, so it has its own codec, and its response is built before the commit succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.api.coordinator_requests import submit, when_committed
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.coordinator.step import Result
from penstock.groups.commands import (
    CommitEntry,
    CommitOffsets,
    CommitReply,
    CommittedOffset,
    DeleteOffsets,
    DeleteOffsetsReply,
    Failure,
)
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.service import GroupCoordinatorService
from penstock.groups.shard import GroupShard
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidGroupId,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from penstock.model.ids import TOPIC_ID_ZERO, TopicId
from penstock.model.topic import TopicState
from penstock.model.turns import Turns
from penstock.wire.api import offset_delete as delete_api
from penstock.wire.api import offset_fetch as fetch_api
from penstock.wire.commit import CommitRequest, TopicResponse, decode_commit, encode_commit_response

IDS_FROM = 10
GROUPS_FROM = 8
GROUP_ERROR_FROM = 2
NO_OFFSET = -1
OFFSETS_AT_ONCE_MAX = 500
"""Offsets of a group that are looked up between two reads of the clock."""


class CommitResponse:
    """The response: topics with an error code for each partition."""

    __slots__ = ("throttle_time_ms", "topics")

    def __init__(self, topics: list[TopicResponse]) -> None:
        self.topics = topics
        self.throttle_time_ms = 0


def encode(response: CommitResponse, version: int) -> bytes:
    return encode_commit_response(response.topics, version, response.throttle_time_ms)


class GroupOffsets:
    """Passes commits to the coordinators, and reads committed offsets from them."""

    def __init__(self, *, coordinators: GroupCoordinatorService, image: MetadataImage, turns: Turns) -> None:
        self._turns = turns
        self._coordinators = coordinators
        self._image = image

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=8, versions=range(2, 11), handle=self.offset_commit, decode=decode_commit, encode=encode),
            Api(key=9, versions=range(1, 11), handle=self.offset_fetch),
            Api(key=47, versions=range(1), handle=self.offset_delete),
        )

    # Committing

    def offset_commit(self, context: RequestContext, request: CommitRequest) -> Eventual[CommitResponse]:
        by_id = context.api_version >= IDS_FROM
        unknown: list[TopicResponse] = []
        accepted: list[TopicResponse] = []
        entries: list[CommitEntry] = []
        for name, topic_id, partitions in request.topics:
            known = self._topic(name, topic_id)
            if known is None:
                error = UnknownTopicId.code if by_id else UnknownTopicOrPartition.code
                unknown.append((name, topic_id, [(partition[0], error) for partition in partitions]))
                continue
            if known.configs and not self._coordinators.may_commit(known, request.group):
                unknown.append((name, topic_id, [(part[0], TopicAuthorizationFailed.code) for part in partitions]))
                continue
            if len(entries) + len(partitions) > OFFSETS_AT_ONCE_MAX:
                try:
                    self._coordinators.of(request.group).check_commit(len(entries) + len(partitions))
                except BrokerError as error:
                    return refused_commit(request, error)
            count, known_name, known_id = known.shown_count, known.name, known.topic_id
            results: list[tuple[int, int]] = []
            missing: list[tuple[int, int]] = []
            for index, offset, leader_epoch, metadata in partitions:
                if 0 <= index < count:
                    entries.append(CommitEntry(known_name, index, offset, leader_epoch, metadata, known_id))
                    results.append((index, 0))
                elif 0 <= index < len(known.partitions):
                    # A client that keeps partitions of a finalized topic: they have no records, and no offsets.
                    missing.append((index, 0))
                else:
                    missing.append((index, UnknownTopicOrPartition.code))
            if missing:
                unknown.append((name, topic_id, missing))
            if results:
                accepted.append((name, topic_id, results))
        if not entries:
            return CommitResponse(unknown)
        return self._commit(context, request, tuple(entries), accepted, unknown)

    def _commit(
        self,
        context: RequestContext,
        request: CommitRequest,
        entries: tuple[CommitEntry, ...],
        accepted: list[TopicResponse],
        unknown: list[TopicResponse],
    ) -> Eventual[CommitResponse]:
        def response(reply: Result) -> CommitResponse:
            if isinstance(reply, BrokerError):
                fail(accepted, dict.fromkeys(range(len(entries)), type(reply)))
            else:
                assert isinstance(reply, CommitReply), f"a response to a commit: {reply!r}"
                if reply.failures:
                    fail(accepted, reply.failures)
            return CommitResponse(merged(unknown, accepted) if unknown else accepted)

        command = CommitOffsets(
            group=request.group,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation,
            entries=entries,
            version=context.api_version,
            retention_ms=request.retention_ms,
        )
        return submit(self._coordinators, request.group, command, response)

    def _topic(self, name: str, topic_id: bytes | None) -> TopicState | None:
        if topic_id is None:
            return self._image.shown(name)
        return self._image.shown_by_id(TopicId(topic_id))

    # Fetching

    @in_turns
    async def offset_fetch(self, context: RequestContext, request: fetch_api.Request) -> Eventual[fetch_api.Response]:
        version = context.api_version
        wanted = request.groups if version >= GROUPS_FROM else [single_group(request)]
        coordinators: list[GroupCoordinatorContext] = []
        groups: list[fetch_api.OffsetFetchResponseGroup] = []
        for group in wanted:
            try:
                coordinator = self._coordinators.of(group.group_id)
                groups.append(await self._fetched(coordinator, group, version, stable=request.require_stable))
                coordinators.append(coordinator)
            except BrokerError as error:
                groups.append(group_error(group, error, version))
            if self._turns.spent():
                await self._turns.pause()

        def failed(error: BrokerError) -> fetch_api.Response:
            return fetch_response([group_error(group, error, version) for group in wanted], version)

        return when_committed(coordinators, fetch_response(groups, version), failed)

    async def _fetched(
        self,
        coordinator: GroupCoordinatorContext,
        group: fetch_api.OffsetFetchRequestGroup,
        version: int,
        *,
        stable: bool,
    ) -> fetch_api.OffsetFetchResponseGroup:
        """A group's offsets; with `stable`, partitions with offsets of an open transaction get an error."""
        by_id = version >= IDS_FROM
        if group.topics is None:
            found = coordinator.shard().fetch_offsets(
                group.group_id, member_id=group.member_id, member_epoch=group.member_epoch
            )
            topics = self._all_topics(found, by_id)
            if stable:
                hide_unsettled(coordinator.shard(), group.group_id, [(topic, topic.name) for topic in topics])
            return fetch_api.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
        known: list[tuple[fetch_api.OffsetFetchRequestTopics, str]] = []
        unknown: list[fetch_api.OffsetFetchResponseTopics] = []
        for topic in group.topics:
            name: str | None = topic.name
            if by_id:
                state = self._image.shown_by_id(TopicId(topic.topic_id))
                name = None if state is None else state.name
            if name is None:
                unknown.append(fetch_topic_error(topic, UnknownTopicId.code))
            else:
                known.append((topic, name))
        topics = [await self._fetched_topic(coordinator, group, topic, name, stable=stable) for topic, name in known]
        if not topics:
            # The member of a request without known topics is checked as well.
            coordinator.shard().fetch_offsets(
                group.group_id, [], member_id=group.member_id, member_epoch=group.member_epoch
            )
        return fetch_api.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics + unknown)

    async def _fetched_topic(
        self,
        coordinator: GroupCoordinatorContext,
        group: fetch_api.OffsetFetchRequestGroup,
        topic: fetch_api.OffsetFetchRequestTopics,
        name: str,
        *,
        stable: bool,
    ) -> fetch_api.OffsetFetchResponseTopics:
        """A topic's offsets, some partitions at a time."""
        partitions: list[fetch_api.OffsetFetchResponsePartitions] = []
        indexes = topic.partition_indexes
        for first in range(0, max(1, len(indexes)), OFFSETS_AT_ONCE_MAX):
            some = indexes[first : first + OFFSETS_AT_ONCE_MAX]
            shard = coordinator.shard()
            found = shard.fetch_offsets(
                group.group_id,
                [(name, index) for index in some],
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )
            offsets = {offset.partition: offset for offset in found}
            part = fetch_api.OffsetFetchResponseTopics(
                partitions=[fetched_partition(index, offsets.get(index), topic.topic_id) for index in some]
            )
            if stable:
                hide_unsettled(shard, group.group_id, [(part, name)])
            partitions += part.partitions
            if self._turns.spent():
                await self._turns.pause()
        return fetch_api.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    def _all_topics(self, found: Iterable[CommittedOffset], by_id: bool) -> list[fetch_api.OffsetFetchResponseTopics]:
        """All committed offsets of a group. By id, deleted topics are left out: they have no id any more."""
        topics: dict[str, fetch_api.OffsetFetchResponseTopics] = {}
        for offset in found:
            topic = topics.get(offset.topic)
            if topic is None:
                state = self._image.shown(offset.topic)
                topic_id = TOPIC_ID_ZERO if state is None or not by_id else state.topic_id
                topic = topics[offset.topic] = fetch_api.OffsetFetchResponseTopics(name=offset.topic, topic_id=topic_id)
            topic.partitions.append(fetched_partition(offset.partition, offset, TOPIC_ID_ZERO))
        return [topic for topic in topics.values() if not by_id or topic.topic_id != TOPIC_ID_ZERO]

    # Deleting

    def offset_delete(self, context: RequestContext, request: delete_api.Request) -> Eventual[delete_api.Response]:
        if not request.group_id:
            return delete_api.Response(error_code=InvalidGroupId.code)
        results: dict[str, delete_api.OffsetDeleteResponseTopic] = {}
        accepted: list[tuple[str, int]] = []
        for topic in request.topics:
            known = self._image.shown(topic.name)
            count = 0 if known is None else len(known.partitions)
            for partition in topic.partitions:
                if 0 <= partition.partition_index < count:
                    accepted.append((topic.name, partition.partition_index))
                else:
                    add_deleted(results, topic.name, partition.partition_index, UnknownTopicOrPartition.code)

        def response(reply: Result) -> delete_api.Response:
            if isinstance(reply, BrokerError):
                return delete_api.Response(error_code=reply.code)
            assert isinstance(reply, DeleteOffsetsReply), f"a response to a deletion of offsets: {reply!r}"
            for at, (name, index) in enumerate(accepted):
                failure = reply.failures.get(at)
                add_deleted(results, name, index, 0 if failure is None else failure.code)
            return delete_api.Response(topics=list(results.values()))

        command = DeleteOffsets(group=request.group_id, partitions=tuple(accepted))
        return submit(self._coordinators, request.group_id, command, response)


def refused_commit(request: CommitRequest, error: BrokerError) -> CommitResponse:
    """Fail every partition of a commit that is too large."""
    return CommitResponse(
        [
            (name, topic_id, [(partition[0], error.code) for partition in partitions])
            for name, topic_id, partitions in request.topics
        ]
    )


def fail(accepted: list[TopicResponse], failures: Mapping[int, Failure]) -> None:
    """Replace the results of failed entries by their errors; entries are numbered over all topics."""
    at = 0
    for _, _, results in accepted:
        for place, (index, _) in enumerate(results):
            failure = failures.get(at)
            if failure is not None:
                results[place] = (index, failure.code)
            at += 1


def merged(unknown: list[TopicResponse], accepted: list[TopicResponse]) -> list[TopicResponse]:
    """Unknown topics precede known ones; a topic with partitions of both kinds is listed once."""
    topics: dict[tuple[str, bytes | None], TopicResponse] = {}
    for topic in (*unknown, *accepted):
        first = topics.setdefault(topic[:2], topic)
        if first is not topic:
            first[2].extend(topic[2])
    return list(topics.values())


def single_group(request: fetch_api.Request) -> fetch_api.OffsetFetchRequestGroup:
    """The single group of an older request, in the form of later versions."""
    topics: list[fetch_api.OffsetFetchRequestTopics] | None = None
    if request.topics is not None:
        topics = [
            fetch_api.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return fetch_api.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def fetched_partition(
    index: int, offset: CommittedOffset | None, topic_id: bytes
) -> fetch_api.OffsetFetchResponsePartitions:
    """The committed offset of one partition, unless it was committed for an earlier topic of the same name."""
    if offset is None or (TOPIC_ID_ZERO not in (offset.topic_id, topic_id) and offset.topic_id != topic_id):
        return fetch_api.OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return fetch_api.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def hide_unsettled(
    shard: GroupShard, group: str, topics: Iterable[tuple[fetch_api.OffsetFetchResponseTopics, str]]
) -> None:
    """Respond UnstableOffsetCommit for partitions with offsets of an open transaction, so that the client retries."""
    for topic, name in topics:
        for at, partition in enumerate(topic.partitions):
            if shard.unsettled(group, name, partition.partition_index):
                topic.partitions[at] = fetch_api.OffsetFetchResponsePartitions(
                    partition_index=partition.partition_index,
                    committed_offset=NO_OFFSET,
                    error_code=UnstableOffsetCommit.code,
                )


def fetch_topic_error(topic: fetch_api.OffsetFetchRequestTopics, code: int) -> fetch_api.OffsetFetchResponseTopics:
    return fetch_api.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            fetch_api.OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code)
            for index in topic.partition_indexes
        ],
    )


def group_error(
    group: fetch_api.OffsetFetchRequestGroup, error: BrokerError, version: int
) -> fetch_api.OffsetFetchResponseGroup:
    """The error of a whole group; the first version has it in each partition."""
    if version >= GROUP_ERROR_FROM:
        return fetch_api.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    return fetch_api.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=[fetch_topic_error(topic, error.code) for topic in group.topics or ()]
    )


def fetch_response(groups: list[fetch_api.OffsetFetchResponseGroup], version: int) -> fetch_api.Response:
    if version >= GROUPS_FROM:
        return fetch_api.Response(groups=groups)
    [group] = groups
    return fetch_api.Response(
        error_code=group.error_code,
        topics=[
            fetch_api.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    fetch_api.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def add_deleted(results: dict[str, delete_api.OffsetDeleteResponseTopic], name: str, index: int, code: int) -> None:
    topic = results.get(name)
    if topic is None:
        topic = results[name] = delete_api.OffsetDeleteResponseTopic(name=name)
    topic.partitions.append(delete_api.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
