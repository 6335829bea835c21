"""Summaries that a clean stop writes of all logs, so that the next start need not open ten thousand."""

from collections.abc import Iterable
from dataclasses import dataclass

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.ids import Offset, TopicId, TopicPartition
from penstock.storage.checkpoint import CheckpointDamaged, encode_lines, read_lines
from penstock.storage.completeness import Contents, SegmentSizes, decode_segments, encode_segments
from penstock.storage.disk import Disk

SUMMARY = "log-summary-checkpoint"
NUMBERS = 5
"""Numbers in a line, after the topic id; the segments and a checksum follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """A log at a clean stop."""

    tp: TopicPartition
    topic_id: TopicId
    log_start: Offset
    log_end: Offset
    size_bytes: int
    oldest_ms: int
    """Greatest timestamp of the oldest segment: until that is too old, retention by time has nothing to do."""
    cleaned_to: Offset
    """Offset up to which the log is compacted."""
    segments: SegmentSizes | None = None
    """Base offset and size of each segment; None in a summary of an earlier version."""

    def line(self) -> str:
        facts = (
            f"{self.tp.topic} {self.tp.partition} {self.topic_id.hex()} {self.log_start} {self.log_end} "
            f"{self.size_bytes} {self.oldest_ms} {self.cleaned_to}"
        )
        if self.segments is None:
            return facts
        facts += f" {encode_segments(self.segments)}"
        return f"{facts} {checksum(facts)}"

    @classmethod
    def parse(cls, line: str) -> "LogSummary":
        topic, partition, topic_id, *rest = line.split()
        segments: SegmentSizes | None = None
        if len(rest) > NUMBERS:
            # A damaged digit must not look like a missing file.
            if line.rpartition(" ")[2] != checksum(line.rpartition(" ")[0]):
                raise ValueError(f"the checksum of {topic}-{partition} is wrong")
            segments = decode_segments(rest[NUMBERS])
        log_start, log_end, size_bytes, oldest_ms, cleaned_to = map(int, rest[:NUMBERS])
        return cls(
            tp=TopicPartition(topic, int(partition)),
            topic_id=TopicId(bytes.fromhex(topic_id)),
            log_start=Offset(log_start),
            log_end=Offset(log_end),
            size_bytes=size_bytes,
            oldest_ms=oldest_ms,
            cleaned_to=Offset(cleaned_to),
            segments=segments,
        )

    def contents(self) -> Contents | None:
        """The files that the log must still have; None where the summary does not list them."""
        if self.segments is None:
            return None
        return Contents(segments=self.segments, log_start=self.log_start, log_end=self.log_end)


def checksum(facts: str) -> str:
    return f"{crc32c(facts.encode()):08x}"


def encode(summaries: Iterable[LogSummary]) -> bytes:
    return encode_lines(summary.line() for summary in summaries)


def read(disk: Disk, path: str) -> dict[TopicPartition, LogSummary]:
    """The summaries of the last clean stop; `CheckpointDamaged` when they cannot be read."""
    try:
        found = [LogSummary.parse(line) for line in read_lines(disk, path)]
    except ValueError as error:
        raise CheckpointDamaged(f"{path}: {error}") from error
    return {summary.tp: summary for summary in found}
