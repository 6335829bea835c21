"""Types of ids, so that they cannot be confused."""

from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, never reused: a topic recreated under an old name has another id."""

TOPIC_ID_ZERO = TopicId(bytes(16))
"""The protocol's value for "no id"."""


class TopicPartition(NamedTuple):
    """One partition of one topic, by name; a tuple, because it is the key of the hottest dictionaries."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
