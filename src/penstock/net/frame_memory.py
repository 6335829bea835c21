"""Memory for large frames while they arrive: bounded over all connections, without two of them blocking each other.

A connection is charged for what has arrived, in steps, not for the length that a peer has only announced. When the
memory is used up, connections that want more are read no further until others release theirs. The one whose frame
began first may always go on, so that there is one that finishes; the bound is exceeded by that one frame at most.

A connection that has served its frame keeps the buffer for the next one, until another connection needs the memory.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A connection, as far as its memory is concerned."""

    def memory_granted(self) -> None:
        """The memory it waits for is granted. Called inside another one's release, so it only resumes reading."""
        ...

    def drop_memory(self) -> bool:
        """Release a kept buffer; False where that is not possible now."""
        ...


class FrameMemory:
    """The memory that connections use, those that wait for some, and buffers that can be reclaimed."""

    __slots__ = ("_arriving", "_kept", "_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._arriving: dict[Holder, int] = {}
        """What connections with an arriving frame are charged, in the order in which their frames began."""
        self._kept: dict[Holder, int] = {}
        self._waiting: dict[Holder, int] = {}

    @property
    def waiting(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiting)

    def take(self, holder: Holder, more: int) -> bool:
        """Charge a connection for more bytes of its frame. False: `memory_granted` is called when it has them."""
        if not self._waiting or holder is self._first():
            self._reclaim(more)
            if self._may_have(holder, more):
                self._charge(holder, more)
                return True
        self._waiting[holder] = more
        return False

    def keep(self, holder: Holder) -> None:
        """Keep the buffer of a frame that was served, until other connections need the memory."""
        charged = self._arriving.pop(holder, None)
        if charged is not None:
            self._kept[holder] = charged
            if self._waiting:
                self._grant()

    def reuse(self, holder: Holder) -> None:
        """Use a kept buffer for another frame: it can no longer be reclaimed."""
        self._arriving[holder] = self._kept.pop(holder)

    def release(self, holder: Holder) -> None:
        """Take back all memory of a connection, and its place in the queue."""
        self._waiting.pop(holder, None)
        self.used -= self._arriving.pop(holder, 0) + self._kept.pop(holder, 0)
        if self._waiting:
            self._grant()

    def _first(self) -> Holder | None:
        return next(iter(self._arriving), None)

    def _may_have(self, holder: Holder, more: int) -> bool:
        return self.used + more <= self.bytes_max or self._first() in (holder, None)

    def _charge(self, holder: Holder, more: int) -> None:
        self._arriving[holder] = self._arriving.get(holder, 0) + more
        self.used += more

    def _reclaim(self, more: int) -> None:
        """Reclaim kept buffers, the one kept longest first, until so much more fits."""
        if self.used + more > self.bytes_max:
            for holder in tuple(self._kept):
                if self.used + more > self.bytes_max and holder.drop_memory():
                    self.used -= self._kept.pop(holder)

    def _grant(self) -> None:
        """Grant memory to waiting connections in their order, but to the one whose frame began first before all."""
        first = self._first()
        if first is not None and first in self._waiting:
            self._waiting = {first: self._waiting.pop(first), **self._waiting}
        granted: list[Holder] = []
        for holder, more in self._waiting.items():
            self._reclaim(more)
            if not self._may_have(holder, more):
                break
            self._charge(holder, more)
            granted.append(holder)
        for holder in granted:
            del self._waiting[holder]
        for holder in granted:
            holder.memory_granted()
