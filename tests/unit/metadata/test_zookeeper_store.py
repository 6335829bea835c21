"""Rules of the store in ZooKeeper that real servers do not show at will: lost responses, old versions, lost data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.metadata.nodes import Changes, Gap, Node
from penstock.metadata.operations import Check, Create, Operation
from penstock.metadata.store import OutcomeUnknown, SessionEvent, StoreUnavailable, StoreUnreachable
from penstock.metadata.zookeeper import ZooKeeperStore
from penstock.metadata.zookeeper_client import Ensemble, Failed, ZooKeeperClient
from penstock.metadata.zookeeper_requests import OPEN, Event, Found, Nodes, Outcome, ReadNodes, Request, Transaction
from penstock.model.clock import SystemClock
from penstock.observe.log import logger

CONNECTION_LOSS = -4


class ScriptedClient:
    """Keeps requests until the test responds to them."""

    reason = "it is a test"

    def __init__(self) -> None:
        self.requests: list[tuple[Request, Callable[[Any], None]]] = []

    def ask(self, request: Request, respond: Callable[[Any], None]) -> None:
        self.requests.append((request, respond))

    def respond(self, result: object) -> Request:
        request, respond = self.requests.pop(0)
        respond(result)
        return request


def with_store(act: Callable[[ZooKeeperStore, ScriptedClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        ensemble = Ensemble(servers="zk:2181", session_timeout_ms=1000)
        store = ZooKeeperStore(ensemble, root="/r", permissions=OPEN, clock=SystemClock(), log=logger("test"))
        client = ScriptedClient()
        store._client = client  # type: ignore[assignment]
        store.connected(session=7, position=100)
        await act(store, client)

    asyncio.run(run())


@pytest.mark.parametrize(("sent", "expected"), [(True, OutcomeUnknown), (False, StoreUnreachable)])
def test_a_transaction_that_was_not_sent_is_not_done_and_one_that_was_may_be(
    sent: bool, expected: type[Exception]
) -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        done = store.multi([Create("/a", b"")])
        request = client.requests[0][0]
        assert isinstance(request, Transaction)
        if sent:
            request.serialize()
        client.respond(Failed("ConnectionLoss", CONNECTION_LOSS))
        with pytest.raises(expected):
            await done

    with_store(act)


def test_an_error_that_the_server_sent_means_that_nothing_was_done() -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        done = store.multi([Create("/a", b"")])
        request = client.requests[0][0]
        assert isinstance(request, Transaction)
        request.serialize()
        client.respond(Failed("MarshallingError", -5))
        with pytest.raises(StoreUnavailable, match="MarshallingError"):
            await done

    with_store(act)


def test_an_event_without_its_number_has_that_of_the_next_response() -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        reports: list[Changes | Gap] = []
        store.watch("/", reports.append)
        store.changed(Event("/r/a", -1))
        node = Node(data=b"x", version=0, owner=0, created=105)
        assert isinstance(client.respond(Nodes(107, [Found(node, 0)])), ReadNodes)
        (report,) = reports
        assert isinstance(report, Changes)
        assert report.number == 107

    with_store(act)


def test_transactions_elsewhere_do_not_count() -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        store.changed(Event("/r/a", 103))
        checks: list[Operation] = [Check("/a", 0)]
        done = store.multi(checks)
        client.respond(Outcome(120))
        assert await done == 103

    with_store(act)


def test_a_server_that_is_behind_what_was_seen_is_refused_until_one_is_not() -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        events: list[SessionEvent] = []
        reports: list[Changes | Gap] = []
        store.on_session(events.append)
        store.watch("/", reports.append)
        store.changed(Event("/r/a", 110))
        store.disconnected("gone")
        store.session_lost("expired")
        store.connected(session=8, position=109)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.LOST]
        with pytest.raises(StoreUnavailable, match="went back"):
            store.multi([Create("/a", b"")])
        store.session_lost("expired")
        store.connected(session=9, position=110)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.RENEWED]
        assert reports == [Gap()]
        assert store.session == 9

    with_store(act)


def test_rejected_credentials_are_told_until_they_are_accepted() -> None:
    async def act(store: ZooKeeperStore, client: ScriptedClient) -> None:
        store.session_lost("AUTH_FAILED")
        store.rejected("the server rejected our credentials")
        with pytest.raises(StoreUnavailable, match="rejected"):
            await store.get("/a")
        store.connected(session=8, position=110)
        reading = asyncio.ensure_future(store.get("/a"))
        await asyncio.sleep(0)
        client.respond(Nodes(110, [-101]))
        assert await reading is None

    with_store(act)


def test_a_client_whose_thread_cannot_be_started_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.metadata.zookeeper_client.RESTART_S", 0.001)

    async def act(store: ZooKeeperStore, _: ScriptedClient) -> None:
        ensemble = Ensemble(servers="zk:2181", session_timeout_ms=1000)
        client = ZooKeeperClient(ensemble, root="/r", owner=store, clock=SystemClock(), log=logger("test"))
        started, failures = asyncio.Event(), [RuntimeError("can't start new thread"), OSError("too many files")]
        loop = asyncio.get_running_loop()

        class Kazoo:
            def start_async(self) -> None:
                if failures:
                    raise failures.pop()
                loop.call_soon_threadsafe(started.set)

        client._kazoo = Kazoo()
        client._lost(rejected=False, ended=True)
        async with asyncio.timeout(60):
            await started.wait()
        assert not failures

    with_store(act)
