"""The offsets of one replica.

    log_start <= last_stable <= high_watermark <= local_end <= log_end

Readers see records below the high watermark, which every in-sync replica holds; readers of committed data see those
below the last stable offset, before which no transaction is undecided. Any code may read the offsets; only the rules in
`leader` and `follower` assign them.
"""

from dataclasses import dataclass

from penstock.model.generated_errors import OffsetOutOfRange
from penstock.model.ids import Offset, TopicPartition


@dataclass(slots=True, kw_only=True, eq=False)
class Offsets:
    """Where the log of a replica starts and ends, and how much of it is held, committed and stable."""

    log_start: Offset
    last_stable: Offset
    high_watermark: Offset
    local_end: Offset
    """How much of the log this replica counts as held: all of it, or with `flush=group` what is on its disk."""
    log_end: Offset

    @classmethod
    def recovered(
        cls, *, log_start: Offset, log_end: Offset, high_watermark: Offset, durable_end: Offset | None = None
    ) -> "Offsets":
        """The offsets of a log that was just opened. `durable_end` is given where only flushed records count."""
        assert 0 <= log_start <= log_end, f"log start {log_start} beyond log end {log_end}"
        high_watermark = min(max(high_watermark, log_start), log_end)
        return cls(
            log_start=log_start,
            last_stable=high_watermark,
            high_watermark=high_watermark,
            local_end=log_end if durable_end is None else min(max(durable_end, high_watermark), log_end),
            log_end=log_end,
        )

    def check_readable(self, offset: Offset, tp: TopicPartition) -> None:
        """Raise for an offset outside of the log; an offset inside is or will become readable."""
        if offset < self.log_start or offset > self.log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {tp}, but we only have log segments from offset "
                f"{self.log_start} up to {self.log_end}."
            )
