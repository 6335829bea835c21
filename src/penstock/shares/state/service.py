"""The share coordinator of this broker."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Executor

from penstock.config.broker import BrokerConfig
from penstock.coordinator.runtime import CoordinatorRuntime
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.model.clock import Clock
from penstock.model.ids import TopicId
from penstock.model.timers import Timers
from penstock.model.topic import SHARE_STATE_TOPIC
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.shares.state.context import StateCoordinatorContext
from penstock.shares.state.record_formats import StateReader
from penstock.shares.state.shard import StateShard
from penstock.storage.store import LogStore
from penstock.wire.share_records import ShareKey


class ImagePartitions:
    """A `penstock.shares.state.shard.PartitionsView` of the current metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def partition_count(self, topic_id: TopicId) -> int | None:
        found = self._image.topics_by_id.get(topic_id)
        return None if found is None else len(found.partitions)


class ShareCoordinatorService(CoordinatorRuntime[StateCoordinatorContext, StateReader]):
    """The coordinator runtime of share partitions: finds the context of one; raises if another broker has it."""

    def __init__(
        self,
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
        super().__init__(
            SHARE_STATE_TOPIC,
            replicas=replicas,
            logs=logs,
            image=image,
            config=config,
            clock=clock,
            timers=timers,
            threads=threads,
            log=log,
            counters=counters,
        )
        self._partitions_view = ImagePartitions(image)

    def make(self, partition: int, replica: Replica) -> StateCoordinatorContext:
        return StateCoordinatorContext(
            partition,
            replica,
            StateShard(self._config(), self._partitions_view),
            clock=self._clock,
            timers=self._timers,
            threads=self._threads,
            log=self._log,
            write_timeout_ms=lambda: self._config().share_coordinator_write_timeout_ms,
        )

    def reader(self) -> StateReader:
        return StateReader()

    def after_load(self, coordinator: StateCoordinatorContext, reader: StateReader) -> None:
        """Forget share partitions of topics that were deleted before the load."""
        gone = [
            topic_id
            for topic_id in coordinator.shard().topic_ids()
            if self._partitions_view.partition_count(topic_id) is None
        ]
        if gone:
            coordinator.forget_topics(gone)

    def follow(self, delta: ImageDelta) -> None:
        super().follow(delta)
        gone = {
            change.before.topic_id
            for change in delta.topics
            if change.before is not None and (change.after is None or change.after.topic_id != change.before.topic_id)
        }
        if gone:
            for context in list(self._contexts.values()):
                context.forget_topics(gone)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed broker settings to the share partitions that are loaded."""
        for context in self._contexts.values():
            context.reconfigure(config)


def coordinator_key(key: ShareKey) -> str:
    """The text whose hash chooses the coordinator of a share partition, as FindCoordinator requests have it."""
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group}:{topic_id}:{key.partition}"
