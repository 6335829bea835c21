"""A TCP proxy that cuts connections as a network does: each direction on its own, silently, and healed again later.

    with Proxy(server_port) as proxy:
        ... connect to proxy.port ...
        proxy.cut(to_server=True)

Bytes of a direction that is cut are held, and arrive when it is healed, as packets do that TCP sends again. Both ends
keep their connections meanwhile. `drop` resets connections instead, and `refuse` lets no further ones in.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from penstock.testing.processes import LOOPBACK, free_port

READ_BYTES = 64 * 1024
CALL_SECONDS_MAX = 10.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for no time: the other end gets a reset."""


class _Direction:
    """Copies bytes from one end to the other while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.bytes_read = 0
        self.bytes_copied = 0

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self.gate.wait()
            data = await reader.read(READ_BYTES)
            self.bytes_read += len(data)
            # What was read before the cut has not arrived either, nor has the end.
            await self.gate.wait()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            # Before the other end can have them: it may look at this count.
            self.bytes_copied += len(data)
            writer.write(data)
            await writer.drain()


class Proxy:
    """A proxy to one server, in a thread of its own. Methods return when they have taken effect."""

    def __init__(self, server_port: int, *, server_host: str = LOOPBACK, port: int | None = None) -> None:
        self._server = (server_host, server_port)
        self.port = free_port() if port is None else port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._to_server = _Direction()
        self._from_server = _Direction()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def bytes_copied(self) -> tuple[int, int]:
        """To the server and from it, of all connections so far."""
        return self._to_server.bytes_copied, self._from_server.bytes_copied

    @property
    def bytes_held(self) -> tuple[int, int]:
        """Read and not passed on, to the server and from it, of all connections so far."""
        directions = (self._to_server, self._from_server)
        to_server, from_server = (each.bytes_read - each.bytes_copied for each in directions)
        return to_server, from_server

    def start(self) -> None:
        """Let connections in."""
        self._thread.start()
        self._run(self._listen())

    def cut(self, *, to_server: bool = False, from_server: bool = False) -> None:
        """Hold the bytes of one direction or both, of connections that are open and of those to come."""
        self._run(self._set(to_server and self._to_server, from_server and self._from_server, is_open=False))

    def heal(self) -> None:
        """Let everything through again, and what was held first."""
        self._run(self._set(self._to_server, self._from_server, is_open=True))

    def drop(self) -> None:
        """Reset all connections."""
        self._run(self._drop())

    def refuse(self) -> None:
        """Reset all connections and let no further ones in, as where nothing listens."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Let connections in again after `refuse`."""
        self._run(self._listen())

    def close(self) -> None:
        if self._thread.is_alive():
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    # In the proxy's thread

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, LOOPBACK, self.port)

    async def _set(self, *directions: _Direction | bool, is_open: bool) -> None:
        for direction in directions:
            if isinstance(direction, _Direction):
                if is_open:
                    direction.gate.set()
                else:
                    direction.gate.clear()

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._drop()

    async def _end(self) -> None:
        """Refuse, and drop also the connections that were being let in meanwhile: their tasks have yet to begin."""
        await self._refuse()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
            await self._drop()

    async def _drop(self) -> None:
        tasks = list(self._connections)
        for task, writers in list(self._connections.items()):
            for writer in writers:
                reset(writer)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._connections[task] = (writer,)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._serve(task, reader, writer)
        finally:
            for each in self._connections.pop(task):
                reset(each)
                each.close()

    async def _serve(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._server)
        self._connections[task] = (writer, server_writer)
        copies = [
            asyncio.ensure_future(self._to_server.copy(reader, server_writer)),
            asyncio.ensure_future(self._from_server.copy(server_reader, writer)),
        ]
        try:
            await asyncio.gather(*copies)
            for each in (writer, server_writer):
                each.close()
                await each.wait_closed()
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other end gets a reset; harmless where it is closed."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0 and not writer.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
