"""A record as it comes from a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TIMESTAMP_LOG_APPEND = 2
"""librdkafka's number for "the broker set it"."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record, its place included. A timestamp of -1 is none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_set_by_broker: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @classmethod
    def of(cls, message: Any) -> Record:
        """From the library's message, which must not be an error."""
        kind, timestamp_ms = message.timestamp()
        return cls(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp_ms=timestamp_ms if kind else -1,
            timestamp_set_by_broker=kind == TIMESTAMP_LOG_APPEND,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )
