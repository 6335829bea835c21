"""Shares an embedded metadata store with other processes of the same host, over a Unix socket.

Each connection is a session. It ends when the other process asks for it, when the connection does, since a process that
was killed loses its sockets at once, or when nothing was heard for the session's timeout: a process that was stopped
with SIGSTOP keeps its sockets open. Who may open the socket's directory may change the metadata, so its mode is 0700.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.nodes import Changes, Gap
from penstock.metadata.shared import address_of, socket_path
from penstock.metadata.shared_frames import (
    NOT_ASKED,
    PART_BYTES,
    PROTOCOL_VERSION,
    FrameReader,
    FrameRefused,
    Message,
    pack_changes,
    pack_error,
    pack_frame,
    pack_node,
    pack_nodes,
    unpack_operation,
)
from penstock.metadata.store import OutcomeUnknown, StoreFault, StoreUnavailable
from penstock.observe.log import Logger

DIRECTORY_MODE = 0o700
BACKLOG = 64
SESSION_TIMEOUT_MS_MIN = 100
REQUESTS_AT_ONCE_MAX = 256
"""Of one session; further ones wait in its socket."""

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Responses and changes that wait for a process to read them; further changes become a gap."""

TICK_S = 0.2
"""How often sessions are checked for silence."""

RETRY_S = 1.0
"""After the end of a session could not be stored."""


class Silence:
    """Rules of when a session is over because nothing was heard from it.

    Silence is counted in ticks of this process: what a session sent while this process was paused is still unread
    afterwards, so a pause counts as one tick.
    """

    def __init__(self) -> None:
        self._timeouts_s: dict[int, float] = {}
        self._silent_s: dict[int, float] = {}

    def begin(self, session: int, timeout_s: float) -> None:
        self._timeouts_s[session] = timeout_s
        self._silent_s[session] = 0.0

    def heard(self, session: int) -> None:
        if session in self._silent_s:
            self._silent_s[session] = 0.0

    def end(self, session: int) -> None:
        self._timeouts_s.pop(session, None)
        self._silent_s.pop(session, None)

    def tick(self, elapsed_s: float) -> list[int]:
        """The sessions that are over, `elapsed_s` after the last tick."""
        counted_s = min(elapsed_s, 2 * TICK_S)
        for session in self._silent_s:
            self._silent_s[session] += counted_s
        return [session for session, silent_s in self._silent_s.items() if silent_s >= self._timeouts_s[session]]


class SharedStoreServer:
    """Serves the sessions of an embedded store. Use `open`; `close` it before the store."""

    def __init__(self, store: EmbeddedStore, path: Path, log: Logger) -> None:
        self.store = store
        self.log = log
        self._path = path
        self._silence = Silence()
        self._connections: dict[int, _Connection] = {}
        """By session."""
        self._all: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch = store.watch("/", self._changed)

    @classmethod
    async def open(cls, store: EmbeddedStore, directory: Path, log: Logger) -> SharedStoreServer:
        """Serve the store of a data directory. The caller has the store open, so a socket that is there is a leftover.

        Raises `OSError` where there can be no socket.
        """
        path = socket_path(directory)
        path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        path.parent.chmod(DIRECTORY_MODE)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_of(path) as address:
                listening.bind(address)
            shared = cls(store, path, log)
            loop = asyncio.get_running_loop()
            shared._server = await loop.create_unix_server(lambda: _Connection(shared), sock=listening, backlog=BACKLOG)
        except BaseException:
            listening.close()
            raise
        shared.start(shared._watch_silence())
        return shared

    @property
    def path(self) -> Path:
        """Where other processes connect."""
        return self._path

    @property
    def sessions(self) -> int:
        """How many sessions there are now."""
        return len(self._connections)

    async def close(self) -> None:
        """Accept and serve nothing more; the store deletes what the sessions own when it is opened or closed."""
        self._unwatch()
        if self._server is not None:
            self._server.close()
        for connection in list(self._all):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()

    def start(self, work: Any) -> None:
        """Run something as a task that ends with the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Sessions

    def connected(self, connection: _Connection) -> None:
        self._all.add(connection)

    async def begin(self, connection: _Connection, timeout_ms: int) -> int:
        """A session for a connection."""
        session = await self.store.begin_session()
        self._connections[session] = connection
        self._silence.begin(session, max(timeout_ms, SESSION_TIMEOUT_MS_MIN) / 1000)
        if connection.is_closed:
            self.disconnected(connection, session)
        return session

    def heard(self, session: int) -> None:
        self._silence.heard(session)

    async def end(self, session: int) -> None:
        """End a session, which then owns nothing; tries until that is stored."""
        self._silence.end(session)
        self._connections.pop(session, None)
        while True:
            try:
                await self.store.end_session(session)
            except (StoreUnavailable, OutcomeUnknown) as error:
                self.log.error("session_not_ended", session=session, reason=str(error), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
            else:
                return

    def disconnected(self, connection: _Connection, session: int) -> None:
        self._all.discard(connection)
        if session in self._connections:
            self.log.info("session_disconnected", session=session)
            self.start(self.end(session))

    async def _watch_silence(self) -> None:
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = loop.time()
            for session in self._silence.tick(now_s - last_s):
                connection = self._connections[session]
                self.log.warning("session_expired", session=session)
                self.start(self.end(session))
                connection.abort()
            last_s = now_s

    def _changed(self, report: Changes | Gap) -> None:
        assert isinstance(report, Changes), "an embedded store misses nothing"
        frame = pack_frame(pack_changes(report))
        for connection in self._connections.values():
            connection.report(frame)


class _Connection(asyncio.Protocol):
    """One connection of another process."""

    def __init__(self, server: SharedStoreServer) -> None:
        self._server = server
        self._store = server.store
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._session = 0
        self._begun = False
        self._ended = False
        self._watches = False
        self._serving = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._missed = False
        """Whether a change was not reported since the other process does not read."""

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        self._server.heard(self._session)
        try:
            for message in self._reader.feed(data):
                self._serve(message)
        except Exception as error:
            # A process that sends nonsense is not trusted further; the others are not affected.
            self._server.log.error("session_refused", session=self._session, reason=f"{type(error).__name__}: {error}")
            self.abort()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
        if self._missed:
            self._missed = False
            self.send([NOT_ASKED, "gap"])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # What waits to be sent ends with it.
        self._may_write.set()
        self._server.disconnected(self, self._session)

    # What the server calls

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def report(self, frame: bytes) -> None:
        """Send a change, unless too much is unsent already."""
        if not self._watches or self._transport is None:
            return
        if self._may_write.is_set():
            self._transport.write(frame)
        else:
            self._missed = True

    def send(self, message: Message) -> None:
        if self._transport is not None:
            self._transport.write(pack_frame(message))

    # Requests

    def _serve(self, message: Message) -> None:
        request, verb, *rest = message
        if self._ended or (verb == "begin") == self._begun:
            raise FrameRefused(f"{verb} out of order")
        match verb, rest:
            case "begin", [version, timeout_ms]:
                self._begun = True
                self._server.start(self._begin(request, version, timeout_ms))
            case "heartbeat", []:
                self.send([request, "ok", None])
            case "watch", []:
                self._watches = True
                self.send([request, "ok", None])
            case "multi", [operations]:
                self._multi(request, operations)
            case "get" | "children" | "tree" | "sync" | "end", _:
                self._ended = verb == "end"
                self._count(1)
                self._server.start(self._respond(request, verb, rest))
            case _:
                raise FrameRefused(f"unknown request {verb}")

    def _count(self, change: int) -> None:
        """Read no further requests while too many are being served."""
        self._serving += change
        if self._transport is None:
            return
        if self._serving >= REQUESTS_AT_ONCE_MAX:
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    async def _begin(self, request: int, version: int, timeout_ms: int) -> None:
        if version != PROTOCOL_VERSION:
            words = f"the process that has the store speaks version {PROTOCOL_VERSION}, and this one {version}"
            self.send(pack_error(request, StoreUnavailable(words)))
            return
        try:
            self._session = await self._server.begin(self, timeout_ms)
        except (StoreUnavailable, OutcomeUnknown) as error:
            self.send(pack_error(request, error))
            return
        self.send([request, "ok", self._session])

    def _multi(self, request: int, packed: list[list[Any]]) -> None:
        operations = [unpack_operation(each) for each in packed]
        try:
            done = asyncio.ensure_future(self._store.multi(operations, session=self._session))
        except StoreUnavailable as error:
            self.send(pack_error(request, error))
            return
        self._count(1)
        done.add_done_callback(lambda done: self._multi_done(request, done))

    def _multi_done(self, request: int, done: asyncio.Future[int]) -> None:
        self._count(-1)
        if done.cancelled():
            return
        error = done.exception()
        self.send([request, "ok", done.result()] if error is None else pack_error(request, error))

    async def _respond(self, request: int, verb: str, rest: list[Any]) -> None:
        try:
            match verb, rest:
                case "get", [path]:
                    value: Any = pack_node(await self._store.get(path))
                case "children", [path]:
                    value = await self._send_parts(
                        request, ((name, len(name)) for name in await self._store.children(path))
                    )
                case "tree", [path]:
                    snapshot = await self._store.tree(path)
                    value = [snapshot.number, await self._send_parts(request, pack_nodes(snapshot.nodes))]
                case "end", []:
                    await self._server.end(self._session)
                    value = None
                case _:
                    await self._store.sync()
                    value = None
        except (StoreFault, StoreUnavailable) as error:
            self.send(pack_error(request, error))
        else:
            self.send([request, "ok", value])
        finally:
            self._count(-1)

    async def _send_parts(self, request: int, items: Iterator[tuple[Any, int]]) -> list[Any]:
        """Send all but the last part of a list, as fast as the other process reads; returns the last."""
        part: list[Any] = []
        size = 0
        for item, item_bytes in items:
            if size >= PART_BYTES:
                self.send([request, "part", part])
                part, size = [], 0
                await asyncio.sleep(0)
                await self._may_write.wait()
            part.append(item)
            size += item_bytes
        return part
