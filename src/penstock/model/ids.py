"""The names of things, as types: a partition index is not an offset."""

from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, never reused: a topic made anew under an old name has another id."""

TOPIC_ID_ZERO = TopicId(bytes(16))
"""How the protocol says "no id"."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; a tuple, because it is the key of the hottest dictionaries."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
