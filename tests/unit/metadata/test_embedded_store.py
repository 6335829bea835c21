"""The store in a file: kills, second openers, damage, a full disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.metadata.embedded import FILE_NAME, EmbeddedStore, StoreDamaged, StoreInUse
from penstock.metadata.operations import Create, Set
from penstock.metadata.store import OutcomeUnknown, StoreUnavailable

WRITER = """
import asyncio, sys
from pathlib import Path
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.operations import Create, Set

async def main() -> None:
    store = await EmbeddedStore.open(Path(sys.argv[1]))
    if await store.get("/count") is None:
        await store.multi([Create("/count", b"0"), Create("/twin", b"0")])
    await store.multi([Create("/here", b"", ephemeral=True)])
    count = int((await store.get("/count")).data)
    while True:
        count += 1
        text = b"%d" % count
        await store.multi([Set("/count", text), Create(f"/made-{count}", text), Set("/twin", text)])
        print(count, flush=True)

asyncio.run(main())
"""


def run_and_kill(directory: Path, after: int) -> int:
    """Let a child write until it has acknowledged `after` more transactions; kill it; the last it acknowledged."""
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = 0
    for _ in range(after):
        line = child.stdout.readline()
        assert line, f"the writer ended with {child.wait()}"
        acknowledged = int(line)
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().splitlines()
    child.wait()
    child.stdout.close()
    # A line cut by the kill cannot be: each is one small write to a pipe.
    return int(rest[-1]) if rest else acknowledged


def test_nothing_acknowledged_is_lost_and_nothing_is_half_done_when_the_writer_is_killed(tmp_path: Path) -> None:
    async def look(acknowledged: int) -> None:
        store = await EmbeddedStore.open(tmp_path)
        tree = (await store.tree("/")).nodes
        await store.close()
        count = int(tree["/count"].data)
        # The one under way when the kill came may be done or not, but nothing before it is missing.
        assert count in (acknowledged, acknowledged + 1)
        assert tree["/twin"].data == tree["/count"].data
        assert {path for path in tree if path.startswith("/made-")} == {f"/made-{n}" for n in range(1, count + 1)}
        assert "/here" not in tree

    for after in (1, 7, 30, 3, 15):
        asyncio.run(look(run_and_kill(tmp_path, after)))


def test_a_second_process_is_kept_out_with_the_reason(tmp_path: Path) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path), stderr=asyncio.subprocess.PIPE
        )
        _, errors = await child.communicate()
        assert child.returncode == 1
        assert b"is in use by another process" in errors
        await store.close()

    asyncio.run(run())


def test_the_same_process_cannot_open_it_twice(tmp_path: Path) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        with pytest.raises(StoreInUse):
            await EmbeddedStore.open(tmp_path)
        await store.close()
        await (await EmbeddedStore.open(tmp_path)).close()

    asyncio.run(run())


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, whatever its name says" * 200)
    with pytest.raises(StoreDamaged, match=FILE_NAME):
        asyncio.run(EmbeddedStore.open(tmp_path))


def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await EmbeddedStore.open(tmp_path)
        await store.multi([Create(f"/{n:04}", b"x" * 100) for n in range(2000)])
        await store.close()

    asyncio.run(fill())
    file = tmp_path / FILE_NAME
    content = bytearray(file.read_bytes())
    middle = len(content) // 8192 * 4096
    content[middle : middle + 4096] = os.urandom(4096)
    file.write_bytes(content)
    with pytest.raises(StoreDamaged):
        asyncio.run(EmbeddedStore.open(tmp_path))


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreDamaged, match="later version"):
        asyncio.run(EmbeddedStore.open(tmp_path))


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="absent"):
        asyncio.run(EmbeddedStore.open(tmp_path / "absent"))


def test_a_full_disk_refuses_the_change_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        await store.multi([Create("/a", b"before")])
        # SQLite's own bound on the file's size fails the way a full disk does.
        bound = await store._run(lambda: store._database.connection.execute("PRAGMA max_page_count = 1").fetchone()[0])
        assert bound < 100
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.multi([Create("/big", b"x" * 500_000)])
        node = await store.get("/a")
        assert node is not None
        assert node.data == b"before"
        await store._run(lambda: store._database.connection.execute("PRAGMA max_page_count = 100000"))
        await store.multi([Create("/big", b"x" * 500_000), Set("/a", b"after")])
        await store.close()

    asyncio.run(run())


class FailingCommit:
    """A connection whose COMMIT fails once."""

    def __init__(self, connection: sqlite3.Connection, code: int) -> None:
        self._connection = connection
        self._code: int | None = code

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        if statement == "COMMIT" and self._code is not None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            self._code = None
            raise error
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, OutcomeUnknown),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
    ],
)
def test_only_an_io_error_of_the_commit_itself_leaves_the_outcome_unknown(
    tmp_path: Path, code: int, error: type[Exception]
) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path)
        number = await store.multi([Create("/a", b"before")])
        store._database.connection = FailingCommit(store._database.connection, code)  # type: ignore[assignment]
        with pytest.raises(error):
            await store.multi([Set("/a", b"failed")])
        found = await store.tree("/a")
        assert (found.number, found.nodes["/a"].data) == (number, b"before")
        assert await store.multi([Set("/a", b"after", 0)]) == number + 1
        await store.close()

    asyncio.run(run())
