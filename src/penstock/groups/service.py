"""The group coordinator of this broker."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from penstock.config.broker import BrokerConfig
from penstock.config.log import CONSUME_GROUP
from penstock.coordinator.runtime import CoordinatorRuntime
from penstock.groups.context import GroupCoordinatorContext
from penstock.groups.image_topics import ImageTopics, changed_topics
from penstock.groups.record_formats import EventReader
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.records import NO_CONFIGS
from penstock.model.clock import Clock, Randomness
from penstock.model.errors import BrokerError
from penstock.model.timers import Timers
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TopicState
from penstock.observe.counters import StorageCounters
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.shares.persister import SharePersister
from penstock.storage.store import LogStore

REFUSALS_LOGGED_MAX = 1_000
"""Groups and topics whose refused commits are logged until the broker restarts."""


class GroupCoordinatorService(CoordinatorRuntime[GroupCoordinatorContext, EventReader]):
    """The coordinator runtime of groups: finds the context of a group; raises if another broker coordinates it."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        logs: LogStore,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        randomness: Randomness,
        timers: Timers,
        threads: Executor,
        log: Logger,
        counters: StorageCounters | None = None,
        shares: SharePersister | None = None,
    ) -> None:
        super().__init__(
            GROUP_OFFSETS_TOPIC,
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
        self._randomness = randomness
        self._shares = shares
        self._refused: set[tuple[str, str]] = set()
        """Topics and groups that commit to them although another group consumes them."""
        self._topics = ImageTopics(image)

    def may_commit(self, topic: TopicState, group: str) -> bool:
        """Whether a group may commit offsets of a topic: with `cleanup.policy=consume` one group alone may.

        The log tells the first time why not: the response of a commit has a code and no words.
        """
        owner = topic.configs.get(CONSUME_GROUP, group)
        if owner == group:
            return True
        if (topic.name, group) not in self._refused and len(self._refused) < REFUSALS_LOGGED_MAX:
            self._refused.add((topic.name, group))
            self._log.warning(
                "commit_refused",
                group=group,
                topic=topic.name,
                reason=f"{CONSUME_GROUP}={owner}: records are removed once that group has consumed them",
            )
        return False

    def is_managed(self, group: str) -> bool:
        """Whether a group has or had members. False if another broker coordinates it or its partition is loading."""
        try:
            return self.of(group).shard().is_managed(group)
        except BrokerError:
            return False

    def make(self, partition: int, replica: Replica) -> GroupCoordinatorContext:
        return GroupCoordinatorContext(
            partition,
            replica,
            GroupShard(self._config(), self._topics, self._member_id, self._settings_of),
            clock=self._clock,
            timers=self._timers,
            threads=self._threads,
            log=self._log,
            write_timeout_ms=lambda: self._config().offsets_commit_timeout_ms,
            shares=self._shares,
        )

    def reader(self) -> EventReader:
        return EventReader()

    def after_load(self, coordinator: GroupCoordinatorContext, reader: EventReader) -> None:
        """Drop offsets of topics and partitions that were removed before the load, as while the broker was down."""
        gone = [
            name
            for topic_id, name in reader.topics.items()
            if self._topics.is_gone(name, topic_id) or self._topics.is_finalized(name)
        ]
        if gone:
            coordinator.on_topics(gone)

    def _settings_of(self, group: str) -> Mapping[str, str]:
        return self._image.group_configs.get(group, NO_CONFIGS)

    def _member_id(self, prefix: str | None) -> str:
        """A unique member id: a prefix and a UUID as Java prints it, or without a prefix a UUID as Kafka prints it."""
        if prefix is None:
            return urlsafe_b64encode(self._randomness.uuid_bytes()).decode().rstrip("=")
        raw = self._randomness.uuid_bytes().hex()
        return f"{prefix}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    def follow(self, delta: ImageDelta) -> None:
        super().follow(delta)
        names = changed_topics(delta)
        if names:
            for context in list(self._contexts.values()):
                context.on_topics(names)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed broker settings to the groups that are loaded."""
        for context in self._contexts.values():
            context.reconfigure(config)
