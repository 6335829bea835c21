"""The schedules of this broker: a driver for each partition that it leads, and both sides of their deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from penstock.config.log import SCHEDULE_TARGET, TopicConfig
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred, Eventual
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownServerError,
    UnknownTopicId,
)
from penstock.model.ids import BrokerId, LeaderEpoch, ProducerId, TopicId, TopicPartition
from penstock.model.threads import Threads
from penstock.model.topic import NO_LEADER, TopicState
from penstock.model.turns import Turns
from penstock.observe.counters import ScheduleCounters
from penstock.observe.log import Logger
from penstock.partition.leader import Leader
from penstock.partition.replica import RefusedDelivery, Replica
from penstock.partition.replicas import Replicas
from penstock.partition.validation import RecordCheck
from penstock.replication.peers import Peers, Purpose
from penstock.schedules.driver import PartitionDriver, Target
from penstock.schedules.headers import BadSchedule, read
from penstock.wire import scheduled as wire
from penstock.wire.records import Header

FAILED_PAUSE_S = 1.0
"""Pause before a partition is driven again after an error."""


def record_check(config: TopicConfig) -> RecordCheck | None:
    """The check of records in a topic of schedules."""
    return why_refused if config.schedule_target else None


def why_refused(key: bytes, has_value: bool, headers: Iterable[Header], timestamp_ms: int) -> str | None:
    """Why a record is neither a schedule nor the end of one."""
    if not has_value:
        return None
    try:
        read(key, tuple(headers), timestamp_ms)
    except BadSchedule as error:
        return str(error)
    return None


class Schedules:
    """Drives the schedule partitions that this broker leads, and takes what others deliver to it."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        replicas: Replicas,
        image: MetadataImage,
        peers: Peers,
        take_producer_id: Callable[[], Awaitable[ProducerId]],
        clock: Clock,
        turns: Turns,
        threads: Threads,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        timeout_ms: Callable[[], int],
        counters: ScheduleCounters,
        log: Logger,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._image = image
        self._peers = peers
        self._take_producer_id = take_producer_id
        self._clock = clock
        self._turns = turns
        self._threads = threads
        self._spawn = spawn
        self._timeout_ms = timeout_ms
        self._counters = counters
        self._log = log
        self._drivers: dict[TopicPartition, PartitionDriver] = {}

    # Following

    def start(self) -> None:
        """Drive what the metadata has."""
        for topic in list(self._image.topics.values()):
            self._look_at(topic)

    def follow(self, delta: ImageDelta) -> None:
        """Follow a metadata change, after the replicas have."""
        for change in delta.topics:
            before, after = change.before, change.after
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._counters.forget(before.name)
                self.follow_roles(TopicPartition(before.name, index) for index in range(len(before.partitions)))
            if after is not None:
                self._look_at(after)
        if delta.topics:
            # A target may have come, gone or grown, or a topic be paused.
            for driver in self._drivers.values():
                driver.notify()

    def _look_at(self, topic: TopicState) -> None:
        if topic.configs.get(SCHEDULE_TARGET):
            for state in topic.partitions:
                if state.leader == self._broker_id:
                    self._look(TopicPartition(topic.name, state.index))

    def follow_roles(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow changed roles of replicas."""
        for tp in partitions:
            driver = self._drivers.get(tp)
            if driver is not None and not driver.leads:
                driver.end()
            topic = self._image.topics.get(tp.topic)
            if topic is not None and topic.configs.get(SCHEDULE_TARGET):
                self._look(tp)

    def _look(self, tp: TopicPartition) -> None:
        """Start a driver for a partition that this broker leads, unless there is one."""
        epoch = self._leader_epoch(tp)
        driver = self._drivers.get(tp)
        if epoch is None or (driver is not None and driver.leads and driver.leader_epoch == epoch):
            return
        if driver is not None:
            driver.end()
        replica = self._replicas.get(*tp)
        driver = self._drivers[tp] = PartitionDriver(
            replica,
            epoch,
            deliverer=Deliveries(self, replica, epoch),
            take_producer_id=self._take_producer_id,
            clock=self._clock,
            turns=self._turns,
            threads=self._threads.executor,
            row=self._counters.row(*tp),
            log=self._log,
        )
        driving = self._drive(tp, driver)
        try:
            self._spawn(driving)
        except RuntimeError:
            # The broker is stopping.
            driving.close()

    def _leader_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        try:
            role = self._replicas.get(*tp).role
        except BrokerError:
            return None
        return role.leader_epoch if isinstance(role, Leader) else None

    async def _drive(self, tp: TopicPartition, driver: PartitionDriver) -> None:
        try:
            await driver.run()
        except BrokerError as error:
            self._log.debug("schedules_wait", partition=str(tp), reason=str(error))
        except Exception:
            self._log.exception("schedules_failed", partition=str(tp))
        failed = driver.leads
        driver.end()
        if failed:
            await asyncio.sleep(FAILED_PAUSE_S)
        if self._drivers.get(tp) is driver:
            del self._drivers[tp]
            self._look(tp)

    # Delivering

    def target_of(self, topic: str) -> Target | None:
        """The target of a topic of schedules, if it can be delivered to."""
        own = self._image.topics.get(topic)
        name = None if own is None else own.configs.get(SCHEDULE_TARGET)
        found = None if name is None else self._image.topics.get(name)
        if found is None or found.configs.get(SCHEDULE_TARGET):
            return None
        config, _ = self._replicas.settings(found.configs)
        active = sum(state.drained_into < 0 for state in found.partitions)
        return Target(found.topic_id, active, config.max_message_bytes)

    def is_gone(self, topic: str, target_id: TopicId) -> bool:
        """Whether a target was deleted. One that this broker does not know yet is not."""
        if target_id in self._image.topics_by_id:
            return False
        target = self.target_of(topic)
        return target_id in self._image.deletions or target is not None

    def deliver(
        self, replica: Replica, epoch: LeaderEpoch, target_id: TopicId, partition: int, batch: bytearray
    ) -> Deferred[None]:
        """Send a batch to the leader of a target partition; completes when it is committed there."""
        topic = self._image.topics_by_id.get(target_id)
        if topic is None:
            raise UnknownTopicId()
        state = topic.partitions[partition]
        if state.leader == NO_LEADER:
            raise NotLeaderOrFollower(f"{topic.name}-{partition} has no leader")
        request = wire.Request(
            topic_id=target_id,
            partition=partition,
            source_id=replica.topic_id,
            source=replica.tp.partition,
            source_epoch=epoch,
            payload=batch,
        )
        result: Deferred[None] = Deferred()
        if state.leader == self._broker_id:
            # A copy: the log stamps it, and it may have to be sent again.
            response = self.serve(request, bytearray(batch))
            if isinstance(response, Deferred):
                response.deliver_to(partial(settle, result), result.fail)
            else:
                settle(result, response)
            return result
        sent: Deferred[wire.Response] = self._peers.send(
            state.leader, Purpose.SCHEDULES, wire, request, timeout_ms=float(self._timeout_ms())
        )
        sent.deliver_to(partial(settle, result), result.fail)
        return result

    def serve(self, request: wire.Request, batch: bytearray | None = None) -> Eventual[wire.Response]:
        """Append what a schedule delivers to a partition here; the response comes when it is committed."""
        try:
            self._check_source(request)
            to = self._replicas.find(request.topic_id, request.partition)
            payload = memoryview(bytearray(request.payload) if batch is None else batch)
            try:
                end = to.accept_delivery(payload, self._clock.now_ms())
            except CoordinatorLoadInProgress as error:
                self._read_ids(to)
                return wire.Response(error_code=error.code)
            except OutOfOrderSequenceNumber as error:
                # One that was deposed and does not know it lacks batches that its successor has.
                confirmed = to.confirm_leader(self._clock.now_ms())
                return refusable(confirmed, wire.Response(error_code=error.code))
            except RefusedDelivery as refused:
                return refusable(to.committed(refused.end), wire.Response(error_code=refused.reason.code))
            return refusable(to.committed(end), wire.Response())
        except BrokerError as error:
            return wire.Response(error_code=error.code)

    def _read_ids(self, replica: Replica) -> None:
        """Read the message ids that deliveries to a partition need; they come again."""

        async def reading() -> None:
            try:
                await replica.read_ids()
            except BrokerError as error:
                self._log.debug("message_ids_not_read", partition=str(replica.tp), reason=str(error))

        work = reading()
        try:
            self._spawn(work)
        except RuntimeError:
            # The broker is stopping.
            work.close()

    def _check_source(self, request: wire.Request) -> None:
        """Refuse a leader of the schedules that is known to be deposed."""
        topic = self._image.topics_by_id.get(request.source_id)
        if topic is not None and 0 <= request.source < len(topic.partitions):
            newest = topic.partitions[request.source].leader_epoch
            if request.source_epoch < newest:
                raise FencedLeaderEpoch(f"leader epoch {request.source_epoch} of the schedules, {newest} is known")


class Deliveries:
    """What the driver of one partition asks of the rest of the broker."""

    def __init__(self, schedules: Schedules, replica: Replica, epoch: LeaderEpoch) -> None:
        self._schedules = schedules
        self._replica = replica
        self._epoch = epoch

    def target(self) -> Target | None:
        return self._schedules.target_of(self._replica.tp.topic)

    def is_gone(self, topic_id: TopicId) -> bool:
        return self._schedules.is_gone(self._replica.tp.topic, topic_id)

    def deliver(self, topic_id: TopicId, partition: int, batch: bytearray) -> Deferred[None]:
        return self._schedules.deliver(self._replica, self._epoch, topic_id, partition, batch)


def settle(result: Deferred[None], response: wire.Response) -> None:
    if response.error_code:
        result.fail(ERRORS_BY_CODE.get(response.error_code, UnknownServerError)())
    else:
        result.resolve(None)


def refusable(wait: Deferred[None] | None, response: wire.Response) -> Eventual[wire.Response]:
    """The response after a wait, with the error code where that fails."""
    if wait is None:
        return response
    return wait.then(lambda _: response).catch(BrokerError, lambda error: wire.Response(error_code=error.code))
