"""Two minimal requests to a broker, in raw bytes: whether it speaks Kafka, and whether it is ready to serve.

They use neither a client nor our own codec, so they work for any broker and cost nothing to import.
"""

from __future__ import annotations

import socket
import struct

API_VERSIONS = 18
METADATA = 3
RESPONSE_BYTES_MAX = 1 << 20


def speaks_kafka(host: str, port: int, timeout_seconds: float = 0.5) -> bool:
    """Whether ApiVersions version 0 succeeds."""
    response = _call(host, port, API_VERSIONS, 0, b"", timeout_seconds)
    return response is not None and len(response) >= 2 and response[:2] == b"\0\0"


def api_versions(host: str, port: int, timeout_seconds: float = 2.0) -> dict[int, range]:
    """The versions of each API that the broker supports, by key; empty if it does not respond."""
    response = _call(host, port, API_VERSIONS, 0, b"", timeout_seconds)
    if response is None or len(response) < 6 or response[:2] != b"\0\0":
        return {}
    (count,) = struct.unpack_from(">i", response, 2)
    if not 0 <= count <= (len(response) - 6) // 6:
        return {}
    offers = struct.iter_unpack(">hhh", response[6 : 6 + 6 * count])
    return {key: range(lowest, highest + 1) for key, lowest, highest in offers}


def has_brokers(host: str, port: int, timeout_seconds: float = 0.5) -> bool:
    """Whether Metadata version 1 names at least one live broker.

    Apache Kafka responds to ApiVersions before its controller has registered the broker; topics can be created only
    after that.
    """
    no_topics = struct.pack(">i", 0)
    response = _call(host, port, METADATA, 1, no_topics, timeout_seconds)
    return response is not None and len(response) >= 4 and struct.unpack_from(">i", response)[0] > 0


def _call(host: str, port: int, api: int, version: int, body: bytes, timeout_seconds: float) -> bytes | None:
    """One request with correlation id 1 and no client id; the response's body, or None without a valid one."""
    request = struct.pack(">hhih", api, version, 1, -1) + body
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                return None
            response = _read(connection, size)
    except (OSError, EOFError):
        return None
    return response[4:] if struct.unpack_from(">i", response)[0] == 1 else None


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
