"""The cluster of `penstock demo --brokers 3`: one broker is killed in front of the viewer, and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.cli.background import Background
from penstock.cli.dev_cluster import DevCluster
from penstock.cli.dev_view import COLOURS, OTHER_COLOUR, Snapshot
from penstock.cli.failure import Failure
from penstock.cli.options import CLIENT_VARIABLES
from penstock.cli.output import counted, note
from penstock.client.cluster_state import ClusterState
from penstock.model.clock import Clock, SystemClock
from penstock.testing.processes import free_ports_in_a_row

BROKERS_MIN = 3
"""With fewer, the loss of one leaves too few in-sync replicas for acks=all."""
LOOK_SECONDS = 4.0
"""How long each state is shown before the next step."""
POLL_SECONDS = 0.3
SETTINGS = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}


def need_cluster() -> None:
    """Fail with what to install if brokers cannot use ZooKeeper."""
    from importlib.util import find_spec

    if find_spec("kazoo") is None:
        raise Failure(
            "brokers of a cluster need kazoo, which is not installed", 'pip install "penstock[cluster,spark]"'
        )


def demo_cluster(folder: Path, brokers: int) -> DevCluster:
    """A cluster in this folder, on ports that are free."""
    for name in CLIENT_VARIABLES:
        # A broker would take them for settings.
        os.environ.pop(name, None)
    data = folder / "cluster"
    data.mkdir()
    port = free_ports_in_a_row(brokers)
    return DevCluster(data, brokers=brokers, zookeepers=1, port=port, settings=SETTINGS, on_step=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A broker that was killed, and how far the cluster has recovered."""

    broker: int
    pid: int
    led: int
    """The partitions that it led."""
    leader: int | None = None
    """The new leader of the topic's first partition."""
    moved_seconds: float | None = None
    """From the kill until others led all of them."""
    is_back: bool = False
    """It runs again, and every replica is in sync."""


class BrokerLoss(Background):
    """Kills the leader of a topic's first partition once orders flow, and starts it again when others lead."""

    def __init__(
        self, cluster: DevCluster, topic: str, is_flowing: Callable[[], bool], clock: Clock | None = None
    ) -> None:
        super().__init__("broker-loss")
        self._cluster = cluster
        self._topic = topic
        self._is_flowing = is_flowing
        self._clock = clock or SystemClock()
        self.snapshot: Snapshot | None = None
        self.loss: Loss | None = None
        self.news: list[str] = []
        """What has happened, a line each."""

    @property
    def is_over(self) -> bool:
        return self.loss is not None and self.loss.is_back

    def _run(self) -> None:
        """Each step ends early if the demo is stopped."""
        if self._until(lambda found: self._is_flowing() and not found.under_replicated) and self._look():
            self._kill()
            if self._until(self._has_moved) and self._look():
                self._restart()
                self._until(self._is_back)
        while not self._stop.wait(POLL_SECONDS):
            self._take()

    def _take(self) -> ClusterState | None:
        state = replace(self._cluster.state(), zookeepers=())
        self.snapshot = Snapshot.take(self._cluster.data, state)
        return self.snapshot.cluster

    def _until(self, fact: Callable[[ClusterState], bool]) -> bool:
        """Look at the cluster until a fact holds; False if the demo is stopped before."""
        while not self._stop.wait(POLL_SECONDS):
            found = self._take()
            if found is not None and fact(found):
                return True
        return False

    def _look(self) -> bool:
        end = self._clock.monotonic() + LOOK_SECONDS
        return self._until(lambda _: self._clock.monotonic() >= end)

    def _first_leader(self, found: ClusterState) -> int | None:
        for topic in found.topics:
            if topic.name == self._topic:
                return topic.partitions[0].leader
        return None

    def _kill(self) -> None:
        found = None if self.snapshot is None else self.snapshot.cluster
        leader = None if found is None else self._first_leader(found)
        assert found is not None, "the cluster was just seen"
        assert leader is not None, f"{self._topic} is among its topics"
        child = self._cluster.brokers[leader - 1].child
        assert child is not None, f"broker {leader} was started"
        child.send_signal(signal.SIGKILL)
        self._killed_at = self._clock.monotonic()
        self.loss = Loss(broker=leader, pid=child.pid, led=found.leaders()[leader])
        led = counted(self.loss.led, "partition")
        self.news.append(f"kill -9 {child.pid}: broker {leader} is gone, which led {self._topic}-0, in all {led}")

    def _has_moved(self, found: ClusterState) -> bool:
        assert self.loss is not None, "a broker was killed"
        leader = self._first_leader(found)
        if found.offline or found.leaders()[self.loss.broker] or leader is None:
            return False
        seconds = self._clock.monotonic() - self._killed_at
        self.loss = replace(self.loss, leader=leader, moved_seconds=round(seconds, 1))
        self.news.append(f"{seconds:.1f} s later: broker {leader} leads {self._topic}-0, and orders go on")
        return True

    def _restart(self) -> None:
        assert self.loss is not None, "a broker was killed"
        self._cluster.brokers[self.loss.broker - 1].launch()
        self.news.append(f"broker {self.loss.broker} starts again on its data")

    def _is_back(self, found: ClusterState) -> bool:
        assert self.loss is not None, "a broker was killed"
        if self.loss.broker not in found.live or found.under_replicated:
            return False
        self.news.append(f"broker {self.loss.broker} has caught up: all replicas are in sync; Ctrl-C counts the orders")
        self.loss = replace(self.loss, is_back=True)
        return True

    def drawn(self) -> Any:
        """The brokers, and the news under them."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        brokers = Table.grid(padding=(0, 2))
        if self.snapshot is not None:
            for name, _, state, _, leaders, in_sync in self.snapshot.rows():
                colour = COLOURS.get(str(state).partition(",")[0], OTHER_COLOUR)
                facts = "" if leaders is None else f"leads {leaders}, {in_sync} in sync"
                brokers.add_row(Text(str(name), style="bold"), Text(f"● {state}", style=colour), Text(facts))
        return Group(brokers, *(Text(f"  {line}", style="yellow") for line in self.news))
