"""Moving a log to another directory while it is in use: copied off the loop, then switched over.

The copy grows under a name that a start does not take for a log. Batches appended meanwhile are copied in further
rounds; the last few bytes are copied at the switch, on the loop. Compaction and retention wait, since they would change
the files being copied.
"""

import contextlib
from dataclasses import dataclass

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import Offset
from penstock.storage.directories import LogDirectory
from penstock.storage.disk import Disk
from penstock.storage.log import Log
from penstock.storage.names import (
    DELETE_DIRECTORY,
    EPOCHS,
    FUTURE_DIRECTORY,
    GAPS,
    LOG,
    PARTITION_METADATA,
    QUARANTINED,
    REMOVAL_MARK,
    SEGMENT_FILES,
    SNAPSHOT,
    marked_name,
    offset_name,
    partition_name,
)
from penstock.storage.quarantine import write_whole
from penstock.storage.throttle import Throttle
from penstock.storage.trash import Trash

SWITCH_BYTES_MAX = 1024 * 1024
"""Most bytes that the switch copies on the loop; more are copied off the loop first."""

COPY_BYTES = 1024 * 1024
SIDE_FILES = (EPOCHS, PARTITION_METADATA, GAPS, REMOVAL_MARK)

Shape = tuple[tuple[Offset, int], ...]
"""Base offset and size of every segment."""


@dataclass(slots=True, kw_only=True)
class Move:
    """A log on its way to another directory. `copy` runs off the loop; the rest on it."""

    log: Log
    target: LogDirectory
    future: str
    """Path of the copy."""
    wanted: Shape
    """The segments to copy now."""
    source: str
    truncations: int
    """Of the log when its copy began: a log of the same sizes may have other batches after a truncation."""
    copied: Shape = ()
    origin: LogDirectory | None = None
    """The former directory, after the switch."""

    def truncating(self, log: Log, offset: Offset) -> None:
        """The log may be truncated at any offset during a move, which copies it again."""

    @property
    def disk(self) -> Disk:
        return self.target.disk

    def copy(self, throttle: Throttle | None = None) -> None:
        """Copy the segments as they were when this round began, and sync them."""
        self.disk.make_directory(self.future)
        have = dict(self.copied)
        for base, size in self.wanted:
            start = min(have.get(base, 0), size)
            copy_range(self.disk, self._file(base, LOG), self._copy(base, LOG), start, size, throttle)
            self.disk.open(self._copy(base, LOG)).sync()
        self.copied = self.wanted
        self.disk.sync_directory(self.future)

    def _file(self, base: Offset, kind: str) -> str:
        return f"{self.source}/{offset_name(base, kind)}"

    def _copy(self, base: Offset, kind: str) -> str:
        return f"{self.future}/{offset_name(base, kind)}"

    def settle(self) -> None:
        """Sync the whole copy, after the switch. Off the loop."""
        path = self.target.file(partition_name(self.log.tp))
        for name in self.disk.list_directory(path):
            # The log is in use: an old snapshot or a dropped segment may go at any moment.
            with contextlib.suppress(FileNotFoundError):
                self.disk.open(f"{path}/{name}").sync()
        self.disk.sync_directory(path)
        self.disk.sync_directory(self.target.path)

    def copy_sides(self) -> None:
        """Copy the small files: indexes, snapshots, epochs, quarantined segments."""
        kept = {offset_name(base, kind) for base, _ in self.wanted for kind in SEGMENT_FILES if kind != LOG}
        for name in self.disk.list_directory(self.source):
            if name in kept or name in SIDE_FILES or name.endswith((SNAPSHOT, QUARANTINED)):
                self.disk.write_file(f"{self.future}/{name}", self.disk.read_file(f"{self.source}/{name}"))


def shape_of(log: Log) -> Shape:
    return tuple((segment.base, segment.size) for segment in log.segments.describe())


def begin_move(log: Log, target: LogDirectory, unique: str) -> Move | None:
    """Start moving a log; the caller runs the first `copy`. None while the log is being compacted: try again later."""
    target.check()
    log.open()
    assert target is not log.directory, f"{log.tp} is in {target.path} already"
    if log.cleaning is not None:
        return None
    try:
        log.partition_directory.make()
    except OSError as error:
        raise log.directory.failed(error, f"moving {log.tp}") from error
    move = Move(
        log=log,
        target=target,
        future=target.file(marked_name(log.tp, FUTURE_DIRECTORY, unique)),
        wanted=shape_of(log),
        source=log.path,
        truncations=log.truncations,
    )
    log.cleaning = move
    return move


def try_switch(move: Move) -> bool:
    """Switch to the copy if it lacks little; otherwise False, and another `copy` is due.

    After the switch, the caller runs `settle` off the loop, then `retire` on it.
    """
    log = move.log
    assert log.cleaning is move, f"{log.tp} is not being moved by this"
    if move.truncations != log.truncations:
        move.truncations = log.truncations
        move.copied = ()
    have = dict(move.copied)
    move.wanted = shape_of(log)
    missing = sum(abs(size - have.get(base, 0)) for base, size in move.wanted)
    if missing > SWITCH_BYTES_MAX:
        return False
    try:
        switch(move)
    except OSError as error:
        raise move.target.failed(error, f"moving {log.tp} to {move.target.path}") from error
    return True


def switch(move: Move) -> None:
    """Make the copy the log.

    The original stays until the copy is on the disk: a start takes the longer of the two.
    """
    log = move.log
    flushed = min(log.recovery_point, log.log_end)
    log.partition_directory.rewrites += 1
    copied_to = dict(move.copied)
    log.segments.release()
    for base in copied_to.keys() - dict(move.wanted).keys():
        move.disk.unlink(f"{move.future}/{offset_name(base, LOG)}")
    for base, size in move.wanted:
        source, target = f"{move.source}/{offset_name(base, LOG)}", f"{move.future}/{offset_name(base, LOG)}"
        copy_range(move.disk, source, target, min(copied_to.get(base, 0), size), size)
    move.copy_sides()
    log.abandon()
    path = move.target.file(partition_name(log.tp))
    move.disk.rename(move.future, path)
    move.origin = log.directory
    log.partition_directory.move_to(move.target, path)
    log.cleaning = None
    # The indexes of all segments, other side files and the last bytes are not on the disk yet.
    log.flusher.recovery_point = min(flushed, log.segments[0].base if log.segments else log.log_end)
    for segment in log.segments:
        segment.entry_synced = segment.indexes_synced = False


def retire(move: Move, trash: Trash, unique: str) -> None:
    """Remove the original, after `settle`."""
    assert move.origin is not None, f"{move.log.tp} has not been moved"
    old = move.origin.file(marked_name(move.log.tp, DELETE_DIRECTORY, unique))
    try:
        move.disk.rename(move.source, old)
    except OSError as error:
        raise move.origin.failed(error, f"removing the former directory of {move.log.tp}") from error
    trash.add(old, 0)


def abandon_move(move: Move, trash: Trash) -> None:
    """Cancel the move: the log stays where it is, and the copy is removed."""
    move.log.cleaning = None
    trash.add(move.future, 0)


def copy_range(disk: Disk, source: str, target: str, start: int, end: int, throttle: Throttle | None = None) -> None:
    """Append a range of one file to another."""
    reader, writer = disk.open_read(source), disk.open(target, create=True)
    if writer.size() != start:
        writer.truncate(start)
    while start < end:
        data = reader.pread(min(COPY_BYTES, end - start), start)
        if not data:
            raise KafkaStorageError(f"{source} ended at {start}, before {end}")
        write_whole(writer, memoryview(data))
        start += len(data)
        if throttle is not None:
            throttle.done(len(data))
