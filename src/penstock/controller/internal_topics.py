"""Creates the coordinators' topics, `__consumer_offsets` and `__transaction_state`, when they are first needed."""

import asyncio
from collections.abc import Callable

from penstock.config.broker import BrokerConfig
from penstock.controller.controller import Controller
from penstock.controller.topics import NewTopic
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import TopicAlreadyExists
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


class InternalTopics:
    """Creates each topic once, however many requests need it at the same time."""

    def __init__(self, *, controller: Controller, config: Callable[[], BrokerConfig]) -> None:
        self._controller = controller
        self._config = config
        self._turn = asyncio.Lock()

    def has_offsets(self) -> bool:
        """Whether `__consumer_offsets` exists."""
        return GROUP_OFFSETS_TOPIC in self._controller.image.topics

    def has_transactions(self) -> bool:
        """Whether `__transaction_state` exists."""
        return TRANSACTION_STATE_TOPIC in self._controller.image.topics

    async def ensure_offsets(self) -> None:
        """Create `__consumer_offsets` unless it exists; raises a `BrokerError` where that fails."""
        await self._ensure(self._offsets())

    async def ensure_transactions(self) -> None:
        """Create `__transaction_state` unless it exists; raises a `BrokerError` where that fails."""
        await self._ensure(self._transactions())

    async def _ensure(self, wanted: NewTopic) -> None:
        async with self._turn:
            if wanted.name in self._controller.image.topics:
                return
            [outcome] = await self._controller.create_topics([wanted])
            if isinstance(outcome, BrokerError) and not isinstance(outcome, TopicAlreadyExists):
                raise outcome

    def _offsets(self) -> NewTopic:
        config = self._config()
        brokers = max(len(self._controller.image.brokers), 1)
        return NewTopic(
            name=GROUP_OFFSETS_TOPIC,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=min(config.offsets_topic_replication_factor, brokers),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def _transactions(self) -> NewTopic:
        config = self._config()
        brokers = max(len(self._controller.image.brokers), 1)
        replicas = min(config.transaction_state_log_replication_factor, brokers)
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
