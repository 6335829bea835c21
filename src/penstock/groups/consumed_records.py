"""Removes records that a group has consumed from topics with `cleanup.policy=consume`.

The leader of a partition asks the group's coordinator, on this broker or another, for the committed offset, and moves
the log start there; followers take the log start from it, as after DeleteRecords. Only what the coordinator's partition
has committed is told, so that a record is never removed for a commit that may get lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.ids import BrokerId, Offset, TopicId
from penstock.model.topic import GROUP_OFFSETS_TOPIC
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.replication.peers import Peers, Purpose
from penstock.wire.api import offset_fetch as gen

PARTITIONS_PER_QUESTION_MAX = 1_000
Place = tuple[TopicId, int]
CommittedAt = Mapping[Place, Offset]


class ConsumedRecords:
    """Follows the groups of the topics that this broker leads partitions of."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        replicas: Replicas,
        image: MetadataImage,
        coordinators: GroupCoordinatorService,
        peers: Peers,
        interval_ms: Callable[[], int],
        timeout_ms: Callable[[], int],
        log: Logger,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._image = image
        self._coordinators = coordinators
        self._peers = peers
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._log = log
        self._sleep = sleep
        self._asking: set[str] = set()
        """Groups whose coordinators have yet to respond."""

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await self._sleep(self._interval_ms() / 1000)
            try:
                self.check()
            except Exception:
                self._log.exception("consumed_records_failed")

    def check(self) -> None:
        """Ask what has been consumed of every partition led here that has something left to remove."""
        for group, replicas in by_group(self._replicas.live()).items():
            if group not in self._asking:
                self._asking.add(group)
                self._ask(group, replicas[:PARTITIONS_PER_QUESTION_MAX])

    def _ask(self, group: str, replicas: Sequence[Replica]) -> None:
        try:
            partition = self._coordinators.partition_of(group)
            leader = self._image.topics[GROUP_OFFSETS_TOPIC].partitions[partition].leader
            found = (
                self._ask_here(group, replicas) if leader == self._broker_id else self._ask_at(leader, group, replicas)
            )
        except (BrokerError, KeyError) as error:
            self._failed(group, error)
            return
        found.deliver_to(partial(self._remove, group, replicas), partial(self._failed, group))

    def _ask_here(self, group: str, replicas: Sequence[Replica]) -> Deferred[CommittedAt]:
        coordinator = self._coordinators.of(group)
        committed = coordinator.shard().fetch_offsets(group, [replica.tp for replica in replicas])
        ids = {replica.tp.topic: replica.topic_id for replica in replicas}
        found = {
            (each.topic_id, each.partition): each.offset for each in committed if each.topic_id == ids.get(each.topic)
        }
        wait = coordinator.committed()
        if wait is not None:
            return wait.then(lambda _: found)
        result: Deferred[CommittedAt] = Deferred()
        result.resolve(found)
        return result

    def _ask_at(self, leader: BrokerId, group: str, replicas: Sequence[Replica]) -> Deferred[CommittedAt]:
        asked: Deferred[gen.Response] = self._peers.send(
            leader, Purpose.QUERIES, gen, question(group, replicas), timeout_ms=float(self._timeout_ms())
        )
        return asked.then(committed_in)

    def _remove(self, group: str, replicas: Sequence[Replica], committed: CommittedAt) -> None:
        self._asking.discard(group)
        for replica in replicas:
            offset = committed.get((replica.topic_id, replica.tp.partition))
            if (
                offset is None
                or self._replicas.used(replica.tp) is not replica
                or replica.config.consume_group != group
            ):
                continue
            to = removable(offset, replica.offsets.log_start, replica.offsets.high_watermark)
            if to is None or not replica.is_leader:
                continue
            try:
                replica.delete_records(to)
            except BrokerError as error:
                self._log.warning("consumed_records_kept", partition=str(replica.tp), reason=str(error))

    def _failed(self, group: str, error: Exception) -> None:
        """The coordinator moves, or is not reached: the next check asks again."""
        self._asking.discard(group)
        self._log.debug("consumed_records_unknown", group=group, reason=str(error))


def by_group(replicas: Iterable[Replica]) -> dict[str, list[Replica]]:
    """The partitions led here, with records, by the group that consumes them."""
    found: dict[str, list[Replica]] = {}
    for replica in replicas:
        group = replica.config.consume_group
        if group and replica.is_leader and replica.offsets.log_start < replica.offsets.high_watermark:
            found.setdefault(group, []).append(replica)
    return found


def removable(committed: Offset, log_start: Offset, high_watermark: Offset) -> Offset | None:
    """Up to where records may be removed; None where nothing is left to remove.

    A client may commit any offset, also one beyond the end.
    """
    to = min(committed, high_watermark)
    return to if to > log_start else None


def question(group: str, replicas: Sequence[Replica]) -> gen.Request:
    """A question for committed offsets, by topic id: those of a deleted topic of the same name do not count."""
    topics: dict[TopicId, gen.OffsetFetchRequestTopics] = {}
    for replica in replicas:
        topic = topics.setdefault(
            replica.topic_id, gen.OffsetFetchRequestTopics(name=replica.tp.topic, topic_id=replica.topic_id)
        )
        topic.partition_indexes.append(replica.tp.partition)
    return gen.Request(groups=[gen.OffsetFetchRequestGroup(group_id=group, topics=list(topics.values()))])


def committed_in(response: gen.Response) -> CommittedAt:
    return {
        (TopicId(topic.topic_id), found.partition_index): Offset(found.committed_offset)
        for group in response.groups
        if not group.error_code
        for topic in group.topics
        for found in topic.partitions
        if not found.error_code and found.committed_offset >= 0
    }
