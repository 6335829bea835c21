"""Flushes a log: finds the files to sync, syncs them off the loop, and moves the recovery point."""

import contextlib
import errno
from dataclasses import dataclass

from penstock.model.ids import Offset
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.names import (
    EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SEGMENT_FILES,
    TIME_INDEX,
    TXN_INDEX,
)
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.segment import Segment
from penstock.storage.segments import LogSegments
from penstock.storage.txn_index_writer import TxnIndexWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Makes everything below `end` survive a power cut. Created on the loop, run off it, applied on it.

    `OSError` from `run` is final: the directory goes offline, and the fsync is not retried. Only a lack of file
    descriptors is: a file that could not be opened has not failed to sync.
    """

    disk: Disk
    path: str
    end: Offset
    files: tuple[DiskFile | str, ...]
    """Open files, and names of finished ones to open."""
    new: tuple[Segment, ...]
    """Segments whose directory entries have to be synced too."""
    indexed: tuple[Segment, ...]
    """Segments whose indexes of offsets and times are among the files, and were not synced yet."""

    epochs_saves: int | None
    """The number of saves of the leader epochs, if the last one is not on the disk yet."""
    txn_entries_written: int | None
    """The number of entries in the transaction index files, if the last one is not on the disk yet."""
    truncations: int
    """The log's truncation count when the flush began."""
    home: str | None
    """The log directory, when the partition's own directory is new in it."""

    def run(self) -> None:
        while True:
            try:
                self._sync()
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
            self.disk.wait_for_descriptor()

    def _sync(self) -> None:
        for file in self.files:
            if isinstance(file, str):
                try:
                    file = self.disk.open(file)
                except FileNotFoundError:
                    # Retention has dropped the segment meanwhile.
                    continue
            file.sync()
        if self.new or self.indexed or self.epochs_saves is not None or self.txn_entries_written is not None:
            # The log may have been deleted meanwhile.
            with contextlib.suppress(FileNotFoundError):
                self.disk.sync_directory(self.path)
        if self.home is not None:
            self.disk.sync_directory(self.home)


def run_flush(job: FlushJob) -> OSError | None:
    """Run a flush, usually in a thread, and return its failure for `Flusher.finish`."""
    try:
        job.run()
    except OSError as error:
        return error
    return None


class Flusher:
    """Tracks how much of a log is flushed. Each part of the log knows which of its writes are not synced yet."""

    __slots__ = (
        "_directory", "_epochs", "_segments", "_shortened_from", "_txn_index", "checkpointed", "recovery_point",
        "truncations",
    )  # fmt: skip

    def __init__(
        self,
        directory: PartitionDirectory,
        segments: LogSegments,
        epochs: LeaderEpochs,
        txn_index: TxnIndexWriter,
        recovery_point: Offset,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._txn_index = txn_index
        self.recovery_point = recovery_point
        """Everything below survives a power cut."""
        self.checkpointed = recovery_point
        """The recovery point that the next start will find."""
        self._shortened_from: Offset | None = None
        """The base of a segment that got shorter since the last flush began."""
        self.truncations: int = 0
        """How often the log was truncated: a flush that began before says nothing about batches written after."""

    def shortened(self, base: Offset) -> None:
        """A partial batch was removed from the segment at `base`: the next flush syncs that segment, even if it ended.

        A power cut may undo the removal until then, and recovery drops what comes after a partial batch.
        """
        self._shortened_from = base if self._shortened_from is None else min(base, self._shortened_from)

    def begin(self, log_end: Offset, *, closing: bool = False) -> FlushJob | None:
        """The work that makes everything below the log end survive a power cut; None when it does already.

        With `closing`, also the indexes of the newest segment, and what was written without moving the log end: after
        a clean stop, the next start trusts all of that.
        """
        segments, directory = self._segments, self._directory
        if not segments:
            self.recovery_point = log_end
        flushed = self.recovery_point >= log_end
        if flushed and not closing:
            return None
        path = directory.path
        shortened, self._shortened_from = self._shortened_from, None
        dirty = segments.dirty_from(self.recovery_point if shortened is None else min(shortened, self.recovery_point))
        if not dirty or (
            flushed and shortened is None and all(each.entry_synced and each.indexes_synced for each in dirty)
        ):
            return None
        files: list[DiskFile | str] = []
        for segment in dirty[:-1]:
            files += [segment.path(path, kind) for kind in SEGMENT_FILES]
        files.append(segments.active.file if segments.active is not None else dirty[-1].path(path, LOG))
        if closing and not dirty[-1].indexes_synced:
            files += [dirty[-1].path(path, kind) for kind in (OFFSET_INDEX, TIME_INDEX)]
        txns, epochs = self._txn_index, self._epochs
        txns.save()
        if txns.written > txns.synced:
            files.append(dirty[-1].path(path, TXN_INDEX))
        if not directory.entry_synced:
            files.append(f"{path}/{PARTITION_METADATA}")
        if epochs.saves > epochs.saves_synced:
            files.append(f"{path}/{EPOCHS}")
        return FlushJob(
            disk=directory.disk,
            path=path,
            end=log_end if txns.complete_to is None else txns.complete_to,
            files=tuple(files),
            new=tuple(segment for segment in dirty if not segment.entry_synced),
            indexed=tuple(each for each in (dirty if closing else dirty[:-1]) if not each.indexes_synced),
            home=None if directory.entry_synced else directory.log_directory.path,
            epochs_saves=epochs.saves if epochs.saves > epochs.saves_synced else None,
            txn_entries_written=txns.written if txns.written > txns.synced else None,
            truncations=self.truncations,
        )

    def finish(self, job: FlushJob, error: OSError | None = None) -> None:
        """Move the recovery point after a flush, or take the log directory offline because it failed."""
        if error is not None:
            raise self._directory.log_directory.lost(error, f"flushing {self._directory.tp}") from error
        for segment in job.new:
            segment.entry_synced = True
        for segment in job.indexed:
            segment.indexes_synced = True
        self._directory.entry_synced = True
        if job.epochs_saves is not None:
            self._epochs.saves_synced = job.epochs_saves
        if job.txn_entries_written is not None:
            self._txn_index.synced = job.txn_entries_written
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.end)

    def run(self, log_end: Offset) -> None:
        """Flush now, waiting for the disk."""
        job = self.begin(log_end)
        if job is not None:
            self.finish(job, run_flush(job))

    def lower(self, offset: Offset) -> None:
        """Lower the recovery point to `offset`, before the log is truncated there."""
        self.recovery_point = min(self.recovery_point, offset)

    def truncated(self, offset: Offset) -> None:
        """The log was truncated to `offset`. Flushes in flight do not move the recovery point."""
        self.truncations += 1
        self.lower(offset)

    def restarted(self, offset: Offset) -> None:
        """The log is empty and continues at `offset`."""
        self.truncations += 1
        self.recovery_point = offset
