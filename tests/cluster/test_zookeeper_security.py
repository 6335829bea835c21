"""A metadata store in a ZooKeeper that is protected: TLS, digest, SASL, and nodes that only their creators can use."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.broker.stores import store_source
from penstock.config.broker import BrokerConfig
from penstock.metadata.operations import Create, Set
from penstock.metadata.store import MetadataStore, SessionEvent, StoreUnavailable, StoreUnreachable
from penstock.metadata.zookeeper_client import Ensemble, SocketHandler
from penstock.model.clock import SystemClock
from penstock.observe.log import logger
from penstock.testing.processes import free_port
from penstock.testing.proxy import Proxy
from penstock.testing.zookeeper import ZooKeeper

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.needs("openssl")]

JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_broker="secret"
    user_other="other-secret";
};
"""
SASL = {"zookeeper.authentication": "sasl", "zookeeper.username": "broker", "zookeeper.password": "secret"}
DIGEST = SASL | {"zookeeper.authentication": "digest"}
ACL = {"zookeeper.set.acl": "true"}


class Certificates:
    """An authority, and PEM files of a key and the certificate that it issued."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.authority = folder / f"{name}.pem"
        self._authority_key = folder / f"{name}.key"
        subject = ["-subj", f"/CN={name}", "-days", "2", "-keyout", str(self._authority_key), "-out"]
        openssl("req", "-x509", *NEW_KEY, *subject, str(self.authority))

    def issue(self, name: str, alternative: str) -> Path:
        key, request, certificate = (self._folder / f"{name}{end}" for end in (".key", ".csr", ".crt"))
        openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        by = ["-CA", str(self.authority), "-CAkey", str(self._authority_key), "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", str(request), *by, "-extfile", str(extensions), "-out", str(certificate))
        both = self._folder / f"{name}.both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes() + self.authority.read_bytes())
        return both


NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """A ZooKeeper with a port for TLS and one without."""

    plain: str
    tls: str
    trusted: Path
    client: Path
    """Key and certificate that the server trusts."""

    @property
    def tls_settings(self) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self.trusted),
            "zookeeper.ssl.keystore.location": str(self.client),
        }


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    folder = tmp_path_factory.mktemp("tls")
    certificates = Certificates(folder, "authority")
    server, client = certificates.issue("server", "IP:127.0.0.1"), certificates.issue("client", "DNS:broker")
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    port = free_port()
    properties = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(server),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(certificates.authority),
        "ssl.trustStore.type": "PEM",
        "ssl.hostnameVerification": "false",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.2": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }
    with ZooKeeper(properties=properties, java_options=[f"-Djava.security.auth.login.config={jaas}"]) as servers:
        yield Protected(plain=servers.connect, tls=f"127.0.0.1:{port}", trusted=certificates.authority, client=client)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "zookeeper"] == []


@asynccontextmanager
async def opened(connect: str, settings: dict[str, str]) -> AsyncIterator[MetadataStore]:
    given = {"zookeeper.connect": connect, "broker.session.timeout.ms": "4000"} | settings
    config = BrokerConfig.from_settings(given)
    store = await store_source(config, clock=SystemClock(), log=logger("test")).open()
    try:
        yield store
    finally:
        await store.close()


def test_a_store_over_tls_reads_ten_thousand_nodes(protected: Protected) -> None:
    async def run() -> None:
        async with opened(protected.tls + "/tls", protected.tls_settings) as store:
            await store.multi([Create("/t", b"")])
            for first in range(0, 10_000, 1_000):
                await store.multi([Create(f"/t/{n}", b"x" * 100) for n in range(first, first + 1_000)])
            tree = await store.tree("/")
            assert len(tree.nodes) == 10_001

    asyncio.run(run())


def test_what_a_tls_layer_has_received_is_there_to_be_read(tmp_path: Path) -> None:
    """Two messages in one TLS record: after the first has been read, the socket itself has nothing more."""
    certificates = Certificates(tmp_path, "authority")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificates.issue("server", "DNS:server"))
    client = ssl.create_default_context(cafile=str(certificates.authority))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"ab")
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="server") as connection:
        assert connection.recv(1) == b"a"
        ready, _, _ = SocketHandler(Ensemble(servers="", session_timeout_ms=0), print).select([connection], [], [], 0.0)
        assert ready == [connection]
        assert connection.recv(1) == b"b"
        connection.sendall(b"!")
    thread.join()


def test_a_server_of_another_authority_is_not_trusted(protected: Protected, tmp_path: Path) -> None:
    other = Certificates(tmp_path, "other-authority").authority
    settings = protected.tls_settings | {
        "zookeeper.ssl.truststore.location": str(other),
        "zookeeper.connection.timeout.ms": "1000",
    }

    async def run() -> None:
        with pytest.raises(StoreUnreachable, match="certificate verify failed"):
            async with opened(protected.tls, settings):
                pass

    asyncio.run(run())


def test_the_name_in_a_certificate_counts_unless_it_is_told_not_to(protected: Protected) -> None:
    elsewhere = protected.tls.replace("127.0.0.1", "localhost")
    settings = protected.tls_settings | {"zookeeper.connection.timeout.ms": "1000"}

    async def run() -> None:
        with pytest.raises(StoreUnreachable, match="mismatch"):
            async with opened(elsewhere, settings):
                pass
        async with opened(elsewhere, settings | {"zookeeper.ssl.endpoint.identification.algorithm": ""}) as store:
            await store.sync()

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["digest", "sasl", "certificate"])
def test_nodes_of_an_authenticated_broker_are_closed_to_others(protected: Protected, scheme: str) -> None:
    settings = {"digest": DIGEST, "sasl": SASL, "certificate": protected.tls_settings}[scheme] | ACL
    connect = (protected.tls if scheme == "certificate" else protected.plain) + f"/closed-{scheme}"
    as_anyone = f"{protected.plain}/closed-{scheme}"

    async def run() -> None:
        async with opened(connect, settings) as store:
            await store.multi([Create("/a", b"mine"), Create("/e", b"", ephemeral=True)])
            async with opened(as_anyone, {}) as other:
                with pytest.raises(StoreUnavailable, match="denied"):
                    await other.get("/a")
                with pytest.raises(StoreUnavailable, match="denied"):
                    await other.tree("/")
                with pytest.raises(StoreUnavailable, match="denied"):
                    await other.multi([Set("/a", b"theirs")])
            async with opened(connect, settings) as same:
                seen: list[object] = []
                same.watch("/", seen.append)
                number = await same.multi([Set("/a", b"ours")])
                node = await store.get("/a")
                assert node is not None
                assert node.data == b"ours"
                assert (await same.tree("/")).number == number

    asyncio.run(run())


def test_a_wrong_password_is_told_in_words(protected: Protected) -> None:
    async def run() -> None:
        with pytest.raises(StoreUnavailable, match="rejected our credentials"):
            async with opened(protected.plain, SASL | {"zookeeper.password": "wrong"}):
                pass

    asyncio.run(run())


def test_a_session_with_sasl_goes_on_after_connections_that_were_dropped(protected: Protected) -> None:
    port = int(protected.plain.rpartition(":")[2])

    async def run(proxy: Proxy) -> None:
        async with opened(proxy.address + "/again", SASL | ACL) as store:
            events: list[SessionEvent] = []
            store.on_session(events.append)
            session = store.session
            await store.multi([Create("/e", b"", ephemeral=True)])
            for n in range(5):
                proxy.drop()
                deadline = asyncio.get_running_loop().time() + 30
                while events.count(SessionEvent.RESUMED) <= n:
                    assert asyncio.get_running_loop().time() < deadline, events
                    await asyncio.sleep(0.01)
            node = await store.get("/e")
            assert node is not None
            assert node.owner == store.session == session
            assert SessionEvent.LOST not in events

    with Proxy(port) as proxy:
        asyncio.run(run(proxy))
