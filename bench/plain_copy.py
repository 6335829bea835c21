"""Copies a file over loopback into another file: `sendfile` on one side, `recv` and `write` on the other.

It is what a follower would do if it neither checked nor indexed what it copies: the measure of its catching up.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from penstock.testing.processes import LOOPBACK

BUFFER_BYTES = 1024 * 1024
SECONDS_MAX = 300.0


def receive(port: int, target: Path) -> None:
    """Write what a peer sends to a file, until it closes."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with socket.create_connection((LOOPBACK, port)) as peer, target.open("wb", buffering=0) as file:
        while size := peer.recv_into(buffer):
            file.write(buffer[:size])


def copy_seconds(source: Path, target: Path) -> float:
    """Copy a file through a process of its own; the time from the first byte sent until it has written the last."""
    with socket.create_server((LOOPBACK, 0)) as server, source.open("rb") as file:
        server.settimeout(SECONDS_MAX)
        command = [sys.executable, "-m", "bench.plain_copy", str(server.getsockname()[1]), str(target)]
        with subprocess.Popen(command) as receiver:
            try:
                peer, _ = server.accept()
                with peer:
                    began = time.perf_counter()
                    position, end = 0, os.fstat(file.fileno()).st_size
                    while position < end:
                        position += os.sendfile(peer.fileno(), file.fileno(), position, end - position)
                receiver.wait(SECONDS_MAX)
            finally:
                # Does nothing to a process that has ended.
                receiver.kill()
        seconds = time.perf_counter() - began
    assert target.stat().st_size == end, f"{target} has {target.stat().st_size} of {end} bytes"
    target.unlink()
    return seconds


if __name__ == "__main__":
    receive(int(sys.argv[1]), Path(sys.argv[2]))
