"""What every metadata store promises, whatever keeps its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.nodes import Change, Changes, Gap
from penstock.metadata.operations import Check, Create, Delete, Operation, Set
from penstock.metadata.shared import SharedStore
from penstock.metadata.shared_server import SharedStoreServer
from penstock.metadata.store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreFault,
    StoreUnavailable,
)
from penstock.observe.log import logger
from penstock.testing.sim.store import SimSource, SimStore


class Kind:
    """How a store is opened and run: opening it at the same path again, after it was closed, finds what was left."""

    def __init__(
        self, open_store: Callable[[Path], Awaitable[MetadataStore]], run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self.open = open_store
        self.run = run


def embedded() -> Kind:
    return Kind(EmbeddedStore.open, asyncio.run)


def simulated() -> Kind:
    stores: dict[Path, SimStore] = {}

    async def open_store(path: Path) -> MetadataStore:
        return await SimSource(stores.setdefault(path, SimStore(SeededRandomness(1))), exclusive=True).open()

    return Kind(open_store, run_virtual)


def shared() -> Kind:
    """A session of a server in the same process, which ends with the run."""
    served: list[tuple[SharedStoreServer, EmbeddedStore]] = []

    async def open_store(path: Path) -> MetadataStore:
        store = await EmbeddedStore.open(path)
        server = await SharedStoreServer.open(store, path, logger("metadata"))
        served.append((server, store))
        return await SharedStore.open(server.path, timeout_ms=9_000)

    async def with_servers(act: Coroutine[Any, Any, None]) -> None:
        try:
            await act
        finally:
            while served:
                server, store = served.pop()
                await server.close()
                await store.close()

    return Kind(open_store, lambda act: asyncio.run(with_servers(act)))


KINDS = {"embedded": embedded, "shared": shared, "simulated": simulated}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]()


def with_store(kind: Kind, path: Path, act: Callable[[MetadataStore], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = await kind.open(path)
        try:
            await act(store)
        finally:
            await store.close()

    kind.run(run())


async def until(fact: Callable[[], bool]) -> None:
    """Wait for what a store reports when it likes."""
    for _ in range(1_000):
        if fact():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


class Seen:
    """What a watch reported; a gap is not expected."""

    def __init__(self) -> None:
        self.reports: list[Changes] = []

    def __call__(self, report: Changes | Gap) -> None:
        assert isinstance(report, Changes), "a gap without a fault"
        self.reports.append(report)

    @property
    def number(self) -> int:
        return self.reports[-1].number if self.reports else 0

    @property
    def changes(self) -> list[Change]:
        return [change for report in self.reports for change in report.changes]


async def refused(store: MetadataStore, operations: list[Operation]) -> StoreFault:
    with pytest.raises(StoreFault) as fault:
        await store.multi(operations)
    return fault.value


def test_a_created_node_can_be_read(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        number = await store.multi([Create("/a", b"x")])
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version, node.owner, node.created) == (b"x", 0, 0, number)
        assert await store.get("/b") is None

    with_store(kind, tmp_path, act)


def test_a_node_is_made_once(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"x")])
        assert isinstance(await refused(store, [Create("/a", b"y")]), NodeExists)

    with_store(kind, tmp_path, act)


def test_a_node_needs_its_parent(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        assert isinstance(await refused(store, [Create("/a/b", b"")]), NoNode)
        await store.multi([Create("/a", b""), Create("/a/b", b"")])
        assert await store.children("/a") == ["b"]

    with_store(kind, tmp_path, act)


def test_a_node_with_children_is_not_removed(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b""), Create("/a/b", b"")])
        assert isinstance(await refused(store, [Delete("/a")]), NotEmpty)
        await store.multi([Delete("/a/b"), Delete("/a")])
        assert await store.get("/a") is None

    with_store(kind, tmp_path, act)


def test_a_set_with_an_old_version_is_refused(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0")])
        await store.multi([Set("/a", b"1", version=0)])
        assert isinstance(await refused(store, [Set("/a", b"2", version=0)]), BadVersion)
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 1)

    with_store(kind, tmp_path, act)


def test_without_a_version_any_will_do(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0"), Set("/a", b"1"), Set("/a", b"2")])
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"2", 2)
        await store.multi([Delete("/a")])

    with_store(kind, tmp_path, act)


@pytest.mark.parametrize("operation", [Set("/none", b""), Delete("/none"), Check("/none", 0)])
def test_what_is_not_there_cannot_be_changed(kind: Kind, tmp_path: Path, operation: Operation) -> None:
    async def act(store: MetadataStore) -> None:
        assert isinstance(await refused(store, [operation]), NoNode)

    with_store(kind, tmp_path, act)


def test_a_failed_transaction_changes_nothing_and_names_the_operation(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0")])
        fault = await refused(store, [Set("/a", b"1"), Create("/b", b""), Check("/a", 7)])
        assert isinstance(fault, BadVersion)
        assert (fault.path, fault.index) == ("/a", 2)
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"0", 0)
        assert await store.get("/b") is None

    with_store(kind, tmp_path, act)


def test_a_check_guards_the_rest_of_a_transaction(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/epoch", b"1"), Create("/a", b"")])
        await store.multi([Check("/epoch", 0), Set("/a", b"by the first")])
        await store.multi([Set("/epoch", b"2", version=0)])
        assert isinstance(await refused(store, [Check("/epoch", 0), Set("/a", b"by the first")]), BadVersion)

    with_store(kind, tmp_path, act)


def test_one_refused_transaction_leaves_its_neighbours_alone(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        asked = [
            store.multi([Create("/a", b"")]),
            store.multi([Create("/b", b""), Create("/a", b"")]),
            store.multi([Create("/c", b"")]),
        ]
        first, second, third = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(second, NodeExists)
        assert isinstance(first, int)
        assert isinstance(third, int)
        assert third > first
        assert await store.get("/b") is None
        assert await store.get("/c") is not None

    with_store(kind, tmp_path, act)


def test_children_are_those_right_below_sorted(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create(path, b"") for path in ("/a", "/a/z", "/a/b", "/a/b/c", "/a.x", "/a0")])
        assert await store.children("/a") == ["b", "z"]
        assert await store.children("/a/z") == []
        with pytest.raises(NoNode):
            await store.children("/none")

    with_store(kind, tmp_path, act)


def test_a_tree_is_the_node_and_all_below_it(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create(path, path.encode()) for path in ("/a", "/a/b", "/a/b/c", "/a-x", "/b")])
        tree = (await store.tree("/a")).nodes
        assert list(tree) == ["/a", "/a/b", "/a/b/c"]
        assert tree["/a/b"].data == b"/a/b"
        assert set((await store.tree("/")).nodes) == {"/a", "/a/b", "/a/b/c", "/a-x", "/b"}
        assert (await store.tree("/none")).nodes == {}

    with_store(kind, tmp_path, act)


def test_a_tree_is_as_of_the_last_transaction_that_changed_anything(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        first = await store.multi([Create("/a", b"")])
        assert (await store.tree("/")).number == first
        assert await store.multi([Check("/a", 0)]) == first
        second = await store.multi([Check("/a", 0), Set("/a", b"1")])
        assert second > first
        await store.sync()
        assert (await store.tree("/a")).number == second

    with_store(kind, tmp_path, act)


def test_a_watch_reports_each_transaction_below_its_path(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen = Seen()
        await store.multi([Create("/t", b""), Create("/u", b"")])
        store.watch("/t", seen)
        made = await store.multi([Create("/t/a", b"1"), Create("/t/b", b"2"), Set("/u", b"not watched")])
        await until(lambda: seen.number == made)
        reported = [(c.path, c.data, c.version, c.created) for c in seen.changes if c.created == made]
        assert reported == [("/t/a", b"1", 0, made), ("/t/b", b"2", 0, made)]
        before = len(seen.reports)
        changed = await store.multi([Set("/t/a", b"3"), Delete("/t/b")])
        await until(lambda: seen.number == changed)
        assert [(c.path, c.data) for c in seen.reports[before].changes] == [("/t/a", b"3"), ("/t/b", None)]
        await store.multi([Set("/u", b"")])
        last = await store.multi([Set("/t", b"last")])
        await until(lambda: seen.number == last)
        assert [c.path for c in seen.reports[-1].changes] == ["/t"]
        assert len(seen.reports) == before + 2

    with_store(kind, tmp_path, act)


def test_a_watch_sees_transactions_in_their_order(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen = Seen()
        await store.multi([Create("/t", b"")])
        store.watch("/t", seen)
        numbers = await asyncio.gather(*(store.multi([Set("/t", b"%d" % n)]) for n in range(50)))
        await until(lambda: seen.number == numbers[-1])
        assert numbers == sorted(numbers)
        # Several may come as one report, with the last state of the node.
        expected = {number: b"%d" % n for n, number in enumerate(numbers)}
        reported = [(report.number, report.changes[-1].data) for report in seen.reports if report.number in expected]
        assert reported == [(number, expected[number]) for number, _ in reported]
        assert [number for number, _ in reported] == sorted({number for number, _ in reported})

    with_store(kind, tmp_path, act)


def test_a_watch_ends_when_asked_and_a_refused_transaction_reports_nothing(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen, other = Seen(), Seen()
        unwatch = store.watch("/", seen)
        store.watch("/", other)
        await refused(store, [Create("/a", b""), Check("/b", 0)])
        number = await store.multi([Create("/a", b"")])
        await until(lambda: seen.number == number)
        assert len(seen.reports) == 1
        unwatch()
        number = await store.multi([Create("/b", b"")])
        await until(lambda: other.number == number)
        assert len(seen.reports) == 1

    with_store(kind, tmp_path, act)


def test_a_watcher_that_fails_is_reported_and_hurts_no_other(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        failures: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        seen = Seen()

        def fail(_: Changes | Gap) -> None:
            raise ValueError("a bug")

        store.watch("/", fail)
        store.watch("/", seen)
        number = await store.multi([Create("/a", b"")])
        await until(lambda: seen.number == number)
        assert failures == ["a bug"]

    with_store(kind, tmp_path, act)


def test_an_ephemeral_node_goes_with_its_session(kind: Kind, tmp_path: Path) -> None:
    sessions: list[int] = []

    async def register(store: MetadataStore) -> None:
        await store.multi([Create("/brokers", b""), Create("/brokers/1", b"here", ephemeral=True)])
        node = await store.get("/brokers/1")
        assert node is not None
        assert node.owner == store.session
        sessions.append(store.session)

    async def look(store: MetadataStore) -> None:
        assert await store.get("/brokers/1") is None
        assert await store.get("/brokers") is not None
        assert store.session not in sessions

    with_store(kind, tmp_path, register)
    with_store(kind, tmp_path, look)


def test_an_ephemeral_node_has_no_children(kind: Kind, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/e", b"", ephemeral=True)])
        assert isinstance(await refused(store, [Create("/e/x", b"")]), NoNode)

    with_store(kind, tmp_path, act)


def test_what_was_written_is_there_for_the_next_session(kind: Kind, tmp_path: Path) -> None:
    numbers: list[int] = []

    async def write(store: MetadataStore) -> None:
        numbers.append(await store.multi([Create("/a", b"\x00\xff"), Set("/a", b"kept")]))

    async def read(store: MetadataStore) -> None:
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"kept", 1)
        assert await store.multi([Create("/b", b"")]) > numbers[0]

    with_store(kind, tmp_path, write)
    with_store(kind, tmp_path, read)


def test_a_closed_store_refuses_in_words(kind: Kind, tmp_path: Path) -> None:
    async def run() -> None:
        store = await kind.open(tmp_path)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.multi([Create("/a", b"")])
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get("/a")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.sync()

    kind.run(run())


def test_what_was_asked_before_the_close_is_still_done(kind: Kind, tmp_path: Path) -> None:
    async def run() -> None:
        store = await kind.open(tmp_path)
        asked = [store.multi([Create(f"/{n}", b"")]) for n in range(300)]
        await store.close()
        assert len(set(await asyncio.gather(*asked))) == 300

    kind.run(run())


PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/z")
OPERATIONS = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=3)),
    st.builds(Set, st.sampled_from(PATHS), st.binary(max_size=3), st.integers(-1, 2)),
    st.builds(Delete, st.sampled_from(PATHS), st.integers(-1, 2)),
    st.builds(Check, st.sampled_from(PATHS), st.integers(0, 2)),
)


class Model:
    """The same promises, over a dictionary of (data, version)."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}

    def multi(self, operations: list[Operation]) -> type[StoreFault] | None:
        nodes = dict(self.nodes)
        for operation in operations:
            fault = self.one(nodes, operation)
            if fault is not None:
                return fault
        self.nodes = nodes
        return None

    @staticmethod
    def one(nodes: dict[str, tuple[bytes, int]], operation: Operation) -> type[StoreFault] | None:
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0]
            if path in nodes:
                return NodeExists
            if parent and parent not in nodes:
                return NoNode
            nodes[path] = (operation.data, 0)
            return None
        if path not in nodes:
            return NoNode
        if operation.version not in (-1, nodes[path][1]):
            return BadVersion
        if isinstance(operation, Set):
            nodes[path] = (operation.data, nodes[path][1] + 1)
        if isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in nodes):
                return NotEmpty
            del nodes[path]
        return None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12))
def test_any_transactions_do_what_a_dictionary_would(
    kind: Kind, tmp_path_factory: pytest.TempPathFactory, transactions: list[list[Operation]]
) -> None:
    model = Model()

    async def act(store: MetadataStore) -> None:
        mirror: dict[str, bytes] = {}
        seen = Seen()

        def follow(report: Changes | Gap) -> None:
            seen(report)
            for change in seen.reports[-1].changes:
                if change.data is None:
                    mirror.pop(change.path, None)
                else:
                    mirror[change.path] = change.data

        store.watch("/", follow)
        for operations in transactions:
            expected = model.multi(operations)
            if expected is None:
                await store.multi(operations)
            else:
                assert type(await refused(store, operations)) is expected
        tree = (await store.tree("/")).nodes
        assert {path: (node.data, node.version) for path, node in tree.items()} == model.nodes
        number = await store.multi([Create("/last", b"")])
        await until(lambda: seen.number == number)
        assert mirror == {path: data for path, (data, _) in model.nodes.items()} | {"/last": b""}

    with_store(kind, tmp_path_factory.mktemp("store"), act)
