"""Unused files and directories, which are removed after a delay because readers may have them open."""

import heapq

from penstock.storage.disk import Disk


class Trash:
    """Paths to remove, each with the time from which it may be removed. Used on the loop, except `remove`."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """Take the paths that are due out of the trash; the caller removes them."""
        taken: list[str] = []
        while self._due and self._due[0][0] <= now_ms:
            taken.append(heapq.heappop(self._due)[1])
        return taken

    def remove(self, paths: list[str]) -> list[OSError]:
        """Remove files and directories; returns the failures. Off the loop, since a large file takes long.

        Missing paths are ignored. The next start finds the paths that could not be removed.
        """
        failures: list[OSError] = []
        for path in paths:
            try:
                if path.endswith(("-delete", "-future")):
                    self._disk.remove_tree(path)
                else:
                    self._disk.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                failures.append(error)
        return failures
