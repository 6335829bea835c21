"""Checkpoint files in Kafka's text format: a version, a count, then a line for each entry."""

from collections.abc import Iterable
from threading import Lock

from penstock.model.ids import Offset, TopicPartition
from penstock.storage.disk import Disk, replace_file

VERSION = 0

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
"""Offset up to which each log has been fsynced."""
LOG_STARTS = "log-start-offset-checkpoint"
"""Start of each log that begins inside its first segment."""
HIGH_WATERMARKS = "replication-offset-checkpoint"
"""High watermark of each log: records below it may have been read."""
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
"""Offset up to which each log is compacted."""


class CheckpointDamaged(Exception):
    """A checkpoint file is damaged; the message names the file and the line."""


class CheckpointFiles:
    """Writes checkpoint files off the loop, never an older state over a newer one."""

    __slots__ = ("_begun", "_disk", "_lock", "_number", "_written")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()
        self._number = 0
        self._begun: dict[str, bytes] = {}
        """The newest contents of each file, written or being written, so that unchanged files are not written again."""
        self._written: dict[str, int] = {}
        """The number of the newest state in each file."""

    def begin(self, files: Iterable[tuple[str, bytes]], *, every: bool = False) -> tuple[int, list[tuple[str, bytes]]]:
        """Assign the next number to this state of the files; returns the changed files with it, or all with `every`."""
        self._number += 1
        changed = [(path, data) for path, data in files if every or self._begun.get(path) != data]
        self._begun.update(changed)
        return self._number, changed

    def write(self, number: int, files: Iterable[tuple[str, bytes]]) -> None:
        """Write a state to the disk, except files that have a newer one. In any thread.

        A file that cannot be written does not keep the others from being written; its error is raised at the end.
        """
        failure: OSError | None = None
        for path, data in files:
            with self._lock:
                if self._written.get(path, 0) > number:
                    continue
                try:
                    replace_file(self._disk, path, data, sync=True)
                    self._written[path] = number
                except OSError as error:
                    # The contents are unknown now: write the file again, changed or not.
                    self._begun.pop(path, None)
                    failure = failure or error
        if failure is not None:
            raise failure


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join((str(VERSION), str(len(entries)), *entries, "")).encode()


def decode_lines(path: str, data: bytes) -> list[str]:
    """The entries of a checkpoint; `CheckpointDamaged` when its count is wrong, so that a truncated file is noticed."""
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


def encode_offsets(offsets: Iterable[tuple[TopicPartition, Offset]]) -> bytes:
    return encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    offsets: dict[TopicPartition, Offset] = {}
    for line in read_lines(disk, path):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
        except ValueError as error:
            raise CheckpointDamaged(f"{path}: not a topic, a partition and an offset: {line!r}") from error
    return offsets
