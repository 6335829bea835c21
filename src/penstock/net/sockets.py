"""The network of the operating system: transports that are TCP sockets, driven by the event loop's readiness."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterable, Sequence

from penstock.net.reply import FileRange
from penstock.net.transport import Acceptor, Bytes, Transport

CONNECT_S = 10.0
"""How long one address of a peer is tried, as Kafka's `socket.connection.setup.timeout.ms`; the kernel would try for
minutes, with a descriptor for each attempt."""


class SocketTransport:
    """A `Transport` over a connected stream socket, which it owns. `receive_into` and `send` are the socket's own."""

    __slots__ = ("_fd", "_loop", "_sendmsg", "_sock", "receive_into", "send")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        # Bound once: every request is one call from Python into the kernel each way.
        self.receive_into = sock.recv_into
        self.send = sock.send
        self._sendmsg = sock.sendmsg

    def send_vector(self, buffers: Sequence[Bytes], file_follows: bool, /) -> int:
        # With MSG_MORE the kernel keeps the last small piece back, to send it with the file's first bytes.
        return self._sendmsg(buffers, (), socket.MSG_MORE if file_follows else 0)

    def send_file(self, file: FileRange, position: int, size: int) -> int:
        return os.sendfile(self._fd, file.fileno(), position, size)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, callback)

    def expect(self, size: int) -> None:
        # The kernel grows the receive buffer to hold as much, and wakes the reader earlier where it cannot.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._fd)
        else:
            self._loop.add_writer(self._fd, callback)

    def peer_left(self) -> str | None:
        try:
            return None if self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) else "the peer closed"
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            return f"receive failed: {error.strerror}"

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._sock.fileno() < 0:
            # The descriptor may belong to another connection by now.
            return
        # A loop that is not told so keeps the descriptor's callbacks, and does not watch the next socket that has it.
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()


class SocketAcceptor:
    """An `Acceptor` over a bound socket, which it owns."""

    def __init__(self, sock: socket.socket, host: str) -> None:
        self.host = host
        self.port: int = sock.getsockname()[1]
        self._sock = sock
        self._fd = sock.fileno()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that watches the port, from `listen` to `close`."""
        self._on_acceptable: Callable[[], None] | None = None

    def listen(self, backlog: int, on_acceptable: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_acceptable = on_acceptable
        self._sock.listen(backlog)
        self.resume()

    def pause(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        assert self._loop is not None, "listen comes first"
        assert self._on_acceptable is not None
        self._loop.add_reader(self._fd, self._on_acceptable)

    def accept(self, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> tuple[Transport, str]:
        assert self._loop is not None, "listen comes first"
        sock, address = self._sock.accept()
        try:
            try:
                send_at_once(sock)
                for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                    if size > 0:
                        sock.setsockopt(socket.SOL_SOCKET, option, size)
            except OSError as error:
                raise ConnectionAbortedError("the peer left before it was accepted") from error
            return SocketTransport(sock, self._loop), str(address[0])
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        self.pause()
        self._loop = None
        self._sock.close()


class SocketNetwork:
    """The `Network` of this machine. Transports belong to the event loop that runs when they are made."""

    connect_s: float = CONNECT_S

    def bind(self, host: str, port: int) -> Acceptor:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
            return SocketAcceptor(sock, host)
        except BaseException:
            sock.close()
            raise

    async def connect(self, host: str, port: int) -> Transport:
        loop = asyncio.get_running_loop()
        failure = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                # Refused where the name has an IPv6 address and this machine has no IPv6.
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                failure = error
                continue
            try:
                sock.setblocking(False)
                async with asyncio.timeout(self.connect_s):
                    await loop.sock_connect(sock, address)
                send_at_once(sock)
                return SocketTransport(sock, loop)
            except TimeoutError:
                sock.close()
                failure = TimeoutError(f"{address[0]} did not respond within {self.connect_s:g} s")
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
        raise failure

    def reset_by_peers(self, transports: Iterable[Transport]) -> set[Transport]:
        """uvloop drops a reader on such an error without calling it, so the kernel is asked about all of them."""
        states = select.poll()
        by_descriptor: dict[int, Transport] = {}
        for transport in transports:
            assert isinstance(transport, SocketTransport), f"not of this network: {transport}"
            by_descriptor[transport.fileno()] = transport
            states.register(transport.fileno(), 0)
        return {by_descriptor[descriptor] for descriptor, _ in states.poll(0)}


def send_at_once(sock: socket.socket) -> None:
    """Switch Nagle's algorithm off: a response must not wait for the acknowledgement of the one before."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
