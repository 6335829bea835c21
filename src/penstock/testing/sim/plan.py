"""What the clients of a simulation share: topics, pace, and when to stop."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from penstock.testing.sim.recording import key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that clients use."""

    name: str
    partitions: int

    def partition_keys(self) -> list[str]:
        return [key_of(self.name, index) for index in range(self.partitions)]

    def any_index(self, stream: random.Random) -> int:
        return stream.randrange(self.partitions)


EVENTS = Topic(name="events", partitions=2)
"""Written without transactions, read by readers and groups."""
LEDGER = Topic(name="ledger", partitions=2)
"""Written in transactions, read committed."""
PAIRS = Topic(name="pairs", partitions=2)
"""With two replicas of which one suffices, on clusters."""
UNFLUSHED = Topic(name="unflushed", partitions=1)
"""Acknowledged in the page cache, whatever the others are: a power cut may take its records, and damage none."""

CLASSIC_GROUP = "classic-readers"
CONSUMER_GROUP = "consumer-readers"
OFFSETS_PARTITIONS = 2
"""Of `__consumer_offsets`."""
COPY_GROUP = "copies"
"""Whose offsets are committed inside of transactions."""


def rack_name(broker_id: int) -> str:
    """The rack of a broker of a cluster; each has its own."""
    return f"rack-{broker_id}"


@dataclass(slots=True, kw_only=True)
class Plan:
    """One simulation's clients."""

    topics: tuple[Topic, ...] = (EVENTS, LEDGER)
    groups: tuple[str, ...] = (CLASSIC_GROUP, CONSUMER_GROUP, COPY_GROUP)
    pace: float = 1.0
    """How fast clients work; at 2.0 they wait half as long between two operations."""
    session_timeout_ms: int = 4_000
    """Of members of groups."""
    transaction_timeout_ms: int = 6_000
    stopping: bool = False
    """Clients finish what they are at, and end."""
    replicated: bool = False
    """Topics have several replicas: a leader that acknowledges alone may be deposed before others have the record."""
    reassigned: bool = False
    """Partitions are moved between brokers: there are more brokers than replicas."""
    cordoned: int | None = None
    """The broker that is cordoned, or may be; it outlives a crash of the client that cordoned it."""
    auto_balance: bool | None = None
    """Whether the controller evens out brokers by itself; None before an administrator has chosen."""
    ever_cordoned: set[int] = field(default_factory=set[int])
    """Brokers of which a request to cordon them may be carried out late."""
