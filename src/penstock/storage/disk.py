"""The interface to the file system, and its implementation by the operating system.

All other storage code takes a `Disk`, so that tests can cut the power, fill the disk and fail an fsync. Failures are
raised as `OSError`; the log directory decides what they mean.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
DESCRIPTORS_RETRY_S = 0.05
"""How long to wait for others to close their files before an open is tried again."""


class FileStat(NamedTuple):
    """Size and modification time of a file."""

    size: int
    modified_ms: int


class DiskFile(Protocol):
    """An open file.

    It closes with its last reference: a slice that is being sent keeps a deleted segment readable.
    """

    @property
    def append(self) -> Callable[[Buffer], int]:
        """Write at the end, and return how many bytes were written: fewer on a full disk."""
        ...

    @property
    def pread(self) -> Callable[[int, int], bytes]:
        """Read `size` bytes at a position. May wait for the disk; short only at the end of the file."""
        ...

    def pread_nowait(self, size: int, position: int) -> bytes | None:
        """As `pread` if the bytes are in the page cache; otherwise None."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the contents are on the disk. May block for long."""
        ...

    def fileno(self) -> int: ...


class DiskLock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, as far as storage uses one. Names are strings; a rename within a directory is atomic."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for appending and reading; with `create`, make the file where it is missing."""
        ...

    def open_read(self, path: str) -> DiskFile: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Make the file hold exactly `data`; not atomic by itself, see `replace_file`."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsError` when the name is taken."""
        ...

    def unlink(self, path: str) -> None: ...

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        """Create the directory unless it exists. Without `parents`, a lost mount is not recreated on the disk below."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def list_directory(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def stat(self, path: str) -> FileStat: ...

    def sync_directory(self, path: str) -> None:
        """Return when the directory's entries are on the disk."""
        ...

    def lock(self, path: str) -> DiskLock | None:
        """Hold an exclusive lock on a file, made where missing; None when another process holds it."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Available and total bytes of the file system that holds `path`."""
        ...

    def wait_for_descriptor(self) -> None:
        """Wait a moment, in a thread, before an open is tried again that failed for lack of descriptors."""
        ...

    def boot_id(self) -> str:
        """An id that changes with every boot, and so whenever the page cache is lost; empty if unknown."""
        ...


def replace_file(disk: Disk, path: str, data: Buffer, *, sync: bool) -> None:
    """Replace the contents of a file atomically: after a crash it has the old or the new ones."""
    aside = path + ".tmp"
    disk.write_file(aside, data, sync=sync)
    disk.rename(aside, path)
    if sync:
        disk.sync_directory(os.path.dirname(path))


class Descriptor(int):
    """A file descriptor that is closed with its last reference; a bound call holds one."""

    __slots__ = ()

    def __del__(self) -> None:
        os.close(self)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("append", "fd", "pread")

    def __init__(self, fd: int) -> None:
        self.fd = Descriptor(fd)
        # Bound once: the append of a batch is one call from Python into the kernel.
        self.append: partial[int] = partial(os.write, self.fd)
        self.pread: partial[bytes] = partial(os.pread, self.fd)

    def pread_nowait(self, size: int, position: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            done = os.preadv(self.fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return os.pread(self.fd, size, position)
        if done == size:
            return bytes(buffer)
        return None if position + done < os.fstat(self.fd).st_size else bytes(memoryview(buffer)[:done])

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def fileno(self) -> int:
        return self.fd


class RealLock:
    """A lock that the kernel releases when the process ends, killed or not."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class RealDisk:
    """The operating system's file systems."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        return RealFile(os.open(path, flags | os.O_CREAT if create else flags, FILE_MODE))

    def open_read(self, path: str) -> DiskFile:
        return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_file(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        with open(path, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        Path(path).mkdir(DIRECTORY_MODE, parents=parents, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def stat(self, path: str) -> FileStat:
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def free_bytes(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def wait_for_descriptor(self) -> None:
        time.sleep(DESCRIPTORS_RETRY_S)

    def boot_id(self) -> str:
        try:
            with open(BOOT_ID_PATH) as file:
                return file.read().strip()
        except OSError:
            return ""
