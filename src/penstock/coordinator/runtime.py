"""All coordinators of one kind on a broker: one context for each partition of their topic.

A partition without records gets its context with the first request. One with records is loaded as soon as this broker
leads it, so that sessions, retention and timeouts expire without a request.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from penstock.config.broker import BrokerConfig
from penstock.coordinator.context import CoordinatorClock, CoordinatorContext
from penstock.coordinator.loading import BatchReader, SkippedBatches, load
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.model.clock import Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotCoordinator
from penstock.model.ids import Offset, TopicId, TopicPartition
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
        self._topic_id: TopicId | None = None
        self._places: dict[str, int] = {}
        self._contexts: dict[int, C] = {}
        self._to_load: asyncio.Queue[int] = asyncio.Queue()
        self._queued: set[int] = set()
        self._failures: dict[int, int] = {}
        """Failed loads of each partition since its last successful one."""
        self._repairs: set[int] = set()
        """Partitions whose log was repaired since they were last loaded."""
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
        if self._queued - self._failures.keys():
            raise CoordinatorLoadInProgress()
        return iter([context for context in self._contexts.values() if context.serving])

    def loaded(self) -> list[C]:
        """Every coordinator that serves, even while others load."""
        return [context for context in self._contexts.values() if context.serving]

    @property
    def loading(self) -> int:
        """Partitions that are loading or queued for it."""
        return len(self._queued)

    @property
    def begun(self) -> int:
        """Partitions whose records are being read."""
        return sum(partition in self._contexts for partition in self._queued)

    def at(self, partition: int) -> C:
        """The coordinator of a partition; raises as `of` does."""
        context = self._contexts.get(partition)
        if context is not None:
            return context
        if partition in self._queued:
            raise CoordinatorLoadInProgress()
        if not self._leads(partition) or not self.is_online(partition):
            raise NotCoordinator()
        if self._has_records(partition):
            self._queue(partition)
            raise CoordinatorLoadInProgress()
        context = self._open(partition)
        context.loaded()
        return context

    def _leads(self, partition: int) -> bool:
        topic = self._image.topics.get(self._topic)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return False
        return topic.partitions[partition].leader == self._config().broker_id

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
            for partition in list(self._contexts):
                self._end(partition)
            self._queued.clear()
            self._failures.clear()
            self._repairs.clear()
            self._places.clear()
            self._partitions = 0
            self._topic_id = None
        if after is not None:
            self._adopt(after)

    def _adopt(self, topic: TopicState) -> None:
        self._partitions = topic.partitions_at_creation
        self._topic_id = topic.topic_id
        for partition in range(self._partitions):
            if not self._leads(partition):
                self._end(partition)
            elif partition not in self._contexts and self._has_records(partition):
                self._queue(partition)

    def end_offline(self) -> None:
        """End the coordinators in a failed log directory: their waiting requests fail now. Others are not affected."""
        for partition in [partition for partition, context in self._contexts.items() if context.lost]:
            self._end(partition)

    def _end(self, partition: int) -> None:
        context = self._contexts.pop(partition, None)
        if context is not None:
            context.end()

    # Loading

    def _queue(self, partition: int) -> None:
        if partition not in self._queued:
            self._queued.add(partition)
            self._to_load.put_nowait(partition)

    async def run(self) -> None:
        """Load queued partitions, as long as the broker runs."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(LOADS_AT_ONCE):
                tasks.create_task(self._load_forever())

    async def _load_forever(self) -> None:
        while True:
            partition = await self._to_load.get()
            if partition in self._queued:
                await self._load(partition)

    async def _load(self, partition: int) -> None:
        began_s = self._monotonic()
        topic_id = self._topic_id
        skipped = SkippedBatches()
        try:
            context = self._open(partition)
            reader = self.reader()
            events = await load(context, context.view(), reader, self._threads, skipped)
        except Exception as error:
            # An error in one partition does not stop the coordinators of the others.
            if self._topic_id == topic_id:
                self._end(partition)
                await self._after_failure(partition, error)
            return
        if self._topic_id != topic_id:
            # The topic was deleted during the load, and perhaps recreated.
            return
        self._queued.discard(partition)
        self._failures.pop(partition, None)
        self._repairs.discard(partition)
        if self._contexts.get(partition) is not context or context.ended:
            return
        context.loaded()
        self.after_load(context, reader)
        if skipped.first is not None:
            offset, reason = skipped.first
            self._report_lost(partition, offset, f"{skipped.count} batches cannot be decoded: {reason}")
        self._log.info(
            "coordinator_loaded",
            topic=self._topic,
            partition=partition,
            events=events,
            unreadable=reader.unreadable,
            took_ms=int((self._monotonic() - began_s) * 1000),
        )

    async def _after_failure(self, partition: int, error: Exception) -> None:
        """Schedule another load of a partition, after a repair if its log is damaged."""
        topic_id = self._topic_id
        if isinstance(error, LogChanged):
            # A compaction replaced files; the events applied so far may lack records that it moved.
            self._timers.after_ms(LOAD_CHANGED_MS, lambda: self._load_again(partition))
            return
        is_repaired = isinstance(error, BadBatch) and await self._repaired(partition, error)
        if not is_repaired and self._topic_id == topic_id:
            self._not_loaded(partition, error)

    async def _repaired(self, partition: int, damage: BadBatch) -> bool:
        """Repair a damaged log and schedule another load. Only once, until a load succeeds."""
        if partition in self._repairs:
            return False
        try:
            set_aside = await self._replicas.repair(TopicPartition(self._topic, partition))
        except BrokerError as error:
            self._log.error("coordinator_not_repaired", topic=self._topic, partition=partition, reason=str(error))
            return False
        if set_aside is None:
            return False
        if set_aside:
            self._report_lost(partition, damage.offset, str(damage))
        self._repairs.add(partition)
        self._load_again(partition)
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

    def _not_loaded(self, partition: int, error: Exception) -> None:
        """Log why a partition could not be loaded, and schedule the next try with exponential backoff."""
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        again_ms = min(LOAD_AGAIN_MS << min(failures - 1, LOAD_AGAIN_DOUBLINGS), LOAD_AGAIN_MS_MAX)
        report = self._log.error if isinstance(error, BrokerError | OSError) else self._log.exception
        report(
            "coordinator_not_loaded",
            topic=self._topic,
            partition=partition,
            reason=str(error),
            failures=failures,
            again_ms=again_ms,
        )
        if self.is_online(partition):
            self._timers.after_ms(again_ms, lambda: self._load_again(partition))
        else:
            self._queued.discard(partition)

    def _load_again(self, partition: int) -> None:
        if partition in self._queued:
            self._queued.discard(partition)
            if self._leads(partition):
                self._queue(partition)

    def close(self) -> None:
        """End every coordinator."""
        for partition in list(self._contexts):
            self._end(partition)
