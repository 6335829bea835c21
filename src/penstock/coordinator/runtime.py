"""All coordinators of one kind on a broker: one context for each partition of their topic, loaded or not.

A partition without records costs nothing until somebody asks for what it keeps. One with records is loaded as soon as
this broker leads it, so that whatever runs out does so whether anybody asks or not.
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
from penstock.model.ids import TopicId, TopicPartition
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
"""Partitions loaded at a time: each has a thread busy and a slice of its log in memory."""

LOAD_CHANGED_MS = 100
"""Before a partition is loaded again whose files a compaction changed meanwhile; it may have more to change."""

LOAD_AGAIN_MS = 5000
"""How long a partition that could not be loaded is left alone, at first; each failure doubles it."""

LOAD_AGAIN_MS_MAX = 300_000
LOAD_AGAIN_DOUBLINGS = 16

PLACES_MAX = 100_000
"""Keys whose partition is kept at hand; it takes longer to compute than everything else that finding one takes."""


def partition_of(key: str, partitions: int) -> int:
    """The partition that keeps a key, as every Kafka broker and tool computes it: Java's hash of the name."""
    value = 0
    raw = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (value * 31 + (raw[at] << 8 | raw[at + 1])) & 0xFFFF_FFFF
    if value > 0x8000_0000:
        value = 0x1_0000_0000 - value
    # The least int has no absolute value; Kafka takes 0 for it.
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
        """As many as the topic was created with: a key stays where it is when the topic grows. 0 without a topic."""
        self._topic_id: TopicId | None = None
        self._places: dict[str, int] = {}
        self._shards: dict[int, C] = {}
        self._to_load: asyncio.Queue[int] = asyncio.Queue()
        self._queued: set[int] = set()
        self._failures: dict[int, int] = {}
        """How often each partition could not be loaded since it last was."""
        self._repairs: set[int] = set()
        """Partitions whose log was repaired since they were last loaded."""
        self._counters = StorageCounters() if counters is None else counters

    # Finding

    def of(self, key: str) -> C:
        """The coordinator of a key; raises NotCoordinator where that is another broker, or where it still loads."""
        return self.at(self.partition_of(key))

    def partition_of(self, key: str) -> int:
        """Where a key is kept; NotCoordinator while there is no place for any."""
        place = self._places.get(key)
        if place is None:
            if not self._partitions:
                raise NotCoordinator()
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[key] = partition_of(key, self._partitions)
        return place

    def serving(self) -> Iterator[C]:
        """Every coordinator here that can be asked. Raises CoordinatorLoadInProgress while one is being loaded.

        One that could not be loaded is left out, as in Kafka: the others can be listed without it.
        """
        if self._queued - self._failures.keys():
            raise CoordinatorLoadInProgress()
        return iter([shard for shard in self._shards.values() if shard.serving])

    def loaded(self) -> list[C]:
        """Those that can be asked, whatever the others do."""
        return [shard for shard in self._shards.values() if shard.serving]

    @property
    def loading(self) -> int:
        """Partitions that are being loaded, or wait for it."""
        return len(self._queued)

    @property
    def begun(self) -> int:
        """Those of them whose records are being read."""
        return sum(partition in self._shards for partition in self._queued)

    def at(self, partition: int) -> C:
        """The coordinator of a partition; raises as `of` does."""
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if partition in self._queued:
            raise CoordinatorLoadInProgress()
        if not self._leads(partition) or not self.can_keep(partition):
            raise NotCoordinator()
        if self._has_records(partition):
            self._queue(partition)
            raise CoordinatorLoadInProgress()
        shard = self._open(partition)
        shard.loaded()
        return shard

    def _leads(self, partition: int) -> bool:
        topic = self._image.topics.get(self._topic)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return False
        return topic.partitions[partition].leader == self._config().broker_id

    def can_keep(self, partition: int) -> bool:
        """Whether the log of a partition that this broker leads is within reach: its directory may have failed."""
        try:
            return not self._replicas.get(self._topic, partition).is_offline
        except BrokerError:
            return False

    def _has_records(self, partition: int) -> bool:
        log = self._logs.get(TopicPartition(self._topic, partition))
        return log is not None and log.log_end > log.log_start

    def _open(self, partition: int) -> C:
        """Make the context of a partition that this broker leads; it has yet to be loaded."""
        try:
            replica = self._replicas.get(self._topic, partition)
        except BrokerError:
            # Its log cannot be reached: whoever asks is to look again later, perhaps elsewhere.
            raise NotCoordinator() from None
        made = self._shards[partition] = self.make(partition, replica)
        return made

    @abstractmethod
    def make(self, partition: int, replica: Replica) -> C:
        """The context of a partition, with nothing in it yet."""

    @abstractmethod
    def reader(self) -> R:
        """What turns the records of one partition into events."""

    def after_load(self, coordinator: C, reader: R) -> None:
        """Look after what a load brought to light."""

    # Following the metadata

    def start(self) -> None:
        """Take in what exists, and plan to load whatever has records."""
        topic = self._image.topics.get(self._topic)
        if topic is not None:
            self._adopt(topic)

    def follow(self, delta: ImageDelta) -> None:
        """Follow a change of the metadata, after the partitions' replicas have."""
        for change in delta.topics:
            one = change.after or change.before
            if one is not None and one.name == self._topic:
                self._follow_own(change.before, change.after)

    def _follow_own(self, before: TopicState | None, after: TopicState | None) -> None:
        if after is None or (before is not None and before.topic_id != after.topic_id):
            for partition in list(self._shards):
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
            elif partition not in self._shards and self._has_records(partition):
                self._queue(partition)

    def let_go(self) -> None:
        """End what is in a directory that failed: whoever waits there learns it now. Everybody else is left alone."""
        for partition in [partition for partition, shard in self._shards.items() if shard.lost]:
            self._end(partition)

    def _end(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.end()

    # Loading

    def _queue(self, partition: int) -> None:
        if partition not in self._queued:
            self._queued.add(partition)
            self._to_load.put_nowait(partition)

    async def run(self) -> None:
        """Load what is planned, for as long as the broker runs."""
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
            shard = self._open(partition)
            reader = self.reader()
            events = await load(shard, shard.view(), reader, self._threads, skipped)
        except Exception as error:
            # Whatever is wrong in one partition, the coordinators of the others go on.
            if self._topic_id == topic_id:
                self._end(partition)
                await self._after_failure(partition, error)
            return
        if self._topic_id != topic_id:
            # The topic was deleted meanwhile: everything here is about another one.
            return
        self._queued.discard(partition)
        self._failures.pop(partition, None)
        self._repairs.discard(partition)
        if self._shards.get(partition) is not shard or shard.ended:
            return
        shard.loaded()
        self.after_load(shard, reader)
        if skipped.first is not None:
            offset, reason = skipped.first
            self._tell_lost(partition, offset, f"{skipped.count} batches cannot be decoded: {reason}")
        self._log.info(
            "coordinator_loaded",
            topic=self._topic,
            partition=partition,
            events=events,
            unreadable=reader.unreadable,
            took_ms=int((self._monotonic() - began_s) * 1000),
        )

    async def _after_failure(self, partition: int, error: Exception) -> None:
        """Plan to load a partition again, repaired where it can be."""
        topic_id = self._topic_id
        if isinstance(error, LogChanged):
            # A compaction put other files in place; what was taken in so far may lack what it moved.
            self._timers.after_ms(LOAD_CHANGED_MS, lambda: self._load_again(partition))
            return
        is_repaired = isinstance(error, BadBatch) and await self._repaired(partition, error)
        if not is_repaired and self._topic_id == topic_id:
            self._not_loaded(partition, error)

    async def _repaired(self, partition: int, damage: BadBatch) -> bool:
        """Repair a log in which a load met damage, and plan to load what is left. Once, until a load succeeds."""
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
            self._tell_lost(partition, damage.offset, str(damage))
        self._repairs.add(partition)
        self._load_again(partition)
        return True

    def _tell_lost(self, partition: int, offset: int, detail: str) -> None:
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
        """Tell why a partition cannot be loaded, and plan the next try: each waits longer, up to a bound."""
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        again_ms = min(LOAD_AGAIN_MS << min(failures - 1, LOAD_AGAIN_DOUBLINGS), LOAD_AGAIN_MS_MAX)
        tell = self._log.error if isinstance(error, BrokerError | OSError) else self._log.exception
        tell(
            "coordinator_not_loaded",
            topic=self._topic,
            partition=partition,
            reason=str(error),
            failures=failures,
            again_ms=again_ms,
        )
        if self.can_keep(partition):
            self._timers.after_ms(again_ms, lambda: self._load_again(partition))
        else:
            self._queued.discard(partition)

    def _load_again(self, partition: int) -> None:
        if partition in self._queued:
            self._queued.discard(partition)
            if self._leads(partition):
                self._queue(partition)

    def close(self) -> None:
        """Serve nobody any more."""
        for partition in list(self._shards):
            self._end(partition)
