"""What a broker that stops cleanly says of each of its logs, so that the next start need not open ten thousand."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.ids import TopicId, TopicPartition
from penstock.storage.checkpoint import CheckpointDamaged, encode_lines, read_lines
from penstock.storage.disk import Disk

SUMMARY = "log-summary-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """A log, as it was left."""

    tp: TopicPartition
    topic_id: TopicId
    log_start: int
    log_end: int
    size_bytes: int
    oldest_ms: int
    """Greatest timestamp of the oldest segment: until that is too old, retention by time has nothing to do."""
    cleaned_to: int
    """Where compaction stands."""

    def line(self) -> str:
        return (
            f"{self.tp.topic} {self.tp.partition} {self.topic_id.hex()} {self.log_start} {self.log_end} "
            f"{self.size_bytes} {self.oldest_ms} {self.cleaned_to}"
        )

    @classmethod
    def parse(cls, line: str) -> "LogSummary":
        topic, partition, topic_id, *numbers = line.split()
        log_start, log_end, size_bytes, oldest_ms, cleaned_to = map(int, numbers)
        return cls(
            tp=TopicPartition(topic, int(partition)),
            topic_id=TopicId(bytes.fromhex(topic_id)),
            log_start=log_start,
            log_end=log_end,
            size_bytes=size_bytes,
            oldest_ms=oldest_ms,
            cleaned_to=cleaned_to,
        )


def encode(summaries: Iterable[LogSummary]) -> bytes:
    return encode_lines(summary.line() for summary in summaries)


def read(disk: Disk, path: str) -> dict[TopicPartition, LogSummary]:
    """The summaries of the last clean stop; `CheckpointDamaged` when they cannot be read."""
    try:
        found = [LogSummary.parse(line) for line in read_lines(disk, path)]
    except ValueError as error:
        raise CheckpointDamaged(f"{path}: {error}") from error
    return {summary.tp: summary for summary in found}
