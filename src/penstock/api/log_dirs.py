"""DescribeLogDirs (35), v1 to v5, and AlterReplicaLogDirs (34), v1 and v2: the partitions of each log directory.

A partition can be moved to another directory of its broker while it is in use (`maintenance.moves`).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.config.broker import BrokerConfig
from penstock.maintenance.moves import Moving
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.model.turns import Turns
from penstock.storage.store import DirectoryState, LogStore
from penstock.wire.api import alter_replica_log_dirs as moved
from penstock.wire.api import describe_log_dirs as gen

Wanted = dict[str, set[int]] | None
"""Partitions by topic; None is all."""


class LogDirs:
    """Describes the log directories, and starts moves between them."""

    def __init__(self, *, moving: Moving, store: LogStore, turns: Turns, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._turns = turns
        self._moving = moving
        self._store = store

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=34, versions=range(1, 3), handle=self.alter_replica_log_dirs),
            Api(key=35, versions=range(1, 6), handle=self.describe_log_dirs),
        )

    @in_turns
    async def describe_log_dirs(self, context: RequestContext, request: gen.Request) -> gen.Response:
        wanted: Wanted = None
        if request.topics is not None:
            wanted = {}
            for topic in request.topics:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)
        return gen.Response(
            results=[await self._described(directory, wanted) for directory in self._store.directories()]
        )

    async def _described(self, directory: DirectoryState, wanted: Wanted) -> gen.DescribeLogDirsResult:
        result = await described(directory, wanted, self._turns)
        result.is_cordoned = bool(self._config().cordoned_log_dirs)
        topics = {topic.name: topic for topic in result.topics}
        for name, index in self._moving.under_way(directory.path):
            if wanted is None or index in wanted.get(name, ()):
                if name not in topics:
                    topics[name] = gen.DescribeLogDirsTopic(name=name)
                    result.topics.append(topics[name])
                log = self._store.get(TopicPartition(name, index))
                lag = 0 if log is None else log.log_end - log.log_start
                topics[name].partitions.append(
                    gen.DescribeLogDirsPartition(partition_index=index, offset_lag=lag, is_future_key=True)
                )
        return result

    @in_turns
    async def alter_replica_log_dirs(self, context: RequestContext, request: moved.Request) -> moved.Response:
        """Respond when the moves are accepted; DescribeLogDirs shows their progress."""
        results: dict[str, list[moved.AlterReplicaLogDirPartitionResult]] = {}
        for wanted in request.dirs:
            for topic in wanted.topics:
                partition_results = results.setdefault(topic.name, [])
                for index in topic.partitions:
                    code = self._move(TopicPartition(topic.name, index), wanted.path)
                    partition_results.append(
                        moved.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
                    if self._turns.spent():
                        await self._turns.pause()
        return moved.Response(
            results=[
                moved.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
                for name, partitions in results.items()
            ]
        )

    def _move(self, tp: TopicPartition, path: str) -> int:
        try:
            self._moving.request(tp, path)
        except BrokerError as error:
            return error.code
        return 0


async def described(directory: DirectoryState, wanted: Wanted, turns: Turns) -> gen.DescribeLogDirsResult:
    if directory.offline is not None:
        return gen.DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=directory.path)
    topics: dict[str, list[gen.DescribeLogDirsPartition]] = {}
    for (topic, index), size in sorted(directory.sizes.items()):
        if wanted is None or index in wanted.get(topic, ()):
            partition = gen.DescribeLogDirsPartition(partition_index=index, partition_size=size)
            topics.setdefault(topic, []).append(partition)
        if turns.spent():
            await turns.pause()
    return gen.DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[gen.DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.free_bytes,
    )
