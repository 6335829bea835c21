"""The metadata store in an SQLite file, opened by one process at a time: a single broker, or a parent that shares it.

All statements run in one thread of its own, since a commit waits for the disk. Transactions that arrive while a
commit is under way go into the next one together: each is still done or refused on its own, but one fsync serves all.

The outcome of a transaction is unknown in one case. When SQLite reports an I/O error from COMMIT itself, the commit's
last frame may be in the write-ahead log: this process goes on without it, and if it ends before it writes again, the
next start finds the frame and the transaction is done after all. The next transaction that is committed overwrites it.
Any other error is raised before that frame is written, so nothing is done.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.metadata.nodes import Change, Changes, Node, Snapshot
from penstock.metadata.operations import ANY_VERSION, Check, Create, Delete, Operation, Set
from penstock.metadata.store import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    SessionCallback,
    StoreFault,
    StoreUnavailable,
    WatchCallback,
    check_size,
)

Result = TypeVar("Result")

FILE_NAME = "metadata.sqlite"
SCHEMA_VERSION = 2
"""Of the tables and of the records in them: 2 has partitions in nodes of their own. Earlier versions refuse it."""
TRANSACTIONS_PENDING_MAX = 10_000
TRANSACTIONS_PER_COMMIT_MAX = 256
OPERATIONS_MAX = 4096
BYTES_MAX = 4 * 1024 * 1024
CACHE_KIB = 2048

OPENING = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO counter VALUES ('transaction', 0), ('session', 0);
DELETE FROM node WHERE owner <> 0;
UPDATE counter SET value = value + 1 WHERE name = 'session';
PRAGMA user_version = 2;
COMMIT;
"""
"""Creates what is missing and begins a session. The process that had the store before is gone, or this one could not
have it, so the ephemeral nodes of that session go too."""

PRIMARY_CODE = 0xFF
"""The part of SQLite's extended error codes that names the kind of error."""

CAN_HOLD_OTHERS = "SELECT 1 FROM node WHERE path = ? AND owner = 0"
REPLACE_DATA = (
    "UPDATE node SET data = ?, version = version + 1 WHERE path = ? AND (? = -1 OR version = ?) "
    "RETURNING version, created"
)


class StoreInUse(Exception):
    """Another process has the store open: two brokers on one directory would destroy each other's data."""


class StoreDamaged(Exception):
    """The file is not a metadata store this version can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What one item of a commit did: its result, and what watchers get."""

    result: int
    changes: Changes | None = None


_Work = Callable[[], _Done]
"""An item of a commit; raises a `StoreFault` where none of it was done."""


class _Database:
    """The SQLite side. Every method runs in the store's thread; none returns before its effect is on disk."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.connection = sqlite3.connect(file, isolation_level=None, timeout=0, cached_statements=32)
        self.session_last = 0
        self.transaction = 0

    def open(self) -> None:
        run = self.connection.execute
        # Held until close: SQLite itself keeps a second process out, and gives the lock up when this one is killed.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA cache_size = -{CACHE_KIB}")
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreDamaged(f"{self.file} was written by a later version of penstock (format {version})")
        problems = [row[0] for row in run("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise StoreDamaged(f"{self.file} is damaged: {'; '.join(problems)}; restore it from a copy")
        self.connection.executescript(OPENING)
        counters = dict(run("SELECT name, value FROM counter"))
        self.session_last, self.transaction = counters["session"], counters["transaction"]

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.execute("DELETE FROM node WHERE owner <> 0")
        self.connection.close()

    def get(self, path: str) -> Node | None:
        row = self.connection.execute(
            "SELECT data, version, owner, created FROM node WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Node(data=row[0], version=row[1], owner=row[2], created=row[3])

    def below(self, path: str) -> dict[str, Node]:
        # Every path below 'x' lies between 'x/' and 'x0', the character after the slash.
        rows = self.connection.execute(
            "SELECT path, data, version, owner, created FROM node WHERE path >= ? AND path < ? ORDER BY path",
            (f"{path}/", f"{path}0"),
        )
        return {row[0]: Node(data=row[1], version=row[2], owner=row[3], created=row[4]) for row in rows}

    def children(self, path: str) -> list[str]:
        if self.get(path) is None:
            raise NoNode(path)
        rows = self.connection.execute("SELECT path FROM node WHERE path >= ? AND path < ?", (f"{path}/", f"{path}0"))
        start = len(path) + 1
        return sorted(row[0][start:] for row in rows if "/" not in row[0][start:])

    def tree(self, path: str) -> Snapshot:
        top = self.get(path)
        nodes = ({} if top is None else {path: top}) | self.below(path.rstrip("/"))
        return Snapshot(number=self.transaction, nodes=nodes)

    def commit(self, batch: Sequence[_Work]) -> list[_Done | StoreFault]:
        """One SQLite transaction for all of them, each in a savepoint of its own."""
        run = self.connection.execute
        outcomes: list[_Done | StoreFault] = []
        first = self.transaction, self.session_last
        committing = False
        try:
            run("BEGIN IMMEDIATE")
            for work in batch:
                run("SAVEPOINT one")
                try:
                    outcomes.append(work())
                except StoreFault as fault:
                    run("ROLLBACK TO one")
                    outcomes.append(fault)
                run("RELEASE one")
            run("UPDATE counter SET value = ? WHERE name = 'transaction'", (self.transaction,))
            committing = True
            run("COMMIT")
        except sqlite3.Error as error:
            self.transaction, self.session_last = first
            with suppress(sqlite3.Error):
                run("ROLLBACK")
            if committing and _kind_of(error) == sqlite3.SQLITE_IOERR:
                raise OutcomeUnknown(f"the metadata store at {self.file} failed in a commit: {error}") from None
            raise
        return outcomes

    # Items of a commit

    def begin_session(self) -> _Done:
        """A new session: its number is that of no earlier one, so it is durable before it is used."""
        self.session_last += 1
        self.connection.execute("UPDATE counter SET value = ? WHERE name = 'session'", (self.session_last,))
        return _Done(result=self.session_last)

    def end_session(self, session: int) -> _Done:
        """Delete the nodes of a session; they have no children."""
        rows = self.connection.execute("DELETE FROM node WHERE owner = ? RETURNING path", (session,)).fetchall()
        return self._numbered(Change(path=path, data=None) for (path,) in sorted(rows))

    def do(self, operations: Sequence[Operation], session: int) -> _Done:
        """A transaction of a session."""
        number = self.transaction + 1
        changes: dict[str, Change] = {}
        for index, operation in enumerate(operations):
            match operation:
                case Create():
                    changes[operation.path] = self._create(operation, session, number, index)
                case Set():
                    changes[operation.path] = self._set(operation, index)
                case Delete():
                    self._expect(operation, index)
                    if self._has_children(operation.path):
                        raise NotEmpty(operation.path, index)
                    self.connection.execute("DELETE FROM node WHERE path = ?", (operation.path,))
                    changes[operation.path] = Change(path=operation.path, data=None)
                case Check():
                    self._expect(operation, index)
        return self._numbered(changes.values())

    def _numbered(self, changes: Iterable[Change]) -> _Done:
        made = tuple(changes)
        if made:
            self.transaction += 1
        return _Done(result=self.transaction, changes=Changes(number=self.transaction, changes=made))

    def _create(self, operation: Create, session: int, number: int, index: int) -> Change:
        path = operation.path
        parent = path.rpartition("/")[0]
        # As in ZooKeeper, a node that goes with its owner cannot have others below it.
        if parent and not self.connection.execute(CAN_HOLD_OTHERS, (parent,)).fetchone():
            raise (NodeExists(path, index) if self.get(path) is not None else NoNode(parent, index))
        owner = session if operation.ephemeral else 0
        try:
            self.connection.execute("INSERT INTO node VALUES (?, ?, 0, ?, ?)", (path, operation.data, owner, number))
        except sqlite3.IntegrityError:
            raise NodeExists(path, index) from None
        return Change(path=path, data=operation.data, created=number)

    def _set(self, operation: Set, index: int) -> Change:
        path, version = operation.path, operation.version
        values = (operation.data, path, version, version)
        row: tuple[int, int] | None = self.connection.execute(REPLACE_DATA, values).fetchone()
        if row is None:
            self._expect(operation, index)
        assert row is not None, f"{path} is there in the expected version and could not be set"
        return Change(path=path, data=operation.data, version=row[0], created=row[1])

    def _expect(self, operation: Set | Delete | Check, index: int) -> None:
        node = self.get(operation.path)
        if node is None:
            raise NoNode(operation.path, index)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(operation.path, index)

    def _has_children(self, path: str) -> bool:
        row = self.connection.execute(
            "SELECT 1 FROM node WHERE path >= ? AND path < ? LIMIT 1", (f"{path}/", f"{path}0")
        )
        return row.fetchone() is not None


@dataclass(slots=True)
class _Waiting:
    work: _Work
    done: "asyncio.Future[int]"


class EmbeddedStore:
    """A `MetadataStore` in one SQLite file. Use `open`.

    Its own session ends with `close` only, so it has no session events, and its watches miss nothing. A process that
    shares it begins and ends sessions of others, and gives their numbers with their transactions.
    """

    operations_max = OPERATIONS_MAX
    bytes_max = BYTES_MAX

    def __init__(self, database: _Database, thread: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._thread = thread
        self._loop = loop
        self._waiting: list[_Waiting] = []
        self._committing: asyncio.Future[list[_Done | StoreFault]] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._watches: dict[int, tuple[str, WatchCallback]] = {}
        self._watch_last = 0
        self._closed = False
        self.session = database.session_last
        self._sessions = {self.session}
        """Sessions that may create ephemeral nodes."""

    @classmethod
    async def open(cls, directory: Path) -> "EmbeddedStore":
        """Open the store of a data directory, making it where there is none.

        Raises `StoreInUse` while another process has it open, `StoreDamaged` when it cannot be read.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        try:
            database = await loop.run_in_executor(thread, _open, directory / FILE_NAME)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(database, thread, loop)

    async def get(self, path: str) -> Node | None:
        return await self._run(lambda: self._database.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._run(lambda: self._database.children(path))

    async def tree(self, path: str) -> Snapshot:
        return await self._run(lambda: self._database.tree(path))

    async def sync(self) -> None:
        """Every read is from the one copy there is."""
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")

    def multi(self, operations: Sequence[Operation], *, session: int | None = None) -> Awaitable[int]:
        """As every store; `session` is one of `begin_session`, and its own if not given."""
        check_size(operations, self)
        owner = self.session if session is None else session
        if owner not in self._sessions:
            raise StoreUnavailable(f"session {owner} of the metadata store is over")
        return self._enqueue(lambda: self._database.do(operations, owner))

    async def begin_session(self) -> int:
        """The number of a new session, for another process."""
        session = await self._enqueue(self._database.begin_session)
        self._sessions.add(session)
        return session

    def end_session(self, session: int) -> Awaitable[int]:
        """Delete what a session owns, after all that it asked for; it can ask for nothing more.

        Fails as a transaction does, and is then to be called again.
        """
        assert session != self.session, "the store's own session ends with `close`"
        self._sessions.discard(session)
        return self._enqueue(lambda: self._database.end_session(session))

    def _enqueue(self, work: _Work) -> "asyncio.Future[int]":
        if self._closed or len(self._waiting) >= TRANSACTIONS_PENDING_MAX:
            raise StoreUnavailable("the metadata store is closed" if self._closed else "too many changes are waiting")
        waiting = _Waiting(work, self._loop.create_future())
        self._waiting.append(waiting)
        if self._committing is None:
            self._idle.clear()
            self._commit_next()
        return waiting.done

    def watch(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        self._watch_last += 1
        number = self._watch_last
        self._watches[number] = (path, callback)

        def unwatch() -> None:
            self._watches.pop(number, None)

        return unwatch

    def on_session(self, callback: SessionCallback) -> Callable[[], None]:
        return lambda: None

    async def close(self) -> None:
        """Finish what was asked, end the session, let the file go."""
        self._closed = True
        await self._idle.wait()
        await self._loop.run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=False)

    async def _run(self, ask: Callable[[], Result]) -> Result:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        return await self._loop.run_in_executor(self._thread, ask)

    def _commit_next(self) -> None:
        """Send what waits to the thread, as one commit; the next starts when this one has ended."""
        batch = self._waiting[:TRANSACTIONS_PER_COMMIT_MAX]
        del self._waiting[:TRANSACTIONS_PER_COMMIT_MAX]
        asked = [waiting.work for waiting in batch]
        self._committing = self._loop.run_in_executor(self._thread, self._database.commit, asked)
        self._committing.add_done_callback(lambda outcomes: self._committed(batch, outcomes))

    def _committed(self, batch: list[_Waiting], done: "asyncio.Future[list[_Done | StoreFault]]") -> None:
        error = done.exception()
        if isinstance(error, sqlite3.Error):
            error = StoreUnavailable(f"the metadata store at {self._database.file} cannot be written: {error}")
        outcomes = [error] * len(batch) if error is not None else done.result()
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, _Done):
                if outcome.changes is not None:
                    self._notify(outcome.changes)
                _settle(waiting.done, outcome.result)
            else:
                _settle(waiting.done, outcome)
        if self._waiting:
            self._commit_next()
        else:
            self._committing = None
            self._idle.set()

    def _notify(self, done: Changes) -> None:
        for path, callback in list(self._watches.values()):
            prefix = path.rstrip("/") + "/"
            seen = tuple(change for change in done.changes if change.path == path or change.path.startswith(prefix))
            if seen:
                try:
                    callback(Changes(number=done.number, changes=seen))
                except Exception as error:
                    # A watcher's bug must be reported, and must not leave the other waiters without a response.
                    context = {"message": f"a watcher of {path} failed", "exception": error}
                    self._loop.call_exception_handler(context)


def _kind_of(error: sqlite3.Error) -> int:
    """SQLite's primary error code; errors that Python's module raises itself have none."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & PRIMARY_CODE


def _settle(done: "asyncio.Future[int]", outcome: int | BaseException) -> None:
    """Complete a waiter, unless it was cancelled."""
    if done.done():
        return
    if isinstance(outcome, int):
        done.set_result(outcome)
    else:
        done.set_exception(outcome)


def _open(file: Path) -> _Database:
    try:
        database = _Database(file)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{file} cannot be opened: {error}") from None
    try:
        database.open()
    except sqlite3.OperationalError as error:
        database.connection.close()
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreInUse(f"{file} is in use by another process: one data directory serves one broker") from None
        raise StoreUnavailable(f"{file} cannot be opened: {error}") from None
    except sqlite3.DatabaseError as error:
        database.connection.close()
        raise StoreDamaged(f"{file} is not a metadata store: {error}") from None
    except BaseException:
        database.connection.close()
        raise
    return database


class EmbeddedSource:
    """The store in a file of a directory, which has to be there when it is opened."""

    exclusive = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory / FILE_NAME)

    def exists(self) -> bool:
        return (self._directory / FILE_NAME).exists()

    async def open(self) -> EmbeddedStore:
        return await EmbeddedStore.open(self._directory)
