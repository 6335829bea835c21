"""Everything that can be wrong with a history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """One way of being wrong."""

    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """Two values at one offset."""
    ABORTED_READ = "aborted read"
    """An operation that succeeded saw a value of one that failed."""
    PRECOMMITTED_READ = "precommitted read"
    """An operation saw a value that itself sent."""
    LOST_WRITE = "lost write"
    """A committed value that nobody saw, although somebody read at or beyond its place."""
    DUPLICATE = "duplicate"
    """One value at two offsets."""
    POLL_SKIP = "poll skip"
    """A process read past a value without seeing it."""
    NONMONOTONIC_POLL = "non-monotonic poll"
    """A process read backwards."""
    SEND_SKIP = "send skip"
    """Somebody else's value stands between two sends of one operation."""
    NONMONOTONIC_SEND = "non-monotonic send"
    """A later send of a process stands before an earlier one."""
    UNSEEN = "unseen"
    """A committed value that nobody had seen by the end."""
    G0 = "G0"
    """Operations overwrote each other in a circle: write-write edges alone."""
    G1C = "G1c"
    """Operations saw each other's values in a circle: write-read edges alone."""
    G1C_WITH_WRITES = "G1c with writes"
    """A circle of write-read and write-write edges."""
    COMMITTED_OFFSET_BACK = "committed offset back"
    """What a group had committed became less."""
    LAST_STABLE_BACK = "last stable offset back"
    """The last stable offset became less."""
    LAST_STABLE_STUCK = "last stable offset stuck"
    """Everything has come to rest, and a transaction is still open."""
    REPLICAS_DIFFER = "replicas differ"
    """Two replicas hold different values below the high watermark of both."""


KAFKA_ALLOWS = frozenset({Kind.SEND_SKIP, Kind.G0, Kind.G1C_WITH_WRITES})
"""Kafka's transactions do not isolate writes: two of them may lie interleaved in a partition, in either order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One finding: what, where, and enough of it to look it up in the history."""

    kind: Kind
    key: str
    found: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.found}" if self.key else f"{self.kind}: {self.found}"
