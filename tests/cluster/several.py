"""Several brokers on one host under one supervisor, as `--processes N` runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_ports_in_a_row
from protocol.topics import wait_until

PATIENCE_S = 120.0


class Several(PenstockProcess):
    """A supervisor and its brokers, on consecutive ports; `pids` are those of the brokers by id."""

    def __init__(
        self,
        processes: int,
        data: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            data=data,
            port=free_ports_in_a_row(processes) if port is None else port,
            settings={"metrics.listener": "", **(settings or {})},
            arguments=("--processes", str(processes), *arguments),
        )
        self.processes = processes

    def start(self, seconds_max: float = PATIENCE_S) -> None:
        """Return when every broker serves."""
        before = len(self.events("all_ready"))
        super().start(seconds_max)
        wait_until(lambda: len(self.events("all_ready")) > before, what="all brokers", seconds_max=seconds_max)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of that name, of the supervisor and of all brokers."""
        return [event for line in self.lines() if (event := json.loads(line))["event"] == name]

    @property
    def pids(self) -> dict[int, int]:
        """The process of each broker that was started last."""
        return {event["broker_id"]: event["pid"] for event in self.events("broker_started")}

    def members(self) -> dict[int, int]:
        """Ids and ports of the brokers that the first one knows."""
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=PATIENCE_S)
        return {broker.id: broker.port for broker in found.brokers.values()}

    @property
    def bootstraps(self) -> str:
        """All of them, so that a client can do without one."""
        return ",".join(f"{LOOPBACK}:{self.port + number}" for number in range(self.processes))

    def states(self, topic: str) -> dict[int, tuple[int, set[int]]]:
        """Leader and ISR of each partition."""
        found = AdminClient({"bootstrap.servers": self.bootstraps}).list_topics(topic, timeout=PATIENCE_S)
        return {each.id: (each.leader, set(each.isrs)) for each in found.topics[topic].partitions.values()}

    def wait_for_isr(self, topic: str, isr: set[int]) -> None:
        """Wait until every partition of a topic has these in sync, one of them the leader."""
        wait_until(
            lambda: all(found == isr and leader in isr for leader, found in self.states(topic).values()),
            what=f"ISR {isr}",
            seconds_max=PATIENCE_S,
        )

    def wait_for_members(self, ids: set[int]) -> None:
        wait_until(lambda: set(self.members()) == ids, what=f"brokers {ids}", seconds_max=PATIENCE_S)
