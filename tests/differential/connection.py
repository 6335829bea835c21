"""A raw socket to a broker that sends and receives whole frames, and detects when the broker disconnects."""

from __future__ import annotations

import select
import socket
import struct

RESPONSE_SECONDS_MAX = 60.0
FRAME_BYTES_MAX = 64 * 1024 * 1024


class Disconnected(Exception):
    """The broker closed the connection instead of responding."""


class Connection:
    """One connection; frames are sent as given, and responses arrive in order."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=RESPONSE_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send_frame(self, payload: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Disconnected from error

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive(4))
        assert 0 <= length <= FRAME_BYTES_MAX, f"the broker announced a frame of {length} bytes"
        return self._receive(length)

    def has_response(self, seconds: float) -> bool:
        """Whether a response, or the end of the connection, arrives within this time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def _receive(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except ConnectionResetError as error:
                raise Disconnected from error
            if not part:
                raise Disconnected
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()
