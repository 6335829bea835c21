"""Moves topics of a store that an earlier version wrote into the format of this one.

An earlier version kept the states of all partitions in the topic's own node. Each topic's partitions are written into
nodes of their own before the topic's node is replaced, so a start that is interrupted leaves every topic in one format
or the other, and the next start goes on. Only the embedded store has such topics, and one process has it open.
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from penstock.controller.plan import PlanStep, transactions
from penstock.metadata.nodes import Node
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.records import (
    NO_CONFIGS,
    PARTITIONS,
    PARTITIONS_MIGRATED,
    TOPICS,
    chunk_path,
    chunk_slice,
    chunks_needed,
    last_name,
    pack_partitions,
    pack_topic,
    topic_path,
)
from penstock.metadata.store import MetadataStore
from penstock.model.ids import TopicId
from penstock.model.topic import PartitionState, TopicState


async def migrate_topics(store: MetadataStore) -> int:
    """Bring every topic into the format of this version; returns how many were in an earlier one."""
    if await store.get(TOPICS) is None:
        # A new store.
        return 0
    mark = await store.get(PARTITIONS)
    if mark is not None and mark.data == PARTITIONS_MIGRATED:
        return 0
    if mark is None:
        await store.multi([Create(PARTITIONS, b"")])
    topics = await store.tree(TOPICS)
    partial = await store.tree(PARTITIONS)
    steps: list[PlanStep] = []
    migrated = 0
    for path, node in topics.nodes.items():
        if path == TOPICS:
            continue
        record = json.loads(node.data)
        if "v" not in record:
            migrated += 1
            steps += migration_steps(read_topic(last_name(path), record, node.version), partial.nodes)
    for operations in transactions(steps, operations_max=store.operations_max, bytes_max=store.bytes_max):
        await store.multi(operations)
    await store.multi([Set(PARTITIONS, PARTITIONS_MIGRATED)])
    return migrated


def migration_steps(topic: TopicState, written: Mapping[str, Node]) -> list[PlanStep]:
    """Write a topic's partitions, then the topic; `written` is what an interrupted start wrote."""
    steps: list[PlanStep] = []
    for number in range(chunks_needed(len(topic.partitions))):
        path = chunk_path(topic.topic_id, number)
        data = pack_partitions(topic.partitions[chunk_slice(number)])
        write: Operation = Set(path, data) if path in written else Create(path, data)
        steps.append((write,))
    steps.append((Set(topic_path(topic.name), pack_topic(topic), topic.version),))
    return steps


def read_topic(name: str, record: dict[str, Any], version: int) -> TopicState:
    """A topic in the format of the earlier version."""
    return TopicState(
        name=name,
        topic_id=TopicId(b64decode(record["id"])),
        configs=record.get("configs", NO_CONFIGS),
        partitions=tuple(
            PartitionState(
                index=index,
                leader=leader,
                leader_epoch=leader_epoch,
                replicas=tuple(replicas),
                isr=tuple(isr),
                partition_epoch=partition_epoch,
            )
            for index, (leader, leader_epoch, replicas, isr, partition_epoch) in enumerate(record["partitions"])
        ),
        version=version,
        grown_from=record.get("grown_from"),
    )
