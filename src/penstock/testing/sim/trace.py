"""The trace of a simulation: a hash over every message and every disk write, and lines that a person can read."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

Buffer = bytes | bytearray | memoryview

HASH_BYTES = 16
HASHED_BYTES = 1 << 16
"""Hashed at once."""
MESSAGE = Struct(">dcIBI")
"""Time, kind, connection, end that receives, bytes."""

FACT = Struct(">dcII")
"""Time, kind, bytes of the text, bytes of the data."""


class Trace:
    """What happened, in order. Equal seeds give equal hashes, in any process on any machine."""

    def __init__(self, world: World, *, recorded: bool) -> None:
        self._world = world
        self._hash = blake2b(digest_size=HASH_BYTES)
        self._unhashed = bytearray()
        """What is hashed with the next `HASHED_BYTES`."""
        self.facts = 0
        self.lines: list[str] | None = [] if recorded else None
        """Readable lines, where somebody asked for them."""

    def message(self, connection: int, end: int, data: bytes) -> None:
        """Bytes that arrived at one end of a connection."""
        world = self._world
        self.facts += 1
        unhashed = self._unhashed
        unhashed += MESSAGE.pack(world.now, b"m", connection, end, len(data))
        unhashed += data
        if len(unhashed) > HASHED_BYTES:
            self._take()
        if self.lines is not None:
            self.line(f"connection {connection} {'to server' if end else 'to client'}: {len(data)} bytes")

    def fact(self, text: str, data: Buffer = b"") -> None:
        """Anything else: a disk write, a fault, an end of a connection."""
        encoded = text.encode()
        self.facts += 1
        unhashed = self._unhashed
        unhashed += FACT.pack(self._world.now, b"f", len(encoded), len(data))
        unhashed += encoded
        unhashed += data
        if len(unhashed) > HASHED_BYTES:
            self._take()
        if self.lines is not None:
            self.line(f"{text} ({len(data)} bytes)" if len(data) else text)

    def line(self, text: str) -> None:
        """Add a line for people, which is no part of the hash."""
        if self.lines is not None:
            self.lines.append(f"{self._world.now:.6f} {text}")

    def _take(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()

    def hexdigest(self) -> str:
        self._take()
        return self._hash.hexdigest()
