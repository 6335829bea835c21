"""The transport under a connection, and the network that makes transports: what the broker asks of sockets.

A connection, a listener and the requests between brokers use these interfaces only, so that TLS and the simulator can
take the place of a plain socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from penstock.net.reply import FileRange

Bytes = bytes | bytearray | memoryview


class Transport(Protocol):
    """Bytes to and from one peer, without waiting.

    Each call does what it can at once. `BlockingIOError` says that nothing can be sent or received now, any other
    `OSError` that the connection is broken.
    """

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Fill the view from its beginning; how many bytes were received, 0 once the peer has closed."""
        ...

    @property
    def send(self) -> Callable[[Bytes], int]:
        """Send one buffer; how many of its bytes were taken."""
        ...

    @property
    def send_vector(self) -> Callable[[Sequence[Bytes], bool], int]:
        """Send several buffers; how many bytes were taken. True says that the bytes of a file follow at once."""
        ...

    def send_file(self, file: FileRange, position: int, size: int) -> int:
        """Send bytes of a file from a position on; how many were taken, 0 where the file ends before them."""
        ...

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever `receive_into` would not block, until this is called with None."""
        ...

    def expect(self, size: int) -> None:
        """Call back a reader only when so many bytes have arrived or the peer has closed, until this is called with 1.

        A hint, which saves a turn of the loop for every few packets of a large message: a transport may call back
        earlier. The message must be at least as large, or its reader waits for ever.
        """
        ...

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever `send` would not block, until this is called with None."""
        ...

    def peer_left(self) -> str | None:
        """Why the peer is known to be gone, found without taking bytes from it; None while it seems to be there."""
        ...

    def close(self) -> None:
        """Close the connection and call back no more. Closing again does nothing."""
        ...


class Acceptor(Protocol):
    """A port that this process has taken."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def listen(self, backlog: int, on_acceptable: Callable[[], None]) -> None:
        """Let peers connect, and call back whenever `accept` would not block."""
        ...

    def pause(self) -> None:
        """Stop calling back; peers wait in the backlog."""
        ...

    def resume(self) -> None: ...

    def accept(self, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> tuple[Transport, str]:
        """The next peer's transport and address; sizes below 1 leave a buffer's size to the system."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    """Where ports are taken and peers are reached."""

    def bind(self, host: str, port: int) -> Acceptor:
        """Take a port without accepting peers yet; raises `OSError` where it is taken already."""
        ...

    async def connect(self, host: str, port: int) -> Transport:
        """Reach a peer; raises `OSError` where nothing listens or the way is cut."""
        ...

    def reset_by_peers(self, transports: Iterable[Transport]) -> set[Transport]:
        """Those whose connection is known to be broken, found in one step."""
        ...
