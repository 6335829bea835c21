"""`cluster drain` on a cluster in memory, where other commands and failures come in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from penstock.cli import cluster_loads, drain, replica_moves
from penstock.cli.drain import Drain
from penstock.cli.failure import Failure
from penstock.cli.options import OutputFormat
from penstock.cli.replica_moves import ReplicaMoves
from penstock.client.admin import PartitionInfo, Resource, TopicInfo
from penstock.client.cluster import BrokerInfo
from penstock.client.cluster_state import ClusterState
from penstock.client.connection import Connection
from penstock.client.failures import ClientError
from penstock.client.reassignment_plan import LEADER_RATE, LEADER_REPLICAS, Move
from penstock.client.reassignments import Ongoing, Place
from penstock.client.wire_calls import WireCalls
from penstock.config.replica import CORDONED_LOG_DIRS

INVALID_REQUEST = 42
NO_REASSIGNMENT_IN_PROGRESS = 85


class MemoryCluster:
    """Replicas, reassignments and settings. A reassignment is complete when the next list of them is asked for."""

    def __init__(self, live: Iterable[int], replicas: Mapping[Place, tuple[int, ...]]) -> None:
        self.live = set(live)
        self.registered = set(self.live)
        self.replicas = dict(replicas)
        self.ongoing: dict[Place, Ongoing] = {}
        self.cordoned: set[int] = set()
        self.settings: dict[tuple[str, str], dict[str, str]] = {}
        self.begun: list[Place] = []
        self.on_begun: Callable[[], None] = lambda: None

    def state_of(self, *_: object) -> ClusterState:
        topics: dict[str, list[PartitionInfo]] = {}
        for (topic, index), replicas in sorted(self.replicas.items()):
            there = tuple(each for each in replicas if each in self.live)
            topics.setdefault(topic, []).append(
                PartitionInfo(partition=index, leader=there[0] if there else -1, replicas=replicas, isr=there)
            )
        return ClusterState(
            cluster_id="c",
            controller=min(self.live),
            brokers=tuple(BrokerInfo(broker_id=each, host=f"h{each}", port=1, rack=None) for each in sorted(self.live)),
            topics=tuple(TopicInfo(name=name, internal=False, partitions=tuple(each)) for name, each in topics.items()),
        )

    def cordon(self, _: object, broker: int, *, begins: bool) -> None:
        if broker not in self.registered:
            raise ClientError("Unexpected broker id", code=INVALID_REQUEST)
        (self.cordoned.add if begins else self.cordoned.discard)(broker)

    def broker_settings(self, broker: BrokerInfo, names: Iterable[str], *_: object) -> dict[str, str]:
        found = {CORDONED_LOG_DIRS: "*" if broker.broker_id in self.cordoned else ""}
        found |= self.settings.get(("broker", str(broker.broker_id)), {})
        return {name: found[name] for name in names if name in found}

    def alter(self, resource: Resource, *, put: Mapping[str, str], remove: Iterable[str]) -> None:
        found = self.settings.setdefault((resource.kind, resource.name), {})
        found.update(put)
        for name in remove:
            found.pop(name, None)

    def alter_reassignments(
        self, _: object, wanted: Mapping[Place, tuple[int, ...] | None], **__: object
    ) -> dict[Place, ClientError]:
        refused: dict[Place, ClientError] = {}
        for place, target in wanted.items():
            before = self.ongoing.pop(place, None)
            if target is None:
                if before is None:
                    refused[place] = ClientError("none", code=NO_REASSIGNMENT_IN_PROGRESS)
                else:
                    self.replicas[place] = before.original
                continue
            self.begun.append(place)
            original = self.replicas[place] if before is None else before.original
            current = tuple(dict.fromkeys((*target, *self.replicas[place])))
            self.replicas[place] = current
            self.ongoing[place] = Ongoing(
                topic=place[0],
                partition=place[1],
                replicas=current,
                adding=tuple(each for each in current if each not in original),
                removing=tuple(each for each in current if each not in target),
            )
        self.on_begun()
        return refused

    def list_reassignments(self, _: object, places: Iterable[Place] | None = None) -> dict[Place, Ongoing]:
        for place, each in list(self.ongoing.items()):
            if self.live.issuperset(each.target):
                self.replicas[place] = self.ongoing.pop(place).target
        return {place: each for place, each in self.ongoing.items() if places is None or place in set(places)}

    def left(self, found: Mapping[Place, Ongoing]) -> list[object]:
        """Brokers that are down stay so: what is listed here is never complete."""
        assert not found, f"the command waits for {sorted(found)}"
        return []


class MemoryAdmin:
    def __init__(self, cluster: MemoryCluster) -> None:
        self.alter = cluster.alter


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., MemoryCluster]:
    def make(live: Iterable[int], replicas: Mapping[Place, tuple[int, ...]]) -> MemoryCluster:
        cluster = MemoryCluster(live, replicas)
        for module in (cluster_loads, drain, replica_moves):
            for name in ("state_of", "cordon", "broker_settings", "alter_reassignments", "list_reassignments"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, getattr(cluster, name))
            if hasattr(module, "replicated_state_of"):
                monkeypatch.setattr(module, "replicated_state_of", cluster.state_of)
            monkeypatch.setattr(module, "replica_sizes", lambda *_: {}, raising=False)
            monkeypatch.setattr(module, "elect_preferred", lambda *_: None, raising=False)
        monkeypatch.setattr(cluster_loads, "cordoned_brokers", lambda *_: frozenset(cluster.cordoned))
        monkeypatch.setattr(replica_moves, "Admin", lambda _: MemoryAdmin(cluster))
        monkeypatch.setattr(replica_moves, "POLL_S", 0.0)
        monkeypatch.setattr(replica_moves.ReplicaMoves, "left", lambda _, found: cluster.left(found))
        monkeypatch.setattr(replica_moves.Rolling, "sizes_due", lambda *_: False)
        return cluster

    return make


def command(broker: int) -> Drain:
    where = Connection(bootstrap="unused")
    return Drain(where=where, calls=cast("WireCalls", None), output=OutputFormat.JSON, broker=broker)


def carry_out(broker: int, **changed: Any) -> None:
    options: dict[str, Any] = {"throttle": None, "at_once": 2, "yes": True, "dry_run": False, **changed}
    command(broker).carry_out(**options)


def test_a_drain_that_another_command_undoes_begins_nothing_more(made: Callable[..., MemoryCluster]) -> None:
    cluster = made({1, 2, 3, 4}, {("t", index): (1, 2, 4) for index in range(10)})

    def undo() -> None:
        if len(cluster.begun) == 4:
            cluster.on_begun = lambda: None
            command(4).undo(yes=True, dry_run=False)

    cluster.on_begun = undo
    with pytest.raises(Failure, match="undone"):
        carry_out(4)
    assert len(cluster.begun) == 4
    assert 4 not in cluster.cordoned
    assert sum(4 in replicas for replicas in cluster.replicas.values()) >= 6


def test_a_broker_that_was_unregistered_with_its_replicas_is_drained(made: Callable[..., MemoryCluster]) -> None:
    cluster = made({1, 2, 3}, {("t", 0): (9, 1), ("t", 1): (2, 9)})
    carry_out(9)
    assert not any(9 in replicas for replicas in cluster.replicas.values())


def test_a_drain_does_not_wait_for_a_copy_to_a_broker_that_died(made: Callable[..., MemoryCluster]) -> None:
    cluster = made({1, 2, 3, 4, 5}, {("t", 0): (1, 4)})
    cluster.live.remove(5)
    cluster.alter_reassignments(None, {("t", 0): (1, 5)})
    carry_out(4)
    assert 4 not in cluster.replicas["t", 0]
    assert cluster.live.issuperset(cluster.replicas["t", 0])


def test_topics_that_another_command_moves_keep_their_throttle(made: Callable[..., MemoryCluster]) -> None:
    cluster = made({1, 2, 3, 4, 5}, {("t", 0): (1, 4), ("other", 0): (1, 2)})
    cluster.live.remove(5)
    cluster.alter_reassignments(None, {("other", 0): (1, 5)})
    cluster.alter(Resource(kind="topic", name="other"), put={LEADER_REPLICAS: "0:1"}, remove=())
    cluster.alter(Resource(kind="broker", name="1"), put={LEADER_RATE: "1000"}, remove=())
    carry_out(4, throttle=1_000)
    assert LEADER_REPLICAS in cluster.settings["topic", "other"]
    assert LEADER_REPLICAS not in cluster.settings["topic", "t"]
    assert LEADER_RATE in cluster.settings["broker", "1"]
    cluster.live.add(5)
    carry_out(3)
    assert LEADER_REPLICAS not in cluster.settings["topic", "other"]
    assert LEADER_RATE not in cluster.settings["broker", "1"]


def test_moves_that_could_not_be_checked_are_begun_later(made: Callable[..., MemoryCluster]) -> None:
    cluster = made({1, 2, 3}, {("t", index): (1, 2) for index in range(3)})
    moves = [Move(topic="t", partition=index, before=(1, 2), after=(1, 3)) for index in range(3)]
    failures = [ClientError("no broker responds")]

    def check() -> None:
        if failures:
            raise failures.pop()

    work = ReplicaMoves(where=Connection(bootstrap="unused"), calls=cast("WireCalls", None), show=False)
    work.carry_out(moves, {}, at_once_max=2, check=check)
    assert set(cluster.replicas.values()) == {(1, 3)}
