"""The simulated store: its faults happen, are counted, keep the contract, and repeat themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.metadata.nodes import Changes, Gap, Node
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.store import OutcomeUnknown, SessionEvent, StoreFault, StoreUnavailable
from penstock.testing.sim.store import SimSession, SimSource, SimStore, StoreFaults

EVERYTHING = StoreFaults(watch_delay_s_max=1.0, coalesce_percent=30, lose_percent=5, unknown_percent=15, lag_percent=50)


async def written(store: SimSession, operations: list[Operation]) -> bool | None:
    """Whether it was done; None if that is unknown."""
    try:
        await store.multi(operations)
    except OutcomeUnknown:
        return None
    except (StoreFault, StoreUnavailable):
        return False
    return True


async def patient(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        with suppress(StoreUnavailable):
            await ask()
            return
        await asyncio.sleep(0.1)


class Mirror:
    """A watcher that keeps the contract's rules: newer reports only, and the tree again after a gap."""

    def __init__(self, store: SimSession) -> None:
        self._store = store
        self.number = 0
        self.nodes: dict[str, bytes] = {}
        self.gaps = 0
        store.watch("/", self.arrived)

    def arrived(self, report: Changes | Gap) -> None:
        if isinstance(report, Gap):
            self.gaps += 1
            return
        if self.gaps or report.number <= self.number:
            return
        self.number = report.number
        for change in report.changes:
            if change.data is None:
                self.nodes.pop(change.path, None)
            else:
                self.nodes[change.path] = change.data

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            if self.gaps:
                gaps = self.gaps
                with suppress(StoreUnavailable):
                    await self._store.sync()
                    tree = await self._store.tree("/")
                    if tree.number >= self.number and gaps == self.gaps:
                        self.gaps = 0
                        self.number = tree.number
                        self.nodes = {path: node.data for path, node in tree.nodes.items()}


async def wear_out(seed: int) -> tuple[dict[str, Node], dict[str, int]]:
    """Write through three sessions with every fault on, then heal and compare what their watches brought."""
    server = SimStore(SeededRandomness(seed), session_timeout_s=4.0)
    source = SimSource(server)
    clients = [await source.open() for _ in range(3)]
    await clients[0].multi([Create("/t", b""), *(Create(f"/t/{n}", b"") for n in range(5))])
    mirrors = [Mirror(client) for client in clients]
    following = [asyncio.create_task(mirror.follow()) for mirror in mirrors]
    for mirror in mirrors:
        mirror.arrived(Gap())
    server.faults = EVERYTHING
    acknowledged: dict[bytes, int] = {}
    refused: set[bytes] = set()
    history: list[bytes] = []
    clients[0].watch("/", lambda _: None)

    async def write(at: int) -> None:
        client = clients[at]
        for n in range(60):
            mark = b"%d.%d" % (at, n)
            path = f"/t/{server.below(5)}"
            node = None
            with suppress(StoreUnavailable):
                node = await client.get(path)
            done = await written(client, [Set(path, mark, -1 if node is None else node.version)])
            if done:
                acknowledged[mark] = n
            elif done is False:
                refused.add(mark)
            if n % 20 == 7:
                server.suspend(client.session, server.seconds(6.0))
            if n % 20 == 14:
                server.expire(client.session)
            await asyncio.sleep(0.3)

    commit = server.commit

    def recorded(session: int, operations: list[Operation]) -> int | StoreFault:
        outcome = commit(session, operations)
        if isinstance(outcome, int):
            history.extend(each.data for each in operations if isinstance(each, Set))
        return outcome

    server.commit = recorded  # type: ignore[method-assign, assignment]
    await asyncio.gather(*(write(at) for at in range(3)))
    server.faults = StoreFaults()
    await asyncio.sleep(20)
    assert set(acknowledged) <= set(history), "an acknowledged transaction was not done"
    assert not refused & set(history), "a refused transaction was done"
    assert len(history) == len(set(history)), "a transaction was done twice"
    for at, client in enumerate(clients):
        await patient(client.sync)
        await client.multi([Set("/t", b"%d" % at)])
    await asyncio.sleep(10)
    now = {path: node.data for path, node in server.nodes.items()}
    for mirror in mirrors:
        assert mirror.nodes == now, "a watcher that follows the rules missed a change"
    for task in following:
        task.cancel()
    return dict(server.nodes), dict(server.counts)


@pytest.mark.parametrize("seed", range(10))
def test_with_every_fault_on_it_keeps_the_contract(seed: int) -> None:
    run_virtual(wear_out(seed))


def test_every_fault_happens_and_is_counted() -> None:
    _, counts = run_virtual(wear_out(1))
    for fault in (
        "expired",
        "read_behind",
        "suspended",
        "unknown_done",
        "unknown_late",
        "unknown_never",
        "watch_coalesced",
        "watch_late",
        "watch_lost",
    ):
        assert counts.get(fault, 0) > 0, fault


def test_a_seed_repeats_itself() -> None:
    assert run_virtual(wear_out(5)) == run_virtual(wear_out(5))
    assert run_virtual(wear_out(5)) != run_virtual(wear_out(6))


def test_a_session_that_is_cut_off_too_long_is_lost_with_its_nodes_and_renewed() -> None:
    async def act() -> None:
        server = SimStore(SeededRandomness(1), session_timeout_s=4.0)
        client = await SimSource(server).open()
        events: list[SessionEvent] = []
        client.on_session(events.append)
        await client.multi([Create("/e", b"", ephemeral=True)])
        first = client.session

        server.suspend(first, 2.0)
        await asyncio.sleep(1.0)
        with pytest.raises(StoreUnavailable):
            await client.get("/e")
        await asyncio.sleep(1.5)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.RESUMED]
        assert await client.get("/e") is not None

        server.suspend(first, 5.0)
        await asyncio.sleep(6.0)
        assert events[2:] == [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.RENEWED]
        assert client.session != first
        assert await client.get("/e") is None

    run_virtual(act())


def test_a_client_whose_process_is_gone_loses_its_session_by_the_timeout() -> None:
    async def act() -> None:
        server = SimStore(SeededRandomness(1), session_timeout_s=4.0)
        source, other = SimSource(server), await SimSource(server).open()
        client = await source.open()
        await client.multi([Create("/e", b"", ephemeral=True)])
        source.kill()
        with pytest.raises(StoreUnavailable):
            client.multi([Create("/f", b"")])
        await asyncio.sleep(2.0)
        assert await other.get("/e") is not None
        await asyncio.sleep(4.0)
        assert await other.get("/e") is None

    run_virtual(act())


def test_an_exclusive_source_ends_the_sessions_that_others_left() -> None:
    async def act() -> None:
        server = SimStore(SeededRandomness(1))
        source = SimSource(server, exclusive=True)
        assert not source.exists()
        client = await source.open()
        await client.multi([Create("/e", b"", ephemeral=True), Create("/p", b"")])
        source.kill()
        again = await source.open()
        assert source.exists()
        assert set((await again.tree("/")).nodes) == {"/p"}

    run_virtual(act())
