"""The metadata store of the model: sessions, watches and transactions, each of which a step of the schedule moves on.

It is weaker than every store that ships. A transaction whose client was cut off may be done at any later time, also
after the client has read back and after its session has ended; only ephemeral nodes need a live session. Reports come
late, several at once, or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from penstock.metadata.nodes import Changes, Gap, Node, Snapshot
from penstock.metadata.operations import Create, Delete, Operation
from penstock.metadata.store import OutcomeUnknown, StoreFault
from penstock.testing.node_tree import NodeTree

Outcome = int | StoreFault | OutcomeUnknown
"""Of a transaction, as its client learns it: its number, why it was not done, or that it may be done."""

UNKNOWN = OutcomeUnknown()

Done = Callable[[Outcome], None]


class Server:
    """The nodes, the sessions that are alive, and transactions that may still be done."""

    def __init__(self, committed: Callable[[Changes], None]) -> None:
        self.tree = NodeTree()
        self.sessions: set[int] = set()
        self.clients: list[Client] = []
        self.late: list[tuple[int, tuple[Operation, ...]]] = []
        self._committed = committed
        self._session_last = 0

    @property
    def number(self) -> int:
        return self.tree.number

    def get(self, path: str) -> Node | None:
        """A node as it is now: a read after a `sync`."""
        return self.tree.nodes.get(path)

    def snapshot(self) -> Snapshot:
        """The whole tree as it is now."""
        return self.tree.tree("/", self.tree.number)

    def begin_session(self) -> int:
        self._session_last += 1
        self.sessions.add(self._session_last)
        return self._session_last

    def expire(self, session: int) -> None:
        """End a session and delete what it owned."""
        self.sessions.discard(session)
        owned = self.tree.owned(session)
        if owned:
            self.commit(session, [Delete(path) for path in owned])

    def commit(self, session: int, operations: Sequence[Operation]) -> int | StoreFault:
        """Do a transaction and report it to every client that is connected."""
        for index, operation in enumerate(operations):
            if isinstance(operation, Create) and operation.ephemeral and session not in self.sessions:
                return StoreFault(operation.path, index)
        done = self.tree.commit(session, operations)
        if isinstance(done, StoreFault):
            return done
        if done is not None:
            self._committed(done)
            for client in self.clients:
                if client.connected and client.is_alive:
                    client.reports.append(done)
        return self.number

    def commit_late(self, index: int = 0, *, lost: bool = False) -> None:
        """Do one of the late transactions now, or never."""
        if not self.late:
            return
        session, operations = self.late.pop(index % len(self.late))
        if not lost:
            self.commit(session, operations)


class Client:
    """One process's connection to the store."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.session = server.begin_session()
        self.connected = True
        self.sending: deque[tuple[tuple[Operation, ...], Done]] = deque()
        """Transactions on their way to the store."""
        self.responses: deque[tuple[Outcome, Done]] = deque()
        """Outcomes on their way back."""
        self.reports: deque[Changes | Gap] = deque()
        server.clients.append(self)

    @property
    def is_alive(self) -> bool:
        """Whether the store still has this session."""
        return self.session in self._server.sessions

    @property
    def is_busy(self) -> bool:
        return bool(self.sending or self.responses)

    def send(self, operations: Sequence[Operation], done: Done) -> None:
        assert self.connected, "a transaction without a connection"
        self.sending.append((tuple(operations), done))

    def apply(self) -> None:
        """The store does the next transaction."""
        if self.connected and self.sending:
            operations, done = self.sending.popleft()
            outcome: Outcome = UNKNOWN
            if self.is_alive:
                outcome = self._server.commit(self.session, operations)
            self.responses.append((outcome, done))

    def respond(self) -> None:
        """The next outcome arrives."""
        if self.connected and self.responses:
            outcome, done = self.responses.popleft()
            done(outcome)

    def report(self, count: int) -> Changes | Gap | None:
        """The next reports as one, as a watch that fires late brings them."""
        if not self.connected or not self.reports:
            return None
        together = [self.reports.popleft() for _ in range(min(count, len(self.reports)))]
        if any(isinstance(each, Gap) for each in together):
            return Gap()
        reports = [each for each in together if isinstance(each, Changes)]
        last = {change.path: change for report in reports for change in report.changes}
        return Changes(number=reports[-1].number, changes=tuple(last.values()))

    def lose_reports(self) -> None:
        """Changes are missed; the watcher learns no more than that."""
        if self.reports:
            self.reports.clear()
            self.reports.append(Gap())

    def suspend(self) -> list[Done]:
        """The connection breaks; returns whom to tell that an outcome is unknown."""
        self.connected = False
        waiting = [done for _, done in self.responses] + [done for _, done in self.sending]
        self._server.late += [(self.session, operations) for operations, _ in self.sending]
        self.sending.clear()
        self.responses.clear()
        self.reports.clear()
        return waiting

    def reconnect(self) -> bool:
        """Connect again; False where the session is over and another has begun."""
        kept = self.is_alive
        if not kept:
            self.session = self._server.begin_session()
        self.connected = True
        self.reports.append(Gap())
        return kept

    def kill(self) -> None:
        """The process is gone: what it sent may still be done, and its session lives until it expires."""
        self.suspend()
        self._server.clients.remove(self)
