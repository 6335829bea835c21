"""The store that a parent process shares: sessions of real processes that are killed, stopped and left alone."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.nodes import Changes, Gap
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.shared import SharedStore
from penstock.metadata.shared_frames import FRAME_BYTES_MAX, PROTOCOL_VERSION, FrameReader, pack_frame
from penstock.metadata.shared_server import TICK_S, SharedStoreServer, Silence
from penstock.metadata.store import OutcomeUnknown, SessionEvent, StoreUnavailable, StoreUnreachable
from penstock.observe.log import logger

PATIENCE_S = 60.0
TIMEOUT_MS = 1_000
LONG_MS = 600_000
"""A timeout that no test waits for."""

MEMBER = """
import asyncio, sys
from pathlib import Path
from penstock.metadata.operations import Create
from penstock.metadata.shared import SharedStore

async def main() -> None:
    store = await SharedStore.open(Path(sys.argv[1]), int(sys.argv[2]))
    store.on_session(lambda event: print(event.value, store.session, flush=True))
    await store.multi([Create("/member", b"here", ephemeral=True)])
    print("here", store.session, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""

PARENT = """
import asyncio, sys
from pathlib import Path
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.shared_server import SharedStoreServer
from penstock.observe.log import logger

async def main() -> None:
    store = await EmbeddedStore.open(Path(sys.argv[1]))
    server = await SharedStoreServer.open(store, Path(sys.argv[1]), logger("metadata"))
    print(server.path, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


class Served:
    """A store that this process shares."""

    def __init__(self, store: EmbeddedStore, server: SharedStoreServer) -> None:
        self.store = store
        self.server = server

    async def open(self, timeout_ms: int = LONG_MS) -> SharedStore:
        return await SharedStore.open(self.server.path, timeout_ms)


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    store = await EmbeddedStore.open(directory)
    try:
        server = await SharedStoreServer.open(store, directory, logger("metadata"))
        try:
            yield Served(store, server)
        finally:
            await server.close()
    finally:
        await store.close()


@asynccontextmanager
async def process(program: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def line(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    read = await asyncio.wait_for(child.stdout.readline(), PATIENCE_S)
    assert read, f"the process ended with {await child.wait()}"
    return read.decode().strip()


async def until(fact: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await fact():  # noqa: ASYNC110 - facts of other processes
            await asyncio.sleep(0.01)


def run(act: Callable[[Served], Coroutine[Any, Any, None]], directory: Path) -> None:
    async def whole() -> None:
        async with served(directory) as shared:
            await act(shared)

    asyncio.run(whole())


def test_sessions_see_the_changes_of_each_other(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        one, other = await shared.open(), await shared.open()
        seen: list[Changes | Gap] = []
        other.watch("/", seen.append)
        await other.sync()
        number = await one.multi([Create("/a", b"\x00\xff")])
        node = await other.get("/a")
        assert node is not None
        assert (node.data, node.created) == (b"\x00\xff", number)
        await other.sync()
        assert [report.number for report in seen if isinstance(report, Changes)] == [number]
        assert one.session != other.session

    run(act, tmp_path)


def test_the_nodes_of_a_closed_session_are_gone_and_the_others_know(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        one, other = await shared.open(), await shared.open()
        await one.multi([Create("/one", b"", ephemeral=True)])
        await other.multi([Create("/other", b"", ephemeral=True)])
        gone: list[str] = []

        def follow(report: Changes | Gap) -> None:
            assert isinstance(report, Changes)
            gone.extend(change.path for change in report.changes if change.data is None)

        other.watch("/", follow)
        await other.sync()
        await one.close()
        await other.sync()
        assert gone == ["/one"]
        assert set((await other.tree("/")).nodes) == {"/other"}

    run(act, tmp_path)


def test_a_killed_process_loses_its_session_at_once(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        async with process(MEMBER, str(shared.server.path), str(LONG_MS)) as member:
            assert (await line(member)).startswith("here")
            assert await shared.store.get("/member") is not None
            member.kill()

            async def gone() -> bool:
                return await shared.store.get("/member") is None

            await until(gone)

    run(act, tmp_path)


def test_a_stopped_process_loses_its_session_by_missed_heartbeats_and_begins_another(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        async with process(MEMBER, str(shared.server.path), str(TIMEOUT_MS)) as member:
            _, first = (await line(member)).split()
            member.send_signal(signal.SIGSTOP)

            async def gone() -> bool:
                return await shared.store.get("/member") is None

            await until(gone)
            member.send_signal(signal.SIGCONT)
            events = [await line(member)]
            while not events[-1].startswith("renewed"):
                events.append(await line(member))
            assert f"lost {first}" in events
            assert int(events[-1].split()[1]) > int(first)

    run(act, tmp_path)


def test_heartbeats_keep_a_quiet_session_alive(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        quiet = await shared.open(timeout_ms=TIMEOUT_MS)
        events: list[SessionEvent] = []
        quiet.on_session(events.append)
        await asyncio.sleep(3 * TIMEOUT_MS / 1000)
        assert await quiet.get("/a") is None
        assert not events

    run(act, tmp_path)


def test_a_paused_parent_suspends_sessions_and_none_is_lost(tmp_path: Path) -> None:
    async def act() -> None:
        async with process(PARENT, str(tmp_path)) as parent:
            store = await SharedStore.open(Path(await line(parent)), TIMEOUT_MS)
            events: list[SessionEvent] = []
            store.on_session(events.append)
            await store.multi([Create("/mine", b"", ephemeral=True)])
            parent.send_signal(signal.SIGSTOP)
            asked = store.multi([Create("/in-flight", b"")])

            async def suspended() -> bool:
                return events == [SessionEvent.SUSPENDED]

            await until(suspended)
            with pytest.raises(OutcomeUnknown):
                await asked
            with pytest.raises(StoreUnreachable):
                store.multi([Create("/more", b"")])
            with pytest.raises(StoreUnreachable):
                await store.get("/mine")
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
            parent.send_signal(signal.SIGCONT)

            async def resumed() -> bool:
                return events == [SessionEvent.SUSPENDED, SessionEvent.RESUMED]

            await until(resumed)
            node = await store.get("/mine")
            assert node is not None
            assert node.owner == store.session
            assert await store.get("/in-flight") is not None
            await store.close()

    asyncio.run(act())


def test_a_killed_parent_loses_its_sessions_and_a_new_one_renews_them(tmp_path: Path) -> None:
    async def act() -> None:
        events: list[SessionEvent] = []
        async with process(PARENT, str(tmp_path)) as parent:
            store = await SharedStore.open(Path(await line(parent)), LONG_MS)
            first = store.session
            store.on_session(events.append)
            await store.multi([Create("/kept", b""), Create("/mine", b"", ephemeral=True)])
            parent.send_signal(signal.SIGSTOP)
            asked, read = store.multi([Set("/kept", b"x")]), asyncio.ensure_future(store.get("/kept"))
            await asyncio.sleep(0)
            parent.kill()
            with pytest.raises(OutcomeUnknown):
                await asked
            with pytest.raises(StoreUnreachable):
                await read
            with pytest.raises(StoreUnreachable):
                await store.sync()
        assert events == [SessionEvent.LOST]
        async with process(PARENT, str(tmp_path)):

            async def renewed() -> bool:
                return events == [SessionEvent.LOST, SessionEvent.RENEWED]

            await until(renewed)
            assert store.session > first
            assert set((await store.tree("/")).nodes) == {"/kept"}
            await store.close()

    asyncio.run(act())


def test_a_session_is_renewed_although_the_outcome_of_its_begin_was_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(shared: Served) -> None:
        store = await shared.open()
        events: list[SessionEvent] = []
        store.on_session(events.append)
        begin, failures = shared.server.store.begin_session, [OutcomeUnknown("the disk failed in a commit")]

        async def begin_session() -> int:
            if failures:
                raise failures.pop()
            return await begin()

        monkeypatch.setattr(shared.server.store, "begin_session", begin_session)
        assert store._link is not None
        store._link.abort()

        async def renewed() -> bool:
            return events == [SessionEvent.LOST, SessionEvent.RENEWED]

        await until(renewed)
        assert not failures
        await store.sync()

    run(act, tmp_path)


def test_watches_go_on_in_a_renewed_session(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        watched, other = await shared.open(), await shared.open()
        seen: list[Changes | Gap] = []
        events: list[SessionEvent] = []
        watched.watch("/", seen.append)
        watched.on_session(events.append)
        assert watched._link is not None
        watched._link.abort()

        async def renewed() -> bool:
            return events == [SessionEvent.LOST, SessionEvent.RENEWED]

        await until(renewed)
        await watched.sync()
        number = await other.multi([Create("/a", b"")])
        await watched.sync()
        assert [report.number for report in seen if isinstance(report, Changes)] == [number]

    run(act, tmp_path)


def test_a_session_that_is_over_creates_nothing(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        session = await shared.store.begin_session()
        last = asyncio.ensure_future(shared.store.multi([Create("/last", b"", ephemeral=True)], session=session))
        await shared.store.end_session(session)
        assert await last > 0
        assert await shared.store.get("/last") is None
        with pytest.raises(StoreUnavailable, match="over"):
            shared.store.multi([Create("/late", b"", ephemeral=True)], session=session)

    run(act, tmp_path)


def test_the_end_of_a_session_is_stored_when_the_disk_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.metadata.shared_server.RETRY_S", 0.01)

    async def act(shared: Served) -> None:
        one = await shared.open()
        await one.multi([Create("/one", b"", ephemeral=True)])
        end_session = shared.store.end_session
        refusals = iter(range(3))

        def full(session: int) -> Any:
            if next(refusals, None) is not None:
                raise StoreUnavailable("the disk is full")
            return end_session(session)

        monkeypatch.setattr(shared.store, "end_session", full)
        assert one._link is not None
        one._link.abort()

        async def gone() -> bool:
            return await shared.store.get("/one") is None

        await until(gone)
        await one.close()

    run(act, tmp_path)


def test_a_large_tree_comes_in_parts(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        store = await shared.open()
        data = bytes(range(256)) * 16
        for start in range(0, 3_000, 200):
            await store.multi([Create(f"/{number}", data) for number in range(start, start + 200)])
        nodes = (await store.tree("/")).nodes
        assert len(nodes) == 3_000
        assert all(node.data == data for node in nodes.values())

    run(act, tmp_path)


def test_the_largest_transaction_fits_in_a_frame(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        store, other = await shared.open(), await shared.open()
        seen: list[Changes | Gap] = []
        other.watch("/", seen.append)
        await other.sync()
        worst = bytes(500 * 1024)
        await store.multi([Create("/a", worst), Create("/b", worst)])
        await other.sync()
        assert [type(report) for report in seen] == [Changes]
        assert (await store.tree("/")).nodes["/b"].data == worst

    run(act, tmp_path)


def test_a_process_that_reads_nothing_misses_changes_and_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.metadata.shared_server.UNSENT_BYTES_MAX", 64 * 1024)

    async def act(shared: Served) -> None:
        deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deaf.connect(str(shared.server.path))
        deaf.sendall(pack_frame([1, "begin", PROTOCOL_VERSION, LONG_MS]))

        async def begun() -> bool:
            return shared.server.sessions == 1

        await until(begun)
        deaf.sendall(pack_frame([2, "watch"]))
        writer = await shared.open()
        await writer.multi([Create("/a", b"")])
        for _ in range(200):
            await writer.multi([Set("/a", bytes(10_000))])
        reader = FrameReader()
        messages: list[Any] = []
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            while not any(message[:2] == [0, "gap"] for message in messages):
                messages += reader.feed(await loop.sock_recv(deaf, 1 << 16))
        changes = [message for message in messages if message[1] == "changes"]
        assert len(changes) < 200
        deaf.close()

    run(act, tmp_path)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (FRAME_BYTES_MAX + 1).to_bytes(4),
        (2).to_bytes(4) + b"{}",
        (3).to_bytes(4) + b"\xff\xff\xff",
        pack_frame([1, "get", "/"]),
        pack_frame([1, "begin", PROTOCOL_VERSION, LONG_MS]) + pack_frame([2, "begin", PROTOCOL_VERSION, LONG_MS]),
        pack_frame([1, "begin", PROTOCOL_VERSION, LONG_MS]) + pack_frame([2, "drop", "/"]),
        pack_frame([1, "begin", PROTOCOL_VERSION, LONG_MS]) + pack_frame([2, "multi", [["drop", "/"]]]),
    ],
)
def test_a_process_that_sends_nonsense_is_disconnected_and_hurts_no_other(tmp_path: Path, nonsense: bytes) -> None:
    async def act(shared: Served) -> None:
        good = await shared.open()
        reader, writer = await asyncio.open_unix_connection(str(shared.server.path))
        writer.write(nonsense)
        async with asyncio.timeout(PATIENCE_S):
            while await reader.read(1 << 16):
                pass
        writer.close()
        await good.multi([Create("/a", b"")])
        assert set((await good.tree("/")).nodes) == {"/a"}, "what the other process sent changed nothing"

    run(act, tmp_path)


def test_another_version_of_the_protocol_is_refused_in_words(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        reader, writer = await asyncio.open_unix_connection(str(shared.server.path))
        writer.write(pack_frame([1, "begin", PROTOCOL_VERSION + 1, LONG_MS]))
        length = int.from_bytes(await reader.readexactly(4))
        request, verb, words = json.loads(await reader.readexactly(length))
        assert (request, verb) == (1, "unavailable")
        assert "version" in words
        writer.close()

    run(act, tmp_path)


def test_only_its_user_can_open_the_socket(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        assert stat.S_IMODE(shared.server.path.parent.stat().st_mode) == 0o700

    (tmp_path / "metadata.shared").mkdir(0o777)
    run(act, tmp_path)
    assert not (tmp_path / "metadata.shared").exists()


def test_a_data_directory_may_have_a_longer_path_than_an_address(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)

    async def act(shared: Served) -> None:
        store = await shared.open()
        await store.multi([Create("/a", b"here")])
        node = await (await shared.open()).get("/a")
        assert node is not None, "both are served by one process"
        assert node.data == b"here"

    run(act, directory)


def test_a_socket_without_a_parent_is_unreachable(tmp_path: Path) -> None:
    async def act() -> None:
        with pytest.raises(StoreUnreachable, match=str(tmp_path)):
            await SharedStore.open(tmp_path / "socket", LONG_MS)

    asyncio.run(act())


def test_a_store_that_is_asked_for_too_much_at_once_answers_all_of_it(tmp_path: Path) -> None:
    async def act(shared: Served) -> None:
        store = await shared.open()
        operations: list[list[Operation]] = [[Create(f"/{number}", b"")] for number in range(1_000)]
        numbers = await asyncio.gather(*(store.multi(each) for each in operations))
        assert numbers == sorted(numbers)
        found = await asyncio.gather(*(store.get(f"/{number}") for number in range(1_000)))
        assert None not in found

    run(act, tmp_path)


def test_a_session_is_over_after_its_timeout_in_silence() -> None:
    silence = Silence()
    silence.begin(1, timeout_s=1.0)
    silence.begin(2, timeout_s=1.0)
    for _ in range(4):
        assert silence.tick(TICK_S) == []
    silence.heard(2)
    assert silence.tick(TICK_S) == [1]


def test_a_pause_of_the_parent_is_not_the_silence_of_its_sessions() -> None:
    silence = Silence()
    silence.begin(1, timeout_s=1.0)

    assert silence.tick(elapsed_s=3600.0) == []
    assert silence.tick(TICK_S) == []
