"""How a cluster of `penstock dev` looks: a live table on a terminal, columns elsewhere, JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.dev_cluster import known_state
from penstock.cli.dev_state import DevState, Server
from penstock.cli.output import Number, counted, say, show_table
from penstock.client.cluster_state import ClusterState
from penstock.testing.zookeeper import mode_of

COLUMNS = ("server", "address", "state", Number("pid"), Number("leaders"), "in_sync")
COLOURS = {"live": "green", "leader": "green", "follower": "green", "standalone": "green", "stopped": "red"}
OTHER_COLOUR = "yellow"
CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The processes of a cluster, and what its brokers say, at one moment."""

    data: Path
    state: DevState
    cluster: ClusterState | None
    modes: Mapping[int, str]
    """What each ZooKeeper that serves is: leader, follower or standalone."""

    @classmethod
    def take(cls, data: Path, state: DevState) -> Snapshot:
        modes = {each.number: mode_of(each.port) for each in state.zookeepers if is_running(each)}
        return cls(data=data, state=state, cluster=known_state(state.brokers), modes=modes)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.state.brokers)

    def state_of(self, broker: Server) -> str:
        """live, starting, paused or stopped."""
        process = broker.state()
        if process is None:
            return "stopped"
        if process.paused:
            return "paused"
        if self.cluster is None:
            return "starting"
        return "live" if broker.number in self.cluster.live else "starting"

    def state_of_zookeeper(self, server: Server) -> str:
        process = server.state()
        if process is None:
            return "stopped"
        return "paused" if process.paused else self.modes.get(server.number) or "starting"

    def rows(self) -> list[tuple[object, ...]]:
        """One for each server, the columns of COLUMNS."""
        rows: list[tuple[object, ...]] = []
        for each in self.state.brokers:
            name, words = f"broker {each.number}", self._broker_words(each)
            led, synced = None, None
            if self.cluster is not None:
                led = self.cluster.leaders()[each.number]
                synced = f"{self.cluster.in_sync()[each.number]}/{self.cluster.replicas()[each.number]}"
            rows.append((name, each.address, words, pid_of(each), led, synced))
        for each in self.state.zookeepers:
            name = f"zookeeper {each.number}"
            rows.append((name, each.address, self.state_of_zookeeper(each), pid_of(each), None, None))
        return rows

    def _broker_words(self, broker: Server) -> str:
        word = self.state_of(broker)
        is_controller = self.cluster is not None and self.cluster.controller == broker.number
        return f"{word}, {CONTROLLER}" if is_controller else word

    def totals(self) -> str:
        if self.cluster is None:
            return "no broker responds"
        partitions = sum(len(topic.partitions) for topic in self.cluster.topics)
        led = "no controller, " if self.cluster.controller is None else ""
        return (
            f"{led}{counted(len(self.cluster.topics), 'topic')}, {counted(partitions, 'partition')}, "
            f"{self.cluster.under_replicated} under-replicated, {self.cluster.offline} offline"
        )

    def json(self) -> dict[str, Any]:
        cluster = self.cluster
        return {
            "data": str(self.data),
            "bootstrap": self.bootstrap,
            "up": self.state.is_up,
            "controller": None if cluster is None else cluster.controller,
            "topics": None if cluster is None else len(cluster.topics),
            "under_replicated": None if cluster is None else cluster.under_replicated,
            "offline": None if cluster is None else cluster.offline,
            "brokers": [
                {
                    "broker": each.number,
                    "address": each.address,
                    "state": self.state_of(each),
                    "pid": pid_of(each),
                    "log": each.log,
                    "leaders": None if cluster is None else cluster.leaders()[each.number],
                    "in_sync": None if cluster is None else cluster.in_sync()[each.number],
                    "replicas": None if cluster is None else cluster.replicas()[each.number],
                }
                for each in self.state.brokers
            ],
            "zookeepers": [
                {
                    "zookeeper": each.number,
                    "address": each.address,
                    "state": self.state_of_zookeeper(each),
                    "pid": pid_of(each),
                    "log": each.log,
                }
                for each in self.state.zookeepers
            ],
        }

    def show(self) -> None:
        """As columns, on stdout."""
        show_table(COLUMNS, self.rows())
        say(self.totals(), f"bootstrap {self.bootstrap}")

    def drawn(self, hints: str, news: str = "") -> Any:
        """As a table of Rich's."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.ROUNDED, title=f"penstock cluster in {self.data}", title_style="bold", padding=(0, 1))
        for column in COLUMNS:
            right = isinstance(column, Number)
            table.add_column(column.replace("_", " "), justify="right" if right else "left", header_style="dim")
        for server, address, state, pid, leaders, in_sync in self.rows():
            texts = ["-" if each is None else str(each) for each in (server, address, state, pid, leaders, in_sync)]
            colour = COLOURS.get(str(state).partition(",")[0], OTHER_COLOUR)
            cells = [Text(each) for each in texts]
            cells[0].stylize("bold")
            cells[2].stylize(f"bold {colour}" if CONTROLLER in texts[2] else colour)
            table.add_row(*cells)
        trouble = self.cluster is None or bool(self.cluster.offline or self.cluster.under_replicated)
        lines = [Text(self.totals(), style="yellow" if trouble else "green"), Text(f"bootstrap {self.bootstrap}")]
        if news:
            lines.append(Text(news, style="yellow"))
        return Group(table, *lines, Text(hints, style="dim"))


def is_running(server: Server) -> bool:
    found = server.state()
    return found is not None and not found.paused


def pid_of(server: Server) -> int | None:
    return server.process.pid if server.process is not None and server.state() is not None else None
