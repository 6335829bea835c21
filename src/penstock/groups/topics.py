"""The interface through which group coordinators look up topics."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.model.ids import TopicId


class TopicsView(Protocol):
    """The topics that exist now."""

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic, or None if it does not exist."""
        ...

    def is_view(self, topic: str) -> bool:
        """Whether this is a filtered view, which has no log of its own."""
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
        """The names of all topics, for subscriptions by pattern."""
        ...
