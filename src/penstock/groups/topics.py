"""What a coordinator has to know of the topics that its groups read."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.model.ids import TopicId


class TopicsView(Protocol):
    """The topics there are now."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, or None where there is no such topic."""
        ...

    def topic_id(self, topic: str) -> TopicId | None:
        """The id of the topic that has this name now."""
        ...

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of the topic with this id."""
        ...

    def racks(self, topic: str, partition: int) -> Sequence[str]:
        """The racks where a partition has replicas."""
        ...

    def names(self) -> Iterable[str]:
        """Every topic, for subscriptions by pattern."""
        ...
