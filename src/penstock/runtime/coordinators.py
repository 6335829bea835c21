"""Every group's coordinator on this broker: which partition of `__consumer_offsets` it is, loaded or not.

A partition without records costs nothing until one of its groups is asked for. One with records is loaded as soon as
this broker leads it, so that sessions and offsets that run out do so whether anybody asks or not.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from penstock.config.broker import BrokerConfig
from penstock.core.controller.image import ImageDelta, MetadataImage
from penstock.core.group.shard import GroupShard
from penstock.model.clock import Chance, Clock
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotCoordinator
from penstock.model.ids import TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TopicState
from penstock.observe.log import Logger
from penstock.runtime.coordinator import GroupClock, GroupCoordinator
from penstock.runtime.coordinator_load import load
from penstock.runtime.group_topics import ImageTopics, changed_topics
from penstock.runtime.hosts import Hosts
from penstock.runtime.timers import Timers
from penstock.storage.store import LogStore

LOADS_AT_ONCE = 2
"""Partitions loaded at a time: each has a thread busy and a slice of its log in memory."""

LOAD_AGAIN_MS = 5000
"""How long a partition that could not be loaded is left alone."""

PLACES_MAX = 100_000
"""Groups whose partition is kept at hand; it takes longer to compute than everything else that finding one takes."""


def partition_of(group: str, partitions: int) -> int:
    """The partition that keeps a group, as every Kafka broker and tool computes it: Java's hash of the name."""
    value = 0
    raw = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (value * 31 + (raw[at] << 8 | raw[at + 1])) & 0xFFFF_FFFF
    if value > 0x8000_0000:
        value = 0x1_0000_0000 - value
    # The least int has no absolute value; Kafka takes 0 for it.
    return 0 if value == 0x8000_0000 else value % partitions


class GroupCoordinators:
    """Finds the coordinator of a group, or says why there is none here."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        logs: LogStore,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        chance: Chance,
        timers: Timers,
        threads: Executor,
        log: Logger,
    ) -> None:
        self._hosts = hosts
        self._logs = logs
        self._image = image
        self._config = config
        self._clock = GroupClock(clock)
        self._chance = chance
        self._timers = timers
        self._threads = threads
        self._log = log
        self._topics = ImageTopics(image)
        self._partitions = 0
        """As many as the topic had when it was first seen: a group stays where it is when the topic grows."""
        self._places: dict[str, int] = {}
        self._shards: dict[int, GroupCoordinator] = {}
        self._to_load: asyncio.Queue[int] = asyncio.Queue()
        self._queued: set[int] = set()

    # Finding

    def of(self, group: str) -> GroupCoordinator:
        """The coordinator of a group; raises NotCoordinator where that is another broker, or where it still loads."""
        return self._shard(self.partition_of(group))

    def partition_of(self, group: str) -> int:
        """Where a group is kept; NotCoordinator while there is no place for any."""
        place = self._places.get(group)
        if place is None:
            if not self._partitions:
                raise NotCoordinator()
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[group] = partition_of(group, self._partitions)
        return place

    def serving(self) -> Iterator[GroupCoordinator]:
        """Every coordinator here that can be asked. Raises CoordinatorLoadInProgress while one is being loaded."""
        if self._queued:
            raise CoordinatorLoadInProgress()
        return iter([shard for shard in self._shards.values() if shard.serving])

    def loaded(self) -> list[GroupCoordinator]:
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

    def _shard(self, partition: int) -> GroupCoordinator:
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if partition in self._queued:
            raise CoordinatorLoadInProgress()
        if not self._leads(partition):
            raise NotCoordinator()
        if self._has_records(partition):
            self._queue(partition)
            raise CoordinatorLoadInProgress()
        shard = self._open(partition)
        shard.loaded()
        return shard

    def _leads(self, partition: int) -> bool:
        topic = self._image.topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None or partition >= len(topic.partitions):
            return False
        return topic.partitions[partition].leader == self._config().broker_id

    def _has_records(self, partition: int) -> bool:
        log = self._logs.get(TopicPartition(GROUP_OFFSETS_TOPIC, partition))
        return log is not None and log.log_end > log.log_start

    def _open(self, partition: int) -> GroupCoordinator:
        """Make the shell of a partition that this broker leads; it has yet to be loaded."""
        try:
            host = self._hosts.get(GROUP_OFFSETS_TOPIC, partition)
        except BrokerError:
            # Its log cannot be reached: whoever asks is to look again later, perhaps elsewhere.
            raise NotCoordinator() from None
        shard = GroupShard(self._config(), self._topics, self._member_id)
        made = self._shards[partition] = GroupCoordinator(
            partition,
            host,
            shard,
            clock=self._clock,
            timers=self._timers,
            threads=self._threads,
            log=self._log,
        )
        return made

    def _member_id(self, prefix: str) -> str:
        """An id nobody has: a prefix and a random UUID as Java prints it."""
        raw = self._chance.uuid_bytes().hex()
        return f"{prefix}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    # Following the metadata

    def start(self) -> None:
        """Take in what exists, and plan to load whatever has records."""
        topic = self._image.topics.get(GROUP_OFFSETS_TOPIC)
        if topic is not None:
            self._adopt(topic)

    def follow(self, delta: ImageDelta) -> None:
        """Follow a change of the metadata, after the partitions' hosts have."""
        for change in delta.topics:
            one = change.after or change.before
            if one is not None and one.name == GROUP_OFFSETS_TOPIC:
                self._follow_own(change.before, change.after)
        names = changed_topics(delta)
        if names:
            for shard in list(self._shards.values()):
                shard.on_topics(names)

    def _follow_own(self, before: TopicState | None, after: TopicState | None) -> None:
        if after is None or (before is not None and before.topic_id != after.topic_id):
            for partition in list(self._shards):
                self._end(partition)
            self._queued.clear()
            self._places.clear()
            self._partitions = 0
        if after is not None:
            self._adopt(after)

    def _adopt(self, topic: TopicState) -> None:
        if not self._partitions:
            self._partitions = len(topic.partitions)
        for partition in range(self._partitions):
            if not self._leads(partition):
                self._end(partition)
            elif partition not in self._shards and self._has_records(partition):
                self._queue(partition)

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
        began_s = asyncio.get_running_loop().time()
        shard: GroupCoordinator | None = None
        try:
            shard = self._open(partition)
            found = await load(shard, shard.view(), self._threads)
        except (BrokerError, OSError) as error:
            self._log.error("groups_not_loaded", partition=partition, reason=str(error))
            self._end(partition)
            self._timers.after_ms(LOAD_AGAIN_MS, lambda: self._load_again(partition))
            return
        if self._shards.get(partition) is not shard or shard.ended:
            return
        self._queued.discard(partition)
        shard.loaded()
        # A topic may have gone while nobody here looked: the broker was down, or the partition waited to be loaded.
        gone = [name for topic_id, name in found.topics.items() if self._topics.is_gone(name, topic_id)]
        if gone:
            shard.on_topics(gone)
        self._log.info(
            "groups_loaded",
            partition=partition,
            events=found.events,
            unreadable=found.unreadable,
            took_ms=int((asyncio.get_running_loop().time() - began_s) * 1000),
        )

    def _load_again(self, partition: int) -> None:
        if partition in self._queued:
            self._queued.discard(partition)
            if self._leads(partition):
                self._queue(partition)

    def close(self) -> None:
        """Serve nobody any more."""
        for partition in list(self._shards):
            self._end(partition)
