"""One process that runs several brokers, each in a process of its own: starts, restarts and stops them.

It does not know which metadata store they share. A child holds one end of a pair of sockets: it says there that it is
ready, and stops when the other end is closed, which also happens when this process is killed. Children are in process
groups of their own, so that Ctrl-C reaches this process alone and the brokers stop once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.broker.child_output import LINE_BYTES_MAX, Lines
from penstock.broker.restarts import FirstStart, Restarts
from penstock.observe.log import Logger

EXIT_FAILED = 1
EXIT_USAGE = 2
COMMAND = (sys.executable, "-m", "penstock.broker")
READY = b"ready\n"
STOP_S_MAX = 60.0
"""For all brokers to stop; those that have not are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildBroker:
    """One of the brokers: its id, where clients reach it, and the arguments of `python -m penstock.broker`."""

    broker_id: int
    endpoints: tuple[str, ...]
    arguments: tuple[str, ...]


class Supervisor:
    """Runs brokers until it is stopped, or until none of them can start."""

    def __init__(
        self,
        brokers: Sequence[ChildBroker],
        *,
        environment: Mapping[str, str],
        write_line: Callable[[int, str], None],
        log: Logger,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`write_line` gets every line that a broker writes, with its id."""
        self._command = command
        self._brokers = brokers
        self._environment = environment
        self._write_line = write_line
        self._log = log
        self._first_start = FirstStart(len(brokers))
        self._ready: set[int] = set()
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self, stop: asyncio.Event) -> int:
        """Run until `stop` is set; the exit status."""
        async with asyncio.TaskGroup() as tasks:
            stopper = tasks.create_task(self._stop_with(stop))
            running = [tasks.create_task(self._keep(broker)) for broker in self._brokers]
            await asyncio.wait(running)
            stopper.cancel()
        return self._status

    async def _stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._log.info("stopping")
        self._stopping.set()

    async def _keep(self, broker: ChildBroker) -> None:
        """Run one broker, again and again, until the supervisor stops."""
        restarts = Restarts()
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began_s = loop.time()
            status, was_ready = await self._run_once(broker)
            if self._stopping.is_set():
                # A broker that was not yet ready to be stopped ends by the signal itself.
                if status not in (0, -signal.SIGTERM):
                    self._status = EXIT_FAILED
                return
            if not was_ready and self._first_start.failed(broker.broker_id, wrong_settings=status == EXIT_USAGE):
                self._give_up(status)
                return
            restart_s = restarts.ended(loop.time() - began_s)
            self._log.error("broker_ended", broker_id=broker.broker_id, reason=in_words(status), restart_s=restart_s)
            try:
                await asyncio.wait_for(self._stopping.wait(), restart_s)
            except TimeoutError:
                continue

    def _give_up(self, status: int) -> None:
        self._log.error("start_refused", reason="no broker can start; the last one ended with " + in_words(status))
        self._status = EXIT_USAGE if status == EXIT_USAGE else EXIT_FAILED
        self._stopping.set()

    async def _run_once(self, broker: ChildBroker) -> tuple[int, bool]:
        """Start a broker and wait for its end: its exit status, and whether it had been ready."""
        try:
            mine, process = await self._start(broker)
        except OSError as error:
            # Too few descriptors, processes or bytes of memory: later there may be enough.
            self._log.error("broker_not_started", broker_id=broker.broker_id, reason=str(error))
            return EXIT_FAILED, False
        with mine:
            self._log.info("broker_started", broker_id=broker.broker_id, pid=process.pid)
            try:
                async with asyncio.TaskGroup() as tasks:
                    output = tasks.create_task(self._copy_output(broker.broker_id, process))
                    listener = tasks.create_task(self._wait_until_ready(broker.broker_id, mine))
                    stopper = tasks.create_task(self._stop(broker.broker_id, process))
                    status = await process.wait()
                    stopper.cancel()
                    await output
                    was_ready = broker.broker_id in self._ready
                    listener.cancel()
            finally:
                self._ready.discard(broker.broker_id)
                if process.returncode is None:
                    _send(process, signal.SIGKILL)
        return status, was_ready

    async def _start(self, broker: ChildBroker) -> tuple[socket.socket, asyncio.subprocess.Process]:
        """A broker's process, and this one's end of the pair of sockets."""
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                return mine, await self._spawn(broker.arguments, theirs)
        except BaseException:
            mine.close()
            raise

    async def _spawn(self, arguments: Sequence[str], theirs: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            "--supervisor-fd",
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )

    async def _copy_output(self, broker_id: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "its output is a pipe"
        lines = Lines()
        while data := await process.stdout.read(LINE_BYTES_MAX):
            self._write_lines(broker_id, lines.feed(data))
        self._write_lines(broker_id, lines.last())

    def _write_lines(self, broker_id: int, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._write_line(broker_id, line.decode(errors="replace"))

    async def _wait_until_ready(self, broker_id: int, mine: socket.socket) -> None:
        mine.setblocking(False)
        if not await asyncio.get_running_loop().sock_recv(mine, len(READY)):
            return
        self._first_start.ready()
        self._ready.add(broker_id)
        if len(self._ready) == len(self._brokers):
            endpoints = [endpoint for broker in self._brokers for endpoint in broker.endpoints]
            self._log.info("all_ready", brokers=sorted(self._ready), listeners=endpoints)

    async def _stop(self, broker_id: int, process: asyncio.subprocess.Process) -> None:
        """When the supervisor stops, stop the broker cleanly, or kill it if that takes too long."""
        await self._stopping.wait()
        if process.returncode is not None:
            return
        _send(process, signal.SIGTERM)
        await asyncio.sleep(STOP_S_MAX)
        if process.returncode is None:
            self._log.error("broker_killed", broker_id=broker_id, reason=f"it did not stop within {STOP_S_MAX:g} s")
            _send(process, signal.SIGKILL)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process that may have ended by itself.

    Its own method would first look whether it has, and take the exit status away from the event loop, which then
    reports 255 for a broker that had stopped cleanly.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def in_words(status: int) -> str:
    """How a process ended."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


class SupervisorLink:
    """The child's end: says that the broker is ready, and learns that the supervisor is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def follow(self, stop: asyncio.Event) -> None:
        """Stop the broker when the supervisor ends, however it does."""
        os.set_blocking(self._descriptor, False)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._descriptor)
            stop.set()

        loop.add_reader(self._descriptor, ended)

    def ready(self) -> None:
        try:
            os.write(self._descriptor, READY)
        except OSError:
            # It is gone, which stops the broker.
            return
