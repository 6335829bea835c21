"""Queues: topics with the groups that work on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.client.groups import GroupInfo, GroupMember, Groups
from penstock.client.share_groups import KIND, ShareGroups, ShareProgress

CONSUMER = "consumer"
CONSUME_GROUP = "consume.group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A topic and one group that works on it."""

    topic: str
    group: str
    kind: str
    """share, or the kind of the ordinary group that `consume.group` names."""
    group_members: tuple[GroupMember, ...]
    """All members of the group, also those that work on other topics."""
    progress: Mapping[int, ShareProgress]
    """By partition; partitions that no member has begun, and those of ordinary groups, are left out."""
    lag: int | None
    """Records that are not finished, of the partitions where that is known; None if it is of none."""

    @property
    def is_shared(self) -> bool:
        return self.kind == KIND

    def members(self, partition: int | None = None) -> tuple[GroupMember, ...]:
        """The members to which the topic, or one partition, is assigned."""
        return tuple(
            each
            for each in self.group_members
            if any(topic == self.topic and partition in (None, index) for topic, index in each.places)
        )


class Queues:
    """The queues of a cluster."""

    def __init__(self, connection: Connection) -> None:
        self._shares = ShareGroups(connection)
        self._groups = Groups(connection)
        self._admin = Admin(connection)

    def all(self) -> tuple[Queue, ...]:
        """Topics with share groups, and those whose records one group removes, by name."""
        found = {
            (queue.topic, queue.group): queue
            for each in self._shares.list()
            for queue in self._of_share_group(each.name)
        }
        for topic in self._admin.topics():
            group = "" if topic.internal else self._consume_group(topic.name)
            if group and (topic.name, group) not in found:
                found[topic.name, group] = self._consumed(topic.name, group)
        return tuple(queue for _, queue in sorted(found.items()))

    def of(self, topic: str, group: str | None = None) -> tuple[Queue, ...]:
        """The groups that work on a topic, or the one of that name if it does."""
        self._admin.describe(topic)
        names = [each.name for each in self._shares.list()] if group is None else [group]
        found = {queue.group: queue for name in names for queue in self._of_share_group(name) if queue.topic == topic}
        consumer = self._consume_group(topic)
        if consumer and consumer not in found and group in (None, consumer):
            found[consumer] = self._consumed(topic, consumer)
        return tuple(queue for _, queue in sorted(found.items()))

    def _of_share_group(self, group: str) -> Iterator[Queue]:
        described = self._shares.describe(group)
        if described is None:
            return
        info, progress = described
        topics = {topic for topic, _ in (*progress, *info.owners())}
        for topic in sorted(topics):
            own = {index: each for (name, index), each in progress.items() if name == topic}
            lags = [each.lag for each in own.values() if each.lag is not None]
            yield Queue(
                topic=topic,
                group=group,
                kind=KIND,
                group_members=info.members,
                progress=own,
                lag=sum(lags) if lags else None,
            )

    def _consumed(self, topic: str, group: str) -> Queue:
        """A topic whose records an ordinary group removes, or a share group that no member has joined yet."""
        info: GroupInfo | None = None
        lag: int | None = None
        try:
            info = self._groups.describe(group)
            offsets = {
                index: offset for (name, index), offset in self._groups.committed(group).items() if name == topic
            }
        except ClientError:
            # There is no such group yet.
            offsets = {}
        if offsets:
            bounds = self._admin.bounds(topic, sorted(offsets))
            lag = sum(max(0, bounds[index].end - max(each, bounds[index].start)) for index, each in offsets.items())
        return Queue(
            topic=topic,
            group=group,
            kind=CONSUMER if info is None else info.kind,
            group_members=() if info is None else info.members,
            progress={},
            lag=lag,
        )

    def _consume_group(self, topic: str) -> str:
        settings = self._admin.configs(Resource(kind="topic", name=topic))
        return next((each.value or "" for each in settings if each.name == CONSUME_GROUP), "")
