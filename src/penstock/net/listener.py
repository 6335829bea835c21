"""A listening port: how many peers may connect, from where, and how long they may be idle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.net.connection import Connection, ConnectionLimits, Serve
from penstock.net.frame_memory import FrameMemory
from penstock.net.reply import CloseConnection
from penstock.net.transport import Acceptor, Network, Transport
from penstock.net.turns import Turns

ACCEPTS_PER_EVENT_MAX = 64
SWEEP_S = 1.0
"""How often connections are checked for deadlines."""

WARN_S = 60.0
"""How often a warning is repeated while its cause lasts."""


RATE = "the rate of new connections is reached"
FAILED = "the last accept failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """How many peers a listener accepts; further ones are refused by closing their connection."""

    connections_max: int = 10_000
    """Of all listeners together."""
    connections_per_address_max: int = 10_000
    connections_of_address_max: Mapping[str, int] = field(default_factory=dict[str, int])
    """Overrides for single addresses."""
    connections_per_second_max: int = 1 << 31
    """New connections beyond it wait in the system's queue for the next second."""
    backlog: int = 1024
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    """The kernel's buffers of a connection; -1 leaves their sizes to the kernel, which adapts them."""


class Listener:
    """Accepts connections and owns them: closing the listener closes them all."""

    def __init__(
        self,
        *,
        name: str,
        host: str,
        port: int,
        network: Network,
        serve: Serve,
        limits: Callable[[], ListenerLimits],
        connections_of_all: Callable[[], int],
        connection_limits: ConnectionLimits,
        memory: FrameMemory,
        monotonic: Callable[[], float],
        on_event: Callable[[str, dict[str, Any]], None],
        on_warning: Callable[[str, dict[str, Any]], None],
        on_bug: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._network = network
        self._serve = serve
        self._limits = limits
        self._connections_of_all = connections_of_all
        self._connection_limits = connection_limits
        self._memory = memory
        self._monotonic = monotonic
        self._on_event = on_event
        self._on_warning = on_warning
        self._warned_s: dict[str, float] = {}
        self._on_bug = on_bug
        self.open_connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self._by_address: Counter[str] = Counter()
        self._acceptor: Acceptor | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._accepted_this_second = 0
        self._paused: str | None = None
        """Why no connection is accepted at the moment."""
        self.accepted = 0
        self.refused = 0
        self.bytes_in_closed = 0
        self.bytes_out_closed = 0

    @property
    def connections(self) -> int:
        return len(self.open_connections)

    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent by every connection this listener has had."""
        received = self.bytes_in_closed + sum(connection.bytes_in for connection in self.open_connections)
        sent = self.bytes_out_closed + sum(connection.bytes_out for connection in self.open_connections)
        return received, sent

    def bind(self) -> None:
        """Bind the port, before anything else is started, so that a port in use fails first."""
        self._acceptor = self._network.bind(self.host, self.port)
        self.port = self._acceptor.port

    def close(self) -> None:
        """Release the port, if it is bound."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled. Every task a connection starts is a child of this one."""
        assert self._acceptor is not None, "bind comes first"
        self._turns = Turns(asyncio.get_running_loop().call_soon, self._monotonic)
        try:
            self._acceptor.listen(self._limits().backlog, self._on_acceptable)
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                ready()
                while True:
                    await asyncio.sleep(SWEEP_S)
                    try:
                        self._resume_accepting()
                        self._accepted_this_second = 0
                        self._sweep()
                    except Exception as error:
                        # Every connection of this listener depends on this loop, and the next sweep may succeed.
                        self._on_bug("listener", error)
        finally:
            # A connection that closes would make a listener that ran out of descriptors accept again.
            self._paused = None
            self.close()
            for connection in tuple(self.open_connections):
                connection.close("the broker is stopping")

    def _sweep(self) -> None:
        now_s = self._monotonic()
        reset = self._network.reset_by_peers([connection.transport for connection in self.open_connections])
        for connection in tuple(self.open_connections):
            try:
                reason = connection.overdue(now_s, is_reset=connection.transport in reset)
                if reason is not None:
                    connection.close(reason)
            except Exception as error:
                connection.fail(error)

    def _on_acceptable(self) -> None:
        try:
            self._accept(self._limits())
        except Exception as error:
            self._pause_accepting(FAILED)
            self._on_bug("listener", error)

    def _accept(self, limits: ListenerLimits) -> None:
        assert self._acceptor is not None
        for _ in range(ACCEPTS_PER_EVENT_MAX):
            if self._accepted_this_second >= limits.connections_per_second_max:
                self._pause_accepting(RATE)
                return
            try:
                transport, peer = self._acceptor.accept(
                    send_buffer_bytes=limits.send_buffer_bytes, receive_buffer_bytes=limits.receive_buffer_bytes
                )
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory. The queue would keep the loop spinning, so the port rests until a
                # connection closes or the next sweep.
                self._pause_accepting(FAILED)
                self._warn("accept_failed", error=str(error), open=self.connections)
                return
            self._accepted_this_second += 1
            try:
                self._admit(transport, peer, limits)
            except Exception as error:
                transport.close()
                self._on_bug("listener", error)

    def _pause_accepting(self, reason: str) -> None:
        assert self._acceptor is not None
        self._paused = reason
        self._acceptor.pause()

    def _resume_accepting(self) -> None:
        if self._paused is not None:
            assert self._acceptor is not None
            self._paused = None
            self._acceptor.resume()

    def _warn(self, event: str, **fields: Any) -> None:
        now_s = self._monotonic()
        if now_s - self._warned_s.get(event, -WARN_S) >= WARN_S:
            self._warned_s[event] = now_s
            self._on_warning(event, {"listener": self.name, **fields})

    def _admit(self, transport: Transport, peer: str, limits: ListenerLimits) -> None:
        full = self._connections_of_all() >= limits.connections_max
        if full or self._by_address[peer] >= limits.connections_of_address_max.get(
            peer, limits.connections_per_address_max
        ):
            self.refused += 1
            transport.close()
            self._on_event("connection_refused", {"listener": self.name, "peer": peer, "open": self.connections})
            if full:
                self._warn("connections_full", open=self.connections, connections_max=limits.connections_max)
            return
        connection = Connection(
            transport,
            peer=peer,
            listener=self.name,
            serve=self._serve,
            limits=self._connection_limits,
            memory=self._memory,
            turns=self._turns,
            loop=asyncio.get_running_loop(),
            monotonic=self._monotonic,
            spawn=self._spawn,
            on_closed=self._on_closed,
            on_bug=self._on_bug,
        )
        try:
            self.open_connections[connection] = None
            self._by_address[peer] += 1
            self.accepted += 1
            connection.start()
        except Exception as error:
            connection.fail(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> object:
        assert self._tasks is not None, "a connection works only while its listener runs"
        try:
            return self._tasks.create_task(work)
        except RuntimeError:
            raise CloseConnection("the broker is stopping") from None

    def _on_closed(self, connection: Connection, reason: str) -> None:
        self.open_connections.pop(connection, None)
        self._by_address[connection.peer] -= 1
        if self._by_address[connection.peer] <= 0:
            del self._by_address[connection.peer]
        if self._paused == FAILED:
            self._resume_accepting()
        self.bytes_in_closed += connection.bytes_in
        self.bytes_out_closed += connection.bytes_out
        self._on_event("connection_closed", {"listener": self.name, "peer": connection.peer, "reason": reason})
