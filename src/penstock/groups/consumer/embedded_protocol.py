"""The consumer embedded protocol: subscriptions in JoinGroup and assignments in SyncGroup of classic consumers.

To a classic group's coordinator these bytes are opaque. If a group has members of both protocols, the coordinator acts
as the leader: it reads the subscriptions of the classic members and writes their assignments.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

ASSIGNMENT_VERSION_MAX = 3
OWNED_VERSION_MIN = 1
GENERATION_VERSION_MIN = 2
RACK_VERSION_MIN = 3

NULL = -1

TopicIndexes = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic name."""


class MalformedProtocolError(ValueError):
    """The bytes are not a valid subscription or assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's topics and the partitions it owns."""

    version: int
    topics: tuple[str, ...]
    owned: TopicIndexes = ()
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAssignment:
    """A member's partitions. User data belongs to a custom assignor."""

    partitions: TopicIndexes
    user_data: bytes | None = None


class Reader:
    """Reads fields in order; checks every length against the remaining bytes before allocating."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        start = self._at
        if size < 0 or size > len(self._data) - start:
            raise MalformedProtocolError(f"{size} bytes at {start} of {len(self._data)}")
        self._at = start + size
        return self._data[start : self._at]

    def int16(self) -> int:
        return int(INT16.unpack(self._take(INT16.size))[0])

    def int32(self) -> int:
        return int(INT32.unpack(self._take(INT32.size))[0])

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedProtocolError("null where a string is required")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == NULL:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedProtocolError(str(error)) from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == NULL else self._take(length)

    def count(self, item_size_min: int) -> int:
        """The length of an array whose items have at least this size."""
        count = self.int32()
        if not 0 <= count * item_size_min <= len(self._data) - self._at:
            raise MalformedProtocolError(f"{count} items at {self._at} of {len(self._data)} bytes")
        return count

    def topic_indexes(self) -> TopicIndexes:
        return tuple(
            (self.string(), tuple(self.int32() for _ in range(self.count(INT32.size))))
            for _ in range(self.count(INT16.size + INT32.size))
        )


def read_version(data: bytes) -> int:
    return Reader(data).int16()


def read_subscription(data: bytes) -> Subscription:
    """Decode a subscription. A later version begins like version 3. Raises MalformedProtocolError."""
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise MalformedProtocolError(f"version {version}")
    topics = tuple(reader.string() for _ in range(reader.count(INT16.size)))
    reader.nullable_bytes()
    owned = reader.topic_indexes() if version >= OWNED_VERSION_MIN else ()
    if version >= GENERATION_VERSION_MIN:
        reader.int32()
    rack_id = reader.nullable_string() if version >= RACK_VERSION_MIN else None
    return Subscription(version=version, topics=topics, owned=owned, rack_id=rack_id)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """Raises MalformedProtocolError."""
    reader = Reader(data)
    if (version := reader.int16()) < 0:
        raise MalformedProtocolError(f"version {version}")
    return EmbeddedAssignment(partitions=reader.topic_indexes(), user_data=reader.nullable_bytes())


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """Encode an assignment, in the member's subscription version or the newest known. All versions have one layout."""
    topics = list(partitions)
    parts = [INT16.pack(min(version, ASSIGNMENT_VERSION_MAX)), INT32.pack(len(topics))]
    for topic, indexes in topics:
        name = topic.encode()
        ordered = sorted(indexes)
        parts += [INT16.pack(len(name)), name, INT32.pack(len(ordered)), struct.pack(f">{len(ordered)}i", *ordered)]
    parts.append(INT32.pack(NULL))
    return b"".join(parts)
