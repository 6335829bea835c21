"""A penstock broker as a process of its own: what a user starts, so what tests kill and benchmarks measure."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.probe import speaks_kafka
from penstock.testing.processes import LOOPBACK, STOP_SECONDS_MAX, Child, free_port

READY_SECONDS_MAX = 30.0


class PenstockProcess:
    """One broker started as ``python -m penstock.broker`` on a free port.

        with PenstockProcess(settings={"num.partitions": "3"}) as broker:
            ... broker.bootstrap ...
            broker.kill()
            broker.start()

    Leaving it stops the process by its id and removes its data, if the folder is a temporary one. ``start_seconds``
    is the time from the start of the process to the first answer.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        data: Path | None = None,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.port = free_port() if port is None else port
        self.start_seconds = 0.0
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-broker-"))
        self.data = self._folder / "data" if data is None else data
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._arguments = arguments
        self._child: Child | None = None

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def log(self) -> Path:
        """What it wrote to stdout and stderr, over all its starts."""
        return self._folder / "broker.log"

    @property
    def command(self) -> tuple[str, ...]:
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        return (
            sys.executable,
            "-m",
            "penstock.broker",
            "--listen",
            self.bootstrap,
            "--data",
            str(self.data),
            *settings,
            *self._arguments,
        )

    def start(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Start it on its port and its data; return when it answers."""
        assert self._child is None, "already started"
        began = time.perf_counter()
        self._child = Child(self.command, log=self.log, environment=self._environment)
        try:
            self._child.wait_until(
                lambda: speaks_kafka(LOOPBACK, self.port), what="answer to ApiVersions", seconds_max=seconds_max
            )
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.perf_counter() - began

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """A clean stop (SIGTERM). Returns the exit status: negative when it had to be killed."""
        child, self._child = self._child, None
        return child.stop(seconds_max) if child is not None else 0

    def kill(self) -> None:
        """SIGKILL, as a crash; the data stays for the next start."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its sockets and answers nothing."""
        assert self._child is not None, "not started"
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after :meth:`pause`."""
        assert self._child is not None, "not started"
        self._child.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """A clean stop and a start on the same port and data."""
        self.stop()
        self.start()

    def tail(self) -> str:
        """The last lines it wrote."""
        return self._child.tail() if self._child is not None else ""

    def close(self) -> None:
        """Stop it and remove what it made in temporary folders."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
