"""A listener on a loopback port of its own; the test's sockets are the clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.net.connection import Connection, ConnectionLimits
from penstock.net.listener import Listener, ListenerLimits
from penstock.net.reply import Frame

PATIENCE_S = 120.0


def echo(_: Connection, frame: memoryview) -> Frame:
    return [len(frame).to_bytes(4, "big") + bytes(frame)]


@asynccontextmanager
async def listening(limits: ListenerLimits, events: list[str]) -> AsyncIterator[Listener]:
    def note(event: str, fields: dict[str, Any]) -> None:
        events.append(event)

    listener = Listener(
        name="TEST",
        host="127.0.0.1",
        port=0,
        serve=echo,
        limits=lambda: limits,
        connection_limits=ConnectionLimits(frame_bytes_max=1 << 20),
        monotonic=asyncio.get_running_loop().time,
        on_event=note,
        on_bug=lambda name, error: events.append(f"bug in {name}: {error!r}"),
    )
    listener.bind()
    ready = asyncio.Event()
    running = asyncio.ensure_future(listener.run(ready.set))
    await ready.wait()
    try:
        yield listener
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def answered(listener: Listener) -> tuple[asyncio.StreamWriter, bool]:
    """A new client, and whether it was answered; False when its connection was closed instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\0\0\0\x02hi")
    try:
        got = await asyncio.wait_for(reader.read(6), PATIENCE_S)
    except ConnectionError:
        got = b""
    return writer, got == b"\0\0\0\x02hi"


async def count_answered(limits: ListenerLimits, clients: int) -> tuple[int, list[str]]:
    events: list[str] = []
    async with listening(limits, events) as listener:
        served = [await answered(listener) for _ in range(clients)]
        assert listener.connections == sum(ok for _, ok in served)
        for writer, _ in served:
            writer.close()
    return sum(ok for _, ok in served), events


def test_no_more_connections_are_taken_than_allowed() -> None:
    served, events = asyncio.run(count_answered(ListenerLimits(connections_max=3), 5))
    assert served == 3
    assert events.count("connection_refused") == 2


def test_an_address_with_a_bound_of_its_own_is_held_to_it() -> None:
    limits = ListenerLimits(connections_per_address_max=4, connections_of_address_max={"127.0.0.1": 2})
    assert asyncio.run(count_answered(limits, 5))[0] == 2


def test_connections_beyond_the_rate_are_taken_in_the_next_second() -> None:
    assert asyncio.run(count_answered(ListenerLimits(connections_per_second_max=2), 5))[0] == 5


async def gone(listener: Listener) -> None:
    """Wait until the listener has noticed that its clients left."""
    end_s = asyncio.get_running_loop().time() + PATIENCE_S
    while listener.connections:
        assert asyncio.get_running_loop().time() < end_s, "a client that left is still counted"
        await asyncio.sleep(0.001)


def test_a_closed_connection_makes_room_for_another() -> None:
    async def scenario() -> None:
        async with listening(ListenerLimits(connections_max=1), []) as listener:
            for _ in range(3):
                writer, ok = await answered(listener)
                assert ok
                writer.close()
                await gone(listener)

    asyncio.run(scenario())


def test_stopping_closes_every_connection_and_frees_the_port() -> None:
    async def scenario() -> None:
        async with listening(ListenerLimits(), []) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\0\0\0\0")
            assert await reader.readexactly(4) == b"\0\0\0\0"
            port = listener.port
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    asyncio.run(scenario())
