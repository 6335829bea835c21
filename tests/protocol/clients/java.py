"""Apache Kafka's own tools, from its jars: the Java clients with their default settings.

The Java producer is idempotent and waits for all replicas by default.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.testing.apache_kafka import tool_command
from penstock.testing.processes import Child
from protocol.clients import abilities as can
from protocol.clients.abilities import Place, Record
from protocol.group_members import SESSION_MS

TOOL_SECONDS_MAX = 150.0
TOOLS = "org.apache.kafka.tools"
RANGE_ASSIGNOR = "org.apache.kafka.clients.consumer.RangeAssignor"
PRINTED = ("timestamp", "partition", "offset", "headers", "key")
"""What the console consumer prints in front of the value, in the order in which it does."""

DELIVERY = "Delivery:"
"""How the console share consumer begins to print a record's delivery count."""

NOTICES = ("SLF4J", "Processed", "[", "The consumer rebalance protocol")
"""How lines begin that the console consumer prints besides records."""


def tool(main_class: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
    """Run a tool and return what it printed, both streams."""
    # Tools live for a second: the quick compiler and one collector thread spare half of it.
    command = tool_command(main_class, *arguments)
    command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    streams: dict[str, Any] = {"input": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, timeout=TOOL_SECONDS_MAX, check=False, **streams)
    assert done.returncode == status, done.stdout
    return str(done.stdout)


def on(broker: Any) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap


def console_consume(bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    """The lines that the console consumer prints for so many records."""
    what = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", str(count))
    printed = tool(f"{TOOLS}.consumer.ConsoleConsumer", *what, *arguments)
    return [line for line in printed.splitlines() if not line.startswith(NOTICES)]


def console_produce(bootstrap: str, topic: str, lines: str, *arguments: str) -> None:
    what = ("--bootstrap-server", bootstrap, "--topic", topic)
    printed = tool(f"{TOOLS}.ConsoleProducer", *what, *arguments, stdin=lines)
    assert "ERROR" not in printed, printed
    assert "Exception" not in printed, printed


def to_record(line: str) -> Record:
    timestamp, partition, offset, headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [pair.split(":") for pair in headers.split(",")]
    return Record(
        value=value.encode(),
        key=None if key == "null" else key.encode(),
        headers=tuple((name, text.encode()) for name, text in pairs),
        timestamp_ms=int(timestamp.removeprefix("CreateTime:")),
        partition=int(partition.removeprefix("Partition:")),
        offset=int(offset.removeprefix("Offset:")),
    )


def to_line(record: Record) -> str:
    headers = ",".join(f"{name}:{value.decode()}" for name, value in record.headers)
    return "\t".join([headers, (record.key or b"").decode(), (record.value or b"").decode()])


class VerifiableConsumer:
    """Kafka's consumer for system tests: it prints what happens to it as JSON lines."""

    def __init__(self, child: Child, *, name: str) -> None:
        self.name = name
        self._child = child

    def events(self, *names: str) -> list[dict[str, Any]]:
        # The last line may be only half there.
        lines = self._child.log.read_text().rpartition("\n")[0].splitlines()
        return [event for event in (json.loads(line) for line in lines if line[:1] == "{") if event["name"] in names]

    @property
    def owned(self) -> set[Place]:
        owned: set[Place] = set()
        for event in self.events("partitions_assigned", "partitions_revoked"):
            places = {(each["topic"], each["partition"]) for each in event["partitions"]}
            owned = owned | places if event["name"] == "partitions_assigned" else owned - places
        return owned

    @property
    def values(self) -> list[bytes]:
        return [event["value"].encode() for event in self.events("record_data")]

    @property
    def error(self) -> BaseException | None:
        if self._child.alive:
            return None
        return AssertionError(f"{self.name} ended with {self._child.exit_status}: {self._child.log.read_text()}")

    def leave(self) -> None:
        self._child.send_signal(signal.SIGTERM)


@contextmanager
def verifiable_consumer(
    bootstrap: str, group: str, topic: str, *arguments: str, log: Path, name: str = "java"
) -> Iterator[VerifiableConsumer]:
    what = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--reset-policy", "earliest")
    child = Child(tool_command(f"{TOOLS}.VerifiableConsumer", *what, "--verbose", *arguments), log=log)
    try:
        yield VerifiableConsumer(child, name=name)
    finally:
        child.stop()


class VerifiableShareConsumer:
    """Kafka's share consumer for system tests: it prints what happens to it as JSON lines."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def events(self, *names: str) -> list[dict[str, Any]]:
        lines = self.child.log.read_text().rpartition("\n")[0].splitlines()
        return [event for event in (json.loads(line) for line in lines if line[:1] == "{") if event["name"] in names]

    @property
    def values(self) -> list[bytes]:
        return [event["value"].encode() for event in self.events("record_data")]

    @property
    def acknowledged(self) -> int:
        """How many offsets the broker has acknowledged; what it refused fails the test."""
        events = self.events("offsets_acknowledged")
        assert not [event for event in events if not event["success"]], events
        return sum(event["count"] for event in events)

    def leave(self) -> None:
        self.child.send_signal(signal.SIGTERM)


@contextmanager
def verifiable_share_consumer(
    bootstrap: str, group: str, topic: str, *arguments: str, log: Path
) -> Iterator[VerifiableShareConsumer]:
    what = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose")
    child = Child(tool_command(f"{TOOLS}.VerifiableShareConsumer", *what, *arguments), log=log)
    try:
        yield VerifiableShareConsumer(child)
    finally:
        child.stop()


class JavaTools(can.Produces, can.Consumes, can.ReadsInGroup, can.JoinsGroups, can.SharesQueues):
    codecs = ("zstd",)
    shows_offsets = False
    group_protocols = ("range", "consumer")

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self, topic: str, records: Sequence[Record], delivery: can.Delivery = can.BY_DEFAULT
    ) -> list[int | None]:
        arguments = [] if delivery.codec is None else ["--compression-codec", delivery.codec]
        lines = [(record.value or b"").decode() for record in records]
        if any(record.key is not None or record.headers for record in records):
            arguments += ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
            lines = list(map(to_line, records))
        console_produce(self._bootstrap, topic, "\n".join(lines) + "\n", *arguments)
        return [None] * len(records)

    def consume(self, topic: str, count: int, *, start: int = 0) -> list[Record]:
        printed = [word for name in PRINTED for word in ("--formatter-property", f"print.{name}=true")]
        place = ("--partition", "0", "--offset", str(start))
        return [to_record(line) for line in console_consume(self._bootstrap, topic, count, *place, *printed)]

    def read_in_group(self, group: str, topic: str, count: int, protocol: can.GroupProtocol) -> list[bytes]:
        kind = "consumer" if protocol == "consumer" else "classic"
        arguments = ("--group", group, "--from-beginning", "--command-property", f"group.protocol={kind}")
        return [line.encode() for line in console_consume(self._bootstrap, topic, count, *arguments)]

    def read_shared(self, group: str, topic: str, count: int, outcome: can.Outcome) -> dict[bytes, int]:
        arguments = ["--bootstrap-server", self._bootstrap, "--topic", topic, "--group", group]
        arguments += ["--max-messages", str(count), "--formatter-property", "print.delivery=true"]
        arguments += [] if outcome == "accept" else [f"--{outcome}"]
        printed = tool(f"{TOOLS}.consumer.ConsoleShareConsumer", *arguments).splitlines()
        lines = [line.split("\t") for line in printed if line.startswith(DELIVERY)]
        return {value.encode(): int(delivery.removeprefix(DELIVERY)) for delivery, value in lines}

    @contextmanager
    def member(
        self, group: str, topic: str, protocol: can.GroupProtocol, *, name: str, owners: can.Owners
    ) -> Iterator[VerifiableConsumer]:
        arguments = ["--group-protocol", "consumer"]
        if protocol == "range":
            arguments = ["--assignment-strategy", RANGE_ASSIGNOR, "--session-timeout", str(SESSION_MS)]
        with TemporaryDirectory() as folder:
            log, settings = Path(folder) / "log", Path(folder) / "settings"
            settings.write_text("heartbeat.interval.ms=200\n" if protocol == "range" else "")
            arguments += ["--command-config", str(settings)]
            with verifiable_consumer(self._bootstrap, group, topic, *arguments, log=log, name=name) as consumer:
                yield consumer
