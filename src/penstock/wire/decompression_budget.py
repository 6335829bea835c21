"""A bound on the memory of all concurrent decompression."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition


class DecompressionBudget:
    """Bytes that threads together may hold for decompressed records; further threads wait.

    A batch of a few kilobytes can decompress to gigabytes, and a client can send many of them. Work reserves all the
    memory it needs before it begins, in the order of arrival, so there is no deadlock. Never use it on the event loop.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._held = 0
        self._queue: deque[object] = deque()
        self._changed = Condition()

    @property
    def held_bytes(self) -> int:
        return self._held

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Wait until `size` bytes are free and reserve them; a size above the budget reserves all of it."""
        size = min(size, self.bytes_max)
        turn = object()
        with self._changed:
            self._queue.append(turn)
            try:
                self._changed.wait_for(lambda: self._queue[0] is turn and self._held + size <= self.bytes_max)
                self._held += size
            finally:
                self._queue.remove(turn)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()
