"""The network of the operating system, on the loopback interface."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from penstock.net.sockets import SocketNetwork, SocketTransport
from penstock.net.transport import Acceptor, Transport
from penstock.storage.disk import RealDisk
from penstock.storage.slices import FileSlice

PATIENCE_S = 60.0
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


async def readable(transport: Transport) -> None:
    """Wait until the transport calls back."""
    called = asyncio.Event()
    transport.on_readable(called.set)
    await asyncio.wait_for(called.wait(), PATIENCE_S)
    transport.on_readable(None)


async def received(transport: Transport, count: int) -> bytes:
    got = b""
    buffer = memoryview(bytearray(count))
    while len(got) < count:
        await readable(transport)
        size = transport.receive_into(buffer[: count - len(got)])
        assert size, "the peer closed"
        got += bytes(buffer[:size])
    return got


def fill(transport: Transport) -> int:
    """Send until the transport takes no more; how many bytes it took."""
    sent = 0
    while True:
        try:
            sent += transport.send(bytes(1 << 16))
        except BlockingIOError:
            return sent


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Transport, Transport]]:
    """Both ends of a connection: the one that connected, and the one that was accepted."""
    network = SocketNetwork()
    acceptor = network.bind("127.0.0.1", 0)
    ours: Transport | None = None
    theirs: Transport | None = None
    try:
        acceptable = asyncio.Event()
        acceptor.listen(8, acceptable.set)
        ours = await network.connect("127.0.0.1", acceptor.port)
        await asyncio.wait_for(acceptable.wait(), PATIENCE_S)
        theirs, address = acceptor.accept(send_buffer_bytes=-1, receive_buffer_bytes=-1)
        assert address == "127.0.0.1"
        yield ours, theirs
    finally:
        acceptor.close()
        for each in (ours, theirs):
            if each is not None:
                each.close()


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_bytes_buffers_and_files_arrive_in_order(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")

    async def scenario() -> None:
        piece = FileSlice(RealDisk().open_read(str(path)), 2, 5, hot=True)
        async with pair() as (ours, theirs):
            assert theirs.send(b"one ") == 4
            assert theirs.send_vector([b"two ", memoryview(b"three ")], True) == 10
            assert theirs.send_file(piece, piece.position, len(piece)) == 5
            assert await received(ours, 19) == b"one two three 23456"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


def test_a_file_that_ends_before_its_range_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123")

    async def scenario() -> None:
        piece = FileSlice(RealDisk().open_read(str(path)), 4, 5, hot=True)
        async with pair() as (_, theirs):
            assert theirs.send_file(piece, piece.position, len(piece)) == 0

    asyncio.run(scenario())


def test_nothing_waits_for_a_peer_that_neither_sends_nor_reads() -> None:
    async def scenario() -> None:
        async with pair() as (ours, _):
            with pytest.raises(BlockingIOError):
                ours.receive_into(memoryview(bytearray(1)))
            assert fill(ours) > 0

    asyncio.run(scenario())


def test_a_transport_that_takes_no_more_calls_back_once_the_peer_has_read() -> None:
    async def scenario() -> None:
        async with pair() as (ours, theirs):
            sent = fill(ours)
            writable = asyncio.Event()
            ours.on_writable(writable.set)
            await received(theirs, sent)
            await asyncio.wait_for(writable.wait(), PATIENCE_S)
            ours.on_writable(None)
            assert ours.send(b"more") == 4

    asyncio.run(scenario())


def test_a_peer_that_left_is_noticed_without_taking_its_bytes() -> None:
    async def scenario() -> None:
        async with pair() as (ours, theirs):
            assert theirs.peer_left() is None
            ours.send(b"x")
            await readable(theirs)
            assert theirs.peer_left() is None
            assert await received(theirs, 1) == b"x"
            ours.close()
            await readable(theirs)
            assert theirs.peer_left() == "the peer closed"

    asyncio.run(scenario())


def test_a_reset_is_found_among_many_transports() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = SocketNetwork()
        pairs = [socket.socketpair() for _ in range(2)]
        quiet = [SocketTransport(end, loop) for ends in pairs for end in ends]
        async with pair() as (ours, theirs):
            assert isinstance(ours, SocketTransport)
            os_socket = socket.socket(fileno=os.dup(ours.fileno()))
            os_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.close()
            os_socket.close()
            await readable(theirs)
            assert network.reset_by_peers([*quiet, theirs]) == {theirs}
        for transport in quiet:
            transport.close()

    asyncio.run(scenario())


def test_connecting_where_nothing_listens_fails() -> None:
    async def scenario() -> None:
        network = SocketNetwork()
        unused = network.bind("127.0.0.1", 0)
        # Bound and not listening: no other process can take the port meanwhile.
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", unused.port)
        unused.close()

    asyncio.run(scenario())


def test_a_port_is_bound_once() -> None:
    async def scenario() -> None:
        network = SocketNetwork()
        first = network.bind("127.0.0.1", 0)
        first.listen(1, lambda: None)
        with pytest.raises(OSError, match="in use"):
            network.bind("127.0.0.1", first.port)
        first.close()

    asyncio.run(scenario())


def test_a_paused_port_calls_back_when_it_is_resumed() -> None:
    async def scenario() -> None:
        network = SocketNetwork()
        acceptor: Acceptor = network.bind("127.0.0.1", 0)
        calls = 0
        acceptable = asyncio.Event()

        def note() -> None:
            nonlocal calls
            calls += 1
            acceptable.set()

        acceptor.listen(8, note)
        acceptor.pause()
        peer = await network.connect("127.0.0.1", acceptor.port)
        for _ in range(10):
            await asyncio.sleep(0)
        assert calls == 0
        acceptor.resume()
        await asyncio.wait_for(acceptable.wait(), PATIENCE_S)
        accepted, _ = acceptor.accept(send_buffer_bytes=1 << 16, receive_buffer_bytes=1 << 16)
        with pytest.raises(BlockingIOError):
            acceptor.accept(send_buffer_bytes=-1, receive_buffer_bytes=-1)
        for each in (peer, accepted, acceptor):
            each.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_the_next_connection_with_the_descriptor_of_a_closed_one_is_watched(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The system assigns the lowest free descriptor, so it is the rule that the next connection gets it."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        first, first_peer = socket.socketpair()
        descriptor = first.fileno()
        former = SocketTransport(first, loop)
        former.on_readable(lambda: None)
        former.on_writable(lambda: None)
        # Let the loop see it: the kernel forgets a closed descriptor by itself, the loop does not.
        await asyncio.sleep(0)
        former.close()
        second, second_peer = socket.socketpair()
        assert second.fileno() == descriptor
        transport = SocketTransport(second, loop)
        called = asyncio.Event()
        transport.on_readable(called.set)
        former.close()
        second_peer.send(b"x")
        await asyncio.wait_for(called.wait(), PATIENCE_S)
        transport.close()
        for each in (first_peer, second_peer):
            each.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_an_address_that_never_responds_is_given_up(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scenario() -> None:
        network = SocketNetwork()
        network.connect_s = 0.05
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            port = full.getsockname()[1]
            # Nothing is accepted, and a queue that is full drops what comes.
            queued = [socket.socket() for _ in range(8)]
            for each in queued:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            open_before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(TimeoutError, match="did not respond"):
                await network.connect("127.0.0.1", port)
            await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/fd")) == open_before
            for each in queued:
                each.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


def test_an_address_of_a_family_that_the_machine_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        network = SocketNetwork()
        acceptor = network.bind("127.0.0.1", 0)
        acceptor.listen(1, lambda: None)
        found = await loop.getaddrinfo("127.0.0.1", acceptor.port, type=socket.SOCK_STREAM)

        async def two_families(host: str, port: int, **_: object) -> list[object]:
            return [(socket.AF_UNIX, 99, 99, "", ("::1", port)), *found]

        monkeypatch.setattr(loop, "getaddrinfo", two_families)
        transport = await network.connect("name", acceptor.port)
        transport.close()
        acceptor.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_reader_is_called_back_when_the_expected_bytes_have_arrived_or_the_peer_has_closed(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        async with pair() as (ours, theirs):
            assert isinstance(ours, SocketTransport)
            ours.expect(20_000)
            state = select.poll()
            state.register(ours.fileno(), select.POLLIN)
            assert theirs.send(bytes(5_000)) == 5_000
            assert not state.poll(0)
            assert theirs.send(bytes(15_000)) == 15_000
            await readable(ours)
            buffer = memoryview(bytearray(30_000))
            assert ours.receive_into(buffer) == 20_000
            theirs.send(b"the rest")
            theirs.close()
            await readable(ours)
            assert ours.receive_into(buffer) == len(b"the rest")

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())
