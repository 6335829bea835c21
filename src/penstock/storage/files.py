"""Bounds how many files are open at once over all logs of a broker."""

from collections import deque
from typing import Protocol


class Openable(Protocol):
    """An object that holds a file open, and can close it and open it again."""

    touched: bool
    """Set by every use, so that the holder survives one round of closing."""
    pooled: bool

    def release(self) -> bool:
        """Close the file, which the next use opens again. False when it cannot be closed now."""
        ...


class OpenFiles:
    """Keeps at most `files_max` files open. Files unused since the last round close first."""

    __slots__ = ("_ring", "files_max")

    def __init__(self, files_max: int) -> None:
        assert files_max > 0
        self.files_max = files_max
        self._ring: deque[Openable] = deque()

    def __len__(self) -> int:
        return len(self._ring)

    def admit(self, holder: Openable) -> None:
        """Count a file that was just opened, and close another if the limit is exceeded."""
        holder.touched = True
        if not holder.pooled:
            holder.pooled = True
            self._ring.append(holder)
        if len(self._ring) > self.files_max:
            self._make_room(holder)

    def _make_room(self, newcomer: Openable) -> None:
        ring = self._ring
        # Two rounds are enough: the first clears every mark, the second releases.
        for _ in range(2 * len(ring)):
            if len(ring) <= self.files_max:
                return
            holder = ring.popleft()
            if holder is newcomer or holder.touched or not holder.release():
                holder.touched = False
                ring.append(holder)
            else:
                holder.pooled = False

    def forget(self, holder: Openable) -> None:
        """Remove a holder that closed its file itself. Linear: only for deletions and shutdown."""
        if holder.pooled:
            holder.pooled = False
            self._ring.remove(holder)
