"""Getting a log onto the disk, off the loop: what is dirty now, and how far the disk has everything once it is done."""

import contextlib
import errno
import time
from dataclasses import dataclass

from penstock.storage.disk import Disk, DiskFile
from penstock.storage.segment import Segment

DESCRIPTORS_RETRY_S = 0.05
"""How long a flush waits for others to close their files before it tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Make everything below `end` survive a power cut. Made on the loop, run off it, applied on it.

    `OSError` from `run` is final: the directory goes offline, and nobody asks the kernel again whether it went well.
    Only a lack of descriptors is waited out: a file that could not be opened was not synced either.
    """

    disk: Disk
    path: str
    end: int
    files: tuple[DiskFile | str, ...]
    """Open files, and names of finished ones to open."""
    new: tuple[Segment, ...]
    """Segments whose names have to reach the disk too."""

    epochs_saves: int | None
    """How often the leader epochs had been saved, when the last of that is not on the disk yet."""
    notes_written: int | None
    """How many aborted transactions had been noted, when the last of them is not on the disk yet."""
    truncations: int
    """How often the log had been cut when the flush began."""
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
            time.sleep(DESCRIPTORS_RETRY_S)

    def _sync(self) -> None:
        for file in self.files:
            if isinstance(file, str):
                try:
                    file = self.disk.open(file)
                except FileNotFoundError:
                    # Retention was faster; what nobody can read need not be on the disk.
                    continue
            file.sync()
        if self.new or self.epochs_saves is not None or self.notes_written is not None:
            # A log that was deleted meanwhile has nothing to keep.
            with contextlib.suppress(FileNotFoundError):
                self.disk.sync_directory(self.path)
        if self.home is not None:
            self.disk.sync_directory(self.home)


def run_flush(job: FlushJob) -> OSError | None:
    """Run a flush in a thread, and give its failure to whoever applies it."""
    try:
        job.run()
    except OSError as error:
        return error
    return None
