"""A broker whose responses a test writes, byte by byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.wire.api import api_versions, metadata
from pyspark_penstock.link import LinkSettings

Responder = Callable[[int, bytes], bytes | None]
SECONDS_MAX = 60.0


class Scripted:
    """A port that responds to every request with a function's result; None closes the connection."""

    def __init__(self, respond: Responder) -> None:
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS_MAX)
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._connection = connection
            with connection, suppress(OSError):
                while size := connection.recv(4, socket.MSG_WAITALL):
                    request = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                    api_key, _, correlation_id = struct.unpack_from(">hhi", request)
                    response = self._respond(api_key, struct.pack(">i", correlation_id))
                    if response is None:
                        break
                    connection.sendall(response)

    def close(self) -> None:
        # A listener that another thread waits on is woken by a shutdown, not by a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS_MAX)


def settings(bootstrap: str, api_timeout_ms: int = 60_000) -> LinkSettings:
    return LinkSettings(bootstrap=bootstrap, api_timeout_ms=api_timeout_ms, backoff_ms=1, backoff_max_ms=5)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def versions(correlation: bytes, *known: tuple[int, int, int]) -> bytes:
    keys = [api_versions.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in known]
    return framed(correlation + api_versions.encode_response(api_versions.Response(api_keys=keys), 3))


@contextmanager
def scripted_broker(respond: Responder) -> Iterator[Scripted]:
    opened = Scripted(respond)
    try:
        yield opened
    finally:
        opened.close()


def one_topic(correlation: bytes) -> bytes:
    """A Metadata response: the topic orders, whose partition 0 is led by h:9."""
    part = metadata.MetadataResponsePartition(partition_index=0, leader_id=7, leader_epoch=3)
    found = metadata.Response(
        brokers=[metadata.MetadataResponseBroker(node_id=7, host="h", port=9)],
        topics=[metadata.MetadataResponseTopic(name="orders", topic_id=b"i" * 16, partitions=[part])],
    )
    return framed(correlation + b"\0" + metadata.encode_response(found, 12))
