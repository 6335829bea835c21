"""The disk of a simulated node, as one life of it sees it.

The files are those of the node's `MemDisk`, which survives the process. Each life has a `LifeDisk` of its own that is
dead after the life: a task that was dropped cannot write anything when its `finally` blocks run, so a crash never looks
like a clean stop.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.clock import Clock
from penstock.storage.disk import Buffer, Disk, DiskFile, DiskLock, FileStat
from penstock.testing.mem_disk import MemDisk
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.node import Ending, Life, Node
from penstock.testing.sim.threads import SimExecutor


class NodeDisk:
    """What a machine has for all its lives: the files, and what is wrong with the disk.

    Errors (EIO, ENOSPC, a failed fsync) are `files.fail(...)` and `files.capacity_bytes`; end them by
    `files.faults.clear()`.
    """

    def __init__(self, node: Node, *, capacity_bytes: int | None = None) -> None:
        self.node = node
        self.files = MemDisk() if capacity_bytes is None else MemDisk(capacity_bytes=capacity_bytes)
        self.slow_sync_s = 0.0
        """An fsync takes up to this long."""
        self.crash_in: int | None = None
        """So many more changes happen, and the next one ends the process or the machine."""
        self.crash: Callable[[], None] = node.cut_power
        self._stream = node.world.stream(f"disk of {node.name}")

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        assert not self.node.running, "a disk is replaced while its machine is off"
        self.files = MemDisk()

    def ended(self, ending: Ending) -> None:
        """The process is gone, and with the power whatever was not fsynced."""
        self.crash_in = None
        if ending is Ending.POWER_CUT:
            self.files.crash(SimRandomness(self._stream))
        else:
            self.files.kill()

    def sync_s(self) -> float:
        """How long the next fsync takes."""
        return self.slow_sync_s * self._stream.random() if self.slow_sync_s else 0.0

    def before_change(self) -> None:
        """Crash if it is time to."""
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                self.node.world.counts["crash inside a disk operation"] += 1
                self.crash()
                self.node.life.check()


class LifeDisk:
    """A `Disk` for one life. Every change is part of the trace."""

    def __init__(self, disk: NodeDisk, life: Life, clock: Clock, executor: SimExecutor) -> None:
        self.disk = disk
        self.life = life
        self._files: Disk = disk.files
        self._clock = clock
        self._executor = executor
        self._fact = life.node.world.trace.fact
        self._name = life.node.name
        life.at_end(disk.ended)

    def change(self, operation: str, path: str, data: Buffer = b"") -> None:
        """Note a change that is about to be made, unless this life is over or ends here."""
        self.life.check()
        disk = self.disk
        if disk.crash_in is not None:
            disk.before_change()
        disk.files.now_ms = self._clock.now_ms()
        self._fact(f"{self._name} {operation} {path}", data)

    def synced(self) -> None:
        """Let the time pass that an fsync takes."""
        delay_s = self.disk.sync_s()
        if delay_s:
            if self._executor.working:
                self._executor.extra_s += delay_s
            else:
                self.life.stall(delay_s)

    # Disk

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not self._files.exists(path):
            self.change("create", path)
        self.life.check()
        return LifeFile(self, path, self._files.open(path, create=create))

    def open_read(self, path: str) -> DiskFile:
        self.life.check()
        return LifeFile(self, path, self._files.open_read(path))

    def read_file(self, path: str) -> bytes:
        self.life.check()
        return self._files.read_file(path)

    def write_file(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.change("write", path, data)
        self._files.write_file(path, data, sync=sync)
        if sync:
            self.synced()

    def rename(self, source: str, target: str) -> None:
        self.change("rename", f"{source} to {target}")
        self._files.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.change("link", f"{source} to {target}")
        self._files.link(source, target)

    def unlink(self, path: str) -> None:
        self.change("unlink", path)
        self._files.unlink(path)

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        self.change("make_directory", path)
        self._files.make_directory(path, parents=parents)

    def remove_tree(self, path: str) -> None:
        self.change("remove_tree", path)
        self._files.remove_tree(path)

    def list_directory(self, path: str) -> list[str]:
        self.life.check()
        return self._files.list_directory(path)

    def exists(self, path: str) -> bool:
        self.life.check()
        return self._files.exists(path)

    def stat(self, path: str) -> FileStat:
        self.life.check()
        return self._files.stat(path)

    def sync_directory(self, path: str) -> None:
        self.change("sync_directory", path)
        self._files.sync_directory(path)
        self.synced()

    def lock(self, path: str) -> DiskLock | None:
        self.change("lock", path)
        lock = self._files.lock(path)
        return None if lock is None else LifeLock(self.life, lock)

    def free_bytes(self, path: str) -> tuple[int, int]:
        self.life.check()
        return self._files.free_bytes(path)

    def wait_for_descriptor(self) -> None:
        self.life.check()

    def boot_id(self) -> str:
        self.life.check()
        return self._files.boot_id()


class LifeFile:
    """An open file of one life."""

    __slots__ = ("_disk", "_file", "_path")

    def __init__(self, disk: LifeDisk, path: str, file: DiskFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def append(self, data: Buffer) -> int:
        self._disk.change("append", self._path, data)
        return self._file.append(data)

    def pread(self, size: int, position: int) -> bytes:
        if self._disk.life.ended is not None:
            self._disk.life.check()
        return self._file.pread(size, position)

    def pread_nowait(self, size: int, position: int) -> bytes | None:
        if self._disk.life.ended is not None:
            self._disk.life.check()
        return self._file.pread_nowait(size, position)

    def size(self) -> int:
        self._disk.life.check()
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._disk.change("truncate", f"{self._path} to {size}")
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.change("sync", self._path)
        self._file.sync()
        self._disk.synced()

    def fileno(self) -> int:
        raise AssertionError("a file of a simulation has no descriptor: transports read it")


class LifeLock:
    """A lock of one life."""

    __slots__ = ("_life", "_lock")

    def __init__(self, life: Life, lock: DiskLock) -> None:
        self._life = life
        self._lock = lock

    def release(self) -> None:
        self._life.check()
        self._lock.release()
