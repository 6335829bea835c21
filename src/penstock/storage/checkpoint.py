"""Small text files that say how far things have got: a version, a count, then a line for each entry, as Kafka has
them."""

from collections.abc import Iterable

from penstock.model.ids import TopicPartition
from penstock.storage.disk import Disk, replace_file

VERSION = 0

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
"""Below it, a partition's log has been fsynced."""
LOG_STARTS = "log-start-offset-checkpoint"
"""Where a log begins when that is inside its first segment."""
HIGH_WATERMARKS = "replication-offset-checkpoint"
"""Below it, records were committed: somebody may have read them."""
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
"""Below it, a log is compacted."""


class CheckpointDamaged(Exception):
    """A checkpoint that cannot be believed; the message names the file and the line."""


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join((str(VERSION), str(len(entries)), *entries, "")).encode()


def decode_lines(path: str, data: bytes) -> list[str]:
    """The entries of a checkpoint, or `CheckpointDamaged`: a shorter file than it says must not pass for a short
    list."""
    try:
        lines = data.decode().splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise CheckpointDamaged(f"{path}: no version and count in the first two lines") from error
    if version != VERSION:
        raise CheckpointDamaged(f"{path}: version {version}, only {VERSION} is known")
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CheckpointDamaged(f"{path}: {len(entries)} entries where it says {count}")
    return entries


def write_lines(disk: Disk, path: str, lines: Iterable[str], *, sync: bool) -> None:
    replace_file(disk, path, encode_lines(lines), sync=sync)


def read_lines(disk: Disk, path: str) -> list[str]:
    """The entries of a checkpoint; none when there is no such file."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return []
    return decode_lines(path, data)


def encode_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    return encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in read_lines(disk, path):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CheckpointDamaged(f"{path}: not a topic, a partition and an offset: {line!r}") from error
    return offsets
