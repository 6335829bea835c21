"""A proxy before a broker that kills a process at a chosen request: the client that sent it, or the broker itself.

So a process can die at every step of a protocol, before the broker has processed the request or after, and the code
under test does not know.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_port

PRODUCE = 0
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
INIT_PRODUCER_ID = 22
ADD_PARTITIONS = 24
ADD_OFFSETS = 25
END_TXN = 26
TXN_OFFSET_COMMIT = 28
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
API_NAMES = {
    PRODUCE: "produce",
    OFFSET_COMMIT: "offset-commit",
    OFFSET_FETCH: "offset-fetch",
    INIT_PRODUCER_ID: "init-producer-id",
    ADD_PARTITIONS: "add-partitions",
    ADD_OFFSETS: "add-offsets",
    END_TXN: "end-txn",
    TXN_OFFSET_COMMIT: "txn-offset-commit",
    DESCRIBE_TRANSACTIONS: "describe-transactions",
    LIST_TRANSACTIONS: "list-transactions",
}

CLIENT = "client"
BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Cut:
    """Kill the victim at the n-th request of an API, before the broker sees it or before the client sees the
    response."""

    api: int
    number: int
    after: bool
    victim: str

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        return f"{self.victim}-{when}-{API_NAMES[self.api]}-{self.number}"


class CuttingProxy:
    """A broker behind a proxy, whose address the broker advertises."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        address = {"advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}"}
        self.broker = PenstockProcess(settings={**(settings or {}), **address})
        self.kill_client: Callable[[int], None] = lambda pid: os.kill(pid, signal.SIGKILL)
        """How the client with this process id dies; a driver takes more with it than one process."""
        self._cuts: list[Cut] = []
        self.kills = 0
        """How many cuts have happened since `arm`."""
        self._seen: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server((LOOPBACK, self.port))
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def fired(self) -> bool:
        return not self._cuts

    def arm(self, *cuts: Cut | None) -> None:
        """Count requests from now on until the first cut, then again for the next."""
        with self._lock:
            self._seen.clear()
            self._cuts = [cut for cut in cuts if cut is not None]
            self.kills = 0

    @property
    def requests(self) -> int:
        """How many requests have come since `arm`, or since the last cut."""
        with self._lock:
            return self._seen.total()

    def __enter__(self) -> Self:
        self.broker.start()
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._sockets):
            close(each)
        self.broker.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, (_, port) = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self.broker.port), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets |= {client, server}
            held: dict[int, Cut] = {}
            self._start(lambda c=client, s=server, p=port, h=held: self._requests(c, s, p, h))
            self._start(lambda c=client, s=server, p=port, h=held: self._answers(c, s, p, h))

    def _requests(self, client: socket.socket, server: socket.socket, port: int, held: dict[int, Cut]) -> None:
        with contextlib.suppress(OSError):
            while frame := received_frame(client):
                (api,) = struct.unpack_from(">h", frame, 4)
                (correlation,) = struct.unpack_from(">i", frame, 8)
                cut = self._is_due(api)
                if cut is not None and cut.after:
                    held[correlation] = cut
                elif cut is not None:
                    self._kill(cut, port)
                    break
                server.sendall(frame)
        self._close(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, port: int, held: dict[int, Cut]) -> None:
        with contextlib.suppress(OSError):
            while frame := received_frame(server):
                (correlation,) = struct.unpack_from(">i", frame, 4)
                if correlation in held:
                    self._kill(held.pop(correlation), port)
                    break
                client.sendall(frame)
        self._close(client, server)

    def _is_due(self, api: int) -> Cut | None:
        with self._lock:
            self._seen[api] += 1
            if not self._cuts or self._cuts[0].api != api or self._seen[api] != self._cuts[0].number:
                return None
            self._seen.clear()
            self.kills += 1
            return self._cuts.pop(0)

    def _kill(self, cut: Cut, port: int) -> None:
        if cut.victim == BROKER:
            self.broker.kill()
            self.broker.start()
        else:
            self.kill_client(owner_of(port, self.port))

    def _close(self, *sockets: socket.socket) -> None:
        for each in sockets:
            self._sockets.discard(each)
            close(each)


def received_frame(source: socket.socket) -> bytes:
    """The next frame with its length before it; nothing at the end."""
    size = received(source, 4)
    return size + received(source, struct.unpack(">i", size)[0]) if size else b""


def received(source: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def owner_of(local_port: int, remote_port: int) -> int:
    """The process at the other end of a connection on this machine."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = tuple(int(address.split(":")[1], 16) for address in fields[1:3])
        if ports == (local_port, remote_port):
            wanted = f"socket:[{fields[9]}]"
            break
    else:
        raise AssertionError(f"no process is at port {local_port}")
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{entry}/fd"):
                if os.readlink(f"/proc/{entry}/fd/{descriptor}") == wanted:
                    return int(entry)
    raise AssertionError(f"no process owns {wanted}")
