"""A bounded queue between the loggers and the output stream.

A pipe whose reader has stalled blocks its writer, and the event loop logs. So a thread writes; lines that do not fit
into the queue are dropped, and their count is logged once lines can be written again.
"""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from typing import TextIO

from penstock.observe.log import logger

QUEUE_BYTES_MAX = 4 << 20
"""Lines that wait to be written; further ones are dropped."""

DRAIN_SECONDS_MAX = 2.0
"""How long a stopping process waits for its last lines to be written."""


class QueuedStream(io.TextIOBase):
    """A stream for logging that never blocks and never raises: a thread writes its lines to `out`.

    The thread writes to the file descriptor itself, if there is one. `out` would be locked while it blocks, and the
    interpreter cannot exit while the lock of its standard error is held.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._fd = descriptor(out)
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def isatty(self) -> bool:
        return self._out.isatty()

    def write(self, text: str, /) -> int:
        line = text.encode(errors="replace")
        with self._changed:
            if self._bytes + len(line) > QUEUE_BYTES_MAX:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._bytes += len(line)
                self._changed.notify()
        return len(text)

    def drain(self, timeout_s: float = DRAIN_SECONDS_MAX) -> None:
        """Write the queued lines and end the thread, or abandon it if the stream blocks for too long."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._ending)
                if not self._lines:
                    return
                lines = tuple(self._lines)
            # Lines count towards the bound until they are written, as they are in memory.
            written = self._write_out(b"".join(lines))
            with self._changed:
                for _ in lines:
                    self._bytes -= len(self._lines.popleft())
                if not written:
                    self._dropped += len(lines)
                dropped, self._dropped = (self._dropped, 0) if written else (0, self._dropped)
            if dropped:
                logger("log").warning("log_lines_dropped", count=dropped)

    def _write_out(self, data: bytes) -> bool:
        """Whether the lines were written; a closed or full stream loses them, and the broker continues."""
        try:
            if self._fd is None:
                self._out.write(data.decode())
                self._out.flush()
                return True
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except (OSError, ValueError):
            return False
        return True


def descriptor(out: TextIO) -> int | None:
    """The file descriptor of a stream; None for one in memory."""
    try:
        return out.fileno()
    except (OSError, ValueError):
        return None
