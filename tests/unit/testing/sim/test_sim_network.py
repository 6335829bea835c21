"""Simulated connections: order, back-pressure, cuts, resets, and what a peer hears of a death."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.net.transport import Transport
from penstock.testing.sim.network import WINDOW_BYTES, SimAcceptor, SimTransport
from penstock.testing.sim.node import LifeEnded
from penstock.testing.sim.world import World

PORT = 9092


@pytest.fixture
def world() -> Iterator[World]:
    world = World(3)
    world.node("server").start()
    world.node("client").start()
    yield world
    world.close()


async def readable(transport: Transport) -> None:
    ready = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        transport.on_readable(None)
        ready.set_result(None)

    transport.on_readable(on_ready)
    await ready


async def writable(transport: Transport) -> None:
    ready = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        transport.on_writable(None)
        ready.set_result(None)

    transport.on_writable(on_ready)
    await ready


async def received(transport: Transport, size: int) -> bytes:
    data = b""
    buffer = bytearray(size)
    while len(data) < size:
        await readable(transport)
        got = transport.receive_into(memoryview(buffer)[: size - len(data)])
        assert got, f"the peer closed after {data!r}"
        data += buffer[:got]
    return data


def listen(world: World, name: str = "server") -> tuple[SimAcceptor, asyncio.Queue[SimTransport]]:
    accepted: asyncio.Queue[SimTransport] = asyncio.Queue()
    acceptor = world.fabric.at(world.node(name).life).bind("", PORT)

    def on_acceptable() -> None:
        accepted.put_nowait(acceptor.accept(send_buffer_bytes=-1, receive_buffer_bytes=-1)[0])

    world.node(name).life.context().run(acceptor.listen, 10, on_acceptable)
    return acceptor, accepted


def run(world: World, work: Callable[[SimTransport, SimTransport], Awaitable[None]]) -> None:
    """Run something with both ends of a connection, the client's first."""

    async def main() -> None:
        _, accepted = listen(world)
        client = await world.fabric.at(world.node("client").life).connect("server", PORT)
        await work(client, await accepted.get())

    world.run(main(), limit_s=3600)
    assert world.failures == []


def test_bytes_arrive_whole_and_in_order(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        for number in range(200):
            assert client.send(b"%04d" % number) == 4
        assert await received(server, 800) == b"".join(b"%04d" % number for number in range(200))
        assert server.send_vector([b"ab", bytearray(b"cd")], False) == 4
        assert await received(client, 4) == b"abcd"

    run(world, work)


def test_connections_overtake_each_other(world: World) -> None:
    orders: set[str] = set()

    async def main() -> None:
        _, accepted = listen(world)
        network = world.fabric.at(world.node("client").life)
        clients = [await network.connect("server", PORT) for _ in range(2)]
        servers = [await accepted.get() for _ in range(2)]
        for _ in range(50):
            order: list[str] = []
            for client, name in zip(clients, "ab", strict=True):
                client.send(name.encode())

            async def receive(server: SimTransport, order: list[str]) -> None:
                order.append((await received(server, 1)).decode())

            await asyncio.gather(*(receive(server, order) for server in servers))
            orders.add("".join(order))

    world.run(main())
    assert orders == {"ab", "ba"}


def test_a_full_window_holds_the_sender_until_the_peer_reads(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        assert client.send(bytes(WINDOW_BYTES + 5)) == WINDOW_BYTES
        with pytest.raises(BlockingIOError):
            client.send(b"x")
        waiting = asyncio.ensure_future(writable(client))
        await asyncio.sleep(10)
        assert not waiting.done()
        await received(server, 100)
        await waiting
        assert client.send(bytes(1000)) == 100

    run(world, work)


def test_readiness_is_reported_until_the_bytes_are_read(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        calls = 0
        data = b""
        done = asyncio.Event()

        def read_one() -> None:
            nonlocal calls, data
            calls += 1
            buffer = bytearray(1)
            assert server.receive_into(memoryview(buffer)) == 1
            data += buffer
            if calls == 3:
                done.set()

        server.on_readable(read_one)
        client.send(b"abc")
        await done.wait()
        assert data == b"abc"
        await asyncio.sleep(1)
        assert calls == 3

    run(world, work)


def test_a_close_is_read_after_the_bytes_before_it(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        client.send(b"last words")
        client.close()
        assert await received(server, 10) == b"last words"
        await readable(server)
        assert server.receive_into(memoryview(bytearray(1))) == 0
        assert server.peer_left() == "the peer closed"
        server.close()
        await asyncio.sleep(1)
        assert world.fabric.ends == {}

    run(world, work)


def test_bytes_for_a_closed_end_are_answered_with_a_reset(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        server.close()
        await readable(client)
        client.send(b"too late")
        await asyncio.sleep(0.1)
        assert client.is_reset()
        with pytest.raises(BrokenPipeError):
            client.send(b"x")
        assert world.fabric.at(world.node("client").life).reset_by_peers([client]) == {client}

    run(world, work)


def test_a_killed_process_closes_its_connections(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        world.node("server").kill()
        await readable(client)
        assert client.peer_left() == "the peer closed"
        for call in (server.close, lambda: server.send(b"x"), lambda: server.receive_into(memoryview(bytearray(1)))):
            with pytest.raises(LifeEnded):
                call()
        with pytest.raises(ConnectionRefusedError):
            await world.fabric.at(world.node("client").life).connect("server", PORT)

    run(world, work)


def test_a_process_that_is_killed_with_unread_bytes_resets(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        client.send(b"never read")
        await asyncio.sleep(1)
        world.node("server").kill()
        await readable(client)
        with pytest.raises(OSError, match="reset") as caught:
            client.receive_into(memoryview(bytearray(1)))
        assert caught.value.errno == errno.ECONNRESET

    run(world, work)


def test_a_machine_without_power_is_silent_and_resets_after_its_boot(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        world.node("server").cut_power()
        client.send(b"are you there?")
        waiting = asyncio.ensure_future(readable(client))
        with pytest.raises(TimeoutError):
            await world.fabric.at(world.node("client").life).connect("server", PORT)
        await asyncio.sleep(600)
        assert not waiting.done()
        world.node("server").start()
        await waiting
        assert client.is_reset()

    run(world, work)


def test_a_cut_holds_one_direction_until_it_is_healed(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        world.fabric.cut("client", "server")
        client.send(b"held")
        client.send(b" back")
        server.send(b"passes")
        assert await received(client, 6) == b"passes"
        waiting = asyncio.ensure_future(received(server, 9))
        await asyncio.sleep(600)
        assert not waiting.done()
        world.fabric.heal("client", "server")
        assert await waiting == b"held back"

    run(world, work)


def test_a_cut_of_one_direction_keeps_acknowledgements_from_the_other(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        world.fabric.cut("client", "server")
        assert server.send(bytes(WINDOW_BYTES)) == WINDOW_BYTES
        await received(client, WINDOW_BYTES)
        with pytest.raises(BlockingIOError):
            server.send(b"x")
        world.fabric.heal_all()
        await writable(server)
        assert server.send(b"x") == 1

    run(world, work)


def test_a_connect_through_a_cut_times_out_or_waits_for_the_end_of_the_cut(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        network = world.fabric.at(world.node("client").life)
        world.fabric.cut("server", "client")
        with pytest.raises(TimeoutError):
            await network.connect("server", PORT)
        waiting = asyncio.ensure_future(network.connect("server", PORT))
        await asyncio.sleep(2)
        assert not waiting.done()
        world.fabric.heal_all()
        assert (await waiting).send(b"x") == 1

    run(world, work)


def test_a_reset_breaks_both_ends_and_loses_what_is_on_its_way(world: World) -> None:
    async def work(client: SimTransport, server: SimTransport) -> None:
        [found] = world.fabric.connections()
        assert found is client
        client.send(b"lost")
        world.fabric.reset(client)
        for end in (client, server):
            await readable(end)
            with pytest.raises(ConnectionResetError):
                end.receive_into(memoryview(bytearray(9)))
            assert end.peer_left() == "receive failed: Connection reset by peer"

    run(world, work)


def test_a_paused_node_receives_when_it_is_resumed(world: World) -> None:
    async def main() -> None:
        acceptor = world.fabric.at(world.node("server").life).bind("server", PORT)
        got: list[bytes] = []

        def on_acceptable() -> None:
            end, peer = acceptor.accept(send_buffer_bytes=-1, receive_buffer_bytes=-1)
            assert peer == "client"
            buffer = bytearray(100)
            end.on_readable(lambda: got.append(bytes(buffer[: end.receive_into(memoryview(buffer))])))

        world.node("server").life.context().run(acceptor.listen, 10, on_acceptable)
        world.node("server").pause()
        client = await world.fabric.at(world.node("client").life).connect("server", PORT)
        client.send(b"hello")
        await asyncio.sleep(10)
        assert got == []
        world.node("server").resume()
        await asyncio.sleep(0.1)
        assert got == [b"hello"]

    world.run(main())


def test_a_paused_acceptor_keeps_peers_in_its_backlog(world: World) -> None:
    async def main() -> None:
        acceptor, accepted = listen(world)
        acceptor.pause()
        await world.fabric.at(world.node("client").life).connect("server", PORT)
        await asyncio.sleep(5)
        assert accepted.empty()
        acceptor.resume()
        await accepted.get()

    world.run(main())


def test_a_port_is_taken_once_and_free_after_its_process(world: World) -> None:
    network = world.fabric.at(world.node("server").life)
    network.bind("", PORT)
    with pytest.raises(OSError, match="in use"):
        network.bind("server", PORT)
    world.node("server").kill()
    world.node("server").start()
    assert world.fabric.at(world.node("server").life).bind("server", PORT).port == PORT


def test_a_node_reaches_itself(world: World) -> None:
    async def main() -> None:
        _, accepted = listen(world)
        client = await world.fabric.at(world.node("server").life).connect("localhost", PORT)
        client.send(b"me")
        assert await received(await accepted.get(), 2) == b"me"

    world.run(main())


def test_a_cancelled_connect_leaves_nothing_open(world: World) -> None:
    async def main() -> None:
        _, accepted = listen(world)
        world.fabric.cut("server", "client")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await world.fabric.at(world.node("client").life).connect("server", PORT)
        world.fabric.heal_all()
        server = await accepted.get()
        await readable(server)
        assert server.peer_left() == "the peer closed"
        server.close()
        await asyncio.sleep(60)
        assert world.fabric.ends == {}

    world.run(main())


def test_the_trace_depends_on_the_seed(world: World) -> None:
    def trace_of(seed: int) -> str:
        world = World(seed)
        world.node("server").start()
        world.node("client").start()

        async def work(client: SimTransport, server: SimTransport) -> None:
            client.send(b"hello")
            await received(server, 5)

        run(world, work)
        world.close()
        return world.trace.hexdigest()

    assert trace_of(5) == trace_of(5)
    assert trace_of(5) != trace_of(6)


def test_a_slow_host_delays_what_it_sends_and_not_what_it_receives(world: World) -> None:
    world.fabric.slow_s["server"] = 10.0

    delays = {host: max(world.fabric.delay_s(host) for _ in range(50)) for host in ("client", "server")}

    assert delays["client"] < 0.1
    assert 5 < delays["server"] < 11
    world.fabric.heal_all()
    assert world.fabric.slow_s == {}
