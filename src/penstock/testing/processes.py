"""Real child processes for tests and benchmarks: ports, start and stop, resource usage.

It signals only processes that it started, by their id or their process group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# A client that connects to a closed port of the ephemeral range (32768 and up on Linux) can connect to itself.
PORT_MIN = 10_240
PORT_END = 32_768
PORT_TRIES_MAX = 1_000
POLL_SECONDS = 0.01
STOP_SECONDS_MAX = 30.0
LOG_TAIL_LINES = 40
LOOPBACK = "127.0.0.1"
CPU_CLOCK = 2
"""The scheduler's clock of a process."""

WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
WORKERS_VARIABLE = "PYTEST_XDIST_WORKER_COUNT"


class ProcessFailed(Exception):
    """A child ended, or did not respond, when it should have been serving; the message has its last output."""


class Deadline:
    """A moment in real time after which waiting is a failure."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.perf_counter() + seconds

    @property
    def passed(self) -> bool:
        return time.perf_counter() >= self._end


def own_ports() -> range:
    """The ports that this process may draw: parallel test workers have disjoint ranges.

    A port is bound some time after it was drawn, and is free between a kill and the next start: another worker must not
    draw it then.
    """
    workers = int(os.environ.get(WORKERS_VARIABLE, "1"))
    worker = int(os.environ.get(WORKER_VARIABLE, "gw0").removeprefix("gw"))
    share = (PORT_END - PORT_MIN) // workers
    return range(PORT_MIN + share * worker, PORT_MIN + share * (worker + 1))


def free_ports(count: int, host: str = LOOPBACK) -> tuple[int, ...]:
    """Distinct ports below the ephemeral range on which nothing listens now, drawn at random."""
    drawn_from = own_ports()
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(PORT_TRIES_MAX):
            if len(ports) == count:
                break
            port = drawn_from[int.from_bytes(os.urandom(4)) % len(drawn_from)]
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind((host, port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise ProcessFailed(f"no {count} free ports on {host} in {drawn_from.start}..{drawn_from.stop - 1}")
    return tuple(ports)


def free_ports_in_a_row(count: int, host: str = LOOPBACK) -> int:
    """The first of so many consecutive ports on which nothing listens now."""
    drawn_from = own_ports()
    for _ in range(PORT_TRIES_MAX):
        first = drawn_from[int.from_bytes(os.urandom(4)) % (len(drawn_from) - count)]
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)).bind((host, port))
            except OSError:
                continue
        return first
    raise ProcessFailed(f"no {count} consecutive free ports on {host} in {drawn_from.start}..{drawn_from.stop - 1}")


def free_port(host: str = LOOPBACK) -> int:
    """One port of :func:`free_ports`."""
    return free_ports(1, host)[0]


def port_responds(port: int, host: str = LOOPBACK, timeout_seconds: float = 0.5) -> bool:
    """Whether something accepts a connection there."""
    try:
        socket.create_connection((host, port), timeout=timeout_seconds).close()
    except OSError:
        return False
    return True


class Child:
    """One child process in a process group of its own, its output in a file.

    The group lets a stop reach what the child started, and nothing else.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        group: int | None = None,
    ) -> None:
        """A `group` is the only one that the process is in, by which a packet filter recognises it; this needs root."""
        self.command = tuple(command)
        self.log = log
        self._group_ended = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else {**os.environ, **environment},
                cwd=folder,
                start_new_session=True,
                group=group,
                extra_groups=None if group is None else [],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """To the child alone (SIGSTOP and SIGCONT in tests of paused processes)."""
        self._process.send_signal(number)

    def wait_until(self, ready: Callable[[], bool], *, what: str, seconds_max: float) -> None:
        """Return when it is ready; raise with its last output when it ends first or takes too long."""
        deadline = Deadline(seconds_max)
        while not ready():
            if not self.alive:
                raise ProcessFailed(
                    f"{self.command[0]} ended with status {self.exit_status} before {what}\n{self.tail()}"
                )
            if deadline.passed:
                raise ProcessFailed(f"{self.command[0]}: no {what} within {seconds_max:g} s\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def wait(self, seconds_max: float) -> int:
        """Its exit status, once it ends by itself."""
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.command[0]} did not end within {seconds_max:g} s\n{self.tail()}") from None

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """SIGTERM to the child, and SIGKILL to its group if it does not end in time. Returns its exit status."""
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds_max)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL to the whole group: what a power cut does to a process. Harmless when it has ended."""
        if not self._group_ended:
            # The group can outlive its leader; ESRCH says that it is empty.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            # Once only: later another process may have the id.
            self._group_ended = True
        return self._process.wait(STOP_SECONDS_MAX)

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of its output."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"(no output: {error})"
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resource usage of a process and its descendants up to one moment."""

    cpu_seconds: float
    resident_bytes: int
    resident_bytes_peak: int


def usage(pid: int) -> Usage:
    """Sum over the process tree, read from each process's own clock and from /proc.

    Processor time counts descendants that have ended, as long as their parent has waited for them. The peak is the
    sum of each process's own peak, so with several processes it is an upper bound.
    """
    seconds = 0.0
    resident = 0
    peak = 0
    for member in process_tree(pid):
        try:
            stat = _stat_fields(member)
            seconds += time.clock_gettime(_clock_of(member))
            status = Path(f"/proc/{member}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            # It has ended meanwhile: /proc and its clock raise different errors.
            if member == pid:
                raise
            continue
        # Fields 16 and 17 of proc(5): cutime, cstime, of those that have ended. They count whole ticks of 10 ms.
        seconds += sum(int(field) for field in stat[13:15]) / os.sysconf("SC_CLK_TCK")
        resident += _status_bytes(status, "VmRSS")
        peak += _status_bytes(status, "VmHWM")
    return Usage(
        cpu_seconds=seconds,
        resident_bytes=resident,
        resident_bytes_peak=peak,
    )


def _clock_of(pid: int) -> int:
    """The clock that counts a process's time on processors, to the nanosecond: see clock_getcpuclockid(3)."""
    return (~pid << 3) | CPU_CLOCK


def process_tree(pid: int) -> tuple[int, ...]:
    """The process and all its living descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            parent = int(_stat_fields(int(entry))[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry))
    tree = [pid]
    for member in tree:
        tree.extend(children.get(member, ()))
    return tuple(tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process that has not ended. A later one with the same id has another start."""

    start_ticks: int
    paused: bool


def process_state(pid: int) -> ProcessState | None:
    """Whether a process runs or is paused; None if it has ended, also if its parent has not waited for it yet."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return None
    # Fields 3 and 22 of proc(5): state, starttime.
    if fields[0] in "ZX":
        return None
    return ProcessState(start_ticks=int(fields[19]), paused=fields[0] == "T")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the second, the name, may itself hold spaces and brackets."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()


def _status_bytes(status: str, name: str) -> int:
    """A ``VmRSS:   1234 kB`` line in bytes; 0 for a process without memory of its own (a zombie)."""
    for line in status.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0
