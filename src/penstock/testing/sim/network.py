"""A simulated network: connections between nodes, with latency, back-pressure, cuts and resets.

Readiness is driven by events: bytes that arrive schedule the reader's callback, bytes that are read the writer's. The
bytes of one connection arrive in order; those of different connections overtake each other, as latency is drawn for
each message. What TCP promises is kept, and no more: a peer that loses power says nothing, one whose process dies
closes or resets, and a cut holds what is sent until it is healed.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from heapq import heappush
from typing import TYPE_CHECKING

from penstock.net.reply import FileRange
from penstock.net.transport import Bytes, Transport
from penstock.testing.sim.handle import SimHandle
from penstock.testing.sim.node import Ending, Life, Node

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

WINDOW_BYTES = 256 * 1024
"""Bytes that a sender may have on their way and unread at the other end."""

LATENCY_MIN_S = 0.0002
LATENCY_MAX_S = 0.002
RETRANSMISSION_MAX_S = 0.5
"""What was held by a cut arrives at most this long after it is healed."""

CONNECT_TIMEOUT_S = 10.0
SYN_RETRY_S = 1.0
EPHEMERAL_PORT_MIN = 32768
LOCAL_HOSTS = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")

FIN = object()
"""The peer sends no more."""

RST = object()
"""The peer knows nothing of the connection."""


class Fabric:
    """What connects all nodes of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.latency_min_s = LATENCY_MIN_S
        self.latency_max_s = LATENCY_MAX_S
        self.ends: dict[tuple[int, int], SimTransport] = {}
        """Both ends of each connection that is not closed at both, by number and side (0: it connected)."""
        self._listening: dict[tuple[str, int], SimAcceptor] = {}
        self.cuts: set[tuple[str, str]] = set()
        """Pairs of hosts of which the first cannot reach the second."""
        self.slow_s: dict[str, float] = {}
        """Hosts whose messages leave up to so much later."""
        self._connections = 0
        self._ports = EPHEMERAL_PORT_MIN
        stream = world.stream("network")
        self._random = stream.random

    def at(self, life: Life) -> SimNetwork:
        """The network as one life of a node sees it."""
        return SimNetwork(self, life)

    def latency_s(self) -> float:
        low_s = self.latency_min_s
        return low_s + (self.latency_max_s - low_s) * self._random()

    def delay_s(self, host: str) -> float:
        """How long what a host sends now is on its way."""
        slow_s = self.slow_s.get(host)
        return self.latency_s() if slow_s is None else self.latency_s() + slow_s * self._random()

    # Faults

    def connections(self) -> list[SimTransport]:
        """The ends that connected, of the connections that are open, oldest first."""
        return [end for (_, side), end in self.ends.items() if side == 0 and not end.closed]

    def reset(self, end: SimTransport) -> None:
        """Break a connection: both ends hear of it at once, and what is on its way is lost."""
        self.world.trace.fact(f"connection {end.number} reset")
        for each in (end, end.peer):
            each.break_off()

    def cut(self, source: str, target: str) -> None:
        """Hold everything that one node sends to another; the other way is not touched."""
        self.world.trace.fact(f"cut {source} to {target}")
        self.cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Let what was held arrive, in order on each connection."""
        if (source, target) in self.cuts:
            self.world.trace.fact(f"healed {source} to {target}")
            self.cuts.discard((source, target))
            for end in list(self.ends.values()):
                if end.host == source and end.peer.host == target:
                    end.retransmit(RETRANSMISSION_MAX_S * self._random())

    def heal_all(self) -> None:
        self.slow_s.clear()
        for source, target in sorted(self.cuts):
            self.heal(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    # Nodes

    def booted(self, node: Node) -> None:
        """A node has a kernel again: it resets connections of its former lives that peers still use."""
        for end in list(self.ends.values()):
            if end.host == node.name and end.life is not node.life:
                end.wake_kernel()

    def life_ended(self, life: Life, ending: Ending) -> None:
        """Close what a process had open, with a word to its peers unless the machine is off."""
        for acceptor in [each for each in self._listening.values() if each.life is life]:
            acceptor.shut(silent=ending is Ending.POWER_CUT)
        for end in list(self.ends.values()):
            if end.life is life and not end.closed:
                end.shut(silent=ending is Ending.POWER_CUT)

    # Connections

    def bind(self, life: Life, host: str, port: int) -> SimAcceptor:
        if host not in LOCAL_HOSTS and host != life.node.name:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        if port == 0:
            self._ports += 1
            port = self._ports
        if (life.node.name, port) in self._listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        acceptor = SimAcceptor(self, life, host or life.node.name, port)
        self._listening[life.node.name, port] = acceptor
        return acceptor

    def unbind(self, acceptor: SimAcceptor) -> None:
        self._listening.pop((acceptor.life.node.name, acceptor.port), None)

    def listener(self, host: str, port: int) -> SimAcceptor | None:
        return self._listening.get((host, port))

    def pair(self, client: Life, server: Life) -> tuple[SimTransport, SimTransport]:
        """A new connection."""
        self._connections += 1
        number = self._connections
        ends = SimTransport(self, client, number, 0), SimTransport(self, server, number, 1)
        for end in ends:
            end.peer = ends[1 - end.side]
            self.ends[number, end.side] = end
        self.world.trace.fact(f"connection {number}: {client.node.name} to {server.node.name}")
        return ends

    def forget(self, end: SimTransport) -> None:
        """Both ends are closed: nothing of the connection matters any more."""
        self.ends.pop((end.number, 0), None)
        self.ends.pop((end.number, 1), None)


class SimTransport:
    """One end of a connection."""

    __slots__ = (
        "_acks_held", "_arrival", "_arriving", "_eof", "_error", "_fabric", "_held", "_inbox", "_last_arrival_s",
        "_read_due", "_reader", "_reader_context", "_silent", "_unacked", "_unanswered", "_world", "_write_due",
        "_writer", "_writer_context", "closed", "host", "life", "number", "peer", "side", "window_bytes",
    )  # fmt: skip

    def __init__(self, fabric: Fabric, life: Life, number: int, side: int) -> None:
        self._fabric = fabric
        self._world = fabric.world
        self.life = life
        self.host = life.node.name
        self.number = number
        self.side = side
        self.peer: SimTransport = self
        self.closed = False
        self.window_bytes = WINDOW_BYTES
        """How much of what this end sends may be unread."""
        self._unacked = 0
        self._held: deque[object] = deque()
        """What a cut keeps from leaving."""
        self._acks_held = 0
        self._last_arrival_s = 0.0
        """When the last message sent from here arrives."""
        self._arriving: deque[object] = deque()
        self._arrival = SimHandle(self.arrive, (), None, None, 0.0)
        """The event of every arrival here."""
        self._inbox = bytearray()
        self._eof = False
        self._error = 0
        self._silent = False
        """The machine at this end is off."""
        self._unanswered = False
        """Bytes came for a machine that is off; its peer sends them again until it responds."""
        self._reader: Callable[[], None] | None = None
        self._reader_context: Context | None = None
        self._read_due = False
        self._writer: Callable[[], None] | None = None
        self._writer_context: Context | None = None
        self._write_due = False

    def __repr__(self) -> str:
        return f"<end {self.side} of connection {self.number}, {self.host} with {self.peer.host}>"

    # Transport

    def receive_into(self, view: memoryview) -> int:
        if self.life.ended is not None:
            self.life.check()
        inbox = self._inbox
        if not inbox:
            if self.closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if self._error:
                raise OSError(self._error, os.strerror(self._error))
            if self._eof:
                return 0
            raise BlockingIOError
        size = len(inbox)
        if size <= len(view):
            view[:size] = inbox
            inbox.clear()
        else:
            size = len(view)
            view[:] = inbox[:size]
            del inbox[:size]
        peer = self.peer
        if self._fabric.cuts and self._fabric.is_cut(self.host, peer.host):
            self._acks_held += size
        else:
            peer._unacked -= size
            if peer._writer is not None:
                peer._wake_writer()
        return size

    def send(self, data: Bytes) -> int:
        if self.life.ended is not None:
            self.life.check()
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._error:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self.window_bytes - self._unacked
        if room <= 0:
            raise BlockingIOError
        sent = bytes(data) if len(data) <= room else bytes(memoryview(data)[:room])
        self._unacked += len(sent)
        self._dispatch(sent)
        return len(sent)

    def send_vector(self, buffers: Sequence[Bytes], file_follows: bool) -> int:
        return self.send(b"".join(buffers))

    def send_file(self, file: FileRange, position: int, size: int) -> int:
        room = self.window_bytes - self._unacked
        if room <= 0 or self.closed or self._error or self.life.ended is not None:
            return self.send(b"")
        data = file.read(position, min(size, room))
        return self.send(data) if data else 0

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self.life.check()
        self._reader = callback
        if callback is not None:
            self._reader_context = copy_context()
            if self._readable():
                self._wake_reader()

    def expect(self, size: int) -> None:
        """Nothing: this transport calls back whenever bytes arrive."""

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self.life.check()
        self._writer = callback
        if callback is not None:
            self._writer_context = copy_context()
            if self._writable():
                self._wake_writer()

    def peer_left(self) -> str | None:
        self.life.check()
        if self._inbox:
            return None
        if self._error:
            return f"receive failed: {os.strerror(self._error)}"
        return "the peer closed" if self._eof else None

    def is_reset(self) -> bool:
        return self._error != 0

    def close(self) -> None:
        self.life.check()
        if not self.closed:
            self.shut(silent=False)

    # Between the two ends

    def _dispatch(self, sent: object) -> None:
        """Send something on its way to the peer."""
        fabric = self._fabric
        if self._held or (fabric.cuts and fabric.is_cut(self.host, self.peer.host)):
            self._held.append(sent)
        else:
            self._depart(sent, fabric.latency_s() if not fabric.slow_s else fabric.delay_s(self.host))

    def _depart(self, sent: object, delay_s: float) -> None:
        world = self._world
        when = world.now + delay_s
        if when < self._last_arrival_s:
            when = self._last_arrival_s
        self._last_arrival_s = when
        peer = self.peer
        peer._arriving.append(sent)
        heappush(world.events, (when, world.tie(), next(world.numbers), peer._arrival))

    def retransmit(self, delay_s: float) -> None:
        """A cut is healed: send what it held."""
        held = self._held
        self._held = deque()
        if self._acks_held:
            self.peer._unacked -= self._acks_held
            self._acks_held = 0
            if self.peer._writer is not None:
                self.peer._wake_writer()
        for sent in held:
            self._depart(sent, delay_s + self._fabric.latency_s())

    def arrive(self) -> None:
        """Take what has arrived. The kernel does this, whether the process runs or not."""
        if not self._arriving:
            return
        sent = self._arriving.popleft()
        if type(sent) is bytes:
            self._world.trace.message(self.number, self.side, sent)
            if self.closed:
                self._unanswered = True
                if not self._silent:
                    self.wake_kernel()
                return
            self._inbox += sent
        elif sent is FIN:
            self._eof = True
        else:
            self._error = errno.ECONNRESET
            if self._writer is not None:
                self._wake_writer()
        if self._reader is not None and not self._read_due:
            if self.life.active:
                # Nothing else is ready when something arrives, so there is nothing to wait for.
                assert self._reader_context is not None
                self._world.loop.enter(self.life, self._reader_context, self._reader)
                if (self._inbox or self._eof or self._error) and self._reader is not None:
                    self._wake_reader()
            else:
                self._wake_reader()

    def wake_kernel(self) -> None:
        """Reset the peer if it has sent something to this end, whose process is gone."""
        self._silent = False
        if self._unanswered:
            self._unanswered = False
            self._dispatch(RST)

    def break_off(self) -> None:
        """The connection is broken at this end, with what was on its way."""
        self._arriving.clear()
        self._held.clear()
        self._error = errno.ECONNRESET
        if self._reader is not None:
            self._wake_reader()
        if self._writer is not None:
            self._wake_writer()
        self._forget_if_over()

    def shut(self, *, silent: bool) -> None:
        """Close this end: with FIN, or with RST where bytes were left unread; without a word if the machine is off."""
        unread = bool(self._inbox)
        self.closed = True
        self._reader = self._writer = None
        self._inbox.clear()
        if silent:
            self._silent = True
            self._held.clear()
        elif not self._error:
            self._dispatch(RST if unread else FIN)
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self.closed and (self.peer.closed or self._error):
            self._fabric.forget(self)

    # Readiness

    def _readable(self) -> bool:
        return bool(self._inbox) or self._eof or self._error != 0

    def _writable(self) -> bool:
        return self._unacked < self.window_bytes or self._error != 0

    def _wake_reader(self) -> None:
        if not self._read_due:
            assert self._reader_context is not None
            self._read_due = True
            self._world.soon(self._call_reader, self._reader_context)

    def _call_reader(self) -> None:
        self._read_due = False
        if self._reader is not None and self._readable():
            try:
                self._reader()
            finally:
                # A closed end has no reader.
                if (self._inbox or self._eof or self._error) and self._reader is not None:
                    self._wake_reader()

    def _wake_writer(self) -> None:
        if not self._write_due:
            assert self._writer_context is not None
            self._write_due = True
            self._world.soon(self._call_writer, self._writer_context)

    def _call_writer(self) -> None:
        self._write_due = False
        if self._writer is not None and self._writable():
            try:
                self._writer()
            finally:
                if self._writer is not None and self._writable():
                    self._wake_writer()


class SimAcceptor:
    """A port that a process has taken."""

    def __init__(self, fabric: Fabric, life: Life, host: str, port: int) -> None:
        self._fabric = fabric
        self.life = life
        self.host = host
        self.port = port
        self._backlog: deque[SimTransport] = deque()
        self._backlog_max = 0
        self._on_acceptable: Callable[[], None] | None = None
        self._context: Context | None = None
        self._paused = False
        self._due = False

    def listen(self, backlog: int, on_acceptable: Callable[[], None]) -> None:
        self.life.check()
        self._backlog_max = backlog
        self._on_acceptable = on_acceptable
        self._context = copy_context()

    def pause(self) -> None:
        self.life.check()
        self._paused = True

    def resume(self) -> None:
        self.life.check()
        self._paused = False
        self._wake()

    def accept(self, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> tuple[SimTransport, str]:
        self.life.check()
        if not self._backlog:
            raise BlockingIOError
        end = self._backlog.popleft()
        if send_buffer_bytes > 0:
            end.window_bytes = send_buffer_bytes
        if receive_buffer_bytes > 0:
            end.peer.window_bytes = receive_buffer_bytes
        return end, end.peer.host

    def close(self) -> None:
        self.life.check()
        self.shut(silent=False)

    # The kernel's part

    def has_room(self) -> bool:
        return len(self._backlog) < self._backlog_max

    @property
    def listens(self) -> bool:
        return self._on_acceptable is not None

    def enqueue(self, end: SimTransport) -> None:
        self._backlog.append(end)
        self._wake()

    def shut(self, *, silent: bool) -> None:
        self._fabric.unbind(self)
        self._on_acceptable = None
        for end in self._backlog:
            if not end.closed:
                end.shut(silent=silent)
        self._backlog.clear()

    def _wake(self) -> None:
        if self._on_acceptable is not None and self._backlog and not self._paused and not self._due:
            assert self._context is not None
            self._due = True
            self._fabric.world.soon(self._call, self._context)

    def _call(self) -> None:
        self._due = False
        if self._on_acceptable is not None and self._backlog and not self._paused:
            try:
                self._on_acceptable()
            finally:
                self._wake()


class Attempt:
    """A connect on its way: SYN, and again SYN until something responds or the time is up."""

    def __init__(
        self, fabric: Fabric, life: Life, host: str, port: int, connected: asyncio.Future[SimTransport]
    ) -> None:
        self._fabric = fabric
        self._world = fabric.world
        self._life = life
        self._source = life.node.name
        self._host = host
        self._port = port
        self._connected = connected
        self._client: SimTransport | None = None
        self._retries = 0
        self._deadline = self._world.after(CONNECT_TIMEOUT_S, self._time_out)

    def send(self) -> None:
        """Send SYN."""
        if self._connected.done() or self._life.ended is not None:
            self._deadline.cancel()
            return
        if not self._fabric.is_cut(self._source, self._host):
            self._world.after(self._fabric.latency_s(), self._arrive)
        self._world.after(SYN_RETRY_S * 2**self._retries, self.send)
        self._retries += 1

    def _arrive(self) -> None:
        node = self._world.nodes.get(self._host)
        if node is None:
            self._respond(OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)))
            return
        if not node.powered or self._connected.done():
            return
        if self._client is None:
            acceptor = self._fabric.listener(self._host, self._port)
            if acceptor is None or not acceptor.listens:
                self._respond(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
                return
            if not acceptor.has_room():
                return
            self._client, server = self._fabric.pair(self._life, acceptor.life)
            acceptor.enqueue(server)
        self._respond(None)

    def _respond(self, error: OSError | None) -> None:
        if not self._fabric.is_cut(self._host, self._source):
            self._world.after(self._fabric.latency_s(), self._done, error)

    def _done(self, error: OSError | None) -> None:
        if self._connected.done() or self._life.ended is not None:
            return
        self._deadline.cancel()
        if error is not None:
            self._connected.set_exception(error)
        else:
            assert self._client is not None
            self._connected.set_result(self._client)

    def _time_out(self) -> None:
        if not self._connected.done() and self._life.ended is None:
            self._connected.set_exception(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        self.give_up()

    def give_up(self) -> None:
        """The process waits no longer: close what may be open at the other end."""
        self._deadline.cancel()
        if self._client is not None and not self._client.closed:
            self._client.shut(silent=False)


class SimNetwork:
    """The network as one life of a node sees it."""

    def __init__(self, fabric: Fabric, life: Life) -> None:
        self._fabric = fabric
        self._life = life

    def bind(self, host: str, port: int) -> SimAcceptor:
        self._life.check()
        return self._fabric.bind(self._life, host, port)

    async def connect(self, host: str, port: int) -> SimTransport:
        self._life.check()
        connected: asyncio.Future[SimTransport] = asyncio.get_running_loop().create_future()
        target = self._life.node.name if host in LOCAL_HOSTS else host
        attempt = Attempt(self._fabric, self._life, target, port, connected)
        attempt.send()
        try:
            return await connected
        except BaseException:
            if self._life.ended is None:
                with suppress(OSError):
                    attempt.give_up()
            raise

    def reset_by_peers(self, transports: Iterable[Transport]) -> set[Transport]:
        self._life.check()
        return {each for each in transports if isinstance(each, SimTransport) and each.is_reset()}
