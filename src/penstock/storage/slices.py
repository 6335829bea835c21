"""A run of whole batches in a file, to be sent without passing through Python."""

from collections.abc import Callable

from penstock.storage.disk import DiskFile

PROBE_STRIDE_BYTES = 4 * 1024 * 1024
"""Distance between probed pages, besides the first and the last of a slice. The kernel evicts the oldest pages of a log
first, so missing ones are at the front; a probe costs as much as sending some kilobytes."""

WARM_BYTES = 1024 * 1024
"""Bytes read at once by `FileSlice.warm`."""


class FileSlice:
    """Bytes of an open file. The file stays open while the slice lives, even when its segment is deleted.

    Before sending, call `resident`; if it is False, call `warm` off the loop first. Only then is the length final: a
    slice whose position has yet to be looked up on the disk gives its greatest length.
    """

    __slots__ = ("_hot", "_length", "_probed", "file", "position")

    def __init__(self, file: DiskFile, position: int, length: int, hot: bool, *, probed: bool = False) -> None:
        self.file = file
        self.position = position
        self._length = length
        self._hot = hot
        self._probed = probed
        """Whether its first page is known to be in memory."""

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the file, for a transport that cannot send them by descriptor; may wait for the disk."""
        return self.file.pread(size, position)

    def contents(self) -> bytes:
        """All bytes of the slice; may wait for the disk."""
        return self.file.pread(self._length, self.position)

    def resident(self) -> bool:
        """Whether the slice is in the page cache, as far as probing pages shows."""
        if self._hot:
            return True
        probe = self.file.pread_nowait
        end = self.position + self._length
        if end > self.position and probe(1, end - 1) is None:
            return False
        start = self.position + PROBE_STRIDE_BYTES if self._probed else self.position
        return all(probe(1, at) is not None for at in range(start, end, PROBE_STRIDE_BYTES))

    def warm(self) -> None:
        """Read the bytes into the page cache. Off the loop, since this waits for the disk."""
        end = self.position + self._length
        for at in range(self.position, end, WARM_BYTES):
            self.file.pread(min(WARM_BYTES, end - at), at)
        self._hot = True


class ColdSlice(FileSlice):
    """A slice whose position has to be looked up on the disk: `warm` does that, and may find nothing."""

    __slots__ = ("_locate",)

    def __init__(self, length_max: int, locate: Callable[[], FileSlice | None]) -> None:
        self._length = length_max
        self._hot = self._probed = False
        self._locate = locate

    def fileno(self) -> int:
        assert self._hot, "a cold slice is warmed before it is used"
        return self.file.fileno()

    def contents(self) -> bytes:
        if not self._hot:
            self.warm()
        return super().contents() if self._length else b""

    def resident(self) -> bool:
        return self._hot

    def warm(self) -> None:
        found = self._locate()
        if found is None:
            self._length = 0
            self.position = 0
        else:
            self.file = found.file
            self.position = found.position
            self._length = len(found)
            found.warm()
        self._hot = True
