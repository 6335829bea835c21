"""A failure at any line of a connection's code closes that connection, is reported once, and affects no other.

One client exercises everything a connection does (responses at once, later, by a coroutine, from a file, throttled,
none at all, and a request that holds those behind it). A tracer raises at one line of it. Then another client of the
same listener must be served.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import os
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from penstock.api import dispatch
from penstock.api.api_versions import ApiVersions
from penstock.api.dispatch import Dispatcher
from penstock.api.registry import Api, Registry, RequestContext
from penstock.model.clock import SystemClock
from penstock.model.deferred import Deferred
from penstock.model.turns import Turns
from penstock.net import connection as connection_module
from penstock.net import listener as listener_module
from penstock.net.connection import Connection, ConnectionLimits
from penstock.net.frame_memory import FrameMemory
from penstock.net.listener import Listener, ListenerLimits
from penstock.net.sockets import SocketNetwork
from penstock.observe.counters import RequestCounters, ThrottleCounters
from penstock.quotas.client_quotas import DEFAULT, ClientQuotas, QuotaEntity
from penstock.wire.api import api_versions, sasl_handshake

PATIENCE_S = 60.0
FETCH, SASL_HANDSHAKE, API_VERSIONS = 1, 17, 18
SEND_BUFFER_BYTES = 128 * 1024
FILE_BYTES = 2_000_000
"""More than one send writes, so that the rest waits for the socket to be writable."""

HANDLES_FAILURES = {"close", "fail", "report", "_report", "_on_closed"}
"""Code that runs after a failure; `test_closing_continues_after_a_failed_step` covers it."""


class Injected(Exception):
    """The failure that a test raises."""


class FileSlice:
    """A slice of a file, as storage returns it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.position = 0

    def __len__(self) -> int:
        return FILE_BYTES

    def fileno(self) -> int:
        return int(self._file.fileno())

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self.fileno(), size, position)


class Handlers:
    """Responds in the way that the client id of the request names."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.waiting: set[Deferred[Any]] = set()

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=API_VERSIONS, versions=range(5), handle=self.handle),
            Api(
                key=SASL_HANDSHAKE,
                versions=range(2),
                handle=lambda context, request: sasl_handshake.Response(mechanisms=[]),
            ),
            Api(
                key=FETCH,
                versions=range(1),
                handle=lambda context, request: SimpleNamespace(topics=[], error_code=0, throttle_time_ms=0),
                decode=lambda frame, offset, version: None,
                encode=lambda response, version: [b"head", FileSlice(self._file), b"tail"],
            ),
        )

    def handle(self, context: RequestContext, request: api_versions.Request) -> Any:
        response = api_versions.Response(api_keys=[])
        match context.client_id:
            case "pending":
                return self._pending(response)
            case "coroutine":
                return context.connection.run(self._slowly(response))
            case "coroutine and pending":
                return context.connection.run(self._slowly(self._pending(response)))
            case "held":
                return context.connection.hold(self._pending(response))
            case "fails later":
                return context.connection.run(self._fail_slowly())
            case "throttled":
                context.throttle(1)
                return response
            case "no response":
                return None
            case "waits":
                self.waiting.add(pending := Deferred[Any]())
                pending.on_abandon = lambda: self.waiting.discard(pending)
                return pending
            case "waits, cannot be abandoned":
                return Deferred[Any](self._fail)
            case _:
                return response

    def _pending(self, response: Any) -> Deferred[Any]:
        pending = Deferred[Any]()
        pending.on_abandon = lambda: self.waiting.discard(pending)
        self.waiting.add(pending)
        asyncio.get_running_loop().call_soon(self._resolve, pending, response)
        return pending

    def _resolve(self, pending: Deferred[Any], response: Any) -> None:
        if pending in self.waiting:
            self.waiting.discard(pending)
            pending.resolve(response)

    def _fail(self) -> None:
        raise Injected

    async def _fail_slowly(self) -> Any:
        await asyncio.sleep(0)
        raise Injected

    async def _slowly(self, response: Any) -> Any:
        await asyncio.sleep(0)
        return response


def request(client_id: str, api_key: int = API_VERSIONS, body: bytes = b"") -> bytes:
    name = client_id.encode()
    frame = struct.pack(">hhih", api_key, 0, 1, len(name)) + name + body
    return struct.pack(">i", len(frame)) + frame


LIFE = b"".join(
    [
        request("at once"),
        request("pending"),
        request("behind a pending one"),
        request("coroutine"),
        request("coroutine and pending"),
        request("held"),
        request("behind a held one"),
        request("file", FETCH),
        request("large frame", FETCH, bytes(200_000)),
        request("no response"),
        request("throttled"),
        request("no throttle time", SASL_HANDSHAKE, b"\0\5PLAIN"),
        request("last"),
    ]
)
RESPONSES = 12


class World:
    """A listener with a dispatcher, and the bugs it reported."""

    def __init__(self, file: Any) -> None:
        self.bugs: list[BaseException] = []
        self.bug_names: list[str] = []
        self.handlers = Handlers(file)
        self.quotas = ClientQuotas(11, 1000)
        self.threads = ThreadPoolExecutor(1)
        counters = RequestCounters({}, {})
        self.listener = Listener(
            name="TEST",
            host="127.0.0.1",
            port=0,
            network=SocketNetwork(),
            serve=Dispatcher(
                registry=Registry(self.handlers.apis(), counters),
                api_versions=ApiVersions(lambda _: []),
                clock=SystemClock(),
                on_bug=self.on_bug,
                quotas=self.quotas,
                throttles=ThrottleCounters(),
                turns=Turns(asyncio.get_running_loop().call_soon, asyncio.get_running_loop().time),
                threads=self.threads,
            ),
            limits=lambda: ListenerLimits(send_buffer_bytes=SEND_BUFFER_BYTES),
            connections_of_all=lambda: self.listener.connections,
            connection_limits=ConnectionLimits(frame_bytes_max=1 << 20),
            memory=FrameMemory(16 << 20),
            monotonic=asyncio.get_running_loop().time,
            on_event=lambda event, fields: None,
            on_warning=lambda event, fields: None,
            on_bug=self.on_bug,
        )

    def on_bug(self, name: str, error: BaseException) -> None:
        self.bugs.append(error)
        self.bug_names.append(name)

    async def until(self, fact: Callable[[], object]) -> None:
        end_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not fact():
            assert asyncio.get_running_loop().time() < end_s, "the condition did not become true"
            await asyncio.sleep(0)

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.listener.port))
        return sock

    async def live(self) -> int:
        """Send every kind of request; returns how many responses arrive before the connection closes."""
        loop = asyncio.get_running_loop()
        responses = 0
        with await self.connect() as sock:
            sending = asyncio.ensure_future(loop.sock_sendall(sock, LIFE))
            try:
                while responses < RESPONSES:
                    length = int.from_bytes(await exactly(sock, 4), "big")
                    await exactly(sock, length)
                    responses += 1
                await sending
            except (ConnectionError, EOFError):
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return responses

    async def is_served(self, sock: socket.socket) -> bool:
        await asyncio.get_running_loop().sock_sendall(sock, request("neighbour"))
        length = int.from_bytes(await exactly(sock, 4), "big")
        return len(await exactly(sock, length)) == length


async def exactly(sock: socket.socket, count: int) -> bytes:
    got = bytearray()
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            piece = await asyncio.get_running_loop().sock_recv(sock, count - len(got))
            if not piece:
                raise EOFError
            got += piece
    return bytes(got)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryFile() as file:
        file.truncate(FILE_BYTES)
        it = World(file)
        it.listener.bind()
        ready = asyncio.Event()
        running = asyncio.ensure_future(it.listener.run(ready.set))
        await ready.wait()
        try:
            yield it
            assert not running.done(), "the listener stopped"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


Line = tuple[str, str, int]
"""File, function and number of a line."""

TRACED = {module.__file__ for module in (connection_module, dispatch)}
TRACED_OF_LISTENER = {"_admit", "_spawn"}


def is_traced(code: CodeType) -> bool:
    if code.co_filename == listener_module.__file__:
        return code.co_name in TRACED_OF_LISTENER
    return code.co_filename in TRACED and not HANDLES_FAILURES.intersection(code.co_qualname.split("."))


def is_guard(line: Line) -> bool:
    """Whether a line begins or ends an exception handler: it does no work that could fail."""
    text = linecache.getline(line[0], line[2]).strip()
    return text in ("try:", "return") or text.startswith(("except", "raise", "self.close(", "self.fail("))


@contextmanager
def tracing(on_line: Callable[[Line, FrameType], None]) -> Iterator[None]:
    def in_frame(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            on_line((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno), frame)
        return in_frame

    def in_call(frame: FrameType, event: str, _: object) -> Any:
        return in_frame if is_traced(frame.f_code) else None

    before = sys.gettrace()
    # Garbage collection would run the last lines of earlier coroutines, where a failure is not reported.
    gc.collect(0)
    gc.disable()
    sys.settrace(in_call)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.enable()


@pytest.fixture(autouse=True)
def _sweep_often_and_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "SWEEP_S", 0.001)
    # Small enough that a connection needs several shares.
    monkeypatch.setattr(connection_module, "SHARE_REQUESTS", 2)


def lines_of_a_connection() -> list[Line]:
    """Every line that a connection without failures executes."""
    seen: dict[Line, None] = {}

    async def scenario() -> None:
        async with world() as it:
            with tracing(lambda line, _: seen.setdefault(line)):
                assert await it.live() == RESPONSES
                await it.until(lambda: not it.listener.connections)
            assert it.bugs == []

    asyncio.run(scenario())
    return [line for line in seen if not is_guard(line)]


async def fail_at(line: Line) -> bool:
    """Run a connection with a failure at one line, beside another; False where the line was not reached."""
    armed = True
    spared: set[Connection] = set()

    def raise_once(at: Line, frame: FrameType) -> None:
        nonlocal armed
        if armed and at == line and frame.f_locals.get("self") not in spared:
            armed = False
            raise Injected(line)

    async with world() as it:
        with await it.connect() as neighbour:
            assert await it.is_served(neighbour)
            spared.update(it.listener.open_connections)
            with tracing(raise_once):
                await it.live()
                await it.until(lambda: it.listener.connections == 1)

            assert [type(bug) for bug in it.bugs] == ([] if armed else [Injected]), line
            await it.until(lambda: not it.handlers.waiting)
            assert await it.is_served(neighbour)
    return not armed


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # It failed before it began.
def test_a_failure_at_any_line_of_a_connection_closes_that_connection_alone() -> None:
    # The size of each send and the time of the sweep vary between runs, and with them a few lines.
    failed = {line for line in lines_of_a_connection() if asyncio.run(fail_at(line))}
    gc.collect()

    functions = {name for _, name, _ in failed}
    assert {"_on_readable", "_on_writable", "_finish", "_fill", "_deliver", "_unmute", "overdue", "_frame"} <= functions
    assert {"_admit", "take_turn", "_room_for_large", "_keep_memory"} <= functions
    assert {"hold", "go_on_later", "go_on", "_release"} <= functions


def test_a_bug_after_a_wait_is_reported_under_the_name_of_its_api() -> None:
    async def scenario() -> None:
        async with world() as it:
            with await it.connect() as sock:
                await asyncio.get_running_loop().sock_sendall(sock, request("fails later"))
                await it.until(lambda: not it.listener.connections)

            assert [type(bug) for bug in it.bugs] == [Injected]
            assert it.bug_names == ["ApiVersions"]

    asyncio.run(scenario())


def test_closing_continues_after_a_failed_step() -> None:
    async def scenario() -> None:
        async with world() as it:
            with await it.connect() as sock:
                frames = request("waits, cannot be abandoned") + request("waits")
                await asyncio.get_running_loop().sock_sendall(sock, frames)
                await it.until(lambda: it.handlers.waiting)
            await it.until(lambda: not it.listener.connections)

            assert not it.handlers.waiting
            assert [type(bug) for bug in it.bugs] == [Injected]

    asyncio.run(scenario())


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 0.001])
def test_a_throttled_response_without_a_throttle_time_is_sent_and_mutes_its_client(limit: float) -> None:
    async def scenario() -> None:
        async with world() as it:
            it.quotas.set("request_percentage", QuotaEntity(None, DEFAULT), limit)
            with await it.connect() as sock:
                frames = request("slow", SASL_HANDSHAKE, b"\0\5PLAIN") + request("slow")
                await asyncio.get_running_loop().sock_sendall(sock, frames)
                for _ in range(2):
                    length = int.from_bytes(await exactly(sock, 4), "big")
                    await exactly(sock, length)

            assert it.bugs == []

    asyncio.run(scenario())
