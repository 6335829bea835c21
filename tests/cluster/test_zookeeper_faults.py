"""Bad days of a metadata store in ZooKeeper: real servers killed, paused and wiped, and connections cut."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from cluster.zookeeper_stores import SESSION_MS, source
from penstock.controller.outcomes import Found, Sent, found_after
from penstock.metadata.catalog import Catalog
from penstock.metadata.nodes import Changes, Gap
from penstock.metadata.operations import Create, Set
from penstock.metadata.store import OutcomeUnknown, SessionEvent, StoreUnavailable, StoreUnreachable
from penstock.metadata.zookeeper import ZooKeeperStore
from penstock.testing.proxy import Proxy
from penstock.testing.zookeeper import ZooKeeper

pytestmark = pytest.mark.xdist_group("zookeeper")
WAIT_S = 60.0
SHORT_SESSION_MS = 2_000


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as servers:
        yield servers


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[Proxy]:
    with Proxy(zookeeper.servers[0].port) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "zookeeper"] == []


class Followed:
    """What a store reported: events of its session, and changes."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.events: list[SessionEvent] = []
        self.reports: list[Changes | Gap] = []
        store.on_session(self.events.append)
        store.watch("/", self.reports.append)


@asynccontextmanager
async def opened(servers: str, root: str, session_ms: int = SESSION_MS) -> AsyncIterator[ZooKeeperStore]:
    store = await source(servers, root, session_ms).open()
    try:
        yield store
    finally:
        await store.close()


async def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"no {what} within {WAIT_S:g} s"
        await asyncio.sleep(0.01)


async def write_until_done(store: ZooKeeperStore, path: str, data: bytes) -> int:
    """Write one node again and again until it is known to be done."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return await store.multi([Set(path, data)])
        except (StoreUnreachable, OutcomeUnknown):
            assert time.monotonic() < deadline, "the store does not come back"
            await asyncio.sleep(0.05)


def test_a_cut_connection_suspends_the_session_and_its_return_is_a_gap(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    async def run() -> None:
        async with opened(proxy.address, "/cut") as store, opened(zookeeper.connect, "/cut") as other:
            followed, session = Followed(store), store.session
            await store.multi([Create("/e", b"", ephemeral=True)])
            proxy.refuse()
            await until(lambda: followed.events == [SessionEvent.SUSPENDED], "suspension")
            with pytest.raises(StoreUnreachable):
                await store.get("/e")
            with pytest.raises(StoreUnreachable):
                store.multi([Create("/not-sent", b"")])
            missed = await other.multi([Create("/missed", b"")])
            followed.reports.clear()
            proxy.accept()
            await until(lambda: len(followed.events) == 2, "return")
            assert followed.events[1] is SessionEvent.RESUMED
            assert store.session == session
            assert followed.reports == [Gap()]
            tree = await store.tree("/")
            assert tree.number >= missed
            assert set(tree.nodes) == {"/e", "/missed"}
            assert tree.nodes["/e"].owner == session

    asyncio.run(run())


def test_a_session_that_ends_takes_its_nodes_and_another_begins(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    async def run() -> None:
        async with (
            opened(proxy.address, "/expiry", SHORT_SESSION_MS) as store,
            opened(zookeeper.connect, "/expiry") as other,
        ):
            followed, session = Followed(store), store.session
            seen = Followed(other)
            number = await store.multi([Create("/e", b"", ephemeral=True)])
            proxy.cut(to_server=True, from_server=True)
            await until(lambda: _gone(seen, "/e"), "end of the ephemeral node")
            proxy.heal()
            await until(lambda: SessionEvent.RENEWED in followed.events, "new session")
            assert followed.events == [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.RENEWED]
            assert store.session != session
            assert await store.get("/e") is None
            assert (await store.tree("/")).number > number
            assert await store.multi([Create("/e", b"", ephemeral=True)]) > number

    asyncio.run(run())


def _gone(followed: Followed, path: str) -> bool:
    return any(
        change.path == path and change.data is None
        for report in followed.reports
        if isinstance(report, Changes)
        for change in report.changes
    )


@pytest.mark.parametrize("arrives", [True, False])
def test_the_outcome_of_a_write_whose_response_is_lost_is_unknown_and_its_mark_shows_it(
    zookeeper: ZooKeeper, proxy: Proxy, arrives: bool
) -> None:
    async def run() -> None:
        async with opened(proxy.address, f"/mark-{arrives}") as store:
            await store.multi([Create("/changes", b"")])
            sent = Sent(mark=b"mine", expected=0)
            proxy.cut(to_server=not arrives, from_server=arrives)
            writing = asyncio.ensure_future(store.multi([Set("/changes", sent.mark, sent.expected)]))
            before = proxy.bytes_copied[0]
            if arrives:
                await until(lambda: proxy.bytes_copied[0] > before and proxy.bytes_held[1] > 0, "response under way")
            else:
                await until(lambda: proxy.bytes_held[0] > 0, "request under way")
            # What is held is lost with the connection.
            proxy.drop()
            with pytest.raises(OutcomeUnknown):
                await writing
            proxy.heal()
            await _reachable(store)
            await store.sync()
            changes = await store.get("/changes")
            assert found_after(sent, changes) is (Found.DONE if arrives else Found.PENDING)

    asyncio.run(run())


async def _reachable(store: ZooKeeperStore) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            await store.sync()
        except StoreUnreachable:
            assert time.monotonic() < deadline, "the store does not come back"
            await asyncio.sleep(0.02)
        else:
            return


def test_a_hung_loop_ends_the_session(zookeeper: ZooKeeper) -> None:
    ended_s: list[float] = []

    def watch_from_another_loop(began: float) -> None:
        async def look() -> None:
            async with opened(zookeeper.connect, "/hung") as other:
                seen = Followed(other)
                if await other.get("/e") is not None:
                    await until(lambda: _gone(seen, "/e"), "end of the ephemeral node")
                ended_s.append(time.monotonic() - began)

        asyncio.run(look())

    async def run() -> None:
        async with opened(zookeeper.connect, "/hung", SHORT_SESSION_MS) as store:
            followed, session = Followed(store), store.session
            await store.multi([Create("/e", b"", ephemeral=True)])
            other = threading.Thread(target=watch_from_another_loop, args=(time.monotonic(),))
            other.start()
            other.join(WAIT_S)
            await until(lambda: SessionEvent.RENEWED in followed.events, "new session")
            assert followed.events == [SessionEvent.LOST, SessionEvent.RENEWED]
            assert store.session != session

    asyncio.run(run())
    # The loop hung until the node had gone, and not before its time.
    assert ended_s[0] > SHORT_SESSION_MS / 1000 / 2


def test_a_loop_that_turns_keeps_its_session(zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        async with opened(zookeeper.connect, "/alive", SHORT_SESSION_MS) as store:
            followed = Followed(store)
            await store.multi([Create("/e", b"", ephemeral=True)])
            await asyncio.sleep(2 * SHORT_SESSION_MS / 1000)
            assert followed.events == []
            assert await store.get("/e") is not None

    asyncio.run(run())


def test_ten_thousand_nodes_are_read_while_others_change_and_the_loop_stays_free(zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        async with opened(zookeeper.connect, "/many") as store, opened(zookeeper.connect, "/many") as other:
            await store.multi([Create("/topics", b""), Create("/hot", b"")])
            for first in range(0, 10_000, 1_000):
                await store.multi([Create(f"/topics/{n}", b"%d" % n) for n in range(first, first + 1_000)])
            reading = asyncio.ensure_future(store.tree("/"))
            numbers: list[int] = []
            turns: list[float] = []
            while not reading.done():
                # Two nodes of one transaction: a tree has both or neither.
                n = len(numbers)
                numbers.append(await other.multi([Set("/hot", b"%d" % n), Set("/topics/7", b"%d" % n)]))
                turns.append(time.monotonic())
                if n == 20:
                    await reading
            tree = await reading
            assert len(tree.nodes) == 10_002
            assert tree.nodes["/hot"].data in (b"", tree.nodes["/topics/7"].data)
            assert tree.number in numbers or tree.number < numbers[0]
            if tree.number in numbers:
                assert tree.nodes["/hot"].data == b"%d" % numbers.index(tree.number)

    asyncio.run(run())


def test_a_transaction_as_large_as_allowed_is_done(zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        async with opened(zookeeper.connect, "/a-long-root-of-a-cluster/" + "x" * 60) as store:
            await store.multi([Create("/t", b"")])
            each = store.bytes_max // store.operations_max - 80
            small = [Create(f"/t/{n:04}", b"x" * each) for n in range(store.operations_max)]
            await store.multi(small)
            half = store.bytes_max // 2 - 100
            await store.multi([Create("/large", b"x" * half), Create("/larger", b"x" * half)])
            assert len((await store.tree("/")).nodes) == store.operations_max + 3

    asyncio.run(run())


def test_a_catalog_follows_through_a_cut(zookeeper: ZooKeeper, proxy: Proxy) -> None:
    async def run() -> None:
        async with opened(proxy.address, "/catalog") as store, opened(zookeeper.connect, "/catalog") as other:
            await store.multi([Create("/cluster", b"first"), Create("/changes", b"")])
            catalog = Catalog()
            await catalog.open(store)
            assert catalog.image.cluster_id == "first"
            proxy.drop()
            number = await other.multi([Set("/cluster", b"second")])
            await asyncio.wait_for(catalog.at_least(number), WAIT_S)
            assert catalog.image.cluster_id == "second"
            catalog.close()

    asyncio.run(run())


def test_nobody_at_the_address_is_told_in_words() -> None:
    async def run() -> None:
        with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1 cannot be reached: .*refused"):
            await source("127.0.0.1:1", connection_timeout_s=1).open()

    asyncio.run(run())


def test_a_server_whose_data_is_gone_is_refused() -> None:
    async def run(zookeeper: ZooKeeper) -> None:
        async with opened(zookeeper.connect, "/wiped", SHORT_SESSION_MS) as store:
            followed = Followed(store)
            for n in range(10):
                await store.multi([Create(f"/{n}", b"")])
            server = zookeeper.servers[0]
            server.kill()
            server.wipe()
            await asyncio.to_thread(server.start)
            await until(lambda: SessionEvent.LOST in followed.events, "end of the session")
            with pytest.raises(StoreUnavailable, match="went back"):
                await _refused(store)
            assert SessionEvent.RENEWED not in followed.events

    with ZooKeeper() as servers:
        asyncio.run(run(servers))


async def _refused(store: ZooKeeperStore) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            await store.get("/0")
        except StoreUnreachable:
            await asyncio.sleep(0.02)
    raise AssertionError("neither refused nor reached")


def test_an_ensemble_goes_on_without_its_leader_and_while_a_server_is_paused() -> None:
    async def run(zookeeper: ZooKeeper) -> None:
        async with opened(zookeeper.connect, "/three", session_ms=6_000) as store:
            followed, session = Followed(store), store.session
            await store.multi([Create("/a", b"")])
            await store.multi([Create("/e", b"", ephemeral=True)])
            leader = await asyncio.to_thread(zookeeper.leader)
            leader.kill()
            number = await write_until_done(store, "/a", b"without the leader")
            assert store.session == session
            await asyncio.to_thread(leader.start)
            paused = await asyncio.to_thread(zookeeper.leader)
            paused.pause()
            later = await write_until_done(store, "/a", b"while it is paused")
            assert later > number
            paused.resume()
            node = await store.get("/e")
            assert node is not None
            assert node.owner == store.session == session
            assert SessionEvent.LOST not in followed.events

    with ZooKeeper(3) as servers:
        asyncio.run(run(servers))


def test_a_session_moves_from_a_new_leader_to_a_follower_before_anything_was_written() -> None:
    """The leader then names the beginning of its term as the last it has done, and the follower does not."""

    async def run(zookeeper: ZooKeeper, proxies: dict[str, Proxy]) -> None:
        connect = ",".join(proxy.address for proxy in proxies.values())
        async with opened(connect, "/term", session_ms=20_000) as store:
            followed, session = Followed(store), store.session
            number = await store.multi([Create("/a", b"")])
            for proxy in proxies.values():
                proxy.refuse()
            for server in zookeeper.servers:
                server.kill()
            for server in zookeeper.servers:
                server.launch()
            for server in zookeeper.servers:
                await asyncio.to_thread(server.wait_until_serving)
            leader = (await asyncio.to_thread(zookeeper.leader)).address
            follower = next(address for address in proxies if address != leader)
            for place, resumed in ((leader, 1), (follower, 2), (leader, 3)):
                for proxy in proxies.values():
                    proxy.refuse()
                proxies[place].accept()
                await until(lambda resumed=resumed: followed.events.count(SessionEvent.RESUMED) == resumed, "return")
                assert store.session == session
                tree = await store.tree("/")
                assert tree.number > number
                number = tree.number

    with ZooKeeper(3) as servers, ExitStack() as proxies:
        asyncio.run(
            run(servers, {server.address: proxies.enter_context(Proxy(server.port)) for server in servers.servers})
        )
