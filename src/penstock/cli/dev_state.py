"""The state file of a cluster of `penstock dev`: which processes belong to it, and where they are.

Only `dev up` writes it. The other commands find the processes by it, signal them by their ids, and leave what only
their parent can do, a restart, as a request beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.cli.failure import Failure
from penstock.testing.processes import LOOPBACK, ProcessState, process_state

STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
REQUESTS = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process by its id, and by its start: ids are used again."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        found = process_state(pid)
        return None if found is None else cls(pid=pid, start_ticks=found.start_ticks)

    def state(self) -> ProcessState | None:
        """None if it has ended."""
        found = process_state(self.pid)
        return found if found is not None and found.start_ticks == self.start_ticks else None

    def send_signal(self, number: signal.Signals) -> None:
        if self.state() is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A broker or a ZooKeeper: its number, port and log, and its process while it has one."""

    number: int
    port: int
    log: str
    process: Process | None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def state(self) -> ProcessState | None:
        return None if self.process is None else self.process.state()


@dataclass(frozen=True, slots=True, kw_only=True)
class DevState:
    """A cluster's processes as `dev up` last wrote them."""

    up: Process | None
    """The process of `dev up`; None after it has stopped everything."""
    brokers: tuple[Server, ...]
    zookeepers: tuple[Server, ...]

    @property
    def is_up(self) -> bool:
        return self.up is not None and self.up.state() is not None

    def broker(self, number: int) -> Server:
        for each in self.brokers:
            if each.number == number:
                return each
        raise Failure(f"there is no broker {number}", f"the brokers are 1 to {len(self.brokers)}")


def read_state(data: Path) -> DevState | None:
    """The state in a directory; None if no cluster was ever started there."""
    try:
        found = json.loads((data / STATE_FILE).read_text(encoding="utf-8"))
        return DevState(
            up=_process(found["up"]),
            brokers=tuple(map(_server, found["brokers"])),
            zookeepers=tuple(map(_server, found["zookeepers"])),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failure(f"cannot read {data / STATE_FILE}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, KeyError, TypeError):
        raise Failure(
            f"{data / STATE_FILE} is not the state of a cluster", "choose another directory with --data"
        ) from None


def running_state(data: Path) -> DevState:
    """The state of a cluster that is up; Failure otherwise."""
    found = read_state(data)
    if found is None or not found.is_up:
        raise Failure(f"no cluster runs with its data in {data}", f"`penstock dev up --data {data}` starts one")
    return found


def write_state(data: Path, state: DevState) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    new = data / f"{STATE_FILE}.new"
    new.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    new.replace(data / STATE_FILE)


@contextlib.contextmanager
def locked(data: Path) -> Generator[None]:
    """Hold the directory for one `dev up`; the lock ends with its process, however that ends."""
    with (data / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = read_state(data)
            pid = f" (process {found.up.pid})" if found is not None and found.up is not None else ""
            raise Failure(
                f"a cluster runs with its data in {data} already{pid}",
                f"`penstock dev status --data {data}` shows it; choose another directory with --data and another port "
                "with --port for a second one",
            ) from None
        yield


def request_restart(data: Path, number: int) -> None:
    """Ask `dev up` to stop a broker cleanly, if it runs, and to start it."""
    folder = data / REQUESTS
    folder.mkdir(exist_ok=True)
    (folder / str(number)).touch()


def take_restarts(data: Path) -> list[int]:
    """The brokers whose restart was requested since the last call."""
    taken: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        for each in sorted((data / REQUESTS).iterdir()):
            each.unlink()
            if each.name.isdecimal():
                taken.append(int(each.name))
    return taken


def _process(found: dict[str, Any] | None) -> Process | None:
    return None if found is None else Process(pid=int(found["pid"]), start_ticks=int(found["start_ticks"]))


def _server(found: dict[str, Any]) -> Server:
    return Server(
        number=int(found["number"]),
        port=int(found["port"]),
        log=str(found["log"]),
        process=_process(found["process"]),
    )
