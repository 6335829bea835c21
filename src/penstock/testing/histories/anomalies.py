"""The anomalies of histories."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A kind of anomaly."""

    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """Two values at one offset."""
    ABORTED_READ = "aborted read"
    """An operation that succeeded saw a value of one that failed."""
    PRECOMMITTED_READ = "precommitted read"
    """An operation saw a value that it sent itself."""
    LOST_WRITE = "lost write"
    """A committed value that no process saw, although one read at or beyond its offset."""
    DUPLICATE = "duplicate"
    """One value at two offsets."""
    POLL_SKIP = "poll skip"
    """A process read past a value without seeing it."""
    NONMONOTONIC_POLL = "non-monotonic poll"
    """A process read backwards."""
    SEND_SKIP = "send skip"
    """Another operation's value is between two sends of one operation."""
    NONMONOTONIC_SEND = "non-monotonic send"
    """A later send of a process is before an earlier one."""
    UNSEEN = "unseen"
    """A committed value that no process had seen by the end."""
    G0 = "G0"
    """A cycle of write-write edges alone."""
    G1C = "G1c"
    """A cycle of write-read edges alone."""
    G1C_WITH_WRITES = "G1c with writes"
    """A cycle of write-read and write-write edges."""
    COMMITTED_OFFSET_BACK = "committed offset back"
    """The committed offset of a group went back."""
    LAST_STABLE_BACK = "last stable offset back"
    """The last stable offset went back."""
    LAST_STABLE_STUCK = "last stable offset stuck"
    """A transaction is still open after all work has ended."""
    REPLICAS_DIFFER = "replicas differ"
    """Two replicas hold different values below the high watermark of both."""


KAFKA_ALLOWS = frozenset({Kind.SEND_SKIP, Kind.G0, Kind.G1C_WITH_WRITES})
"""Kafka's transactions do not isolate writes: two of them may be interleaved in a partition, in either order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One finding: what, where, and enough of it to look it up in the history."""

    kind: Kind
    key: str
    found: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.found}" if self.key else f"{self.kind}: {self.found}"
