"""A metadata store in memory, on the event loop's time, weaker than every other store.

Any number of sessions share one tree. With its faults off it is a sound store. With them on it gives only what
`penstock.metadata.store` promises: changes are reported late, several at once or not at all, transactions of unknown
outcome are done, done later or never, reads come from a copy that is behind, sessions are suspended and expire.

Every delay and every fault is drawn from the randomness it is given, so a run can be repeated. What happens on the
server's side runs in the context in which the store was made, and what reaches a client in the context in which the
client opened it: where contexts stand for the nodes of a simulation, a paused or crashed client neither receives
anything nor sends heartbeats, and its session expires.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.metadata.nodes import Changes, Gap, Node, Snapshot
from penstock.metadata.operations import Delete, Operation
from penstock.metadata.store import (
    NoNode,
    OutcomeUnknown,
    SessionCallback,
    SessionEvent,
    StoreFault,
    StoreUnavailable,
    StoreUnreachable,
    WatchCallback,
    check_size,
)
from penstock.testing.node_tree import NodeTree

Result = TypeVar("Result")

DELAY_S_MAX = 0.002
"""Of a message to or from the store."""

SESSION_TIMEOUT_S = 6.0
RECONNECT_S_MAX = 0.5


class Below(Protocol):
    """The part of a `Randomness` that is used here."""

    def below(self, bound: int) -> int: ...


@dataclass(slots=True, kw_only=True)
class StoreFaults:
    """Which faults happen, and how often, in percent; all are off by default."""

    watch_delay_s_max: float = 0.0
    """How long a report of a change may take, also when later responses have arrived."""
    coalesce_percent: int = 0
    """Reports that bring all changes so far."""
    lose_percent: int = 0
    """Changes that are not reported; a gap is."""
    unknown_percent: int = 0
    """Transactions whose outcome the client does not learn."""
    late_s_max: float = 3.0
    """How long after it was sent a transaction of unknown outcome may be done."""
    lag_percent: int = 0
    """Reads from a copy that may be behind, and sessions that begin on one."""


class SimStore:
    """The server's side: nodes, transactions and sessions."""

    def __init__(
        self,
        randomness: Below,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        delay_s_max: float = DELAY_S_MAX,
        operations_max: int = 1_000,
        bytes_max: int = 900 * 1024,
    ) -> None:
        self.faults = StoreFaults()
        self.counts: Counter[str] = Counter()
        """Faults that happened, by name."""
        self._tree = NodeTree()
        self.clients: dict[int, SimSession] = {}
        """Those whose sessions are alive, by session."""
        self.operations_max = operations_max
        self.bytes_max = bytes_max
        self.session_timeout_s = session_timeout_s
        self._delay_s_max = delay_s_max
        self._randomness = randomness
        self.context = copy_context()
        """Of what happens on the server's side."""
        self._session_last = 0
        self._heard: dict[int, float] = {}
        self.followers: list[Callable[[Changes], None]] = []
        """Called with every transaction as it is done: a test sees what no client has to see."""

    # Drawing

    def below(self, bound: int) -> int:
        return self._randomness.below(bound)

    def happens(self, percent: int) -> bool:
        """Whether a fault of this frequency happens now; one that is off draws nothing."""
        return percent > 0 and self.below(100) < percent

    def seconds(self, most: float) -> float:
        return self.below(1_000) * most / 1_000 if most > 0 else 0.0

    def delay_s(self) -> float:
        return self.seconds(self._delay_s_max)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do something on the server's side."""
        asyncio.get_running_loop().call_later(delay_s, work, context=self.context)

    # Faults that a schedule of the test causes

    def suspend(self, session: int, seconds: float) -> None:
        """Cut a client off; its session expires if that lasts longer than the session timeout."""
        if session in self.clients:
            self.clients[session].suspend(seconds)

    def expire(self, session: int) -> None:
        """End a session as its timeout does."""
        if session in self.clients:
            self.counts["expired"] += 1
            client = self.clients[session]
            self.end(session)
            client.expired()

    # Sessions

    def begin(self, client: SimSession) -> int:
        """The number of a new session."""
        self._session_last += 1
        session = self._session_last
        self.clients[session] = client
        self.heard(session)
        self._watch_timeout(session)
        return session

    def heard(self, session: int) -> None:
        self._heard[session] = asyncio.get_running_loop().time()

    def _watch_timeout(self, session: int) -> None:
        if session not in self.clients:
            return
        left_s = self._heard[session] + self.session_timeout_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            self.expire(session)
        else:
            self.later(left_s, lambda: self._watch_timeout(session))

    def end(self, session: int) -> None:
        """Forget a session and delete what it owned, in a transaction of its own."""
        self.clients.pop(session, None)
        self._heard.pop(session, None)
        owned = self._tree.owned(session)
        if owned:
            self.commit(session, [Delete(path) for path in owned])

    # Transactions and reads

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._tree.nodes

    @property
    def number(self) -> int:
        return self._tree.number

    def commit(self, session: int, operations: Sequence[Operation]) -> int | StoreFault:
        """Do a transaction and report it to the watchers; its number, or why none of it was done."""
        done = self._tree.commit(session, operations)
        if isinstance(done, StoreFault):
            return done
        if done is not None:
            for follower in self.followers:
                follower(done)
            for client in list(self.clients.values()):
                client.changed(done)
        return self.number

    def oldest(self) -> int:
        """The transaction that a copy may be as far behind as."""
        return self._tree.oldest()

    def get(self, path: str, position: int) -> Node | None:
        return self._tree.get(path, position)

    def tree(self, path: str, position: int) -> Snapshot:
        """A tree as it was after transaction `position`."""
        return self._tree.tree(path, position)


class SimSession:
    """A client of a `SimStore`: the `MetadataStore` that a broker uses. Use `SimSource.open`.

    Messages arrive in the order they were sent, both ways, except those that a fault delays.
    """

    def __init__(self, server: SimStore) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._context: Context = copy_context()
        self._connected = True
        self._closed = False
        self._requests: deque[Callable[[], None]] = deque()
        self._request_at = 0.0
        self._deliveries: deque[Callable[[], None]] = deque()
        self._delivery_at = 0.0
        self._pending: dict[asyncio.Future[Any], Exception] = {}
        """Requests without a response, and how each fails when the connection does."""
        self._watches: dict[int, tuple[str, WatchCallback]] = {}
        self._watch_last = 0
        self._unreported: deque[Changes | Gap] = deque()
        self._listeners: dict[int, SessionCallback] = {}
        self.session = server.begin(self)
        self._position = server.number
        self._begin_reading()
        self._beat()

    @property
    def operations_max(self) -> int:
        return self._server.operations_max

    @property
    def bytes_max(self) -> int:
        return self._server.bytes_max

    # What a broker asks

    async def get(self, path: str) -> Node | None:
        return await self._ask(lambda: self._server.get(path, self._position))

    async def children(self, path: str) -> list[str]:
        def ask() -> list[str]:
            nodes = self._server.tree(path, self._position).nodes
            if path not in nodes:
                raise NoNode(path)
            start = len(path) + 1
            return sorted(each[start:] for each in nodes if len(each) >= start and "/" not in each[start:])

        return await self._ask(ask)

    async def tree(self, path: str) -> Snapshot:
        return await self._ask(lambda: self._server.tree(path, self._position))

    async def sync(self) -> None:
        await self._ask(lambda: None, current=True)

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        check_size(operations, self)
        self._check_usable()
        unknown = OutcomeUnknown("the connection broke before the response")
        response: asyncio.Future[int] = self._loop.create_future()
        if self._server.happens(self._server.faults.unknown_percent):
            self._send_into_the_dark(operations, response, unknown)
            return response
        self._pending[response] = unknown
        session = self.session
        self._send(lambda: self._respond(response, self._do(session, operations)))
        return response

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        self._watch_last += 1
        number = self._watch_last
        self._watches[number] = (path, callback)
        return lambda: self._forget(self._watches, number)

    def on_session(self, callback: SessionCallback) -> Callable[[], None]:
        self._watch_last += 1
        number = self._watch_last
        self._listeners[number] = callback
        return lambda: self._forget(self._listeners, number)

    @staticmethod
    def _forget(callbacks: dict[int, Any], number: int) -> None:
        callbacks.pop(number, None)

    async def close(self) -> None:
        """End the session after all that was asked before; a client that is cut off leaves it to its timeout."""
        if self._closed:
            return
        self._closed = True
        if self._connected and self.session in self._server.clients:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._pending[ended] = StoreUnavailable("closed")
            session = self.session

            def end() -> None:
                self._server.end(session)
                self._respond(ended, None)

            self._send(end)
            try:
                await ended
            except StoreUnavailable:
                return

    def kill(self) -> None:
        """The client's process is gone: the store does what it sent, and learns of its end by the timeout."""
        self._closed = True
        self._connected = False
        self._deliveries.clear()
        self._pending.clear()
        self._watches.clear()
        self._listeners.clear()

    # To the server

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        if not self._connected:
            raise StoreUnreachable("the metadata store cannot be reached")

    async def _ask(self, read: Callable[[], Result], *, current: bool = False) -> Result:
        self._check_usable()
        response: asyncio.Future[Result] = self._loop.create_future()
        self._pending[response] = StoreUnreachable("the connection to the metadata store broke")

        def ask() -> None:
            self._move_on(current=current)
            try:
                result: Result | Exception = read()
            except StoreFault as fault:
                result = fault
            self._respond(response, result)

        self._send(ask)
        return await response

    def _move_on(self, *, current: bool) -> None:
        """Decide how much of what was done the next read sees: never less than an earlier one."""
        server = self._server
        if current or not server.happens(server.faults.lag_percent):
            self._position = server.number
            return
        self._position = max(self._position, server.oldest())
        self._position += server.below(server.number - self._position + 1)
        if self._position < server.number:
            server.counts["read_behind"] += 1

    def _begin_reading(self) -> None:
        """A new session may begin on a copy that is behind, also behind what this client has seen."""
        server = self._server
        if server.happens(server.faults.lag_percent):
            self._position = server.number - server.below(server.number - server.oldest() + 1)
            if self._position < server.number:
                server.counts["session_behind"] += 1

    def _send(self, request: Callable[[], None]) -> None:
        """Have the server do something, in the order of requests."""
        self._requests.append(request)
        self._request_at = max(self._request_at, self._loop.time() + self._server.delay_s())
        queue = self._requests
        self._loop.call_at(self._request_at, lambda: self._arrive(queue), context=self._server.context)

    def _arrive(self, queue: deque[Callable[[], None]]) -> None:
        if queue:
            request = queue.popleft()
            if self.session in self._server.clients:
                self._server.heard(self.session)
            request()

    def _do(self, session: int, operations: Sequence[Operation]) -> int | Exception:
        """On the server's side: a transaction of a session that is over is refused."""
        if session not in self._server.clients:
            return StoreUnreachable("the session is over")
        outcome = self._server.commit(session, operations)
        self._position = self._server.number
        return outcome

    def _send_into_the_dark(
        self, operations: Sequence[Operation], response: asyncio.Future[int], unknown: OutcomeUnknown
    ) -> None:
        """Send a transaction whose outcome the client does not learn."""
        server, session = self._server, self.session
        match server.below(3):
            case 0:
                server.counts["unknown_done"] += 1
                self._send(lambda: self._ignore(self._do(session, operations)))
            case 1:
                server.counts["unknown_never"] += 1
            case _:
                server.counts["unknown_late"] += 1
                server.later(
                    server.seconds(server.faults.late_s_max), lambda: self._ignore(self._do(session, operations))
                )
        self._pending[response] = unknown
        self._send(lambda: self._respond(response, unknown))
        if server.below(2):
            self._to_client(lambda: self.suspend(server.seconds(RECONNECT_S_MAX)), server.delay_s())

    @staticmethod
    def _ignore(outcome: object) -> None:
        """The client does not learn of it."""

    # To the client

    def _respond(self, response: asyncio.Future[Any], outcome: Any) -> None:
        def arrive() -> None:
            self._pending.pop(response, None)
            if response.done():
                return
            if isinstance(outcome, Exception):
                response.set_exception(outcome)
            else:
                response.set_result(outcome)

        if response in self._pending:
            self._deliver(arrive)

    def _deliver(self, delivery: Callable[[], None]) -> None:
        """Have something reach the client, in the order of deliveries."""
        self._deliveries.append(delivery)
        self._delivery_at = max(self._delivery_at, self._loop.time() + self._server.delay_s())
        queue = self._deliveries
        self._loop.call_at(self._delivery_at, lambda: self._take(queue), context=self._context)

    def _take(self, queue: deque[Callable[[], None]]) -> None:
        if queue:
            queue.popleft()()

    def _to_client(self, work: Callable[[], None], delay_s: float) -> None:
        self._loop.call_later(delay_s, work, context=self._context)

    def changed(self, done: Changes) -> None:
        """On the server's side: a transaction was done that this client may watch."""
        server = self._server
        if not self._watches or not self._connected:
            return
        if server.happens(server.faults.lose_percent):
            server.counts["watch_lost"] += 1
            self._unreported.append(Gap())
        else:
            self._unreported.append(done)
        if server.faults.watch_delay_s_max > 0:
            server.counts["watch_late"] += 1
            self._to_client(self._report, server.seconds(server.faults.watch_delay_s_max))
        else:
            self._deliver(self._report)

    def _report(self) -> None:
        """Bring the oldest change that was not reported yet, or all of them at once."""
        server, waiting = self._server, self._unreported
        if not waiting or not self._connected:
            return
        reports = [waiting.popleft()]
        if waiting and server.happens(server.faults.coalesce_percent):
            server.counts["watch_coalesced"] += 1
            reports += waiting
            waiting.clear()
        if any(isinstance(report, Gap) for report in reports):
            self._call_watchers(Gap())
            return
        self._call_watchers(coalesced([report for report in reports if isinstance(report, Changes)]))

    def _call_watchers(self, report: Changes | Gap) -> None:
        for path, callback in list(self._watches.values()):
            if isinstance(report, Gap):
                self._call(callback, report)
                continue
            prefix = path.rstrip("/") + "/"
            seen = tuple(each for each in report.changes if each.path == path or each.path.startswith(prefix))
            if seen:
                self._call(callback, Changes(number=report.number, changes=seen))

    def _call(self, callback: Callable[[Any], None], value: Any) -> None:
        try:
            callback(value)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"a callback for {value} failed", "exception": error})

    def _tell(self, event: SessionEvent) -> None:
        for callback in list(self._listeners.values()):
            self._call(callback, event)

    # The session

    def _beat(self) -> None:
        """Send heartbeats for as long as this client runs; learn by one that the session is over."""
        if self._closed:
            return
        if self._connected:
            if self.session in self._server.clients:
                self._server.heard(self.session)
            else:
                self._lose()
        self._to_client(self._beat, self._server.session_timeout_s / 3)

    def suspend(self, seconds: float) -> None:
        """Lose the connection for some time: responses and reports under way are lost, requests perhaps."""
        if not self._connected or self._closed:
            return
        server = self._server
        server.counts["suspended"] += 1
        self._disconnect(late=True)
        self._to_client(lambda: self._tell(SessionEvent.SUSPENDED), 0)
        self._to_client(self._reconnect, seconds)

    def _disconnect(self, *, late: bool) -> None:
        server = self._server
        self._connected = False
        requests, self._requests = self._requests, deque()
        self._deliveries = deque()
        self._unreported.clear()
        for request in requests:
            if late and server.below(2):
                # Under way already: the server does it some time.
                server.counts["request_late"] += 1
                server.later(server.seconds(server.faults.late_s_max), request)
        requests.clear()
        pending, self._pending = self._pending, {}

        def fail() -> None:
            for response, error in pending.items():
                if not response.done():
                    response.set_exception(error)

        self._to_client(fail, 0)

    def expired(self) -> None:
        """On the server's side: this client's session is over; it learns of it once it is connected."""
        if self._connected and not self._closed:
            self._to_client(self._lose, self._server.delay_s())

    def _lose(self) -> None:
        if self._connected and not self._closed:
            self._disconnect(late=False)
            self._reconnect()

    def _reconnect(self) -> None:
        """Go on with the session, or begin a new one where it is over."""
        if self._closed:
            return
        server = self._server
        if self.session in server.clients:
            server.heard(self.session)
            self._connected = True
            self._tell(SessionEvent.RESUMED)
        else:
            self._tell(SessionEvent.LOST)
            self.session = server.begin(self)
            self._begin_reading()
            self._connected = True
            self._tell(SessionEvent.RENEWED)
        # Ahead of all changes that are done from now on.
        self._unreported.append(Gap())
        self._deliver(self._report)


def coalesced(reports: Sequence[Changes]) -> Changes:
    """Several reports as one: the last state of each node."""
    last = {change.path: change for report in reports for change in report.changes}
    return Changes(number=reports[-1].number, changes=tuple(last.values()))


class SimSource:
    """The `StoreSource` of a broker in a simulation.

    With `exclusive`, as with the embedded store, opening it ends the sessions that others left.
    """

    def __init__(self, store: SimStore, *, exclusive: bool = False) -> None:
        self.store = store
        self.opened: list[SimSession] = []
        self.exclusive = exclusive

    def __str__(self) -> str:
        return "the simulated metadata store"

    def exists(self) -> bool:
        return bool(self.store.nodes)

    async def open(self) -> SimSession:
        if self.exclusive:
            for session in list(self.store.clients):
                self.store.end(session)
        client = SimSession(self.store)
        self.opened.append(client)
        return client

    def kill(self) -> None:
        """The process that opened it is gone."""
        for client in self.opened:
            client.kill()
        self.opened.clear()
