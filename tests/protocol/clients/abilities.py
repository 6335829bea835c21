"""What a client library can do, as small protocols, and the words in which stories speak to all of them.

The adapter of a library, made for one broker, names the abilities that the library has as its superclasses. A story
asks for the abilities that it needs and runs with every client that has them: see `clients/library.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

SECONDS_MAX = 100.0
CODECS = ("gzip", "snappy", "lz4", "zstd")

Isolation = Literal["read_uncommitted", "read_committed"]
GroupProtocol = Literal["range", "cooperative", "consumer"]
Outcome = Literal["accept", "release", "reject"]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to produce, or one that was consumed. What is None was not set, or the client does not show it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How to produce; what is None is left to the client's default."""

    codec: str | None = None
    linger_ms: int | None = None
    acks: Literal["0", "1", "all"] | None = None
    idempotent: bool | None = None
    batch_bytes: int | None = None


BY_DEFAULT = Delivery()


class RefusedError(Exception):
    """The broker refused a request, with Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class FencedError(RefusedError):
    """Another producer has taken over the transactional id."""


class Produces(Protocol):
    codecs: tuple[str, ...]
    shows_offsets: bool

    def produce(self, topic: str, records: Sequence[Record], delivery: Delivery = BY_DEFAULT) -> list[int | None]:
        """Produce, wait for the acknowledgements, and return the offsets, or None for each if they are not shown."""
        ...


class TunesDelivery(Produces, Protocol):
    """Acknowledgements, idempotence and batches can be chosen."""


class Consumes(Protocol):
    def consume(self, topic: str, count: int, *, start: int = 0) -> list[Record]:
        """Wait for so many records of partition 0; a client that can read to the end returns what follows as well."""
        ...


class Reader(Protocol):
    """A consumer that is assigned one partition."""

    def read(self, count: int) -> list[Record]:
        """Wait for so many records, then go on to the end of the partition as the isolation level shows it."""
        ...

    def seek(self, offset: int) -> None: ...
    def seek_to_beginning(self) -> None: ...
    def seek_to_end(self) -> None: ...
    def bounds(self) -> tuple[int, int]:
        """The first offset and the one behind the last, at the isolation level."""
        ...

    def find(self, timestamp_ms: int) -> tuple[int, int | None] | None:
        """The offset of the first record at or after a time, and its time if the client says it."""
        ...


class Seeks(Consumes, Protocol):
    def reader(
        self, topic: str, *, partition: int = 0, start: int = 0, isolation: Isolation = "read_uncommitted"
    ) -> AbstractContextManager[Reader]: ...

    def consume(self, topic: str, count: int, *, start: int = 0) -> list[Record]:
        with self.reader(topic, start=start) as reader:
            return reader.read(count)


class ReadsInGroup(Protocol):
    group_protocols: tuple[GroupProtocol, ...]

    def read_in_group(self, group: str, topic: str, count: int, protocol: GroupProtocol) -> list[bytes]:
        """Join, read so many records and no more, commit, and leave."""
        ...


class GroupMember(Protocol):
    """A consumer that reads, remembers, and commits what it has read, until it is stopped."""

    name: str

    @property
    def owned(self) -> set[Place]: ...
    @property
    def values(self) -> list[bytes]: ...
    @property
    def error(self) -> BaseException | None: ...
    def leave(self) -> None:
        """Begin to leave the group; who made the member waits for its end."""
        ...


class Owners(Protocol):
    """Notified by members when partitions are assigned to them and revoked from them."""

    def take(self, member: GroupMember, places: Sequence[Place]) -> None: ...
    def give(self, member: GroupMember, places: Sequence[Place]) -> None: ...


class JoinsGroups(Protocol):
    group_protocols: tuple[GroupProtocol, ...]

    def member(
        self, group: str, topic: str, protocol: GroupProtocol, *, name: str, owners: Owners
    ) -> AbstractContextManager[GroupMember]: ...


class JoinsGroupsInThreads(JoinsGroups, Protocol):
    """Its members are threads of the test, not processes, and tell their owners at once: a story can have several."""


class CommitsOffsets(Protocol):
    def commit_offset(self, group: str, place: Place, offset: int, note: str) -> None:
        """Commit without being a member."""
        ...

    def committed(self, group: str, place: Place) -> tuple[int, str | None] | None:
        """The committed offset with its note, which is None where the client does not show it."""
        ...


class TransactionalProducer(Protocol):
    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        """Produce one record and wait until the broker has it."""
        ...

    def send_offset(self, group: str, place: Place, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class Transacts(Seeks, Produces, CommitsOffsets, Protocol):
    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> AbstractContextManager[TransactionalProducer]: ...


class SharesQueues(Protocol):
    """A member of a share group."""

    def read_shared(self, group: str, topic: str, count: int, outcome: Outcome) -> dict[bytes, int]:
        """Join, acknowledge so many records with one outcome, leave; returns their values with the delivery counts.

        What is delivered besides is released.
        """
        ...
