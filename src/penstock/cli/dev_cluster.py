"""The running of `penstock dev up`: ZooKeeper and brokers as child processes, from start to stop."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from types import FrameType, TracebackType
from typing import Self

from penstock.cli.dev_state import DevState, Process, Server, read_state, take_restarts, write_state
from penstock.cli.failure import Failure, failure_in_lines
from penstock.client.cluster_state import ClusterState, state_over_wire
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.testing.processes import LOOPBACK, Child, Deadline, ProcessFailed
from penstock.testing.zookeeper import ZooKeeper, ZooKeeperMissing, ZooKeeperServer

CHROOT = "/penstock"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1
PROBE_SECONDS_MAX = 2.0
REPLICAS_MAX = 3
SESSION_MS = 5_000
TAIL_LINES = 8


class Interrupted(Exception):
    """Ctrl-C or SIGTERM arrived while the cluster was starting."""


def default_settings(brokers: int) -> dict[str, str]:
    """Settings with which the loss of one broker of three loses nothing and is noticed soon, and logs for people."""
    settings = {
        "default.replication.factor": str(min(brokers, REPLICAS_MAX)),
        # With fewer brokers than these ask for, groups and transactions would have no coordinator.
        "offsets.topic.replication.factor": str(min(brokers, REPLICAS_MAX)),
        "transaction.state.log.replication.factor": str(min(brokers, REPLICAS_MAX)),
        "broker.session.timeout.ms": str(SESSION_MS),
        "log.format": "text",
    }
    if brokers >= REPLICAS_MAX:
        settings["min.insync.replicas"] = "2"
    return settings


def known_state(brokers: Sequence[Server]) -> ClusterState | None:
    """What a running broker responds about the cluster; None if none does."""
    states = {each.number: each.state() for each in brokers}
    running = [each.address for each in brokers if (state := states[each.number]) is not None and not state.paused]
    if not running:
        return None
    try:
        return state_over_wire(Connection(bootstrap=",".join(running)), PROBE_SECONDS_MAX)
    except ClientError:
        return None


def live_brokers(brokers: Sequence[Server]) -> frozenset[int]:
    """The brokers that the cluster counts as live; none without a controller."""
    found = known_state(brokers)
    return frozenset() if found is None or found.controller is None else found.live


@dataclass(slots=True, kw_only=True)
class DevBroker:
    """One broker: its command, and its process while it has one."""

    number: int
    port: int
    command: tuple[str, ...]
    log: Path
    restart_wanted: bool = False
    child: Child | None = None
    _ended: bool = field(default=False, init=False)

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.alive

    def launch(self) -> None:
        self.child = Child(self.command, log=self.log)
        self._ended = False

    def terminate(self) -> None:
        """SIGTERM, also to a paused process, which gets it when it goes on."""
        if self.child is not None and self.child.alive:
            self.child.send_signal(signal.SIGTERM)
            self.child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.child is not None:
            self.terminate()
            self.child.stop(STOP_SECONDS_MAX)
            self.child = None

    def has_just_ended(self) -> bool:
        """True once after the process has ended without having been told to by `dev up`."""
        if self.child is None or self.child.alive or self._ended:
            return False
        self._ended = True
        return True


class DevCluster:
    """ZooKeeper and brokers below one directory; entering starts them and waits until all are live."""

    def __init__(
        self,
        data: Path,
        *,
        brokers: int,
        zookeepers: int,
        port: int,
        settings: Mapping[str, str],
        on_step: Callable[[str], None],
    ) -> None:
        self.data = data
        self._on_step = on_step
        self._stop = Event()
        self._zookeeper = ZooKeeper(zookeepers, folder=data / "zookeeper")
        chosen = {**default_settings(brokers), **settings}
        self.brokers = [
            DevBroker(
                number=number,
                port=port + number - 1,
                command=self._command(number, port + number - 1, chosen),
                log=data / f"broker-{number}.log",
            )
            for number in range(1, brokers + 1)
        ]

    def _command(self, number: int, port: int, settings: Mapping[str, str]) -> tuple[str, ...]:
        given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return (
            *(sys.executable, "-m", "penstock.broker", "--set", f"node.id={number}"),
            *("--zookeeper", f"{self._zookeeper.connect}{CHROOT}"),
            *("--listen", f"{LOOPBACK}:{port}", "--data", str(self.data / f"broker-{number}"), *given),
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{each.port}" for each in self.brokers)

    def state(self) -> DevState:
        """What the state file has to say now."""
        return DevState(
            up=Process.of(os.getpid()),
            brokers=tuple(
                Server(
                    number=each.number,
                    port=each.port,
                    log=str(each.log),
                    process=Process.of(each.child.pid) if each.child is not None and each.child.alive else None,
                )
                for each in self.brokers
            ),
            zookeepers=tuple(
                Server(
                    number=number,
                    port=each.port,
                    log=str(each.log),
                    process=Process.of(each.pid) if each.alive else None,
                )
                for number, each in enumerate(self._zookeeper.servers, 1)
            ),
        )

    def wait(self, seconds: float) -> bool:
        """Wait for a signal to stop; whether it came."""
        return self._stop.wait(seconds)

    def tick(self) -> None:
        """Start what shall be restarted, and tell of brokers that have ended."""
        changed = False
        for number in take_restarts(self.data):
            if 1 <= number <= len(self.brokers):
                wanted = self.brokers[number - 1]
                wanted.restart_wanted = True
                wanted.terminate()
        for broker in self.brokers:
            if broker.restart_wanted and not broker.alive:
                broker.restart_wanted = False
                broker.launch()
                self._on_step(f"broker {broker.number} starts again")
                changed = True
            elif broker.has_just_ended():
                again = f"`penstock dev restart {broker.number} --data {self.data}` starts it again"
                self._on_step(f"broker {broker.number} has ended ({_how(broker)}); {again}")
                changed = True
        if changed:
            write_state(self.data, self.state())

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._start()
        except BaseException as error:
            self._close()
            if isinstance(error, ProcessFailed):
                raise failure_in_lines(error) from None
            if isinstance(error, ZooKeeperMissing):
                raise Failure(str(error)) from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _start(self) -> None:
        take_restarts(self.data)
        write_state(self.data, self.state())
        self._on_step("starting ZooKeeper")
        servers = self._zookeeper.servers
        for server in servers:
            server.launch()
        write_state(self.data, self.state())
        self._wait_until(lambda: all(server.mode for server in servers), "ZooKeeper serves")
        self._on_step("starting brokers")
        for broker in self.brokers:
            broker.launch()
        write_state(self.data, self.state())
        wanted = {each.number for each in self.brokers}
        self._wait_until(lambda: live_brokers(self.state().brokers) >= wanted, "all brokers are live")

    def _wait_until(self, fact: Callable[[], bool], what: str) -> None:
        deadline = Deadline(START_SECONDS_MAX)
        while not fact():
            if self._stop.wait(POLL_SECONDS):
                raise Interrupted
            for number, server in enumerate(self._zookeeper.servers, 1):
                if not server.alive:
                    raise ProcessFailed(f"ZooKeeper {number} ended before {what}\n{last_lines(server.log)}")
            for broker in self.brokers:
                if broker.child is not None and not broker.alive:
                    raise ProcessFailed(f"broker {broker.number} ended before {what}\n{last_lines(broker.log)}")
            if deadline.passed:
                logs = f"see the logs in {self.data}"
                raise ProcessFailed(f"not so within {START_SECONDS_MAX:g} s: {what}; {logs}")

    def _close(self) -> None:
        """Stop the brokers, then ZooKeeper, which they need to hand over their partitions."""
        self._stop.set()
        self._on_step("stopping brokers, then ZooKeeper")
        with ThreadPoolExecutor(len(self.brokers)) as at_once:
            list(at_once.map(DevBroker.stop, self.brokers))
        with ThreadPoolExecutor(len(self._zookeeper.servers)) as at_once:
            list(at_once.map(ZooKeeperServer.stop, self._zookeeper.servers))
        write_state(self.data, replace(self.state(), up=None))
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal stops everything cleanly, the second one at once."""
        if self._stop.is_set():
            for broker in self.brokers:
                if broker.alive and broker.child is not None:
                    broker.child.send_signal(signal.SIGKILL)
        self._stop.set()


def last_lines(log: Path) -> str:
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
    except OSError as error:
        return f"(no log: {error.strerror})"


def prepare(data: Path, *, brokers: int, zookeepers: int, fresh: bool, on_step: Callable[[str], None]) -> None:
    """Make a directory ready for a start: end what a killed `dev up` has left, remove data, or check that it fits."""
    found = read_state(data)
    if found is not None:
        end_leftovers(found, on_step)
    if fresh:
        remove_data(data)
        return
    if found is None:
        return
    if len(found.zookeepers) != zookeepers:
        raise Failure(
            f"the metadata in {data} is that of {len(found.zookeepers)} ZooKeeper servers, not {zookeepers}",
            f"say --zookeepers {len(found.zookeepers)}, or --fresh to begin without data",
        )
    if len(found.brokers) > brokers:
        raise Failure(
            f"{data} has the data of {len(found.brokers)} brokers, more than {brokers}",
            f"say --brokers {len(found.brokers)}, or --fresh to begin without data",
        )


def end_leftovers(found: DevState, on_step: Callable[[str], None]) -> None:
    """Stop the processes of a `dev up` that was killed: its children outlive it."""
    for servers in (found.brokers, found.zookeepers):
        left = [each.process for each in servers if each.process is not None and each.state() is not None]
        if not left:
            continue
        on_step(f"stopping processes that a killed `dev up` left: {', '.join(str(each.pid) for each in left)}")
        for process in left:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        if not ended_within(left, STOP_SECONDS_MAX):
            for process in left:
                process.send_signal(signal.SIGKILL)
            ended_within(left, STOP_SECONDS_MAX)


def ended_within(processes: Sequence[Process], seconds_max: float) -> bool:
    deadline, pause = Deadline(seconds_max), Event()
    while any(each.state() is not None for each in processes):
        if deadline.passed:
            return False
        pause.wait(POLL_SECONDS)
    return True


def remove_data(data: Path) -> None:
    """Remove what `dev up` has made there, and nothing else."""
    for each in (*data.glob("broker-[0-9]*"), data / "zookeeper"):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)


def _how(broker: DevBroker) -> str:
    status = broker.child.exit_status if broker.child is not None else None
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"status {status}"
