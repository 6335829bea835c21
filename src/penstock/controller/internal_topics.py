"""Creates the coordinators' topics, such as `__consumer_offsets`, when they are first needed.

A topic keeps the replication factor that it is created with. So where other brokers may join, its creation waits until
as many are live as the configured factor asks for: the first broker of a cluster that starts must not settle it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from penstock.config.broker import BrokerConfig
from penstock.controller.cordons import open_brokers
from penstock.controller.topics import NewTopic
from penstock.metadata.image import MetadataImage
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import CoordinatorNotAvailable, TopicAlreadyExists
from penstock.model.topic import (
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicState,
    waits_for_brokers,
)
from penstock.observe.log import Logger

REPLICAS_FOR_IN_SYNC_TWO = 3
"""With so many replicas, a write to `__consumer_offsets` needs two of them in sync: one may then be down."""


class TopicCreator(Protocol):
    """The controller, or a way to it."""

    @property
    def image(self) -> MetadataImage: ...

    async def create_topics(self, topics: Sequence[NewTopic]) -> tuple[TopicState | BrokerError, ...]:
        """Create topics. An invalid topic does not affect the others; a raised `BrokerError` fails all of them."""
        ...


class InternalTopics:
    """Creates each topic once, however many requests need it at the same time."""

    def __init__(
        self, *, controller: TopicCreator, config: Callable[[], BrokerConfig], alone: bool, log: Logger
    ) -> None:
        """`alone` says that no other broker can join: then factors are those that one broker can give."""
        self._controller = controller
        self._config = config
        self._alone = alone
        self._log = log
        self._turn = asyncio.Lock()
        self._waits_logged: set[tuple[str, int]] = set()
        """Topics that wait for brokers, with the number of live ones when that was logged."""

    def has_offsets(self) -> bool:
        """Whether `__consumer_offsets` exists."""
        return GROUP_OFFSETS_TOPIC in self._controller.image.topics

    async def ensure_offsets(self) -> None:
        """Create `__consumer_offsets` unless it exists; raises a `BrokerError` where that fails."""
        await self._ensure(self._offsets())

    async def ensure_transactions(self) -> None:
        """Create `__transaction_state` unless it exists; raises a `BrokerError` where that fails."""
        await self._ensure(self._transactions())

    async def ensure_shares(self) -> None:
        """Create `__share_group_state` unless it exists; raises a `BrokerError` where that fails."""
        await self._ensure(self._shares())

    async def _ensure(self, wanted: NewTopic) -> None:
        async with self._turn:
            if wanted.name in self._controller.image.topics:
                return
            self._check_live(wanted)
            [outcome] = await self._controller.create_topics([wanted])
            if isinstance(outcome, BrokerError) and not isinstance(outcome, TopicAlreadyExists):
                raise outcome

    def _check_live(self, wanted: NewTopic) -> None:
        """Raise CoordinatorNotAvailable while too few brokers are live, as Kafka does."""
        live = len(open_brokers(self._controller.image))
        if live >= wanted.replication_factor:
            return
        if (wanted.name, live) not in self._waits_logged:
            self._waits_logged.add((wanted.name, live))
            self._log.warning(
                "internal_topic_waits",
                topic=wanted.name,
                replication_factor=wanted.replication_factor,
                live=live,
                detail=waits_for_brokers(wanted.name, wanted.replication_factor, live),
            )
        raise CoordinatorNotAvailable()

    def _factor(self, configured: int) -> int:
        return 1 if self._alone else configured

    def _offsets(self) -> NewTopic:
        config = self._config()
        replicas = self._factor(config.offsets_topic_replication_factor)
        in_sync = (("min.insync.replicas", "2"),) if replicas >= REPLICAS_FOR_IN_SYNC_TWO else ()
        return NewTopic(
            name=GROUP_OFFSETS_TOPIC,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                *in_sync,
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def _transactions(self) -> NewTopic:
        config = self._config()
        replicas = self._factor(config.transaction_state_log_replication_factor)
        return NewTopic(
            name=TRANSACTION_STATE_TOPIC,
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(min(config.transaction_state_log_min_isr, replicas))),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )

    def _shares(self) -> NewTopic:
        config = self._config()
        replicas = self._factor(config.share_coordinator_state_topic_replication_factor)
        return NewTopic(
            name=SHARE_STATE_TOPIC,
            partitions=config.share_coordinator_state_topic_num_partitions,
            replication_factor=replicas,
            configs=(
                # The coordinator deletes the records that later ones replace.
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(min(config.share_coordinator_state_topic_min_isr, replicas))),
                ("retention.bytes", "-1"),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )


class ShareStateTopic:
    """Creates `__share_group_state` in the background, for those who try again until it is there."""

    def __init__(self, topics: InternalTopics, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._topics = topics
        self._spawn = spawn
        self._begun = False

    def begin(self) -> None:
        """Begin to create the topic, unless that has begun."""
        if not self._begun:
            self._begun = True
            creating = self._create()
            try:
                self._spawn(creating)
            except RuntimeError:
                # This broker is stopping.
                creating.close()

    async def _create(self) -> None:
        try:
            with suppress(BrokerError):
                await self._topics.ensure_shares()
        finally:
            self._begun = False
