"""The two brokers of a comparison behind one face."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.samples import KAFKA, PENSTOCK
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.probe import has_brokers
from penstock.testing.processes import LOOPBACK, Deadline, ProcessFailed, Usage, usage

ADMIN_SECONDS_MAX = 120
READY_SECONDS_MAX = 60
POLL_SECONDS = 0.005
# A deleted topic is gone before the next work begins; a minute later, as by default, it would disturb another one.
TOPIC_CONFIG = {"file.delete.delay.ms": "0"}


@dataclass(slots=True, kw_only=True)
class Side:
    """One broker with the same knobs whichever it is; ``ready_seconds`` belongs to its last start."""

    name: str
    broker: ApacheKafka | PenstockProcess
    data_root: Path
    ready_seconds: float = 0.0

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def start(self) -> None:
        """Start it; ready means that Metadata names the broker, the same question on both sides."""
        self.broker.start()
        answered = time.perf_counter()
        deadline = Deadline(READY_SECONDS_MAX)
        while not has_brokers(LOOPBACK, self.broker.port):
            if deadline.passed:
                raise ProcessFailed(f"{self.name}: Metadata names no broker\n{self.broker.tail()}")
            time.sleep(POLL_SECONDS)
        self.ready_seconds = self.broker.start_seconds + time.perf_counter() - answered

    def stop(self) -> None:
        self.broker.stop()

    def usage(self) -> Usage:
        return usage(self.broker.pid)

    def create_topics(self, names: Sequence[str], partitions: int) -> None:
        """Make topics and wait until the broker leads them: Apache Kafka answers before it does."""
        admin = self._admin()
        topics = [
            NewTopic(name, num_partitions=partitions, replication_factor=1, config=TOPIC_CONFIG) for name in names
        ]
        for answer in admin.create_topics(topics, request_timeout=ADMIN_SECONDS_MAX).values():
            answer.result(ADMIN_SECONDS_MAX)
        deadline = Deadline(READY_SECONDS_MAX)
        for name in names:
            while not self._leads(admin, name, partitions):
                if deadline.passed:
                    raise ProcessFailed(f"{self.name}: {name} has no leader\n{self.broker.tail()}")
                time.sleep(POLL_SECONDS)

    def _leads(self, admin: AdminClient, topic: str, partitions: int) -> bool:
        """Only the leader of a partition answers ListOffsets without an error."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for number in range(partitions)}
        try:
            for answer in admin.list_offsets(asked, request_timeout=ADMIN_SECONDS_MAX).values():
                answer.result()
        except KafkaException:
            return False
        return True

    def delete_topics(self, names: Sequence[str]) -> None:
        admin = self._admin()
        for answer in admin.delete_topics(list(names), request_timeout=ADMIN_SECONDS_MAX).values():
            answer.result(ADMIN_SECONDS_MAX)

    def _admin(self) -> AdminClient:
        # A client for each call: one that stays open would talk to the broker while it is being measured.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})


@contextlib.contextmanager
def fresh_side(name: str, data_root: Path) -> Iterator[Side]:
    """A broker that has never run, not started yet; stopped and removed at the end."""
    data_root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=data_root))
    broker: ApacheKafka | PenstockProcess
    if name == KAFKA:
        broker = ApacheKafka(heap="1g", folder=folder)
    else:
        assert name == PENSTOCK, name
        broker = PenstockProcess(data=folder / "data")
    try:
        yield Side(name=name, broker=broker, data_root=data_root)
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)
