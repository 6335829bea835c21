"""A broker process whose standard error, limits and signals the test chooses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.testing.processes import free_port, port_responds

PATIENCE_S = 120.0
LISTENING_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A broker that listens."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


def start(folder: Path, stderr: int | IO[bytes], prepare: Callable[[], object] | None = None) -> Started:
    """Start a broker; `prepare` runs in its process first."""
    port = free_port()
    command = [sys.executable, "-m", "penstock.broker", "--set", "metrics.listener="]
    where = ["--listen", f"127.0.0.1:{port}", "--data", str(folder / "data")]
    process = subprocess.Popen([*command, *where], stderr=stderr, preexec_fn=prepare)
    end_s = time.monotonic() + PATIENCE_S
    while not port_responds(port):
        assert process.poll() is None, "the broker did not start"
        assert time.monotonic() < end_s, "the broker does not listen"
        time.sleep(LISTENING_S)
    return Started(process=process, port=port)
