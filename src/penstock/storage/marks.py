"""`log-marks-checkpoint`: recovery point, log start, high watermark and cleaned offset of each log of a directory.

Every line has a checksum. Kafka's four checkpoint files, which have none, are written as well, for Kafka's tools, and
read for partitions whose line here is missing or damaged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.ids import OFFSET_ZERO, TOPIC_ID_ZERO, Offset, TopicId, TopicPartition
from penstock.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CheckpointDamaged,
    encode_lines,
    encode_offsets,
    read_offsets,
)
from penstock.storage.disk import Disk
from penstock.storage.recovery import Stop
from penstock.storage.segment import NO_TIMESTAMP
from penstock.storage.summary import LogSummary

MARKS = "log-marks-checkpoint"
HEADER_LINES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMarks:
    """The offsets of a log at the last checkpoint."""

    tp: TopicPartition
    topic_id: TopicId = TOPIC_ID_ZERO
    """Zero where only Kafka's checkpoints have the log: they have no topic ids."""
    recovery_point: Offset = OFFSET_ZERO
    log_start: Offset = OFFSET_ZERO
    high_watermark: Offset = OFFSET_ZERO
    """Never below the log start: only committed records are deleted."""
    cleaned_to: Offset = OFFSET_ZERO

    def line(self) -> str:
        facts = (
            f"{self.tp.topic} {self.tp.partition} {self.topic_id.hex()} {self.recovery_point} {self.log_start} "
            f"{self.high_watermark} {self.cleaned_to}"
        )
        return f"{facts} {checksum(facts)}"

    @classmethod
    def parse(cls, line: str) -> "LogMarks":
        facts, _, crc = line.rpartition(" ")
        if crc != checksum(facts):
            raise ValueError(f"the checksum of {line!r} is wrong")
        topic, partition, topic_id, *rest = facts.split()
        recovery_point, log_start, high_watermark, cleaned_to = (Offset(int(each)) for each in rest)
        return cls(
            tp=TopicPartition(topic, int(partition)),
            topic_id=TopicId(bytes.fromhex(topic_id)),
            recovery_point=recovery_point,
            log_start=log_start,
            high_watermark=high_watermark,
            cleaned_to=cleaned_to,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MarksFound:
    """The undamaged entries of a directory's checkpoints."""

    marks: dict[TopicPartition, LogMarks]
    damaged: tuple[str, ...]
    """Descriptions of the damage."""

    def written(self, stop: Stop) -> list[LogSummary]:
        """The logs that must have a segment after an unclean stop: a power cut loses no log that was flushed."""
        return [
            LogSummary(
                tp=each.tp,
                topic_id=each.topic_id,
                log_start=each.log_start,
                log_end=max(each.recovery_point, each.high_watermark),
                size_bytes=0,
                oldest_ms=NO_TIMESTAMP,
                cleaned_to=each.cleaned_to,
                segments=(),
            )
            for each in self.marks.values()
            if each.topic_id != TOPIC_ID_ZERO
            and (each.recovery_point or (stop is Stop.PROCESS_CRASH and each.high_watermark))
        ]

    def of(self, tp: TopicPartition) -> LogMarks:
        return self.marks.get(tp) or LogMarks(tp=tp)


def checksum(facts: str) -> str:
    return f"{crc32c(facts.encode()):08x}"


def files(directory: str, marks: Iterable[LogMarks]) -> Iterator[tuple[str, bytes]]:
    """The checkpoint files of a directory, by their paths."""
    known = list(marks)
    yield f"{directory}/{MARKS}", encode_lines(each.line() for each in known)
    columns = {
        RECOVERY_POINTS: [(each.tp, each.recovery_point) for each in known],
        LOG_STARTS: [(each.tp, each.log_start) for each in known if each.log_start],
        HIGH_WATERMARKS: [(each.tp, each.high_watermark) for each in known],
        CLEANER_OFFSETS: [(each.tp, each.cleaned_to) for each in known if each.cleaned_to],
    }
    for name, offsets in columns.items():
        yield f"{directory}/{name}", encode_offsets(offsets)


def read(disk: Disk, directory: str) -> MarksFound:
    """Read the checkpoints of a directory; a log whose lines are all damaged is left out."""
    path = f"{directory}/{MARKS}"
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return read_kafkas(disk, directory)
    marks: dict[TopicPartition, LogMarks] = {}
    damaged: list[str] = []
    lines = data.decode(errors="replace").split("\n")
    for line in filter(None, lines[HEADER_LINES:]):
        try:
            found = LogMarks.parse(line)
        except ValueError as error:
            damaged.append(f"{path}: {error}")
        else:
            marks[found.tp] = found
    if not damaged and lines[1:HEADER_LINES] != [str(len(marks))]:
        damaged.append(f"{path}: {len(marks)} entries where it says {lines[1:HEADER_LINES]}")
    if damaged:
        others = read_kafkas(disk, directory)
        marks = others.marks | marks
        damaged += others.damaged
    return MarksFound(marks=marks, damaged=tuple(damaged))


def read_kafkas(disk: Disk, directory: str) -> MarksFound:
    """Read Kafka's checkpoints alone; a damaged one counts as empty."""
    columns: dict[str, dict[TopicPartition, Offset]] = {}
    damaged: list[str] = []
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        try:
            columns[name] = read_offsets(disk, f"{directory}/{name}")
        except CheckpointDamaged as damage:
            columns[name] = {}
            damaged.append(str(damage))
    marks = {
        tp: LogMarks(
            tp=tp,
            recovery_point=columns[RECOVERY_POINTS].get(tp, OFFSET_ZERO),
            log_start=columns[LOG_STARTS].get(tp, OFFSET_ZERO),
            high_watermark=columns[HIGH_WATERMARKS].get(tp, OFFSET_ZERO),
            cleaned_to=columns[CLEANER_OFFSETS].get(tp, OFFSET_ZERO),
        )
        for tp in dict.fromkeys(tp for column in columns.values() for tp in column)
    }
    return MarksFound(marks=marks, damaged=tuple(damaged))
