"""The brokers of a comparison behind one interface: Apache Kafka, this penstock, and the penstock of another commit."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.samples import BASELINE, KAFKA, PENSTOCK
from penstock.testing.apache_kafka import ApacheKafka, ApacheKafkaCluster
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.cluster import PenstockCluster
from penstock.testing.probe import has_brokers
from penstock.testing.processes import LOOPBACK, Deadline, ProcessFailed, Usage, free_port, usage

ADMIN_SECONDS_MAX = 120
READY_SECONDS_MAX = 60
POLL_SECONDS = 0.005
# A deleted topic is removed before the next work begins; by default this happens a minute later, during another one.
TOPIC_CONFIG = {"file.delete.delay.ms": "0"}
METRICS_SECONDS_MAX = 30
REQUESTS_METRIC = "penstock_requests_total{"
OWN_PACKAGES = {"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
"""Environment of a Python, so that it imports only packages of its virtual environment."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A broker that takes part in a run; a penstock is of the commit that is installed for its Python."""

    name: str
    python: Path | None = None


APACHE_KAFKA = Contender(name=KAFKA)
THIS_PENSTOCK = Contender(name=PENSTOCK, python=Path(sys.executable))


def turns(sides: Sequence[T], rounds: int, warm_rounds: int = 0) -> Iterator[tuple[int, T]]:
    """The number of a round and a side, for every round on every side; the side that begins changes.

    Warm rounds have numbers below 0.
    """
    for number in range(-warm_rounds, rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            yield number, side


class PythonBroker(PenstockProcess):
    """The broker of the penstock that a Python has installed. Its /metrics has the number of requests served."""

    def __init__(self, python: Path, data: Path) -> None:
        self.metrics_port = free_port()
        settings = {"metrics.listener": f"{LOOPBACK}:{self.metrics_port}", "metrics.partitions.enable": "false"}
        super().__init__(data=data, settings=settings, environment=OWN_PACKAGES)
        self._python = python

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self._python), *super().command[1:])

    def requests_served(self) -> float | None:
        """Requests of all kinds since the start; None from a penstock that does not count them."""
        url = f"http://{LOOPBACK}:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=METRICS_SECONDS_MAX) as response:
            return count_requests(response.read().decode())


def count_requests(metrics: str) -> float | None:
    counts = [float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(REQUESTS_METRIC)]
    return sum(counts) if counts else None


@dataclass(slots=True, kw_only=True)
class Side:
    """One broker of any kind, with the same operations; ``ready_seconds`` belongs to its last start."""

    name: str
    broker: ApacheKafka | PenstockProcess | ApacheKafkaCluster | PenstockCluster
    data_root: Path
    ready_seconds: float = 0.0
    replicas: int = 1
    """Of each topic."""

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def start(self) -> None:
        """Start it; ready means that Metadata names the broker, on all sides."""
        self.broker.start()
        ready = time.perf_counter()
        deadline = Deadline(READY_SECONDS_MAX)
        while not has_brokers(LOOPBACK, self.broker.port):
            if deadline.passed:
                raise ProcessFailed(f"{self.name}: Metadata names no broker\n{self.broker.tail()}")
            time.sleep(POLL_SECONDS)
        self.ready_seconds = self.broker.start_seconds + time.perf_counter() - ready

    def brokers(self) -> int:
        """How many brokers Metadata names."""
        return len(self._admin().list_topics(timeout=ADMIN_SECONDS_MAX).brokers)

    def stop(self) -> None:
        self.broker.stop()

    def usage(self) -> Usage:
        """Of the broker, or of all brokers of a cluster together."""
        if isinstance(self.broker, ApacheKafkaCluster | PenstockCluster):
            each = [usage(pid) for pid in self.broker.pids]
            return Usage(
                cpu_seconds=sum(one.cpu_seconds for one in each),
                resident_bytes=sum(one.resident_bytes for one in each),
                resident_bytes_peak=sum(one.resident_bytes_peak for one in each),
            )
        return usage(self.broker.pid)

    def requests_served(self) -> float | None:
        """None for Apache Kafka, which has no /metrics."""
        return self.broker.requests_served() if isinstance(self.broker, PythonBroker) else None

    def create_topics(self, names: Sequence[str], partitions: int) -> None:
        """Create topics and wait until the broker leads them: Apache Kafka responds before it does."""
        admin = self._admin()
        config = TOPIC_CONFIG if self.replicas == 1 else {**TOPIC_CONFIG, "min.insync.replicas": "2"}
        topics = [
            NewTopic(name, num_partitions=partitions, replication_factor=self.replicas, config=config) for name in names
        ]
        for result in admin.create_topics(topics, request_timeout=ADMIN_SECONDS_MAX).values():
            result.result(ADMIN_SECONDS_MAX)
        deadline = Deadline(READY_SECONDS_MAX)
        for name in names:
            while not self._leads(admin, name, partitions):
                if deadline.passed:
                    raise ProcessFailed(f"{self.name}: {name} has no leader\n{self.broker.tail()}")
                time.sleep(POLL_SECONDS)

    def _leads(self, admin: AdminClient, topic: str, partitions: int) -> bool:
        """Whether the broker leads all partitions: only a leader responds to ListOffsets without an error."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, number): latest for number in range(partitions)}
        try:
            for result in admin.list_offsets(wanted, request_timeout=ADMIN_SECONDS_MAX).values():
                result.result()
        except KafkaException:
            return False
        return True

    def delete_topics(self, names: Sequence[str]) -> None:
        admin = self._admin()
        for result in admin.delete_topics(list(names), request_timeout=ADMIN_SECONDS_MAX).values():
            result.result(ADMIN_SECONDS_MAX)

    def _admin(self) -> AdminClient:
        # A client for each call: one that stays open would talk to the broker while it is being measured.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a broker has spent on a work and served in it."""

    cpu_seconds: float
    requests: float | None
    after: Usage


class Meter:
    """Reads a broker's counters now, and again when the work is over; reading them is not part of the work."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._requests = side.requests_served()
        self._cpu_seconds = side.usage().cpu_seconds

    def read(self) -> Spent:
        after = self._side.usage()
        requests = self._side.requests_served()
        served = None if requests is None or self._requests is None else requests - self._requests
        return Spent(cpu_seconds=after.cpu_seconds - self._cpu_seconds, requests=served, after=after)


@contextlib.contextmanager
def fresh_side(contender: Contender, data_root: Path) -> Iterator[Side]:
    """A broker that has never run, not started yet; stopped and removed at the end."""
    data_root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{contender.name}-", dir=data_root))
    broker: ApacheKafka | PythonBroker
    if contender.name == KAFKA:
        broker = ApacheKafka(heap="1g", folder=folder)
    else:
        assert contender.name in (PENSTOCK, BASELINE), contender.name
        assert contender.python is not None, "a penstock runs with the Python it is installed for"
        broker = PythonBroker(contender.python, folder / "data")
    try:
        yield Side(name=contender.name, broker=broker, data_root=data_root)
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def started_sides(contenders: Sequence[Contender], data_root: Path) -> Iterator[list[Side]]:
    """A fresh side for each of them, all running at once."""
    with contextlib.ExitStack() as running:
        sides = [running.enter_context(fresh_side(contender, data_root)) for contender in contenders]
        for side in sides:
            side.start()
        yield sides
