"""ListOffsets (2), v1 to v11, and OffsetForLeaderEpoch (23), v2 to v4: offsets by timestamp and by leader epoch.

A lookup by timestamp may read the disk, so it runs off the loop on a view of the log; everything else is in memory.
There is no tiered storage: the earliest local offset is the earliest, and there is no latest tiered one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.model.errors import BrokerError, wire_error
from penstock.model.generated_errors import (
    CorruptMessage,
    InvalidRequest,
    KafkaStorageError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnknownServerError,
    UnsupportedVersion,
)
from penstock.model.ids import LeaderEpoch
from penstock.model.turns import Turns
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.partition.role import Offline
from penstock.replication.log_ends import ANY_REPLICA
from penstock.storage.view import LogChanged, LogView, TimedOffset
from penstock.wire.api import list_offsets as by_time
from penstock.wire.api import offset_for_leader_epoch as by_epoch
from penstock.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsPartitionResponse
from penstock.wire.primitives import Malformed
from penstock.wire.slices import each

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
VERSION_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
EPOCHS_FROM = 4
"""The first version of ListOffsets whose response has leader epochs."""
NOT_AVAILABLE_FROM = 5
"""The first version whose clients know `OffsetNotAvailable`."""
REPLICA_FROM = 3
"""The first version of OffsetForLeaderEpoch whose request names a replica."""
CONSUMER = -1
"""In its place."""
EPOCHS_AT_ONCE_MAX = 16
"""Topics, and partitions of a topic, whose epochs are looked up in one turn of the loop: each may open its log."""

SEARCHES_MAX = 10
"""Most searches of one log for one response: each but the first follows a change of its files."""

Search = tuple[ListOffsetsPartitionResponse, Replica, int, Callable[[LogView], TimedOffset | None]]
"""A response to fill in, its replica, the end of the readable offsets, and the lookup that reads the disk."""


class Offsets:
    """Looks up offsets; changes nothing."""

    def __init__(self, *, replicas: Replicas, threads: Executor, turns: Turns) -> None:
        self._replicas = replicas
        self._threads = threads
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=2, versions=range(1, 12), handle=self.list_offsets),
            Api(key=23, versions=range(2, 5), handle=self.offset_for_leader_epoch),
        )

    @in_turns
    async def list_offsets(self, context: RequestContext, request: by_time.Request) -> by_time.Response:
        searches: list[Search] = []
        asked = await self._counted(request)
        topics: list[by_time.ListOffsetsTopicResponse] = []
        for topic in request.topics:
            partitions: list[ListOffsetsPartitionResponse] = []
            topics.append(by_time.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
            seen: set[int] = set()
            for item in topic.partitions:
                index = item.partition_index
                if index not in seen:
                    seen.add(index)
                    partitions.append(
                        self._one(topic.name, item, context.api_version, request, searches)
                        if asked[topic.name, index] == 1
                        else failed(index, InvalidRequest())
                    )
                if self._turns.spent():
                    await self._turns.pause()
            if self._turns.spent():
                await self._turns.pause()
        if searches:
            await self._search(searches, context.api_version)
        return by_time.Response(topics=topics)

    async def _counted(self, request: by_time.Request) -> Counter[tuple[str, int]]:
        """How often a request names each partition."""
        asked: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            for item in topic.partitions:
                asked[topic.name, item.partition_index] += 1
                if self._turns.spent():
                    await self._turns.pause()
        return asked

    def _one(
        self, topic: str, item: ListOffsetsPartition, version: int, request: by_time.Request, searches: list[Search]
    ) -> ListOffsetsPartitionResponse:
        isolation_level = request.isolation_level
        index, timestamp, budget = item.partition_index, item.timestamp, self._replicas.decompression
        try:
            if timestamp < LATEST and version < VERSION_SINCE.get(timestamp, 1 if timestamp == EARLIEST else 1 << 15):
                raise UnsupportedVersion
            if isolation_level not in (0, READ_COMMITTED):
                raise UnknownServerError
            replica = self._replicas.readable(topic, index)
            leader, offsets = replica.leading(), replica.offsets
            leader.check_epoch(LeaderEpoch(item.current_leader_epoch))
            response = ListOffsetsPartitionResponse(partition_index=index)
            readable = offsets.last_stable if isolation_level == READ_COMMITTED else offsets.high_watermark
            if request.replica_id >= 0:
                # A follower asks where its leader's log ends.
                readable = offsets.log_end
            if timestamp == LATEST:
                if request.replica_id < 0 and not leader.latest_is_known():
                    raise OffsetNotAvailable
                response.offset = readable
                response.leader_epoch = leader.leader_epoch
            elif timestamp in (EARLIEST, EARLIEST_LOCAL):
                response.offset = offsets.log_start
                known = replica.log.epochs.epoch_at(offsets.log_start)
                holds_any = offsets.log_start < offsets.log_end
                response.leader_epoch = known if known >= 0 or holds_any else leader.leader_epoch
            elif timestamp == MAX_TIMESTAMP:
                searches.append((response, replica, readable, lambda view: view.max_timestamp(budget)))
            elif timestamp >= 0:
                searches.append((response, replica, readable, lambda view: view.offset_for_time(timestamp, budget)))
        except BrokerError as error:
            return failed(index, as_known(error, version))
        if version < EPOCHS_FROM:
            response.leader_epoch = -1
        return response

    async def _search(self, searches: list[Search], version: int) -> None:
        for response, replica, readable, search in searches:
            try:
                found = await searched(replica, search, self._threads)
            except BrokerError as error:
                response.error_code, _ = wire_error(error)
                continue
            except Malformed:
                # The records of a compressed batch, which were not checked when it was produced, are corrupt.
                response.error_code = CorruptMessage.code
                continue
            # Ignore a record that is not readable yet, unless an earlier leader may have let it be read.
            if found is not None and found.offset >= readable and is_catching_up(replica):
                response.error_code = as_known(OffsetNotAvailable(), version).code
            elif found is not None and found.offset < readable:
                response.timestamp = found.timestamp
                response.offset = found.offset
                response.leader_epoch = found.leader_epoch if version >= EPOCHS_FROM else -1

    def offset_for_leader_epoch(self, context: RequestContext, request: by_epoch.Request) -> by_epoch.Response:
        # Older versions do not have the field, and its default is the id of a replica that any of them serves.
        is_any = request.replica_id == ANY_REPLICA and context.api_version >= REPLICA_FROM
        is_consumer = request.replica_id == CONSUMER
        end_of = self._log_end if is_any else partial(self._epoch_end, is_consumer=is_consumer)

        def result(topic: by_epoch.OffsetForLeaderTopic) -> by_epoch.OffsetForLeaderTopicResult:
            return by_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=each(
                    topic.partitions, lambda item: end_of(topic.topic, item), at_once_max=EPOCHS_AT_ONCE_MAX
                ),
            )

        return by_epoch.Response(topics=each(request.topics, result, at_once_max=EPOCHS_AT_ONCE_MAX))

    def _log_end(self, topic: str, item: by_epoch.OffsetForLeaderPartition) -> by_epoch.EpochEndOffset:
        """The last epoch and the end of this replica's log, whether it leads or not; the controller asks for it."""
        response = by_epoch.EpochEndOffset(partition=item.partition)
        try:
            replica = self._replicas.get(topic, item.partition)
            if isinstance(replica.role, Offline):
                raise replica.role.reason
            response.leader_epoch, response.end_offset = replica.log.epochs.latest, replica.offsets.log_end
        except BrokerError as error:
            response.error_code, _ = wire_error(error)
        return response

    def _epoch_end(
        self, topic: str, item: by_epoch.OffsetForLeaderPartition, *, is_consumer: bool
    ) -> by_epoch.EpochEndOffset:
        """The greatest known epoch up to the requested one, and its end offset; -1 and -1 for a future epoch."""
        response = by_epoch.EpochEndOffset(partition=item.partition)
        try:
            replica = self._replicas.readable(topic, item.partition)
            leader = replica.leading()
            leader.check_epoch(LeaderEpoch(item.current_leader_epoch))
            asked = LeaderEpoch(item.leader_epoch)
            epoch, end = replica.end_for_consumer(asked) if is_consumer else leader.end_of(asked, replica.log.epochs)
            response.leader_epoch, response.end_offset = epoch, end
        except BrokerError as error:
            response.error_code, _ = wire_error(error)
        return response


async def searched(
    replica: Replica, search: Callable[[LogView], TimedOffset | None], threads: Executor
) -> TimedOffset | None:
    """Search a log in a thread; repeat when a compaction changed its files meanwhile."""
    for _ in range(SEARCHES_MAX):
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, search, replica.log.view())
        except LogChanged:
            continue
        except OSError as error:
            raise replica.log.directory.failed(error, f"searching {replica.tp} by time") from error
    raise KafkaStorageError(f"The files of {replica.tp} changed {SEARCHES_MAX} times while they were searched.")


def is_catching_up(replica: Replica) -> bool:
    """Whether a new leader's high watermark is below what earlier leaders may have committed."""
    return isinstance(replica.role, Leader) and not replica.role.latest_is_known()


def as_known(error: BrokerError, version: int) -> BrokerError:
    """The error as clients of a version know it."""
    return LeaderNotAvailable() if isinstance(error, OffsetNotAvailable) and version < NOT_AVAILABLE_FROM else error


def failed(index: int, error: BrokerError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
