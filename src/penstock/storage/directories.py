"""A log directory: the partitions on one disk, which is locked, identified and taken offline as a whole."""

import base64
import errno
import json
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from penstock.model.clock import Randomness
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import BrokerId, TopicPartition
from penstock.storage.disk import Disk, DiskLock, replace_file, sync_names_above
from penstock.storage.files import OpenFiles
from penstock.storage.recovery import Finding, Stop
from penstock.storage.segment_files import unlink_if_there

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
NODE_ID = "node.id"
CLUSTER_ID = "cluster.id"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".penstock_running"
"""A file with the machine's boot id as of the last broker that had recovered from all earlier boots."""

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk: a smaller write, or the same one later, may succeed."""

SCARCE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
"""Errors of a process or machine that lacks descriptors or memory; the disk is not at fault."""

FILE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
"""Errors of one file, about its owner or type. The disk and the other files are not at fault."""


class StartRefused(Exception):
    """The broker must not start on this data; the message says why, and what to do."""


class LogDirectory:
    """A directory of logs, and whether it is online.

    A full disk refuses writes until there is room again, and serves reads. A lack of descriptors or memory fails single
    requests. Any other failure may have damaged what was written, so the directory is offline until the process ends:
    an fsync that failed must not be retried, because the kernel has dropped the pages that it could not write.
    """

    __slots__ = (
        "_lock",
        "_on_offline",
        "directory_id",
        "disk",
        "files",
        "new",
        "offline",
        "on_finding",
        "on_refusal",
        "pages_lost",
        "path",
    )

    def __init__(
        self,
        path: str,
        disk: Disk,
        files: OpenFiles,
        on_offline: Callable[["LogDirectory"], None] | None = None,
        on_finding: Callable[[TopicPartition, Finding], None] | None = None,
        on_refusal: Callable[["LogDirectory", str], None] | None = None,
    ) -> None:
        self.path = path
        self.disk = disk
        self.files = files
        self.offline: str | None = None
        """Why the directory is offline; None while it is online."""
        self.directory_id = ""
        self.new = False
        """Whether this broker is the first to use it."""
        self.pages_lost = False
        """Whether the last broker could not write pages: the kernel may still show what is not on the disk."""
        self._on_offline = on_offline
        self.on_finding = on_finding
        """Called with each finding of a log's recovery."""
        self.on_refusal = on_refusal
        """Called with the reason when the directory refuses an operation and stays online."""
        self._lock: DiskLock | None = None

    # Failures

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Handle a failed operation: go offline if need be, and return the error to raise. On the loop."""
        if error.errno in FULL_ERRORS | SCARCE_ERRORS and self.on_refusal is not None:
            self.on_refusal(self, f"{said(error)} while {doing}")
        if error.errno in FULL_ERRORS:
            return KafkaStorageError(
                f"{self.path}: {said(error)} while {doing}. Reads go on, and writes resume by themselves when there is "
                "room: free space on this file system, or shorten retention."
            )
        if error.errno in SCARCE_ERRORS:
            return KafkaStorageError(
                f"{self.path}: {said(error)} while {doing}. The disk is not at fault, and the next try may succeed: "
                "the broker or the machine has too many files open, or too little memory."
            )
        return self.lost(error, doing)

    def lost(self, error: OSError, doing: str) -> KafkaStorageError:
        """Go offline after a failure that leaves the contents of the disk unknown, and return the error to raise.

        The kernel may have dropped pages that it could not write. The next start must recover as after a machine
        crash, although the machine has not been restarted.
        """
        if self.offline is None:
            with suppress(OSError):
                self.disk.unlink(self.file(RUNNING))
        self.go_offline(f"{said(error)} while {doing}")
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

    # Its own files

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def acquire(self, broker_id: BrokerId, cluster_id: str, randomness: Randomness) -> None:
        """Lock and identify the directory. `StartRefused` if it is another broker's; `OSError` if it is unusable."""
        if not self.disk.exists(self.path):
            self.disk.make_directory(self.path, parents=True)
        self._lock = self.disk.lock(self.file(LOCK))
        if self._lock is None:
            raise StartRefused(
                f"{self.path} is in use by another process, which holds {self.file(LOCK)}. "
                "Stop that one, or give this broker another directory (--data, log.dirs)."
            )
        self._identify(broker_id, cluster_id, randomness)

    def _identify(self, broker_id: BrokerId, cluster_id: str, randomness: Randomness) -> None:
        """Check that the data is of this broker and cluster; a new directory is marked as theirs."""
        path = self.file(META_PROPERTIES)
        if not self.disk.exists(path):
            self.directory_id = base64.urlsafe_b64encode(randomness.uuid_bytes()).decode().rstrip("=")
            lines = (
                "version=1",
                f"{NODE_ID}={broker_id}",
                f"{CLUSTER_ID}={cluster_id}",
                f"directory.id={self.directory_id}",
                "",
            )
            # The directory may have been made just now, by this process or another: until its own name is on the
            # disk, nothing in it is. meta.properties comes after, so that a start that is killed is repeated whole.
            sync_names_above(self.disk, self.path)
            replace_file(self.disk, path, "\n".join(lines).encode(), sync=True)
            self.new = True
            return
        found = read_properties(self.disk.read_file(path))
        self.directory_id = found.get("directory.id", "")
        node, cluster = found.get(NODE_ID), found.get(CLUSTER_ID)
        if node is not None and node != str(broker_id):
            self._refuse(
                f"{path} says {NODE_ID}={node}, and this broker has {NODE_ID}={broker_id}: the data is another "
                f"broker's. Give this one another directory, or set {NODE_ID}={node}."
            )
        if cluster is not None and cluster != cluster_id:
            self._refuse(
                f"{path} says {CLUSTER_ID}={cluster}, and the metadata of this broker is of cluster {cluster_id}: the "
                "logs are another cluster's. Give this broker another directory, or restore the metadata of these logs."
            )

    def owner(self) -> dict[str, str]:
        """The directory's meta.properties; empty when it is new or unreachable."""
        try:
            return read_properties(self.disk.read_file(self.file(META_PROPERTIES)))
        except OSError:
            return {}

    def _refuse(self, why: str) -> NoReturn:
        self.release()
        raise StartRefused(why)

    def last_stop(self) -> Stop:
        """How the last broker stopped; without a file that says so, a machine crash, which needs a full recovery."""
        if self.disk.exists(self.file(CLEAN_SHUTDOWN)):
            return Stop.CLEAN
        try:
            boot = self.disk.read_file(self.file(RUNNING)).decode(errors="replace").strip()
        except FileNotFoundError:
            self.pages_lost = not self.new
            return Stop.MACHINE_CRASH
        return Stop.PROCESS_CRASH if boot and boot == self.disk.boot_id() else Stop.MACHINE_CRASH

    def mark_unclean(self) -> None:
        """Make every stop unclean until `mark_clean`. Synced before any other file is changed.

        After a machine crash the file keeps the boot id from before it until `mark_recovered`, so that a recovery that
        is killed is repeated as thoroughly.
        """
        if self.last_stop() is Stop.CLEAN:
            self.mark_recovered()
            unlink_if_there(self.disk, self.file(CLEAN_SHUTDOWN))
            self.disk.sync_directory(self.path)

    def mark_recovered(self) -> None:
        """Note that every log is recovered from earlier boots: only a crash in this boot needs recovery now."""
        self.disk.write_file(self.file(RUNNING), self.disk.boot_id().encode(), sync=True)
        self.disk.sync_directory(self.path)

    def mark_clean(self) -> None:
        """Note that everything is on the disk: the next start need not recover."""
        marker = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
        replace_file(self.disk, self.file(CLEAN_SHUTDOWN), marker, sync=True)

    def release(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def said(error: OSError) -> str:
    return error.strerror or str(error)


def read_properties(data: bytes) -> dict[str, str]:
    """Names and values of a Java properties file without escapes and continuation lines."""
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}
