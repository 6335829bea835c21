"""Copies bytes from buffer to buffer.

Compiled modules use ``bytes_copy.pxd`` instead: slices of typed buffers cost more than a copy of a kilobyte.
"""

from __future__ import annotations

from penstock.wire.primitives import Buffer


def copied(into: bytearray | memoryview, at: int, data: Buffer, pos: int, size: int) -> None:
    """Copy bytes between buffers that do not overlap; both must be large enough."""
    into[at : at + size] = data[pos : pos + size]
