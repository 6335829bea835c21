"""A listener on a loopback port of its own; the test's sockets are the clients."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvloop

from penstock.net.connection import Connection, ConnectionLimits
from penstock.net.frame_memory import FrameMemory
from penstock.net.listener import Listener, ListenerLimits
from penstock.net.reply import Frame
from penstock.net.sockets import SocketNetwork

PATIENCE_S = 120.0
LIMITS_FRAME_S = ConnectionLimits(frame_bytes_max=1).frame_s
"""After which any connection with half a frame is closed."""


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
        network=SocketNetwork(),
        serve=echo,
        limits=lambda: limits,
        connections_of_all=lambda: listener.connections,
        connection_limits=ConnectionLimits(frame_bytes_max=1 << 20),
        memory=FrameMemory(16 << 20),
        monotonic=asyncio.get_running_loop().time,
        on_event=note,
        on_warning=note,
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


async def connected(listener: Listener) -> tuple[asyncio.StreamWriter, bool]:
    """A new client, and whether it got a response; False when its connection was closed instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\0\0\0\x02hi")
    try:
        got = await asyncio.wait_for(reader.read(6), PATIENCE_S)
    except ConnectionError:
        got = b""
    return writer, got == b"\0\0\0\x02hi"


async def count_responses(limits: ListenerLimits, clients: int) -> tuple[int, list[str]]:
    events: list[str] = []
    async with listening(limits, events) as listener:
        served = [await connected(listener) for _ in range(clients)]
        assert listener.connections == sum(ok for _, ok in served)
        for writer, _ in served:
            writer.close()
    return sum(ok for _, ok in served), events


def test_no_more_connections_are_taken_than_allowed() -> None:
    served, events = asyncio.run(count_responses(ListenerLimits(connections_max=3), 5))
    assert served == 3
    assert events.count("connection_refused") == 2


def test_an_address_with_a_bound_of_its_own_is_held_to_it() -> None:
    limits = ListenerLimits(connections_per_address_max=4, connections_of_address_max={"127.0.0.1": 2})
    assert asyncio.run(count_responses(limits, 5))[0] == 2


def test_connections_beyond_the_rate_are_taken_in_the_next_second() -> None:
    assert asyncio.run(count_responses(ListenerLimits(connections_per_second_max=2), 5))[0] == 5


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
                writer, ok = await connected(listener)
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


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many descriptors more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    plugs = [os.dup(0)]
    highest = max(map(int, os.listdir("/proc/self/fd")))
    while plugs[-1] < highest:
        plugs.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (plugs[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for plug in plugs:
            os.close(plug)


def test_without_descriptors_nothing_is_accepted_until_a_connection_closes() -> None:
    turns_max = 1_000

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        events: list[str] = []
        async with listening(ListenerLimits(), events) as listener:
            clients = [socket.socket() for _ in range(4)]
            with descriptors_left(2):
                for client in clients:
                    client.setblocking(False)
                    await loop.sock_connect(client, ("127.0.0.1", listener.port))
                    await loop.sock_sendall(client, b"\0\0\0\x02hi")
                for client in clients[:2]:
                    assert await asyncio.wait_for(loop.sock_recv(client, 6), PATIENCE_S) == b"\0\0\0\x02hi"
                for _ in range(turns_max):
                    await asyncio.sleep(0)
                assert listener.connections == 2
                assert events == ["accept_failed"], "it is logged once, and the port rests"

                clients[0].close()
                clients[1].close()
                for client in clients[2:]:
                    assert await asyncio.wait_for(loop.sock_recv(client, 6), PATIENCE_S) == b"\0\0\0\x02hi"
            for client in clients:
                client.close()

    asyncio.run(scenario())


def test_a_stop_while_no_connection_can_be_accepted_closes_every_connection() -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        events: list[str] = []
        clients = [socket.socket() for _ in range(3)]
        try:
            async with listening(ListenerLimits(), events) as listener:
                with descriptors_left(2):
                    for client in clients:
                        client.setblocking(False)
                        await loop.sock_connect(client, ("127.0.0.1", listener.port))
                        await loop.sock_sendall(client, b"\0\0\0\x02hi")
                    for client in clients[:2]:
                        assert await asyncio.wait_for(loop.sock_recv(client, 6), PATIENCE_S) == b"\0\0\0\x02hi"
                    for _ in range(1_000):
                        await asyncio.sleep(0)
            assert listener.traffic() == (12, 12), "the bytes of every closed connection are counted"
        finally:
            for client in clients:
                client.close()
        return events

    assert asyncio.run(scenario()) == ["accept_failed", "connection_closed", "connection_closed"]


def test_a_connection_that_its_peer_resets_inside_a_frame_is_closed() -> None:
    async def scenario() -> None:
        events: list[str] = []
        async with listening(ListenerLimits(), events) as listener:
            clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(20)]
            for client in clients:
                client.sendall(b"\0\x01\0\0" + bytes(60_000))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            async with asyncio.timeout(LIMITS_FRAME_S / 2):
                while len(events) < len(clients):  # noqa: ASYNC110  # connections close in sweeps
                    await asyncio.sleep(0.01)
            assert listener.connections == 0
        assert events == ["connection_closed"] * len(clients)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
