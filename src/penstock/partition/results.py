"""The results of an append and of a read."""

from penstock.model.ids import NO_BROKER, BrokerId, LeaderEpoch, Offset
from penstock.model.removals import Removals
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn


class Appended:
    """Where an appended batch is in the log."""

    __slots__ = ("base_offset", "end", "log_append_time_ms", "log_start")

    def __init__(self, base_offset: Offset, log_append_time_ms: int, log_start: Offset, end: Offset) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 where the topic keeps the producer's timestamps."""
        self.log_start = log_start
        self.end = end
        """The offset after the batch."""


class Fetched:
    """The records of one partition for one reader, and the partition's offsets."""

    __slots__ = (
        "aborted",
        "diverging",
        "high_watermark",
        "is_urgent",
        "last_stable",
        "log_start",
        "preferred_replica",
        "records",
        "removals",
    )

    def __init__(
        self,
        records: FileSlice | bytes,
        high_watermark: Offset,
        last_stable: Offset,
        log_start: Offset,
        aborted: list[AbortedTxn] | None,
        diverging: tuple[LeaderEpoch, Offset] | None = None,
        removals: Removals | None = None,
        preferred_replica: BrokerId = NO_BROKER,
    ) -> None:
        self.records = records
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.log_start = log_start
        self.aborted = aborted
        """Aborted transactions the reader has to skip; None where it did not ask for committed records only."""
        self.diverging = diverging
        """Epoch and end offset up to which the reader's log agrees with this one; None where all of it does."""
        self.removals = removals
        """What compaction removed, for a follower that may not have copied it before; None for any other reader."""
        self.preferred_replica = preferred_replica
        """The broker that a consumer is to read from; negative: this one."""
        self.is_urgent = diverging is not None or preferred_replica >= 0
        """Whether the reader has to know at once, without waiting for records."""
