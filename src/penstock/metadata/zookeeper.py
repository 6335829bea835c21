"""The metadata store of a cluster, in ZooKeeper below a path of its own.

A persistent recursive watch reports which nodes changed, in the order of the responses on the same connection. So a
node that was read, and that no event has named since its response, is as the server has it: nodes are read until no
event has named one of them since, and are then as of one transaction, which is what a watcher or a reader of a tree
gets. A new connection knows nothing of the changes before it, hence watchers get a gap.

Transactions are numbered by ZooKeeper. Numbers of other applications' transactions lie between ours, so the number of
a tree is that of the last event, or where the connection began, never one that no watcher will be told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from penstock.metadata.nodes import Change, Changes, Gap, Node, Snapshot
from penstock.metadata.operations import OPERATION_BYTES, Check, Create, Operation
from penstock.metadata.store import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    SessionCallback,
    SessionEvent,
    StoreFault,
    StoreUnavailable,
    StoreUnreachable,
    WatchCallback,
    check_size,
)
from penstock.metadata.zookeeper_client import CONNECTION_CODES, Ensemble, Failed, ZooKeeperClient
from penstock.metadata.zookeeper_requests import (
    OPERATION_BYTES as PACKED_BYTES,
)
from penstock.metadata.zookeeper_requests import (
    Code,
    Done,
    Event,
    Found,
    Names,
    Nodes,
    Outcome,
    Permission,
    ReadChildren,
    ReadNodes,
    Request,
    Sync,
    Transaction,
    acl_bytes,
)
from penstock.model.clock import Clock
from penstock.observe.log import Logger

OPERATIONS_MAX = 1_000
PACKET_BYTES_MAX = 900 * 1024
"""Of a transaction. ZooKeeper closes the connection at 1 MiB by default (jute.maxbuffer)."""

TRANSACTIONS_PENDING_MAX = 10_000
NODES_PER_REQUEST = 128
REQUESTS_IN_FLIGHT_MAX = 4
"""Of one reader: others get their turn between its requests, and the loop between its responses."""

RESERVED = "/zookeeper"
"""ZooKeeper's own nodes."""

FAULTS: dict[int, type[StoreFault]] = {
    Code.NO_NODE: NoNode,
    Code.NODE_EXISTS: NodeExists,
    Code.BAD_VERSION: BadVersion,
    Code.NOT_EMPTY: NotEmpty,
    Code.NO_CHILDREN_FOR_EPHEMERALS: NoNode,
}


def is_below(path: str, top: str) -> bool:
    """Whether a node is another one or anywhere below it."""
    return path == top or path.startswith(top.rstrip("/") + "/")


class Reading:
    """Reads nodes until it has all of them as of one transaction. `deep` reads everything below them too."""

    def __init__(
        self,
        ask: Callable[[Request, Callable[[Any], None]], None],
        *,
        root: str,
        done: Callable[[dict[str, Node | None]], None],
        failed: Callable[[Failed], None],
        deep: bool = False,
    ) -> None:
        self._ask = ask
        self._root = root
        self._done = done
        self._failed = failed
        self._deep = deep
        self._wanted: dict[str, None] = {}
        """Nodes to be read: not asked for yet, or changed since."""
        self._to_list: dict[str, None] = {}
        self._listed: set[str] = set()
        self._in_flight = 0
        self._ended = False
        self.nodes: dict[str, Node | None] = {}

    def want(self, paths: Iterable[str]) -> None:
        """Read these nodes, again where they were read before."""
        self._wanted.update(dict.fromkeys(paths))

    def go_on(self) -> None:
        """Send what fits; end when everything was read and nothing has changed since."""
        while not self._ended and self._in_flight < REQUESTS_IN_FLIGHT_MAX and (self._wanted or self._to_list):
            waiting = self._to_list or self._wanted
            paths = list(islice(waiting, NODES_PER_REQUEST))
            lists = waiting is self._to_list
            for path in paths:
                del waiting[path]
            self._in_flight += 1
            full = [self._root + path if path != "/" else self._root or "/" for path in paths]
            if lists:
                self._listed.update(paths)
                self._ask(ReadChildren(full), partial(self._got_names, paths))
            else:
                self._ask(ReadNodes(full), partial(self._got_nodes, paths))
        if not self._ended and not self._in_flight:
            self._ended = True
            self._done(self.nodes)

    def _got_nodes(self, paths: list[str], result: Nodes | Failed) -> None:
        self._in_flight -= 1
        if isinstance(result, Failed):
            self._fail(result)
            return
        for path, found in zip(paths, result.nodes, strict=True):
            # Events that came before this response are in it.
            self._wanted.pop(path, None)
            if isinstance(found, Found):
                self.nodes[path] = found.node
                if self._deep and found.children and path not in self._listed:
                    self._to_list[path] = None
            elif found == Code.NO_NODE:
                self.nodes[path] = None
            else:
                self._fail(Failed(f"{path} cannot be read", found))
                return
        self.go_on()

    def _got_names(self, paths: list[str], result: Names | Failed) -> None:
        self._in_flight -= 1
        if isinstance(result, Failed):
            self._fail(result)
            return
        for path, names in zip(paths, result.names, strict=True):
            if isinstance(names, int):
                if names != Code.NO_NODE:
                    self._fail(Failed(f"{path} cannot be read", names))
                    return
                continue
            prefix = path.rstrip("/")
            below = (f"{prefix}/{name}" for name in names)
            self.want(each for each in below if each != RESERVED and each not in self.nodes)
        self.go_on()

    def _fail(self, failed: Failed) -> None:
        if not self._ended:
            self._ended = True
            self._failed(failed)


class ZooKeeperStore:
    """A `MetadataStore` in ZooKeeper. Use `ZooKeeperSource.open`."""

    operations_max = OPERATIONS_MAX

    def __init__(
        self, ensemble: Ensemble, *, root: str, permissions: Sequence[Permission], clock: Clock, log: Logger
    ) -> None:
        self._servers = ensemble.servers
        self._root = root
        self._acl = acl_bytes(permissions)
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._client = ZooKeeperClient(ensemble, root=root, owner=self, clock=clock, log=log)
        beyond = max(0, PACKED_BYTES + len(root.encode()) + len(self._acl) - OPERATION_BYTES)
        self.bytes_max = PACKET_BYTES_MAX - beyond * OPERATIONS_MAX
        """What the root and the access control list add to each operation counts as well."""
        self.session = 0
        self._state: SessionEvent | None = None
        """The last event of the session; none before the first one has begun."""
        self._usable = False
        self._problem = ""
        """Why the store cannot be used though it is reached."""
        self._closed = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._position = 0
        """The last transaction that changed something here, or at which this connection began."""
        self._unnumbered = False
        """Whether an event came without its number since."""
        self._seen = 0
        """The greatest position of all sessions."""
        self._transactions = 0
        self._watches: dict[int, tuple[str, WatchCallback]] = {}
        self._listeners: dict[int, SessionCallback] = {}
        self._callback_last = 0
        self._following: Reading | None = None
        """Reads what changed, for the watchers."""
        self._trees: dict[Reading, str] = {}

    async def open(self, timeout_s: float) -> None:
        """Connect, and make the root where it is missing."""
        self._client.start()
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
            await self._make_root()
        except TimeoutError:
            await self.close()
            raise StoreUnreachable(f"ZooKeeper at {self._servers} cannot be reached: {self._client.reason}") from None
        except BaseException:
            await self.close()
            raise

    async def _make_root(self) -> None:
        path = ""
        for name in self._root.split("/")[1:]:
            path += f"/{name}"
            outcome = await self._asked(Transaction([Create(path, b"")], root="", acl=self._acl))
            assert isinstance(outcome, Outcome), "a transaction has no outcome"
            if outcome.failed is not None and outcome.code != Code.NODE_EXISTS:
                raise self._unavailable(f"{path} cannot be created", outcome.code)

    # Reads

    async def get(self, path: str) -> Node | None:
        if path == "/":
            return None
        result: Nodes = await self._asked(ReadNodes([self._root + path]))
        found = result.nodes[0]
        if isinstance(found, Found):
            return found.node
        if found == Code.NO_NODE:
            return None
        raise self._unavailable(f"{path} cannot be read", found)

    async def children(self, path: str) -> list[str]:
        if path == "/":
            raise NoNode(path)
        result: Names = await self._asked(ReadChildren([self._root + path]))
        names = result.names[0]
        if not isinstance(names, int):
            return sorted(names)
        if names == Code.NO_NODE:
            raise NoNode(path)
        raise self._unavailable(f"the nodes below {path} cannot be read", names)

    async def tree(self, path: str) -> Snapshot:
        self._check_usable()
        response: asyncio.Future[Snapshot] = self._loop.create_future()

        def done(nodes: dict[str, Node | None]) -> None:
            self._trees.pop(reading, None)
            found = {each: nodes[each] for each in sorted(nodes) if each != "/"}
            snapshot = Snapshot(
                number=self._position, nodes={each: node for each, node in found.items() if node is not None}
            )
            _settle(response, snapshot)

        def failed(error: Failed) -> None:
            self._trees.pop(reading, None)
            _settle(response, self._failure(error))

        reading = Reading(self._ask, root=self._root, done=done, failed=failed, deep=True)
        self._trees[reading] = path
        reading.want([path])
        reading.go_on()
        return await response

    async def sync(self) -> None:
        await self._asked(Sync(self._root or "/"))

    # Transactions

    def multi(self, operations: Sequence[Operation]) -> Awaitable[int]:
        check_size(operations, self)
        self._check_usable()
        if self._transactions >= TRANSACTIONS_PENDING_MAX:
            raise StoreUnavailable("too many changes are waiting")
        response: asyncio.Future[int] = self._loop.create_future()
        request = Transaction(operations, self._root, self._acl)
        self._transactions += 1

        def respond(result: Outcome | Failed) -> None:
            self._transactions -= 1
            _settle(response, self._outcome(request, result))

        self._ask(request, respond)
        return response

    def _outcome(self, request: Transaction, result: Outcome | Failed) -> int | Exception:
        if isinstance(result, Failed):
            unanswered = result.code is None or result.code in CONNECTION_CODES
            if request.sent and unanswered:
                return OutcomeUnknown(f"the connection to ZooKeeper broke before the response: {result}")
            return self._failure(result)
        if result.failed is None:
            if all(isinstance(each, Check) for each in request.operations):
                return self._position
            return result.number
        operation = request.operations[result.failed]
        fault = FAULTS.get(result.code)
        if fault is None:
            return self._unavailable(f"{operation.path} cannot be written", result.code)
        path = operation.path
        if isinstance(operation, Create) and fault is NoNode:
            path = path.rpartition("/")[0]
        return fault(path, result.failed)

    # Watches and session events

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        self._callback_last += 1
        number = self._callback_last
        self._watches[number] = (path, callback)
        return lambda: _forget(self._watches, number)

    def on_session(self, callback: SessionCallback) -> Callable[[], None]:
        self._callback_last += 1
        number = self._callback_last
        self._listeners[number] = callback
        return lambda: _forget(self._listeners, number)

    async def close(self) -> None:
        """Finish what was asked, end the session, and with it the client's thread."""
        if self._closed:
            return
        self._closed = True
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()
        await self._client.stop()

    # What the client reports

    def connected(self, session: int, position: int) -> None:
        if position < self._seen:
            self._refuse(
                f"ZooKeeper at {self._servers} went back: it is at transaction {position:#x}, and this broker has seen "
                f"{self._seen:#x}. It was restored from a backup, or its data is gone"
            )
            return
        before, self._state = self._state, SessionEvent.RESUMED
        renewed = before is SessionEvent.LOST
        self.session = session
        self._problem = ""
        self._usable = True
        self._unnumbered = False
        self._move(position)
        if before is None:
            _settle(self._ready, None)
            return
        self._state = SessionEvent.RENEWED if renewed else SessionEvent.RESUMED
        self._log.info("zookeeper_session", state=self._state.value, session=hex(session))
        self._tell(self._state)
        self._report(Gap())

    def disconnected(self, reason: str) -> None:
        self._break_off()
        if self._state in (SessionEvent.RESUMED, SessionEvent.RENEWED):
            self._state = SessionEvent.SUSPENDED
            self._log.warning("zookeeper_session", state=self._state.value, reason=reason)
            self._tell(self._state)

    def session_lost(self, reason: str) -> None:
        self._break_off()
        if self._state not in (None, SessionEvent.LOST):
            self._state = SessionEvent.LOST
            self._log.warning("zookeeper_session", state=self._state.value, reason=reason)
            self._tell(self._state)

    def rejected(self, reason: str) -> None:
        self._refuse(f"ZooKeeper at {self._servers} cannot be used: {reason}")

    def changed(self, event: Event) -> None:
        if not self._usable:
            return
        path = event.path[len(self._root) :]
        if not path or path == "/" or (not self._root and is_below(path, RESERVED)):
            return
        if event.transaction > 0:
            self._move(event.transaction)
        else:
            self._unnumbered = True
        for reading, top in self._trees.items():
            if is_below(path, top):
                reading.want([path])
        self._follow(path)

    def _move(self, position: int) -> None:
        self._position = max(self._position, position)
        self._seen = max(self._seen, self._position)

    def _break_off(self) -> None:
        self._usable = False
        self._following = None
        self._trees.clear()

    def _refuse(self, problem: str) -> None:
        self._usable = False
        if problem != self._problem:
            self._log.error("zookeeper_unusable", reason=problem)
        self._problem = problem
        _settle(self._ready, StoreUnavailable(problem))

    # Reports

    def _follow(self, path: str) -> None:
        if self._following is None:
            if not self._watches:
                return
            self._following = Reading(
                self._ask, root=self._root, done=self._followed, failed=lambda _: self._miss(), deep=False
            )
        self._following.want([path])
        self._following.go_on()

    def _followed(self, nodes: dict[str, Node | None]) -> None:
        self._following = None
        changes = tuple(_change(path, node) for path, node in nodes.items())
        self._report(Changes(number=self._position, changes=changes))

    def _miss(self) -> None:
        """What changed could not be read; a broken connection is followed by a gap anyway."""
        self._following = None
        if self._usable:
            self._report(Gap())

    def _report(self, report: Changes | Gap) -> None:
        for path, callback in list(self._watches.values()):
            if isinstance(report, Gap):
                self._call(callback, report)
                continue
            seen = tuple(change for change in report.changes if is_below(change.path, path))
            if seen:
                self._call(callback, Changes(number=report.number, changes=seen))

    def _tell(self, event: SessionEvent) -> None:
        for callback in list(self._listeners.values()):
            self._call(callback, event)

    def _call(self, callback: Callable[[Any], None], value: Any) -> None:
        try:
            callback(value)
        except Exception as error:
            # A bug of one callback must be reported, and must not keep the report from the others.
            context = {"message": "a callback of the metadata store failed", "exception": error}
            self._loop.call_exception_handler(context)

    # Requests

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        if self._problem:
            raise StoreUnavailable(self._problem)
        if not self._usable:
            raise StoreUnreachable(f"ZooKeeper at {self._servers} cannot be reached: {self._client.reason}")

    def _ask(self, request: Request, respond: Callable[[Any], None]) -> None:
        def arrived(result: Any) -> None:
            if self._unnumbered and isinstance(result, Done | Nodes | Names | Outcome):
                self._unnumbered = False
                self._move(result[0])
            respond(result)

        self._client.ask(request, arrived)

    async def _asked(self, request: Request) -> Any:
        self._check_usable()
        response: asyncio.Future[Any] = self._loop.create_future()
        self._ask(request, lambda result: _settle(response, result))
        result = await response
        if isinstance(result, Failed):
            raise self._failure(result)
        return result

    def _failure(self, failed: Failed) -> StoreUnavailable:
        """Why a request was not done."""
        if failed.code is None or failed.code in CONNECTION_CODES:
            return StoreUnreachable(f"the connection to ZooKeeper at {self._servers} broke: {failed}")
        return self._unavailable(str(failed), failed.code)

    def _unavailable(self, what: str, code: int) -> StoreUnavailable:
        if code == Code.NO_AUTH:
            return StoreUnavailable(f"ZooKeeper at {self._servers}: {what}: access is denied to these credentials")
        if code == Code.INVALID_ACL:
            return StoreUnavailable(
                f"ZooKeeper at {self._servers}: {what}: zookeeper.set.acl needs a broker that authenticates"
            )
        return StoreUnavailable(f"ZooKeeper at {self._servers}: {what} (error {code})")


def _change(path: str, node: Node | None) -> Change:
    if node is None:
        return Change(path=path, data=None)
    return Change(path=path, data=node.data, version=node.version, created=node.created)


def _forget(callbacks: dict[int, Any], number: int) -> None:
    callbacks.pop(number, None)


def _settle(response: asyncio.Future[Any], outcome: Any) -> None:
    """Complete a waiter, unless it was cancelled."""
    if response.done():
        return
    if isinstance(outcome, Exception) and not isinstance(outcome, Failed):
        response.set_exception(outcome)
    else:
        response.set_result(outcome)


class ZooKeeperSource:
    """The store below a path of a ZooKeeper ensemble."""

    exclusive = False

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        root: str = "",
        permissions: Sequence[Permission],
        connection_timeout_s: float,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._ensemble = ensemble
        self._root = root
        self._permissions = permissions
        self._connection_timeout_s = connection_timeout_s
        self._clock = clock
        self._log = log

    def __str__(self) -> str:
        return f"ZooKeeper at {self._ensemble.servers}{self._root}"

    def exists(self) -> bool:
        """Not known before it is opened, when a broker looks for its cluster anyway."""
        return True

    async def open(self) -> ZooKeeperStore:
        """Begin a session. Raises `StoreUnreachable`, or `StoreUnavailable` where waiting does not help."""
        store = ZooKeeperStore(
            self._ensemble, root=self._root, permissions=self._permissions, clock=self._clock, log=self._log
        )
        await store.open(self._connection_timeout_s)
        return store
