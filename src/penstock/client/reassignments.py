"""Reassignments of partitions: requests, what is in progress, and how much is left to copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.failures import ClientError, failure
from penstock.client.library import kafka
from penstock.client.wire_calls import WireCalls, refuse
from penstock.wire.api import alter_partition_reassignments as altered
from penstock.wire.api import describe_log_dirs
from penstock.wire.api import list_partition_reassignments as listed

ALTER_VERSION = 1
LIST_VERSION = 0
LOG_DIRS_VERSION = 4

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """A reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once it is complete."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas to which a cancellation returns."""
        return tuple(each for each in self.replicas if each not in self.adding)


def alter_reassignments(
    calls: WireCalls, wanted: Mapping[Place, tuple[int, ...] | None], *, allow_factor_change: bool = True
) -> dict[Place, ClientError]:
    """Begin reassignments, or cancel those whose replicas are None; returns why some were refused."""
    doing = "cannot reassign partitions"
    topics: dict[str, list[altered.ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        brokers = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(altered.ReassignablePartition(partition_index=index, replicas=brokers))
    request = altered.Request(
        allow_replication_factor_change=allow_factor_change,
        topics=[altered.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    response: altered.Response = calls.of_anyone(doing, altered, ALTER_VERSION, request)
    refuse(doing, response.error_code)
    return {
        (topic.name, each.partition_index): failure(
            kafka().KafkaError(each.error_code, each.error_message), f"{topic.name}-{each.partition_index}"
        )
        for topic in response.responses
        for each in topic.partitions
        if each.error_code
    }


def list_reassignments(calls: WireCalls, places: Iterable[Place] | None = None) -> dict[Place, Ongoing]:
    """The reassignments in progress: those of some partitions, or all."""
    doing = "cannot list reassignments"
    topics: list[listed.ListPartitionReassignmentsTopics] | None = None
    if places is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        topics = [
            listed.ListPartitionReassignmentsTopics(name=name, partition_indexes=parts)
            for name, parts in by_topic.items()
        ]
    response: listed.Response = calls.of_anyone(doing, listed, LIST_VERSION, listed.Request(topics=topics))
    refuse(doing, response.error_code)
    return {
        (topic.name, each.partition_index): Ongoing(
            topic=topic.name,
            partition=each.partition_index,
            replicas=tuple(each.replicas),
            adding=tuple(each.adding_replicas),
            removing=tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    }


def replica_sizes(calls: WireCalls, brokers: Iterable[int], topics: Iterable[str]) -> dict[tuple[Place, int], int]:
    """Bytes of each replica of some topics on some brokers; brokers that do not respond are left out."""
    addresses = calls.cluster().brokers
    wanted = set(topics)
    found: dict[tuple[Place, int], int] = {}
    for broker in sorted(set(brokers)):
        if broker not in addresses:
            continue
        try:
            response: describe_log_dirs.Response = calls.ask(
                "cannot look at log directories",
                addresses[broker],
                describe_log_dirs,
                LOG_DIRS_VERSION,
                describe_log_dirs.Request(topics=None),
            )
        except ClientError:
            continue
        for directory in response.results:
            for topic in directory.topics:
                if topic.name in wanted:
                    for each in topic.partitions:
                        found[(topic.name, each.partition_index), broker] = each.partition_size
    return found
