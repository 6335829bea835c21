"""A log directory: one disk's worth of partitions, which is locked, identified and taken offline as a whole."""

import base64
import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from penstock.model.clock import Randomness
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.storage.disk import Disk, DiskLock, replace_file
from penstock.storage.files import OpenFiles
from penstock.storage.recovery import Finding, Stop
from penstock.storage.segment_files import unlink_if_there

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
NODE_ID = "node.id"
CLUSTER_ID = "cluster.id"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".penstock_running"
"""Names the boot of the machine during which a broker last wrote here, with all logs recovered from earlier boots."""

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a disk says that would take fewer bytes, or the same ones later."""

SCARCE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
"""What the system says when the process or the machine lacks something: the disk itself was not at fault."""

FILE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
"""What the system says of one file: its owner, or what it is. The disk and the other files are not at fault."""


class StartRefused(Exception):
    """The broker must not start on this data; the message says why, and what to do."""


class LogDirectory:
    """Where logs live, and whether they can be reached.

    A disk that is full refuses writes and nothing else, until there is room again. A process without descriptors or
    memory fails a request and nothing else. Any other failure may have damaged what was written, so the directory goes
    offline for as long as the process lives: an fsync that failed once must not succeed at the second try, because the
    kernel has thrown away what it could not write.
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
        """Why nothing in the directory can be reached; None while it can."""
        self.directory_id = ""
        self.new = False
        """Whether no broker had it before this one."""
        self._on_offline = on_offline
        self.on_finding = on_finding
        """Told what opening a log brings to light."""
        self.on_refusal = on_refusal
        """Told why the directory refuses an operation while it stays online."""
        self._lock: DiskLock | None = None

    # Failures

    def failed(self, error: OSError, doing: str) -> KafkaStorageError:
        """Take the consequence of a failed operation and give the error to raise. On the loop."""
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
        """A failure after which nobody knows what is on the disk: offline, whatever the disk says about itself.

        The kernel may have dropped pages that it could not write, as a machine crash would have: the next start must
        not take them for written because the machine is still up.
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

    def acquire(self, broker_id: int, cluster_id: str, randomness: Randomness) -> None:
        """Make the directory this broker's own. `StartRefused` when it is another's; `OSError` when it is unusable."""
        if not self.disk.exists(self.path):
            self.disk.make_directory(self.path, parents=True)
            self.disk.sync_directory(os.path.dirname(os.path.abspath(self.path)))
        self._lock = self.disk.lock(self.file(LOCK))
        if self._lock is None:
            raise StartRefused(
                f"{self.path} is in use by another process, which holds {self.file(LOCK)}. "
                "Stop that one, or give this broker another directory (--data, log.dirs)."
            )
        self._identify(broker_id, cluster_id, randomness)

    def _identify(self, broker_id: int, cluster_id: str, randomness: Randomness) -> None:
        """Check whose data it is, or say so when it is nobody's."""
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
        """What the directory says of its broker and cluster; nothing when it is new or unreachable."""
        try:
            return read_properties(self.disk.read_file(self.file(META_PROPERTIES)))
        except OSError:
            return {}

    def _refuse(self, why: str) -> NoReturn:
        self.release()
        raise StartRefused(why)

    def last_stop(self) -> Stop:
        """How the last broker here ended. Where nothing says so, its logs are trusted as little as can be."""
        if self.disk.exists(self.file(CLEAN_SHUTDOWN)):
            return Stop.CLEAN
        try:
            boot = self.disk.read_file(self.file(RUNNING)).decode(errors="replace").strip()
        except FileNotFoundError:
            return Stop.MACHINE_CRASH
        return Stop.PROCESS_CRASH if boot and boot == self.disk.boot_id() else Stop.MACHINE_CRASH

    def mark_unclean(self) -> None:
        """From here on, a stop is unclean until `mark_clean`. On the disk before anything is changed.

        After a machine crash this leaves the boot that crashed named, so that a recovery which is killed is done again
        as thoroughly: `mark_recovered` ends that.
        """
        if self.last_stop() is Stop.CLEAN:
            self.mark_recovered()
            unlink_if_there(self.disk, self.file(CLEAN_SHUTDOWN))
            self.disk.sync_directory(self.path)

    def mark_recovered(self) -> None:
        """No log is in doubt because of an earlier boot: from here on, only this one's end matters."""
        self.disk.write_file(self.file(RUNNING), self.disk.boot_id().encode(), sync=True)
        self.disk.sync_directory(self.path)

    def mark_clean(self) -> None:
        """Everything is on the disk: the next start need not look."""
        marker = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
        replace_file(self.disk, self.file(CLEAN_SHUTDOWN), marker, sync=True)

    def release(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def said(error: OSError) -> str:
    return error.strerror or str(error)


def read_properties(data: bytes) -> dict[str, str]:
    """Names and values of a Java properties file, as simple ones are written."""
    lines = (line.strip() for line in data.decode(errors="replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}
