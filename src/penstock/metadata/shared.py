"""The metadata store of a broker whose parent process has it: `shared_server` is the parent's side.

A connection is a session. When it breaks, the session is lost: the parent is gone, or it ended the session of a process
that was silent for its timeout. Heartbeats come from the event loop, so a loop that hangs loses its session too. While
the parent does not respond, the session is suspended: what was asked for has an unknown outcome.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from penstock.metadata.nodes import Changes, Gap, Node, Snapshot
from penstock.metadata.operations import Operation, size_of
from penstock.metadata.shared_frames import (
    BYTES_MAX,
    NOT_ASKED,
    OPERATIONS_MAX,
    PROTOCOL_VERSION,
    FrameReader,
    FrameRefused,
    Message,
    pack_frame,
    pack_operation,
    unpack_changes,
    unpack_error,
    unpack_node,
    unpack_nodes,
)
from penstock.metadata.store import (
    OutcomeUnknown,
    SessionCallback,
    SessionEvent,
    StoreUnavailable,
    StoreUnreachable,
    WatchCallback,
    check_size,
)

Callback = TypeVar("Callback")
Result = TypeVar("Result")

SOCKET_DIRECTORY = "metadata.shared"
SOCKET = "socket"
ADDRESS_BYTES_MAX = 100
"""Of a socket's path; Linux allows 107."""

HEARTBEATS_PER_TIMEOUT = 4
SUSPENDED_AFTER = 2 / 3
"""Of the session's timeout, without a response to a heartbeat."""

CONNECT_RETRY_S = 0.2
BEGIN_S_MAX = 10.0
"""For the parent's response to a new session."""

CLOSE_S_MAX = 5.0
"""For the parent's response to the end of a session."""

UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
"""Transactions without a response; further ones are refused."""


@contextmanager
def address_of(path: Path) -> Generator[str]:
    """A socket's address for bind and connect, also where its path is longer than an address may be."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def socket_path(directory: Path) -> Path:
    """The socket that shares the store of a data directory."""
    return directory / SOCKET_DIRECTORY / SOCKET


@dataclass(slots=True)
class _Unanswered:
    """A request without a response."""

    response: "asyncio.Future[Any]"
    read: Callable[[list[Any], Any], Any]
    """Makes the result of the parts of the response and its value."""
    changes: bool
    """Whether it is a transaction: then its outcome is unknown when the connection breaks."""
    size: int
    parts: list[Any] = field(default_factory=list[Any])

    def fail(self) -> None:
        if not self.response.done():
            words = "the connection to the metadata store broke"
            self.response.set_exception(OutcomeUnknown(words) if self.changes else StoreUnreachable(words))


class _Link(asyncio.Protocol):
    """One connection to the parent: requests, responses and what comes without having been asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_push: Callable[[Message], None]) -> None:
        self._loop = loop
        self._on_push = on_push
        self.on_lost: Callable[[], None] = lambda: None
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._request_last = NOT_ASKED
        self._unanswered: dict[int, _Unanswered] = {}
        self.unanswered_bytes = 0
        self.heard_s = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        try:
            for message in self._reader.feed(data):
                self._arrived(message)
        except FrameRefused:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.fail_unanswered()
        self.on_lost()

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def ask(
        self,
        verb: str,
        *arguments: Any,
        read: Callable[[list[Any], Any], Result],
        changes: bool = False,
        size: int = 0,
    ) -> "asyncio.Future[Result]":
        """Send a request; what `read` makes of its response, or the error it was refused with."""
        if self._transport is None:
            raise StoreUnreachable("the connection to the metadata store broke")
        self._request_last += 1
        waiting = _Unanswered(self._loop.create_future(), read, changes, size)
        self._unanswered[self._request_last] = waiting
        self.unanswered_bytes += size
        self._transport.write(pack_frame([self._request_last, verb, *arguments]))
        return waiting.response

    def fail_unanswered(self) -> None:
        """Give up every response. One that comes after all is ignored."""
        unanswered, self._unanswered, self.unanswered_bytes = self._unanswered, {}, 0
        for waiting in unanswered.values():
            waiting.fail()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _arrived(self, message: Message) -> None:
        request, verb, *rest = message
        if request == NOT_ASKED:
            self._on_push([verb, *rest])
            return
        waiting = self._unanswered.get(request)
        if waiting is None:
            return
        if verb == "part":
            waiting.parts += rest[0]
            return
        del self._unanswered[request]
        self.unanswered_bytes -= waiting.size
        if waiting.response.done():
            return
        if verb != "ok":
            waiting.response.set_exception(unpack_error(verb, rest))
        else:
            waiting.response.set_result(waiting.read(waiting.parts, rest[0]))


class SharedStore:
    """A `MetadataStore` over the socket of the process that has it. Use `open`."""

    operations_max = OPERATIONS_MAX
    bytes_max = BYTES_MAX

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self._path = path
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        self.session = 0
        self._suspended = False
        self._closed = False
        self._watches: dict[int, tuple[str, WatchCallback]] = {}
        self._listeners: dict[int, SessionCallback] = {}
        self._callback_last = 0
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, path: Path, timeout_ms: int) -> "SharedStore":
        """Begin a session at the process that listens there; raises `StoreUnreachable` if there is none."""
        store = cls(path, timeout_ms)
        await store._begin()
        store._tasks.append(store._loop.create_task(store._keep_alive()))
        return store

    # What a broker asks

    async def get(self, path: str) -> Node | None:
        return await self._usable().ask("get", path, read=_read_node)

    async def children(self, path: str) -> list[str]:
        return await self._usable().ask("children", path, read=_read_names)

    async def tree(self, path: str) -> Snapshot:
        return await self._usable().ask("tree", path, read=_read_tree)

    async def sync(self) -> None:
        """Every read is from the parent's one copy; this finds out that the parent is there."""
        await self._usable().ask("sync", read=_read_nothing)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        check_size(operations, self)
        link = self._usable()
        size = sum(map(size_of, operations))
        if link.unanswered_bytes + size > UNANSWERED_BYTES_MAX:
            raise StoreUnavailable("too many changes are waiting")
        packed = [pack_operation(each) for each in operations]
        return link.ask("multi", packed, read=_read_number, changes=True, size=size)

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        if not self._watches and self._link is not None and self._link.is_open:
            self._begin_watching(self._link)
        return self._add(self._watches, (path, callback))

    def on_session(self, callback: SessionCallback) -> Callable[[], None]:
        return self._add(self._listeners, callback)

    async def close(self) -> None:
        """End the session after what was asked for, or leave that to the parent if it does not respond."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._link is not None:
            with suppress(StoreUnavailable, TimeoutError):
                await asyncio.wait_for(self._link.ask("end", read=_read_nothing), CLOSE_S_MAX)
            self._link.abort()

    def _add(self, callbacks: dict[int, Callback], callback: Callback) -> Callable[[], None]:
        self._callback_last += 1
        number = self._callback_last
        callbacks[number] = callback

        def remove() -> None:
            callbacks.pop(number, None)

        return remove

    def _usable(self) -> _Link:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        if self._link is None or self._suspended:
            raise StoreUnreachable("the process that has the metadata store does not respond")
        return self._link

    # The session

    async def _begin(self) -> None:
        """Connect, which begins a session."""
        try:
            with address_of(self._path) as address:
                _, link = await self._loop.create_unix_connection(lambda: _Link(self._loop, self._pushed), address)
        except OSError as error:
            raise StoreUnreachable(f"{self._path}: {error.strerror or error}") from None
        try:
            asked = link.ask("begin", PROTOCOL_VERSION, self._timeout_ms, read=_read_number)
            self.session = await asyncio.wait_for(asked, BEGIN_S_MAX)
        except (TimeoutError, OutcomeUnknown):
            # A session that has begun after all ends with its connection.
            link.abort()
            raise StoreUnreachable("the process that has the metadata store does not respond") from None
        except BaseException:
            link.abort()
            raise
        if not link.is_open:
            raise StoreUnreachable("the connection to the metadata store broke")
        link.on_lost = self._lost
        self._link = link
        self._suspended = False
        if self._watches:
            self._begin_watching(link)

    def _begin_watching(self, link: _Link) -> None:
        # A session that breaks before the response is a gap anyway.
        link.ask("watch", read=_read_nothing).add_done_callback(_ignore)

    def _lost(self) -> None:
        self._link = None
        self._suspended = False
        if self._closed:
            return
        self._tell(SessionEvent.LOST)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._loop.create_task(self._renew()))

    async def _renew(self) -> None:
        while True:
            try:
                await self._begin()
            except StoreUnavailable:
                await asyncio.sleep(CONNECT_RETRY_S)
            else:
                break
        self._tell(SessionEvent.RENEWED)

    async def _keep_alive(self) -> None:
        """Send heartbeats, and notice when none gets a response any more."""
        timeout_s = self._timeout_ms / 1000
        while True:
            link = self._link
            if link is not None and link.is_open:
                asked = link.ask("heartbeat", read=_read_nothing)
                asked.add_done_callback(_ignore)
                await asyncio.sleep(timeout_s / HEARTBEATS_PER_TIMEOUT)
                self._judge(link, responded=asked.done(), silent_s=self._loop.time() - link.heard_s)
            else:
                await asyncio.sleep(timeout_s / HEARTBEATS_PER_TIMEOUT)

    def _judge(self, link: _Link, *, responded: bool, silent_s: float) -> None:
        if link is not self._link:
            return
        if self._suspended and silent_s < self._timeout_ms / 1000 / HEARTBEATS_PER_TIMEOUT:
            self._suspended = False
            self._tell(SessionEvent.RESUMED)
        elif not self._suspended and not responded and silent_s > self._timeout_ms / 1000 * SUSPENDED_AFTER:
            self._suspended = True
            link.fail_unanswered()
            self._tell(SessionEvent.SUSPENDED)

    # What callers are told

    def _tell(self, event: SessionEvent) -> None:
        for callback in list(self._listeners.values()):
            self._call(partial(callback, event), "a listener of the session failed")

    def _pushed(self, message: Message) -> None:
        match message:
            case ["changes", number, packed]:
                self._changed(unpack_changes(number, packed))
            case ["gap"]:
                for path, callback in list(self._watches.values()):
                    self._call(partial(callback, Gap()), f"a watcher of {path} failed")
            case _:
                raise FrameRefused(f"unknown message {message[0]}")

    def _changed(self, done: Changes) -> None:
        for path, callback in list(self._watches.values()):
            prefix = path.rstrip("/") + "/"
            seen = tuple(change for change in done.changes if change.path == path or change.path.startswith(prefix))
            if seen:
                report = Changes(number=done.number, changes=seen)
                self._call(partial(callback, report), f"a watcher of {path} failed")

    def _call(self, callback: Callable[[], None], message: str) -> None:
        """A callback's bug must be reported, and must not keep the others from being called."""
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": message, "exception": error})


def _read_node(_: list[Any], packed: list[Any] | None) -> Node | None:
    return unpack_node(packed)


def _read_names(parts: list[Any], last: list[Any]) -> list[str]:
    return [*parts, *last]


def _read_tree(parts: list[Any], last: list[Any]) -> Snapshot:
    number, nodes = last
    return Snapshot(number=number, nodes=unpack_nodes([*parts, *nodes]))


def _read_number(_: list[Any], number: int) -> int:
    return number


def _read_nothing(_: list[Any], __: object) -> None:
    return None


def _ignore(done: "asyncio.Future[Any]") -> None:
    """Retrieve an exception that nobody waits for."""
    if not done.cancelled():
        done.exception()


class SharedSource:
    """The store that a parent process shares at a socket."""

    exclusive = False

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self._path = path
        self._timeout_ms = timeout_ms

    def __str__(self) -> str:
        return f"the metadata store at {self._path}"

    def exists(self) -> bool:
        """The parent has opened it, so there is one; whether it is empty, bootstrapping the cluster finds out."""
        return True

    async def open(self) -> SharedStore:
        return await SharedStore.open(self._path, self._timeout_ms)
