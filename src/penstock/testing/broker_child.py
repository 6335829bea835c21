"""A broker of any kind as a child process: started, stopped, killed and paused in the same way."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.processes import LOOPBACK, STOP_SECONDS_MAX, Child


class BrokerChild(ABC):
    """One broker on a port of its own. Its data outlives the process; each kind says what ``close`` removes."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.start_seconds = 0.0
        """From the start of the process to its first response."""
        self._child: Child | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it on its port and its data; return when it responds."""

    @abstractmethod
    def close(self) -> None:
        """Stop it and remove its temporary folders."""

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def log(self) -> Path:
        """Its stdout and stderr, over all its starts."""
        return self.folder / "broker.log"

    def launch(
        self,
        command: Sequence[str],
        responses: Callable[[], bool],
        *,
        what: str,
        seconds_max: float,
        environment: Mapping[str, str] | None = None,
        group: int | None = None,
    ) -> None:
        """Run the command and return when it responds; otherwise it is killed."""
        assert self._child is None, "already started"
        began = time.perf_counter()
        self._child = Child(command, log=self.log, environment=environment, group=group)
        try:
            self._child.wait_until(responses, what=what, seconds_max=seconds_max)
        except BaseException:
            self.kill()
            raise
        self.start_seconds = time.perf_counter() - began

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """A clean stop (SIGTERM). Returns the exit status: negative when it had to be killed."""
        child, self._child = self._child, None
        return child.stop(seconds_max) if child is not None else 0

    def wait(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Its exit status, once it ends by itself."""
        return self._running().wait(seconds_max)

    def kill(self) -> None:
        """SIGKILL, as a crash; the data stays for the next start."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its sockets and does not respond."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, after :meth:`pause`."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """A clean stop and a start on the same port and data."""
        self.stop()
        self.start()

    def tail(self) -> str:
        """The last lines it wrote."""
        return self._child.tail() if self._child is not None else ""

    def _running(self) -> Child:
        assert self._child is not None, "not started"
        return self._child

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
