"""One copy of bytes from buffer to buffer.

Compiled modules take what ``bytes_copy.pxd`` has instead: slices of typed buffers cost more than a copy of a kilobyte.
"""

from __future__ import annotations

from penstock.wire.primitives import Buffer


def copied(into: bytearray | memoryview, at: int, data: Buffer, pos: int, size: int) -> None:
    """Copy so many bytes; there must be as many on both sides, which do not overlap."""
    into[at : at + size] = data[pos : pos + size]
