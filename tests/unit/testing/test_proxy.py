"""A proxy that cuts connections: what passes, what is held, and what either end notices."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.testing.proxy import Proxy

SILENCE_S = 0.2


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in (acceptor, *threads):
        thread.join()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy(echo) as made:
        yield made


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 5)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)
    return False


def test_bytes_pass_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
    assert proxy.bytes_copied == (5, 5)


@pytest.mark.parametrize("way", [{"to_server": True}, {"from_server": True}, {"to_server": True, "from_server": True}])
def test_bytes_of_a_cut_direction_are_held_until_it_heals(proxy: Proxy, way: dict[str, bool]) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.cut(**way)
        client.sendall(b"b")
        assert is_silent(client)
        assert (proxy.bytes_copied[0] == 1) == ("to_server" in way)
        proxy.heal()
        assert client.recv(1) == b"b"


def test_a_connection_made_while_cut_is_silent_too(proxy: Proxy) -> None:
    proxy.cut(to_server=True, from_server=True)
    with connect(proxy) as client:
        client.sendall(b"a")
        assert is_silent(client)
        proxy.heal()
        assert client.recv(1) == b"a"


def test_the_end_of_a_connection_passes(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(4) == b"last"
        assert client.recv(1) == b""


def test_a_dropped_connection_is_reset_and_another_passes(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.drop()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        client.sendall(b"b")
        assert client.recv(1) == b"b"


def test_nothing_listens_while_it_refuses(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.accept()
    with connect(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
