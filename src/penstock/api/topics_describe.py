"""DescribeTopicPartitions (75), v0: topics a page at a time, in the order of their names.

A page ends when it holds as many partitions as the client and the broker allow; the cursor says where the next one
starts. The broker has no eligible leader replicas, so both lists of them are empty.
"""

from __future__ import annotations

from penstock.api.cluster import TOPIC_OPERATIONS, Reach, name_fault
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.metadata.live_config import LiveConfig
from penstock.model.generated_errors import InvalidRequest, UnknownTopicOrPartition
from penstock.model.topic import NO_LEADER, PartitionState, TopicState
from penstock.model.turns import Turns
from penstock.wire.api import describe_topic_partitions as gen


class TopicsDescribe:
    """Responds from the metadata image."""

    def __init__(self, *, controller: Controller, config: LiveConfig, turns: Turns) -> None:
        self._turns = turns
        self._image = controller.image
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=75, versions=range(1), handle=self.describe_topic_partitions),)

    @in_turns
    async def describe_topic_partitions(self, context: RequestContext, request: gen.Request) -> gen.Response:
        names = {topic.name for topic in request.topics} or {*self._image.topics, *self._image.views}
        cursor = request.cursor
        if cursor is not None:
            # The cursor's topic must be among the requested ones.
            unknown = bool(request.topics) and cursor.topic_name not in names
            if unknown or cursor.partition_index < 0:
                return refused(request)
            names = {name for name in names if name >= cursor.topic_name}
        page = Page(
            Reach(self._image.live_brokers(), context.connection.listener),
            # At least one, or a client with a limit of 0 would request the same page for ever.
            room=max(1, min(request.response_partition_limit, self._config.current.max_request_partition_size_limit)),
        )
        for name in sorted(names):
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            topic = self._image.shown(name)
            if topic is None:
                page.missing(name)
            elif not page.add(topic, first):
                break
            if self._turns.spent():
                await self._turns.pause()
        return gen.Response(topics=page.topics, next_cursor=page.next_cursor)


class Page:
    """Builder of one response."""

    def __init__(self, reach: Reach, *, room: int) -> None:
        self.topics: list[gen.DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: gen.Cursor | None = None
        self._reach = reach
        self._room = room

    def missing(self, name: str) -> None:
        error = name_fault(name) or UnknownTopicOrPartition()
        self.topics.append(
            gen.DescribeTopicPartitionsResponseTopic(
                error_code=error.code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
            )
        )

    def add(self, topic: TopicState, first: int) -> bool:
        """Add as many partitions of a topic as there is room for; False when the page is full."""
        if self._room == 0:
            self.next_cursor = gen.Cursor(topic_name=topic.name, partition_index=first)
            return False
        every = topic.shown_partitions
        shown = every[first : first + self._room]
        self._room -= len(shown)
        self.topics.append(
            gen.DescribeTopicPartitionsResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=topic.internal,
                partitions=[self._partition(partition) for partition in shown],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        after = first + len(shown)
        if after < len(every):
            self.next_cursor = gen.Cursor(topic_name=topic.name, partition_index=after)
            return False
        return True

    def _partition(self, state: PartitionState) -> gen.DescribeTopicPartitionsResponsePartition:
        seen = self._reach.partition(state)
        return gen.DescribeTopicPartitionsResponsePartition(
            error_code=seen.error_code,
            partition_index=seen.partition_index,
            leader_id=seen.leader_id,
            leader_epoch=seen.leader_epoch,
            replica_nodes=seen.replica_nodes,
            isr_nodes=seen.isr_nodes,
            eligible_leader_replicas=list(state.eligible_leader_replicas),
            last_known_elr=[] if state.last_known_leader == NO_LEADER else [state.last_known_leader],
            offline_replicas=seen.offline_replicas,
        )


def refused(request: gen.Request) -> gen.Response:
    """Fail every requested topic, because the cursor is invalid."""
    return gen.Response(
        topics=[
            gen.DescribeTopicPartitionsResponseTopic(error_code=InvalidRequest.code, name=topic.name)
            for topic in request.topics
        ]
    )
