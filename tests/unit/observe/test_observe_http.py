import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop
from tests.unit.partition.rig import ManualThreads

from penstock.model.turns import Turns
from penstock.observe import catalog, http
from penstock.observe.http import ObserveServer
from penstock.observe.log import logger
from penstock.observe.metric import Sample
from penstock.observe.metrics import Collector

LOG = logger("test")


def turns() -> Turns:
    loop = asyncio.get_running_loop()
    return Turns(loop.call_soon, loop.time)


class State:
    """The broker's readiness."""

    waiting_for: tuple[str, ...] = ("logs",)

    def samples(self) -> tuple[Sample, ...]:
        return (catalog.READY.sample(1),)


def serving(use: Callable[[ObserveServer, State], Awaitable[None]]) -> None:
    """Run the coroutine against a server on a free port."""

    async def main() -> None:
        state = State()
        server = ObserveServer(Collector([state]), lambda: state.waiting_for, LOG, turns(), ManualThreads(eager=True))
        assert await server.start("127.0.0.1", 0)
        try:
            await use(server, state)
        finally:
            await server.stop()

    asyncio.run(main())


async def ask(server: ObserveServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes; the status, headers and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    response = await reader.read()
    writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_healthz_responds_while_the_loop_runs() -> None:
    async def use(server: ObserveServer, state: State) -> None:
        status, headers, body = await ask(server, get("/healthz"))
        assert status == 200
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == {"status": "alive"}

    serving(use)


def test_readyz_lists_what_the_broker_waits_for() -> None:
    async def use(server: ObserveServer, state: State) -> None:
        status, _, body = await ask(server, get("/readyz"))
        assert status == 503
        assert json.loads(body) == {"status": "not ready", "waiting_for": ["logs"]}
        state.waiting_for = ()
        status, _, body = await ask(server, get("/readyz?verbose"))
        assert status == 200
        assert json.loads(body) == {"status": "ready"}

    serving(use)


def test_metrics_come_in_the_text_format() -> None:
    async def use(server: ObserveServer, state: State) -> None:
        status, headers, body = await ask(server, get("/metrics"))
        assert status == 200
        assert headers["content-type"].startswith("text/plain")
        assert int(headers["content-length"]) == len(body)
        assert b"penstock_ready 1.0\n" in body

    serving(use)


def test_a_head_response_has_no_body() -> None:
    async def use(server: ObserveServer, state: State) -> None:
        status, headers, body = await ask(server, get("/metrics", "HEAD"))
        assert status == 200
        assert int(headers["content-length"]) > 0
        assert body == b""

    serving(use)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/nothing"), 404),
        (get("/metrics", "POST"), 405),
        (b"\x16\x03\x01\x02\x00garbage\r\n\r\n", 400),
        (b"GET http://proxy/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (http.REQUEST_BYTES_MAX * 3) + b"\r\n\r\n", 431),
    ],
    ids=["unknown page", "method", "not http", "proxy request", "endless header"],
)
def test_a_bad_request_gets_its_status_and_the_next_one_is_served(request_bytes: bytes, status: int) -> None:
    async def use(server: ObserveServer, state: State) -> None:
        assert (await ask(server, request_bytes))[0] == status
        assert (await ask(server, get("/healthz")))[0] == 200

    serving(use)


def test_an_incomplete_request_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS_MAX", 0.01)

    async def use(server: ObserveServer, state: State) -> None:
        assert (await ask(server, b"GET /metrics HTTP/1.1\r\n"))[0] == 408

    serving(use)


def test_connections_without_a_request_are_closed_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 4)

    async def use(server: ObserveServer, state: State) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        for _, writer in idle:
            writer.write(b"GET /hea")
            await writer.drain()

        assert (await ask(server, get("/healthz")))[0] == 200
        # The oldest was closed to keep the limit; the newest can still finish.
        for reader, _ in idle[:17]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        idle[-1][1].write(b"lthz HTTP/1.1\r\n\r\n")
        assert (await idle[-1][0].read()).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.close()

    serving(use)


def test_a_free_port_is_used_if_the_configured_one_is_taken() -> None:
    async def main() -> None:
        first = ObserveServer(Collector(), lambda: (), LOG, turns(), ManualThreads(eager=True))
        second = ObserveServer(Collector(), lambda: (), LOG, turns(), ManualThreads(eager=True))
        assert await first.start("127.0.0.1", 0)
        assert await second.start("127.0.0.1", first.port)
        assert second.port != first.port
        await second.stop()
        await first.stop()

    uvloop.run(main())
    asyncio.run(main())


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
def test_an_unusable_address_is_not_fatal(host: str) -> None:
    async def main() -> None:
        server = ObserveServer(Collector(), lambda: (), LOG, turns(), ManualThreads(eager=True))
        assert not await server.start(host, 0)
        await server.stop()

    uvloop.run(main())
    asyncio.run(main())


def test_a_port_taken_between_bind_and_listen_is_not_fatal() -> None:
    async def main() -> None:
        first, second = (socket.socket() for _ in range(2))
        for each in (first, second):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        second.bind(first.getsockname())
        first.listen()

        async def start_server(*_: object, **__: object) -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=second)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(asyncio, "start_server", start_server)
            late = ObserveServer(Collector(), lambda: (), LOG, turns(), ManualThreads(eager=True))
            assert not await late.start("127.0.0.1", first.getsockname()[1])
        await late.stop()
        first.close()
        second.close()

    uvloop.run(main())
    asyncio.run(main())
