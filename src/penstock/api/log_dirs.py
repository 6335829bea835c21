"""DescribeLogDirs (35), v1 to v5, and AlterReplicaLogDirs (34), v1 and v2: which directory holds what.

A partition stays in the directory it was made in: asking for that one succeeds, asking for another is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api.registry import Api, RequestContext
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, KafkaStorageError, LogDirNotFound
from penstock.model.ids import TopicPartition
from penstock.runtime.hosts import Hosts
from penstock.storage.store import DirectoryState, LogStore
from penstock.wire.api import alter_replica_log_dirs as moved
from penstock.wire.api import describe_log_dirs as gen

Wanted = dict[str, set[int]] | None
"""Partitions by topic; None is all."""


class LogDirs:
    """Tells what the log directories hold."""

    def __init__(self, *, hosts: Hosts, store: LogStore) -> None:
        self._hosts = hosts
        self._store = store

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=34, versions=range(1, 3), handle=self.alter_replica_log_dirs),
            Api(key=35, versions=range(1, 6), handle=self.describe_log_dirs),
        )

    def describe_log_dirs(self, context: RequestContext, request: gen.Request) -> gen.Response:
        wanted: Wanted = None
        if request.topics is not None:
            wanted = {}
            for topic in request.topics:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)
        return gen.Response(results=[described(directory, wanted) for directory in self._store.directories()])

    def alter_replica_log_dirs(self, context: RequestContext, request: moved.Request) -> moved.Response:
        holding = {directory.path: directory.sizes for directory in self._store.directories()}
        results: dict[str, list[moved.AlterReplicaLogDirPartitionResult]] = {}
        for wanted in request.dirs:
            for topic in wanted.topics:
                results.setdefault(topic.name, []).extend(
                    moved.AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=self._refusal(holding, wanted.path, TopicPartition(topic.name, index)),
                    )
                    for index in topic.partitions
                )
        return moved.Response(
            results=[
                moved.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
                for name, partitions in results.items()
            ]
        )

    def _refusal(self, holding: Mapping[str, Mapping[TopicPartition, int]], path: str, tp: TopicPartition) -> int:
        """Why a partition cannot go there; 0 when it is there."""
        if path not in holding:
            return LogDirNotFound.code
        if tp in holding[path]:
            return 0
        try:
            self._hosts.get(tp.topic, tp.partition)
        except BrokerError as error:
            return error.code
        return InvalidRequest.code


def described(directory: DirectoryState, wanted: Wanted) -> gen.DescribeLogDirsResult:
    if directory.offline is not None:
        return gen.DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=directory.path)
    topics: dict[str, list[gen.DescribeLogDirsPartition]] = {}
    for (topic, index), size in sorted(directory.sizes.items()):
        if wanted is None or index in wanted.get(topic, ()):
            partition = gen.DescribeLogDirsPartition(partition_index=index, partition_size=size)
            topics.setdefault(topic, []).append(partition)
    return gen.DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[gen.DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.free_bytes,
    )
