"""Files and directories out of use, which are removed after a delay because readers may have them open."""

import heapq

from penstock.storage.disk import Disk


class Trash:
    """What is to be removed, and from when on. Filled and asked on the loop; emptied off it."""

    __slots__ = ("_disk", "_due")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        heapq.heappush(self._due, (due_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """Take the paths that may be removed now out of the trash; the caller removes them."""
        taken: list[str] = []
        while self._due and self._due[0][0] <= now_ms:
            taken.append(heapq.heappop(self._due)[1])
        return taken

    def remove(self, paths: list[str]) -> list[OSError]:
        """Remove for good; the failures. Off the loop: a large file takes its time. What is gone already is no matter.

        The next start finds again what could not be removed.
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
