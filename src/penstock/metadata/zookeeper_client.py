"""A connection to ZooKeeper: kazoo's session in a thread of its own, whose reports are posted onto the event loop.

kazoo keeps the session, finds servers, authenticates and sends heartbeats. It is given what it lacks: requests of its
newer protocol, sockets (its own leave TLS data in buffers that it does not look at, and spend a whole session time on
one silent server), and a look at the event loop before each heartbeat. Everything arrives on the loop in the order in
which the server sent it, so an event that follows a response there happened after it.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from penstock.metadata.operations import ANY_VERSION, Check
from penstock.metadata.zookeeper_requests import (
    Code,
    Event,
    Outcome,
    Request,
    Transaction,
    Watch,
    read_event,
)
from penstock.model.clock import Clock
from penstock.observe.log import Logger

RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 0.5
RESTART_S = 1.0
"""After the client ended by itself: its credentials were rejected, or it failed."""

FAREWELL_S = 1.0
"""For the server to read that a session ends."""

FAREWELL_XID = 2**31 - 1
BEATS_PER_SESSION = 6
OLD_SERVER = "the server does not know persistent watches: ZooKeeper 3.6 or later is needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """Where ZooKeeper's servers are, and how to talk to them."""

    servers: str
    """HOST:PORT, separated by commas."""
    session_timeout_ms: int
    tls: ssl.SSLContext | None = None
    digest: str = ""
    """USER:PASSWORD of ZooKeeper's own digest scheme."""
    sasl: tuple[str, str] | None = None
    """User and password of SASL's DIGEST-MD5."""

    @property
    def session_timeout_s(self) -> float:
        return self.session_timeout_ms / 1000

    @property
    def servers_count(self) -> int:
        return self.servers.count(",") + 1


def can_connect(*, sasl: bool) -> bool:
    """Whether the packages are installed that a connection needs."""
    return all(find_spec(name) is not None for name in (("kazoo", "puresasl") if sasl else ("kazoo",)))


class Owner(Protocol):
    """What a connection reports to, on the event loop."""

    def connected(self, session: int, position: int) -> None:
        """A connection can be used: it reports changes, and its reads see all that was done before `position`."""
        ...

    def disconnected(self, reason: str) -> None: ...

    def session_lost(self, reason: str) -> None: ...

    def rejected(self, reason: str) -> None:
        """The servers can be reached and do not let us work: time alone will not help."""
        ...

    def changed(self, event: Event) -> None: ...


class Failed(Exception):
    """A request without a response, or with an error in its place: one of ZooKeeper's codes, or none."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


Respond = Callable[[Any], None]


class Call:
    """A request under way. kazoo completes it in its thread, and `respond` is called with the result on the loop."""

    __slots__ = ("_client", "request", "respond")

    def __init__(self, client: ZooKeeperClient, request: Request) -> None:
        self._client = client
        self.request = request
        self.respond: Respond | None = None

    def set(self, value: Any = None) -> None:
        # kazoo makes a list of what a transaction returned.
        result = Outcome(*value) if isinstance(self.request, Transaction) else value
        self._client.post(lambda: self.complete(result))

    def set_exception(self, error: BaseException) -> None:
        code: int | None = getattr(error, "code", None)
        failed = Failed(str(error) or type(error).__name__, code)
        self._client.post(lambda: self.complete(failed))

    def complete(self, result: Any) -> None:
        """On the loop: respond, once."""
        self._client.outstanding.pop(self, None)
        respond, self.respond = self.respond, None
        if respond is not None:
            respond(result)


CONNECTION_CODES = frozenset({-4, -7, -112, -115})
"""Errors of kazoo when a connection or session ends, which say nothing about what the server did."""


class ZooKeeperClient:
    """One session after another, until `stop`. Use it on the event loop."""

    def __init__(self, ensemble: Ensemble, *, root: str, owner: Owner, clock: Clock, log: Logger) -> None:
        self._ensemble = ensemble
        self._root = root or "/"
        self._owner = owner
        self._clock = clock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._restart: asyncio.Task[None] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self.outstanding: dict[Call, None] = {}
        self._turned_at = clock.monotonic()
        """When the loop turned last, for the thread."""
        self._dropped_at = 0.0
        self._authenticated = False
        self._given_ms = 0
        self._disconnected_at: float | None = None
        self._reason = "no server responds"
        self._handler = SocketHandler(ensemble, self._failed)
        self._kazoo = self._make_kazoo()

    def _make_kazoo(self) -> Any:
        client_module: Any = import_module("kazoo.client")
        retry_module: Any = import_module("kazoo.retry")
        retry = retry_module.KazooRetry(
            max_tries=-1, delay=RECONNECT_S_MIN, max_delay=RECONNECT_S_MAX, sleep_func=self._handler.sleep_func
        )
        ensemble = self._ensemble
        sasl = ensemble.sasl
        options = None if sasl is None else {"mechanism": "DIGEST-MD5", "username": sasl[0], "password": sasl[1]}
        kazoo: Any = client_module.KazooClient(
            hosts=ensemble.servers,
            timeout=ensemble.session_timeout_s,
            handler=self._handler,
            connection_retry=retry,
            sasl_options=options,
            auth_data=[("digest", ensemble.digest)] if ensemble.digest else None,
            logger=self._make_logger(),
        )
        kazoo.add_listener(self._state_changed)
        connection = kazoo._connection
        connection._read_watch_event = self._read_event
        self._send_ping, connection._send_ping = connection._send_ping, self._ping
        self._authenticate, connection._authenticate_with_sasl = (
            connection._authenticate_with_sasl,
            self._authenticate_with_sasl,
        )
        self._connect, connection._connect = connection._connect, self._note_session
        return kazoo

    def _make_logger(self) -> logging.Logger:
        """kazoo's messages become events of ours; those below a warning are about its own inside."""
        lines = logging.Logger("kazoo", logging.WARNING)
        lines.addHandler(_Forward(self._said))
        return lines

    def _said(self, message: str) -> None:
        self._log.debug("zookeeper_client", detail=message)
        if message.startswith(("Connection dropped: ", "Connection time-out: ", "Cannot resolve ", "AUTH_FAILED")):
            self._reason = message

    # On the event loop

    @property
    def reason(self) -> str:
        """Why there is no connection, as far as it is known."""
        return self._handler.refusal or self._reason

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._turn()
        self._kazoo.start_async()

    def ask(self, request: Request, respond: Respond) -> None:
        """Send a request; `respond` gets its result or a `Failed`, in the order in which things arrive."""
        self._send(request).respond = respond

    def _send(self, request: Request) -> Call:
        call = Call(self, request)
        self.outstanding[call] = None
        self._kazoo._call(request, call)
        return call

    async def stop(self) -> None:
        """End the session after all that was asked, and the thread with it."""
        self._stopped = True
        if self._restart is not None:
            self._restart.cancel()
        if self._beat is not None:
            self._beat.cancel()
        await asyncio.to_thread(self._stop_kazoo)
        self._fail_outstanding("the connection to ZooKeeper was closed")

    def _stop_kazoo(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def _fail_outstanding(self, reason: str) -> None:
        for call in list(self.outstanding):
            call.complete(Failed(reason))

    def _turn(self) -> None:
        self._turned_at = self._clock.monotonic()
        self._beat = self._loop.call_later(self._ensemble.session_timeout_s / BEATS_PER_SESSION, self._turn)

    def _begin(self, session: int, watch: Call, first: Call) -> None:
        """Report the connection once it reports changes and its server is not behind.

        It begins with a transaction that does nothing: reads that follow see all before it, and its number can be
        compared with others. What a server says it has done last cannot: a leader that was just elected names the
        beginning of its term, and its followers the last transaction of the term before.
        """
        self.outstanding |= {watch: None, first: None}
        problem: list[str] = []

        def watched(result: Any) -> None:
            if isinstance(result, Failed):
                problem.append(OLD_SERVER if result.code == Code.UNIMPLEMENTED else str(result))
                if result.code not in CONNECTION_CODES and result.code is not None:
                    self._owner.rejected(problem[0])

        def began(result: Any) -> None:
            # It need not succeed: the path may not be there yet.
            if isinstance(result, Outcome) and not problem and not self._stopped:
                self._owner.connected(session, result.number)

        watch.respond, first.respond = watched, began

    def _disconnected(self) -> None:
        # kazoo has failed them already, but those whose response it could not read.
        self._fail_outstanding("the connection to ZooKeeper broke")
        if not self._stopped:
            self._owner.disconnected(self.reason)

    def _lost(self, *, rejected: bool, ended: bool) -> None:
        self._fail_outstanding("the session is over")
        if self._stopped:
            return
        self._owner.session_lost(self.reason)
        if rejected:
            self._owner.rejected("the server rejected our credentials")
        if ended and self._restart is None:
            self._restart = self._loop.create_task(self._start_again())

    async def _start_again(self) -> None:
        """kazoo's thread has ended: begin a new session with another."""
        while not self._stopped:
            await asyncio.sleep(RESTART_S)
            # The next thread may end before this goes on, and is then to be started again.
            self._restart = None
            try:
                await asyncio.to_thread(self._kazoo.start_async)
            except (RuntimeError, OSError) as error:
                # Too few threads or descriptors: later there may be enough.
                self._log.error("zookeeper_client_not_started", reason=str(error), retry_s=RESTART_S)
                self._restart = asyncio.current_task()
            else:
                return

    # In kazoo's thread

    def post(self, work: Callable[[], None]) -> None:
        """Do something on the loop, in the order of posts; nothing once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            assert self._loop.is_closed(), "the event loop took nothing"

    def _failed(self, error: BaseException) -> None:
        """kazoo's thread ends with an error."""
        self._reason = f"{type(error).__name__}: {error}"
        self._log.error("zookeeper_client_failed", reason=self._reason)
        self.post(lambda: self._lost(rejected=False, ended=True))

    def _state_changed(self, state: str) -> None:
        if state == "CONNECTED":
            session: int = self._kazoo._session_id
            # Ahead of everything that the loop asks on this connection, which it does not know of yet.
            nothing = Transaction([Check(self._root, ANY_VERSION)], root="", acl=b"")
            watch, first = Call(self, Watch(self._root)), Call(self, nothing)
            self.post(lambda: self._begin(session, watch, first))
            for call in (watch, first):
                self._kazoo._call(call.request, call)
        elif state == "SUSPENDED":
            self.post(self._disconnected)
        else:
            how: str = self._kazoo._state
            self.post(lambda: self._lost(rejected=how == "AUTH_FAILED", ended=how != "EXPIRED_SESSION"))

    def _read_event(self, response: bytes, _at: int) -> None:
        event = read_event(response)
        self.post(lambda: self._changed(event))

    def _changed(self, event: Event) -> None:
        if not self._stopped:
            self._owner.changed(event)

    def _note_session(self, host: str, address: str, port: int) -> tuple[float, float]:
        """Connect, and say when the servers' bounds make another session time of the one that was asked for.

        A server that is behind what we have seen closes the connection. Where all of them do for a session's time we no
        longer say what we have seen: those that lost their data then say that they do not know the session.
        """
        try:
            read_timeout_ms, connect_timeout_ms = self._connect(host, address, port)
        except Exception:
            now = self._clock.monotonic()
            if self._disconnected_at is None:
                self._disconnected_at = now
            elif now - self._disconnected_at > self._ensemble.session_timeout_s:
                self._kazoo.last_zxid = 0
            raise
        self._disconnected_at = None
        self._handler.refusal = ""
        given_ms = round(read_timeout_ms * 3 / 2)
        if given_ms != self._ensemble.session_timeout_ms and given_ms != self._given_ms:
            self._log.warning(
                "zookeeper_session_time", asked_ms=self._ensemble.session_timeout_ms, given_ms=given_ms, server=host
            )
        self._given_ms = given_ms
        return read_timeout_ms, connect_timeout_ms

    def _authenticate_with_sasl(self, host: str, timeout_s: float) -> None:
        """A server that goes away while we authenticate looks as if it had rejected us; the second time it did not."""
        exceptions: Any = import_module("kazoo.exceptions")
        try:
            self._authenticate(host, timeout_s)
        except exceptions.AuthFailedError as error:
            if self._authenticated and isinstance(error.__cause__, exceptions.ConnectionDropped):
                raise error.__cause__ from None
            raise
        self._authenticated = True

    def _ping(self, timeout_s: float) -> None:
        """Send a heartbeat, unless the loop hangs: then end the session, which would live on without a broker."""
        hung_s = self._clock.monotonic() - self._turned_at
        if hung_s >= self._ensemble.session_timeout_s and self._dropped_at != self._turned_at:
            # Once for each time that it hangs.
            self._dropped_at = self._turned_at
            self._log.error("zookeeper_session_dropped", reason="the event loop hangs", hung_s=round(hung_s, 3))
            self._say_farewell(timeout_s)
            raise import_module("kazoo.exceptions").SessionExpiredError("the event loop hangs")
        self._send_ping(timeout_s)

    def _say_farewell(self, timeout_s: float) -> None:
        """Have the server end the session now: what it has not read when we close the socket may be lost."""
        connection = self._kazoo._connection
        connection._submit(import_module("kazoo.protocol.serialization").CloseInstance, timeout_s, FAREWELL_XID)
        with suppress(OSError):
            connection._socket.settimeout(FAREWELL_S)
            while connection._socket.recv(65536):
                pass


class _Forward(logging.Handler):
    """Takes log messages of kazoo."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record.getMessage())


class _TimedOut(Exception):
    """A server does not respond."""


class SocketHandler:
    """What kazoo asks of a threading library: one thread, which calls back itself, and sockets."""

    name = "penstock"
    timeout_exception = _TimedOut
    sleep_func = staticmethod(time.sleep)
    running = False
    """Nothing is queued for worker threads: there are none."""
    event_object = staticmethod(threading.Event)
    lock_object = staticmethod(threading.Lock)
    rlock_object = staticmethod(threading.RLock)
    create_socket_pair = staticmethod(socket.socketpair)

    def __init__(self, ensemble: Ensemble, failed: Callable[[BaseException], None]) -> None:
        self._ensemble = ensemble
        self._failed = failed
        self.refusal = ""
        """Why the last attempt to connect failed."""

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def spawn(self, work: Callable[..., object], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except Exception as error:
                self._failed(error)

        thread = threading.Thread(target=run, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_options: object
    ) -> socket.socket:
        """Connect within a share of the session's time, so that one silent server does not use it up."""
        try:
            plain = socket.create_connection(address, timeout / self._ensemble.servers_count)
            if self._ensemble.tls is None:
                connected = plain
            else:
                connected = self._ensemble.tls.wrap_socket(plain, server_hostname=hostname)
        except OSError as error:
            self.refusal = f"{hostname}:{address[1]}: {error.strerror or error}"
            raise
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def select(
        self,
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        _others: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Wait for sockets; one whose TLS layer has received more than was read is ready too."""
        buffered = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        wait_ms = 0 if buffered else None if timeout is None else timeout * 1000
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        return (
            [each for each in readers if each in buffered or each.fileno() in ready],
            [each for each in writers if each.fileno() in ready],
            [],
        )
