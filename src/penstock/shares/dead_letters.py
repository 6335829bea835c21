"""Copies records that a share group gives up to its dead-letter topic.

The topic is named by the group (`errors.deadletterqueue.topic.name`) and has to allow it
(`errors.deadletterqueue.group.enable`). Its partition is that of the source, modulo its number of partitions, on this
broker or another. A copy counts when it is committed; until then it is made again, so that a record is there at least
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from penstock.metadata.image import MetadataImage
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    MessageTooLarge,
    NotLeaderOrFollower,
    PolicyViolation,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.timers import Timers
from penstock.model.topic import NO_LEADER, PARTITIONS_ACTIVE, TopicState
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.replication.controller_channel import awaited
from penstock.replication.peers import Peers, Purpose
from penstock.shares.letters import Cause, Letter, batch_of, read_letters, up_to
from penstock.shares.share_partition import DeadRange
from penstock.wire.api import produce as gen

ACKS_ALL = -1


class DeadLetters:
    """The way to the dead-letter topics of all groups."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        replicas: Replicas,
        peers: Peers,
        timers: Timers,
        threads: Executor,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        timeout_ms: Callable[[], int],
        log: Logger,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._replicas = replicas
        self._peers = peers
        self._timers = timers
        self._threads = threads
        self._clock = clock
        self._spawn = spawn
        self._timeout_ms = timeout_ms
        self._log = log
        self.copied = 0
        """Records copied since the broker was started."""

    def copy(
        self, source: Replica, cause: Cause, topic: str, ranges: Sequence[DeadRange], *, copies: bool
    ) -> Deferred[list[DeadRange]]:
        """Copy records; completes with those whose copies are committed, the first of them at least."""
        result: Deferred[list[DeadRange]] = Deferred()
        self._spawn(self._deliver(source, cause, topic, ranges, copies, result))
        return result

    async def _deliver(
        self,
        source: Replica,
        cause: Cause,
        topic: str,
        ranges: Sequence[DeadRange],
        copies: bool,
        result: Deferred[list[DeadRange]],
    ) -> None:
        try:
            covered = await self._copy(source, cause, topic, ranges, copies=copies)
        except Exception as error:
            result.fail(error)
        else:
            result.resolve(covered)

    async def _copy(
        self, source: Replica, cause: Cause, topic: str, ranges: Sequence[DeadRange], *, copies: bool
    ) -> list[DeadRange]:
        if topic in ("", cause.tp.topic):
            # The group has no dead letters any more, or these are them: they would come again for ever.
            self._log.warning("dead_letters_dropped", group=cause.group, partition=str(cause.tp), ranges=len(ranges))
            return list(ranges)
        target = self._target(topic)
        index = cause.tp.partition % partitions_of(target)
        read = partial(read_letters, source.log.view(), ranges, self._replicas.decompression)
        letters, covered = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        if not letters:
            return covered
        try:
            await self._append(target, index, self._batch(letters, cause, copies))
        except (MessageTooLarge, RecordListTooLarge):
            # One by one; what is too large with its headers leaves only its whereabouts.
            letters, covered = letters[:1], up_to(covered or ranges, letters[0].record.offset)
            try:
                await self._append(target, index, self._batch(letters, cause, copies))
            except (MessageTooLarge, RecordListTooLarge):
                await self._append(target, index, self._batch(letters, cause, copies=False))
        self.copied += len(letters)
        return covered

    def _batch(self, letters: Sequence[Letter], cause: Cause, copies: bool) -> bytearray:
        return batch_of(letters, cause, copies=copies, now_ms=self._clock.now_ms())

    def _target(self, topic: str) -> TopicState:
        """The dead-letter topic; raises why there is none."""
        target = self._image.topics.get(topic)
        if target is None:
            raise UnknownTopicOrPartition(f"the dead-letter topic {topic} does not exist")
        config, _ = self._replicas.settings(target.configs)
        if not config.errors_deadletterqueue_group_enable:
            raise PolicyViolation(
                f"topic {topic} does not take dead letters: set errors.deadletterqueue.group.enable=true"
            )
        return target

    async def _append(self, target: TopicState, index: int, batch: bytearray) -> None:
        """Append to a partition of the dead letters, and wait until it is committed."""
        leader = target.partitions[index].leader
        if leader == NO_LEADER:
            raise NotLeaderOrFollower(f"{target.name}-{index} has no leader")
        if leader == self._broker_id:
            await self._append_here(TopicPartition(target.name, index), batch)
        else:
            await self._append_at(leader, target, index, batch)

    async def _append_here(self, tp: TopicPartition, batch: bytearray) -> None:
        replica = self._replicas.get(*tp)
        appended = replica.append(memoryview(batch), self._clock.now_ms(), acks_all=True)
        if isinstance(appended, Coroutine):
            appended = await appended
        wait = replica.committed(appended.end)
        if wait is not None:
            await awaited(wait.timeout(self._timers, self._timeout_ms(), RequestTimedOut))

    async def _append_at(self, leader: BrokerId, target: TopicState, index: int, batch: bytearray) -> None:
        timeout_ms = self._timeout_ms()
        data = gen.PartitionProduceData(index=index, records=batch)
        request = gen.Request(
            acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=[gen.TopicProduceData(name=target.name, topic_id=target.topic_id, partition_data=[data])],
        )
        sent: Deferred[gen.Response] = self._peers.send(
            leader, Purpose.DEAD_LETTERS, gen, request, timeout_ms=float(timeout_ms)
        )
        response = await awaited(sent)
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    raise ERRORS_BY_CODE.get(each.error_code, UnknownServerError)(each.error_message or "")


def partitions_of(topic: TopicState) -> int:
    """Partitions of a topic that are written to."""
    active = int(topic.configs.get(PARTITIONS_ACTIVE, 0))
    return active if active > 0 else len(topic.partitions)


def reason_of(error: Exception) -> str:
    """Why copies failed, for the log."""
    return error.wire_message or str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
