"""A disk in memory that fails on request: it loses unflushed data, fills up, becomes read-only, corrupts bytes.

A `Randomness` decides what survives a power cut, so that a seed reproduces it:

- a file keeps its content at the last fsync, plus any subset of the writes since, each whole or torn at a sector;
- a directory keeps the entries of its last fsync, plus some of the changes since, in their order: file systems with a
  journal of metadata (ext4, xfs, btrfs, zfs) do not reorder them.
"""

import errno
import os
from dataclasses import dataclass

from penstock.model.clock import Randomness
from penstock.storage.disk import Buffer, DiskFile, DiskLock, FileStat

SECTOR_BYTES = 512
PAGE_BYTES = 4096
CAPACITY_BYTES = 1 << 40


class PowerCut(BaseException):
    """The machine stopped at this operation, so no exception handler runs; call `crash` to get what is left."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """An operation that fails: its name, a part of the path, the error, and how often (-1: always)."""

    operation: str
    path_part: str
    error: int
    times: int = -1


class Space:
    """Bytes of all files that have a name."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class Inode:
    """A file's contents: now, at the last fsync, and the writes in between."""

    __slots__ = ("_space", "cold", "data", "durable", "links", "modified_ms", "pending", "unwritten")

    def __init__(self, space: Space) -> None:
        self._space = space
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Position and bytes of each write; position and None for a truncation."""
        self.unwritten: list[tuple[int, bytes]] = []
        """Writes that an fsync failed on: the next one does not write them, and reports success all the same."""
        self.modified_ms = 0
        self.cold: set[int] = set()
        """Pages that are not in memory."""
        self.links = 0
        """Names it has."""

    def write(self, position: int, data: bytes) -> None:
        before = len(self.data)
        self.data[position : position + len(data)] = data
        self.pending.append((position, data))
        if self.links:
            self._space.used_bytes += len(self.data) - before

    def truncate(self, size: int) -> None:
        if self.links:
            self._space.used_bytes += size - len(self.data)
        resize(self.data, size)
        self.pending.append((size, None))

    def link(self) -> None:
        self.links += 1
        if self.links == 1:
            self._space.used_bytes += len(self.data)

    def unlink(self) -> None:
        self.links -= 1
        if self.links == 0:
            self._space.used_bytes -= len(self.data)

    def sync(self) -> None:
        durable = self.durable
        for position, written in self.pending:
            if written is None:
                resize(durable, position)
                self._cut_unwritten(position)
            else:
                overwrite(durable, position, written)
        self.pending.clear()

    def fail_sync(self) -> None:
        """Take what was to be synced for synced, as Linux does after it has reported the error once."""
        for position, written in self.pending:
            if written is None:
                resize(self.durable, position)
                self._cut_unwritten(position)
            else:
                self.unwritten.append((position, written))
        self.pending.clear()

    def _cut_unwritten(self, size: int) -> None:
        """Forget the pages beyond a size: the file is that short on the disk, too."""
        self.unwritten = [(start, data[: size - start]) for start, data in self.unwritten if start < size]

    def settle(self) -> None:
        """Have the contents of now on the disk, whatever happened before."""
        self.durable = bytearray(self.data)
        self.pending.clear()
        self.unwritten.clear()

    def crash(self, randomness: Randomness) -> None:
        """Reduce the content to what a power cut leaves."""
        data = self.durable
        for position, written in (*self.unwritten, *self.pending):
            if written is None:
                if randomness.below(2):
                    resize(data, position)
                continue
            for start in range(0, len(written), SECTOR_BYTES):
                if randomness.below(4):
                    overwrite(data, position + start, written[start : start + SECTOR_BYTES])
        self.data = data
        self.settle()


def resize(data: bytearray, size: int) -> None:
    """Cut off what is beyond a size, or fill up to it with zeros."""
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def overwrite(data: bytearray, position: int, written: bytes) -> None:
    """Write at a position; a gap before it is filled with zeros."""
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written


class Folder:
    """A directory's entries: now, at the last fsync, and the changes in between."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.pending: list[tuple[str | None, str | None, Inode | Folder]] = []
        """Removed name, added name, and the named file or folder."""

    def change(self, gone: str | None, come: str | None, named: "Inode | Folder") -> None:
        if gone == come:
            return
        replaced = None if come is None else self.entries.get(come)
        apply(self.entries, gone, come, named)
        self.pending.append((gone, come, named))
        if come is not None:
            named.link()
        if gone is not None:
            named.unlink()
        if replaced is not None:
            replaced.unlink()

    def link(self) -> None:
        """Count the names of the files below."""
        for named in self.entries.values():
            named.link()

    def unlink(self) -> None:
        for named in self.entries.values():
            named.unlink()

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def crash(self, randomness: Randomness) -> None:
        entries = dict(self.durable)
        for gone, come, named in self.pending[: randomness.below(len(self.pending) + 1)]:
            apply(entries, gone, come, named)
        self.entries = entries
        self.sync()
        for named in entries.values():
            named.crash(randomness)


def apply(entries: "dict[str, Inode | Folder]", gone: str | None, come: str | None, named: "Inode | Folder") -> None:
    if gone is not None:
        entries.pop(gone, None)
    if come is not None:
        entries[come] = named


class Descriptor:
    """A descriptor of a copy of some contents, open for as long as this is."""

    __slots__ = ("number",)

    def __init__(self, contents: Buffer) -> None:
        self.number = os.memfd_create("mem_disk")
        os.write(self.number, contents)

    def __del__(self) -> None:
        os.close(self.number)


class MemFile:
    """An open file of a `MemDisk`."""

    __slots__ = ("_copy", "_disk", "_inode", "_path", "_writable")

    def __init__(self, disk: "MemDisk", path: str, inode: Inode, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._copy: Descriptor | None = None

    def append(self, data: Buffer) -> int:
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._disk.before("append", self._path, changes=True)
        taken = bytes(data)
        room = self._disk.room()
        if len(taken) > room:
            taken = taken[: max(0, room)]
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._inode.write(len(self._inode.data), taken)
        self._inode.modified_ms = self._disk.now_ms
        return len(taken)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.before("pread", self._path)
        if self._inode.cold:
            self._inode.cold.difference_update(range(position // PAGE_BYTES, (position + size) // PAGE_BYTES + 1))
        return self._disk.counted(bytes(self._inode.data[position : position + size]))

    def pread_nowait(self, size: int, position: int) -> bytes | None:
        cold = self._inode.cold
        if cold and cold.intersection(range(position // PAGE_BYTES, (position + size - 1) // PAGE_BYTES + 1)):
            return None
        return self.pread(size, position)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._disk.before("truncate", self._path, changes=True)
        self._inode.truncate(size)

    def sync(self) -> None:
        try:
            self._disk.before("sync", self._path, changes=True)
        except OSError:
            self._inode.fail_sync()
            raise
        self._inode.sync()

    def fileno(self) -> int:
        """A descriptor of a copy of the contents, for `sendfile`."""
        self._copy = Descriptor(self._inode.data)
        return self._copy.number


class MemLock:
    """A held lock; a dead process holds none."""

    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemDisk:
    """A file system in memory.

    Each operation that changes something counts; `cut_power_at` stops before one of them. So does each that reads.
    """

    def __init__(self, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.read_only = False
        self.faults: list[Fault] = []
        self.operations = 0
        self.reads = 0
        self.bytes_read = 0
        self.cut_power_at: int | None = None
        self.now_ms = 0
        """The modification time of files."""
        self._space = Space()
        self._root = Folder()
        self._locks: set[str] = set()
        self._boots = 1

    # Faults

    def fail(self, operation: str, path_part: str, error: int, *, times: int = -1) -> None:
        """Make an operation fail on paths that contain a text."""
        self.faults.append(Fault(operation=operation, path_part=path_part, error=error, times=times))

    def crash(self, randomness: Randomness) -> None:
        """Cut the power: unflushed data survives at random, and every process ends."""
        self._root.crash(randomness)
        self._count_space()
        self._boots += 1
        self.kill()

    def kill(self) -> None:
        """Kill the process: all its writes are kept, and its locks are released."""
        self._locks = set()
        self.cut_power_at = None

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Corrupt a byte on the disk."""
        inode = self._inode(path)
        inode.data[position] ^= mask
        inode.settle()

    def evict(self, path: str) -> None:
        """Evict a file from memory: reading it has to wait."""
        inode = self._inode(path)
        inode.cold = set(range(len(inode.data) // PAGE_BYTES + 1))

    def before(self, operation: str, path: str, *, changes: bool = False) -> None:
        """Count an operation, and fail it if a fault is set."""
        if changes:
            if self.cut_power_at is not None and self.operations >= self.cut_power_at:
                raise PowerCut(f"{operation} {path}")
            self.operations += 1
            if self.read_only:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        for fault in self.faults:
            if fault.operation == operation and fault.path_part in path and fault.times:
                fault.times -= 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def counted(self, read: bytes) -> bytes:
        """Count the bytes read, and return them."""
        self.reads += 1
        self.bytes_read += len(read)
        return read

    def room(self) -> int:
        return self.capacity_bytes - self.used_bytes()

    def _count_space(self) -> None:
        """Count all names again, of what is left."""
        self._space.used_bytes = 0
        for inode in inodes_of(self._root):
            inode.links = 0
        self._root.link()

    def used_bytes(self) -> int:
        return self._space.used_bytes

    # The tree

    def _folder(self, path: str) -> Folder:
        folder = self._root
        for part in path.strip("/").split("/"):
            found = folder.entries.get(part) if part else folder
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if isinstance(found, Inode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = found
        return folder

    def _parent(self, path: str) -> tuple[Folder, str]:
        directory, _, name = path.rpartition("/")
        return self._folder(directory), name

    def _find(self, path: str) -> "Inode | Folder":
        folder, name = self._parent(path)
        found = folder.entries.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found

    def _inode(self, path: str) -> Inode:
        found = self._find(path)
        if isinstance(found, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found

    # Disk

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        folder, name = self._parent(path)
        self.before("open", path, changes=create and name not in folder.entries)
        if create and name not in folder.entries:
            inode = Inode(self._space)
            inode.modified_ms = self.now_ms
            folder.change(None, name, inode)
        return MemFile(self, path, self._inode(path), True)

    def open_read(self, path: str) -> DiskFile:
        self.before("open", path)
        return MemFile(self, path, self._inode(path), False)

    def read_file(self, path: str) -> bytes:
        self.before("pread", path)
        return self.counted(bytes(self._inode(path).data))

    def write_file(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        rest = memoryview(data)
        while rest:
            rest = rest[file.append(rest) :]
        if sync:
            file.sync()

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source, changes=True)
        folder, name = self._parent(source)
        other, new_name = self._parent(target)
        named = self._find(source)
        if folder is other:
            folder.change(name, new_name, named)
        else:
            other.change(None, new_name, named)
            folder.change(name, None, named)

    def link(self, source: str, target: str) -> None:
        self.before("link", source, changes=True)
        folder, name = self._parent(target)
        if name in folder.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        folder.change(None, name, self._inode(source))

    def unlink(self, path: str) -> None:
        self.before("unlink", path, changes=True)
        inode = self._inode(path)
        folder, name = self._parent(path)
        folder.change(name, None, inode)

    def make_directory(self, path: str, *, parents: bool = False) -> None:
        self.before("make_directory", path, changes=True)
        folder = self._root if parents else self._parent(path)[0]
        for part in path.strip("/").split("/") if parents else [path.rpartition("/")[2]]:
            found = folder.entries.get(part)
            if found is None:
                found = Folder()
                folder.change(None, part, found)
            if isinstance(found, Inode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            folder = found

    def remove_tree(self, path: str) -> None:
        self.before("remove_tree", path, changes=True)
        named = self._find(path)
        folder, name = self._parent(path)
        folder.change(name, None, named)

    def list_directory(self, path: str) -> list[str]:
        self.before("list", path)
        return list(self._folder(path).entries)

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def stat(self, path: str) -> FileStat:
        inode = self._inode(path)
        return FileStat(len(inode.data), inode.modified_ms)

    def sync_directory(self, path: str) -> None:
        self.before("sync_directory", path, changes=True)
        self._folder(path).sync()

    def lock(self, path: str) -> DiskLock | None:
        if path in self._locks:
            return None
        self.open(path, create=True)
        self._locks.add(path)
        return MemLock(self._locks, path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.room(), self.capacity_bytes

    def wait_for_descriptor(self) -> None:
        """Return at once: the fault says how often an open fails."""

    def boot_id(self) -> str:
        return f"boot-{self._boots}"


def inodes_of(folder: Folder) -> list[Inode]:
    """Every file below a directory, each once however many names it has."""
    found: dict[int, Inode] = {}
    folders = [folder]
    while folders:
        for named in folders.pop().entries.values():
            if isinstance(named, Folder):
                folders.append(named)
            else:
                found[id(named)] = named
    return list(found.values())
