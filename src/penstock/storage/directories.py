"""A log directory: one disk's worth of partitions, which fails as a whole."""

import errno
from collections.abc import Callable

from penstock.model.generated_errors import KafkaStorageError
from penstock.storage.disk import Disk
from penstock.storage.files import OpenFiles

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a disk says that would take fewer bytes, or the same ones later."""


class LogDirectory:
    """Where logs live, and whether they can be reached.

    A disk that is full refuses writes and nothing else, until there is room again. Any other failure may have damaged
    what was written, so the directory goes offline for as long as the process lives: an fsync that failed once must not
    succeed at the second try, because the kernel has thrown away what it could not write.
    """

    __slots__ = ("_on_offline", "disk", "files", "offline", "path")

    def __init__(
        self, path: str, disk: Disk, files: OpenFiles, on_offline: Callable[["LogDirectory"], None] | None = None
    ) -> None:
        self.path = path
        self.disk = disk
        self.files = files
        self.offline: str | None = None
        """Why nothing in the directory can be reached; None while it can."""
        self._on_offline = on_offline

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Take the consequence of a failed operation and give the error to raise. On the loop."""
        said = error.strerror or str(error)
        if error.errno in FULL_ERRORS:
            return KafkaStorageError(
                f"{self.path}: {said} while {doing}. Reads go on, and writes resume by themselves when there is room: "
                "free space on this file system, or shorten retention."
            )
        self.go_offline(f"{said} while {doing}")
        return self.unreachable()

    def lost(self, error: OSError, doing: str) -> KafkaStorageError:
        """A failure after which nobody knows what is on the disk: offline, whatever the disk says about itself."""
        self.go_offline(f"{error.strerror or error} while {doing}")
        return self.unreachable()

    def go_offline(self, reason: str) -> None:
        if self.offline is None:
            self.offline = reason
            if self._on_offline is not None:
                self._on_offline(self)

    def unreachable(self) -> KafkaStorageError:
        return KafkaStorageError(
            f"Log directory {self.path} is offline: {self.offline}. Restart the broker once the disk is sound."
        )

    def check(self) -> None:
        """Raise unless the directory is online."""
        if self.offline is not None:
            raise self.unreachable()
