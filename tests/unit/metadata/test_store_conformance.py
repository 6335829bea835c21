"""What every metadata store promises, whatever keeps its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Change
from penstock.metadata.operations import Check, Create, Delete, Operation, Set
from penstock.metadata.store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreFault,
    StoreUnavailable,
)

OpenStore = Callable[[Path], Awaitable[MetadataStore]]
STORES: dict[str, OpenStore] = {"embedded": EmbeddedStore.open}
"""Opening one at the same path again, after it was closed, finds what the first left."""


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    return STORES[request.param]


def with_store(open_store: OpenStore, path: Path, act: Callable[[MetadataStore], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        store = await open_store(path)
        try:
            await act(store)
        finally:
            await store.close()

    asyncio.run(run())


async def refused(store: MetadataStore, operations: list[Operation]) -> StoreFault:
    with pytest.raises(StoreFault) as fault:
        await store.multi(operations)
    return fault.value


def test_a_created_node_can_be_read(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        number = await store.multi([Create("/a", b"x")])
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version, node.owner, node.created) == (b"x", 0, 0, number)
        assert await store.get("/b") is None

    with_store(open_store, tmp_path, act)


def test_a_node_is_made_once(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"x")])
        assert isinstance(await refused(store, [Create("/a", b"y")]), NodeExists)

    with_store(open_store, tmp_path, act)


def test_a_node_needs_its_parent(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        assert isinstance(await refused(store, [Create("/a/b", b"")]), NoNode)
        await store.multi([Create("/a", b""), Create("/a/b", b"")])
        assert await store.children("/a") == ["b"]

    with_store(open_store, tmp_path, act)


def test_a_node_with_children_is_not_removed(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b""), Create("/a/b", b"")])
        assert isinstance(await refused(store, [Delete("/a")]), NotEmpty)
        await store.multi([Delete("/a/b"), Delete("/a")])
        assert await store.get("/a") is None

    with_store(open_store, tmp_path, act)


def test_a_set_with_an_old_version_is_refused(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0")])
        await store.multi([Set("/a", b"1", version=0)])
        assert isinstance(await refused(store, [Set("/a", b"2", version=0)]), BadVersion)
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 1)

    with_store(open_store, tmp_path, act)


def test_without_a_version_any_will_do(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0"), Set("/a", b"1"), Set("/a", b"2")])
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"2", 2)
        await store.multi([Delete("/a")])

    with_store(open_store, tmp_path, act)


@pytest.mark.parametrize("operation", [Set("/none", b""), Delete("/none"), Check("/none", 0)])
def test_what_is_not_there_cannot_be_changed(open_store: OpenStore, tmp_path: Path, operation: Operation) -> None:
    async def act(store: MetadataStore) -> None:
        assert isinstance(await refused(store, [operation]), NoNode)

    with_store(open_store, tmp_path, act)


def test_a_failed_transaction_changes_nothing_and_names_the_operation(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"0")])
        fault = await refused(store, [Set("/a", b"1"), Create("/b", b""), Check("/a", 7)])
        assert isinstance(fault, BadVersion)
        assert (fault.path, fault.index) == ("/a", 2)
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"0", 0)
        assert await store.get("/b") is None

    with_store(open_store, tmp_path, act)


def test_a_check_guards_the_rest_of_a_transaction(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/epoch", b"1"), Create("/a", b"")])
        await store.multi([Check("/epoch", 0), Set("/a", b"by the first")])
        await store.multi([Set("/epoch", b"2", version=0)])
        assert isinstance(await refused(store, [Check("/epoch", 0), Set("/a", b"by the first")]), BadVersion)

    with_store(open_store, tmp_path, act)


def test_one_refused_transaction_leaves_its_neighbours_alone(open_store: OpenStore, tmp_path: Path) -> None:
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

    with_store(open_store, tmp_path, act)


def test_children_are_those_right_below_sorted(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create(path, b"") for path in ("/a", "/a/z", "/a/b", "/a/b/c", "/a.x", "/a0")])
        assert await store.children("/a") == ["b", "z"]
        assert await store.children("/a/z") == []
        with pytest.raises(NoNode):
            await store.children("/none")

    with_store(open_store, tmp_path, act)


def test_a_tree_is_the_node_and_all_below_it(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create(path, path.encode()) for path in ("/a", "/a/b", "/a/b/c", "/a-x", "/b")])
        tree = await store.tree("/a")
        assert list(tree) == ["/a", "/a/b", "/a/b/c"]
        assert tree["/a/b"].data == b"/a/b"
        assert set(await store.tree("/")) == {"/a", "/a/b", "/a/b/c", "/a-x", "/b"}
        assert await store.tree("/none") == {}

    with_store(open_store, tmp_path, act)


def test_a_watch_tells_of_each_transaction_before_its_writer_goes_on(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen: list[list[Change]] = []
        await store.multi([Create("/t", b""), Create("/u", b"")])
        store.watch("/t", lambda changes: seen.append(list(changes)))
        made = await store.multi([Create("/t/a", b"1"), Create("/t/b", b"2"), Set("/u", b"not watched")])
        assert [[(c.path, c.data, c.version, c.created) for c in changes] for changes in seen] == [
            [("/t/a", b"1", 0, made), ("/t/b", b"2", 0, made)]
        ]
        await store.multi([Set("/t/a", b"3"), Delete("/t/b")])
        assert [(c.path, c.data) for c in seen[1]] == [("/t/a", b"3"), ("/t/b", None)]
        await store.multi([Set("/u", b"")])
        assert len(seen) == 2

    with_store(open_store, tmp_path, act)


def test_a_watch_sees_transactions_in_their_order(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen: list[bytes | None] = []
        await store.multi([Create("/t", b"")])
        store.watch("/t", lambda changes: seen.extend(change.data for change in changes))
        await asyncio.gather(*(store.multi([Set("/t", b"%d" % n)]) for n in range(50)))
        assert seen == [b"%d" % n for n in range(50)]

    with_store(open_store, tmp_path, act)


def test_a_watch_ends_when_told_and_a_refused_transaction_tells_nothing(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        seen: list[object] = []
        unwatch = store.watch("/", seen.append)
        await refused(store, [Create("/a", b""), Check("/b", 0)])
        assert seen == []
        await store.multi([Create("/a", b"")])
        assert len(seen) == 1
        unwatch()
        await store.multi([Create("/b", b"")])
        assert len(seen) == 1

    with_store(open_store, tmp_path, act)


def test_an_ephemeral_node_goes_with_its_session(open_store: OpenStore, tmp_path: Path) -> None:
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

    with_store(open_store, tmp_path, register)
    with_store(open_store, tmp_path, look)


def test_an_ephemeral_node_has_no_children(open_store: OpenStore, tmp_path: Path) -> None:
    async def act(store: MetadataStore) -> None:
        await store.multi([Create("/e", b"", ephemeral=True)])
        assert isinstance(await refused(store, [Create("/e/x", b"")]), NoNode)

    with_store(open_store, tmp_path, act)


def test_what_was_written_is_there_for_the_next_session(open_store: OpenStore, tmp_path: Path) -> None:
    numbers: list[int] = []

    async def write(store: MetadataStore) -> None:
        numbers.append(await store.multi([Create("/a", b"\x00\xff"), Set("/a", b"kept")]))

    async def read(store: MetadataStore) -> None:
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"kept", 1)
        assert await store.multi([Create("/b", b"")]) > numbers[0]

    with_store(open_store, tmp_path, write)
    with_store(open_store, tmp_path, read)


def test_a_closed_store_refuses_in_words(open_store: OpenStore, tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(tmp_path)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.multi([Create("/a", b"")])
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get("/a")

    asyncio.run(run())


def test_what_was_asked_before_the_close_is_still_done(open_store: OpenStore, tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_store(tmp_path)
        asked = [store.multi([Create(f"/{n}", b"")]) for n in range(300)]
        await store.close()
        assert len(set(await asyncio.gather(*asked))) == 300

    asyncio.run(run())


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
    open_store: OpenStore, tmp_path_factory: pytest.TempPathFactory, transactions: list[list[Operation]]
) -> None:
    model = Model()

    async def act(store: MetadataStore) -> None:
        mirror: dict[str, bytes] = {}

        def follow(changes: Any) -> None:
            for change in changes:
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
        tree = await store.tree("/")
        assert {path: (node.data, node.version) for path, node in tree.items()} == model.nodes
        assert mirror == {path: data for path, (data, _) in model.nodes.items()}

    with_store(open_store, tmp_path_factory.mktemp("store"), act)
