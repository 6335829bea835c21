"""All coordinators of one kind on a broker: one context for each partition of their topic.

A partition without records gets its context with the first request. One with records is loaded as soon as this broker
leads it, so that sessions, retention and timeouts expire without a request.

A context belongs to one leader epoch of its partition. With the next epoch it ends, also where this broker leads in
both, and the next context is loaded from the log: another broker may have led in between. A load reads to the log end,
and its context serves once the high watermark has reached that, so that no response tells what may yet be truncated.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.config.broker import BrokerConfig
from penstock.coordinator.context import CoordinatorClock, CoordinatorContext
from penstock.coordinator.loading import BatchReader, SkippedBatches, load
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotCoordinator
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.model.timers import Timers
from penstock.model.topic import TopicState
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.storage.store import LogStore
from penstock.storage.view import LogChanged
from penstock.storage.walk import BadBatch

C = TypeVar("C", bound=CoordinatorContext[Any])
R = TypeVar("R", bound=BatchReader)

LOADS_AT_ONCE = 2
"""Partitions loaded at a time: each occupies a thread and holds a slice of its log in memory."""

LOAD_CHANGED_MS = 100
"""Delay before the reload of a partition whose files a compaction replaced during the load."""

LOAD_AGAIN_MS = 5000
"""Delay before the first retry of a partition that could not be loaded; each failure doubles it."""

LOAD_AGAIN_MS_MAX = 300_000
LOAD_AGAIN_DOUBLINGS = 16

PLACES_MAX = 100_000
"""Keys whose partition is cached; the hash is the costliest part of a lookup."""


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key, as every Kafka broker and tool computes it: Java's hash of the string."""
    value = 0
    raw = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (value * 31 + (raw[at] << 8 | raw[at + 1])) & 0xFFFF_FFFF
    if value > 0x8000_0000:
        value = 0x1_0000_0000 - value
    # The smallest int has no absolute value; Kafka uses 0 for it.
    return 0 if value == 0x8000_0000 else value % partitions


class Load:
    """The load of a partition in one leader epoch, from its place in the queue until its context serves."""

    __slots__ = ("failures", "is_repaired", "leader_epoch", "partition")

    def __init__(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.failures = 0
        """Failed attempts."""
        self.is_repaired = False
        """Whether the log was repaired after a failed attempt."""


class CoordinatorRuntime(ABC, Generic[C, R]):
    """The contexts of one kind of coordinator: finds the one of a key, loads and unloads them with leadership."""

    def __init__(
        self,
        topic: str,
        *,
        replicas: Replicas,
        logs: LogStore,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
        threads: Executor,
        log: Logger,
        counters: StorageCounters | None = None,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._logs = logs
        self._image = image
        self._config = config
        self._monotonic = clock.monotonic
        self._clock = CoordinatorClock(clock)
        self._timers = timers
        self._threads = threads
        self._log = log
        self._partitions = 0
        """The partition count at the topic's creation, so that added partitions move no key. 0 without a topic."""
        self._places: dict[str, int] = {}
        self._contexts: dict[int, C] = {}
        self._to_load: asyncio.Queue[Load] = asyncio.Queue()
        self._loads: dict[int, Load] = {}
        """Partitions whose contexts do not serve yet. Only the load found here may give a partition its context."""
        self._counters = StorageCounters() if counters is None else counters

    # Lookup

    def of(self, key: str) -> C:
        """The coordinator of a key. Raises NotCoordinator, or CoordinatorLoadInProgress while it loads."""
        return self.at(self.partition_of(key))

    def partition_of(self, key: str) -> int:
        """The partition of a key. Raises NotCoordinator while the topic does not exist."""
        place = self._places.get(key)
        if place is None:
            if not self._partitions:
                raise NotCoordinator()
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[key] = partition_of(key, self._partitions)
        return place

    def serving(self) -> Iterator[C]:
        """Every coordinator that serves. Raises CoordinatorLoadInProgress while another one is loading.

        One whose load failed is left out, as in Kafka, so that the others can be listed.
        """
        if any(not load.failures for load in self._loads.values()):
            raise CoordinatorLoadInProgress()
        return iter([context for context in self._contexts.values() if context.serving])

    def loaded(self) -> list[C]:
        """Every coordinator that serves, even while others load."""
        return [context for context in self._contexts.values() if context.serving]

    @property
    def loading(self) -> int:
        """Partitions that are loading, queued for it, or loaded and waiting for the high watermark."""
        return len(self._loads)

    @property
    def begun(self) -> int:
        """Partitions whose records are being read."""
        return sum(partition in self._contexts for partition in self._loads)

    def at(self, partition: int) -> C:
        """The coordinator of a partition; raises as `of` does."""
        context = self._contexts.get(partition)
        if context is not None:
            return context
        if partition in self._loads:
            raise CoordinatorLoadInProgress()
        leader_epoch = self._leader_epoch(partition)
        if leader_epoch is None or not self.is_online(partition):
            raise NotCoordinator()
        if self._has_records(partition):
            self._queue(partition, leader_epoch)
            raise CoordinatorLoadInProgress()
        context = self._open(partition)
        context.loaded()
        return context

    def _leader_epoch(self, partition: int) -> LeaderEpoch | None:
        """The epoch in which this broker leads a partition; None where it does not.

        The replica decides, if it is open: it may be behind the metadata for a moment, or fenced.
        """
        topic = self._image.topics.get(self._topic)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        decided = topic.partitions[partition]
        if decided.leader != self._config().broker_id:
            return None
        replica = self._replicas.used(TopicPartition(self._topic, partition))
        if replica is None:
            return decided.leader_epoch
        return replica.role.leader_epoch if replica.is_leader else None

    def is_online(self, partition: int) -> bool:
        """Whether the log of a partition that this broker leads is online."""
        try:
            return not self._replicas.get(self._topic, partition).is_offline
        except BrokerError:
            return False

    def _has_records(self, partition: int) -> bool:
        log = self._logs.get(TopicPartition(self._topic, partition))
        return log is not None and log.log_end > log.log_start

    def _open(self, partition: int) -> C:
        """Create the context of a partition that this broker leads, in the phase LOADING."""
        try:
            replica = self._replicas.get(self._topic, partition)
        except BrokerError:
            # Its log is offline: the client looks for the coordinator again.
            raise NotCoordinator() from None
        if not replica.is_leader:
            raise NotCoordinator()
        made = self._contexts[partition] = self.make(partition, replica)
        return made

    @abstractmethod
    def make(self, partition: int, replica: Replica) -> C:
        """The empty context of a partition."""

    @abstractmethod
    def reader(self) -> R:
        """The decoder of one partition's records."""

    def after_load(self, coordinator: C, reader: R) -> None:
        """Called with each coordinator that has been loaded."""

    # Following the metadata

    def start(self) -> None:
        """Adopt the topic, if it exists, and queue its partitions with records for loading."""
        topic = self._image.topics.get(self._topic)
        if topic is not None:
            self._adopt(topic)

    def follow(self, delta: ImageDelta) -> None:
        """Follow a metadata change, after the replicas have."""
        for change in delta.topics:
            one = change.after or change.before
            if one is not None and one.name == self._topic:
                self._follow_own(change.before, change.after)

    def _follow_own(self, before: TopicState | None, after: TopicState | None) -> None:
        if after is None or (before is not None and before.topic_id != after.topic_id):
            self.close()
            self._places.clear()
            self._partitions = 0
        if after is not None:
            self._adopt(after)

    def _adopt(self, topic: TopicState) -> None:
        self._partitions = topic.partitions_at_creation
        self.follow_roles(TopicPartition(self._topic, partition) for partition in range(self._partitions))

    def follow_roles(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow changed roles of replicas: end coordinators of past leader epochs, and load those of new ones."""
        for topic, partition in partitions:
            if topic == self._topic and partition < self._partitions:
                self._follow_role(partition)

    def _follow_role(self, partition: int) -> None:
        leader_epoch = self._leader_epoch(partition)
        context, load = self._contexts.get(partition), self._loads.get(partition)
        is_past = (context is not None and (context.leader_epoch != leader_epoch or not context.leads)) or (
            load is not None and load.leader_epoch != leader_epoch
        )
        if is_past:
            self._end(partition)
        if leader_epoch is None or partition in self._contexts or partition in self._loads:
            return
        if is_past and not self.is_online(partition):
            # Its replica has resigned; the metadata will have another leader.
            return
        if self._has_records(partition):
            self._queue(partition, leader_epoch)

    def end_offline(self) -> None:
        """End the coordinators in a failed log directory: their waiting requests fail now. Others are not affected."""
        for partition in [partition for partition, context in self._contexts.items() if context.lost]:
            self._end(partition)

    def _end(self, partition: int) -> None:
        self._loads.pop(partition, None)
        self._end_context(partition)

    def _end_context(self, partition: int) -> None:
        context = self._contexts.pop(partition, None)
        if context is not None:
            context.end()

    # Loading

    def _queue(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        load = self._loads[partition] = Load(partition, leader_epoch)
        self._to_load.put_nowait(load)

    def _is_current(self, load: Load) -> bool:
        """Whether a load is still wanted: not after its leader epoch, or its topic, has ended."""
        return self._loads.get(load.partition) is load

    async def run(self) -> None:
        """Load queued partitions, as long as the broker runs."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(LOADS_AT_ONCE):
                tasks.create_task(self._load_forever())

    async def _load_forever(self) -> None:
        while True:
            load = await self._to_load.get()
            if self._is_current(load):
                await self._load(load)

    async def _load(self, load_: Load) -> None:
        """Load a partition once. Its context serves when the high watermark has reached the log end of this moment."""
        began_s = self._monotonic()
        skipped = SkippedBatches()
        reader = self.reader()
        try:
            context = self._open(load_.partition)
            if context.leader_epoch != load_.leader_epoch:
                raise NotCoordinator()
            events = await load(context, context.view(), reader, self._threads, skipped)
            if not self._is_current(load_):
                return
            wait = context.replayed()
        except Exception as error:
            # An error in one partition does not stop the coordinators of the others.
            if self._is_current(load_):
                self._end_context(load_.partition)
                if self._leader_epoch(load_.partition) == load_.leader_epoch:
                    await self._after_failure(load_, error)
                else:
                    self._follow_role(load_.partition)
            return

        def serve(_: None) -> None:
            if self._is_current(load_):
                self._serve(load_, context, reader, skipped)
                self._log.info(
                    "coordinator_loaded",
                    topic=self._topic,
                    partition=load_.partition,
                    leader_epoch=load_.leader_epoch,
                    events=events,
                    unreadable=reader.unreadable,
                    took_ms=int((self._monotonic() - began_s) * 1000),
                )

        if wait is None:
            serve(None)
        else:
            # The other partitions do not wait for the followers of this one.
            wait.deliver_to(serve, partial(self._not_committed, load_))

    def _serve(self, load_: Load, context: C, reader: R, skipped: SkippedBatches) -> None:
        del self._loads[load_.partition]
        context.loaded()
        self.after_load(context, reader)
        if skipped.first is not None:
            offset, reason = skipped.first
            self._report_lost(load_.partition, offset, f"{skipped.count} batches cannot be decoded: {reason}")

    def _not_committed(self, load_: Load, _: Exception) -> None:
        """What was loaded cannot be committed: leadership has ended, or the log went offline, which has been logged."""
        if self._is_current(load_):
            self._end(load_.partition)

    async def _after_failure(self, load_: Load, error: Exception) -> None:
        """Schedule another load of a partition, after a repair if its log is damaged."""
        if isinstance(error, LogChanged):
            # A compaction replaced files; the events applied so far may lack records that it moved.
            self._timers.after_ms(LOAD_CHANGED_MS, lambda: self._load_again(load_))
            return
        is_repaired = isinstance(error, BadBatch) and await self._repaired(load_, error)
        if not is_repaired and self._is_current(load_):
            self._not_loaded(load_, error)

    async def _repaired(self, load_: Load, damage: BadBatch) -> bool:
        """Repair a damaged log and schedule another load. Only once, until a load succeeds."""
        if load_.is_repaired:
            return False
        partition = load_.partition
        try:
            set_aside = await self._replicas.repair(TopicPartition(self._topic, partition))
        except BrokerError as error:
            self._log.error("coordinator_not_repaired", topic=self._topic, partition=partition, reason=str(error))
            return False
        if set_aside is None:
            return False
        if set_aside:
            self._report_lost(partition, damage.offset, str(damage))
        load_.is_repaired = True
        self._load_again(load_)
        return True

    def _report_lost(self, partition: int, offset: Offset, detail: str) -> None:
        self._counters.coordinator_damage += 1
        self._log.error(
            "coordinator_records_lost",
            topic=self._topic,
            partition=partition,
            offset=offset,
            detail=detail,
            consequence="keys of this partition may be as an older record has them",
        )

    def _not_loaded(self, load_: Load, error: Exception) -> None:
        """Log why a partition could not be loaded, and schedule the next try with exponential backoff."""
        load_.failures += 1
        again_ms = min(LOAD_AGAIN_MS << min(load_.failures - 1, LOAD_AGAIN_DOUBLINGS), LOAD_AGAIN_MS_MAX)
        report = self._log.error if isinstance(error, BrokerError | OSError) else self._log.exception
        report(
            "coordinator_not_loaded",
            topic=self._topic,
            partition=load_.partition,
            reason=str(error),
            failures=load_.failures,
            again_ms=again_ms,
        )
        if self.is_online(load_.partition):
            self._timers.after_ms(again_ms, lambda: self._load_again(load_))
        else:
            del self._loads[load_.partition]

    def _load_again(self, load_: Load) -> None:
        if self._is_current(load_):
            self._to_load.put_nowait(load_)

    def close(self) -> None:
        """End every coordinator."""
        for partition in [*self._contexts, *self._loads]:
            self._end(partition)
