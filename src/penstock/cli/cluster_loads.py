"""What the brokers of a cluster have and do, as any Kafka client can find out: replicas, leaders, bytes, traffic.

Metadata has the replicas, DescribeLogDirs the size of each. Its growth between two responses is what producers write to
a partition; what retention deletes meanwhile is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.output import Number, bytes_text
from penstock.client.broker_requests import cordoned_brokers
from penstock.client.cluster_state import ClusterState, replicated_state_of
from penstock.client.connection import Connection
from penstock.client.reassignment_plan import Move
from penstock.client.reassignments import Ongoing, Place, replica_sizes
from penstock.client.wire_calls import WireCalls
from penstock.controller.balance import BrokerPlace, Load, PartitionLoad, ReplicaMove, loads_of
from penstock.model.clock import SystemClock
from penstock.model.ids import BrokerId, TopicPartition

CHANGE_COLUMNS = (Number("replicas"), Number("leaders"), Number("bytes"), Number("traffic"))
BROKER_COLUMNS = (Number("broker"), "rack", "host", *CHANGE_COLUMNS)
NOTHING = Load()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoads:
    """A cluster at one moment, with the size and the traffic of each partition."""

    state: ClusterState
    partitions: tuple[PartitionLoad, ...]
    cordoned: frozenset[int]
    """Live brokers that get no new replicas."""

    @property
    def sizes(self) -> dict[Place, int]:
        return {(each.tp.topic, each.tp.partition): each.size_bytes for each in self.partitions}

    def places(self, *, emptied: int | None = None) -> list[BrokerPlace]:
        """The live brokers. To empty one, those that are down are listed as well: they keep what they have."""
        found = [
            BrokerPlace(
                broker_id=BrokerId(each.broker_id),
                rack=each.rack,
                host=each.host,
                accepts=each.broker_id not in self.cordoned,
                emptied=each.broker_id == emptied,
            )
            for each in self.state.brokers
        ]
        if emptied is not None:
            known = {broker for each in self.partitions for broker in each.replicas} | {BrokerId(emptied)}
            found += (
                BrokerPlace(broker_id=each, accepts=False, emptied=each == emptied)
                for each in sorted(known - self.state.live)
            )
        return found


def measure(
    where: Connection, calls: WireCalls, *, sample_s: float = 0, ongoing: Mapping[Place, Ongoing] | None = None
) -> ClusterLoads:
    """Look at a cluster, for `sample_s` seconds if its traffic counts.

    A partition that is being reassigned counts with the replicas that it will have.
    """
    state = replicated_state_of(where)
    topics = [topic.name for topic in state.topics]
    clock = SystemClock()
    sizes, began_s = replica_sizes(calls, state.live, topics), clock.monotonic()
    grown: Mapping[tuple[Place, int], int] = sizes
    passed_s = 1.0
    if sample_s > 0:
        time.sleep(sample_s)
        grown = replica_sizes(calls, state.live, topics)
        passed_s = max(clock.monotonic() - began_s, sample_s)
    return ClusterLoads(
        state=state,
        partitions=partition_loads(state, sizes, grown, passed_s, ongoing or {}),
        cordoned=cordoned_brokers(state, where),
    )


def partition_loads(
    state: ClusterState,
    sizes: Mapping[tuple[Place, int], int],
    grown: Mapping[tuple[Place, int], int],
    passed_s: float,
    ongoing: Mapping[Place, Ongoing],
) -> tuple[PartitionLoad, ...]:
    """Each partition with the bytes of its largest replica, and what its leader's log grew by in a second."""
    found: list[PartitionLoad] = []
    for topic in state.topics:
        for each in topic.partitions:
            place = topic.name, each.partition
            moving = ongoing.get(place)
            growth = grown.get((place, each.leader), 0) - sizes.get((place, each.leader), 0)
            found.append(
                PartitionLoad(
                    tp=TopicPartition(*place),
                    replicas=tuple(map(BrokerId, each.replicas if moving is None else moving.target)),
                    size_bytes=max((grown.get((place, broker), 0) for broker in each.replicas), default=0),
                    bytes_per_s=max(round(growth / passed_s), 0),
                )
            )
    return tuple(found)


def as_moves(planned: Iterable[ReplicaMove]) -> list[Move]:
    return [
        Move(topic=each.tp.topic, partition=each.tp.partition, before=tuple(each.before), after=tuple(each.after))
        for each in planned
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a broker, or the brokers of a host or a rack, have before and after a plan."""

    name: str
    before: Load
    after: Load


def broker_changes(loads: ClusterLoads, planned: Sequence[ReplicaMove]) -> list[tuple[BrokerPlace, Change]]:
    """Each broker, also those that are down and have replicas."""
    before, after = loads_of(loads.partitions), loads_of(loads.partitions, planned)
    places = {each.broker_id: each for each in loads.places()}
    for each in sorted({*before, *after} - set(places)):
        places[each] = BrokerPlace(broker_id=each, accepts=False)
    return [
        (
            place,
            Change(name=str(number), before=before.get(number, NOTHING), after=after.get(number, NOTHING)),
        )
        for number, place in sorted(places.items())
    ]


def together(changes: Sequence[tuple[BrokerPlace, Change]], place_of: Callable[[BrokerPlace], str]) -> list[Change]:
    """The changes of brokers in the same place added up, by the name of the place; those without one are left out."""
    found: dict[str, Change] = {}
    for broker, change in changes:
        name = place_of(broker)
        if name:
            known = found.get(name, Change(name=name, before=NOTHING, after=NOTHING))
            found[name] = Change(
                name=name, before=known.before.plus(change.before), after=known.after.plus(change.after)
            )
    return [found[name] for name in sorted(found)]


def change_cells(change: Change) -> tuple[str, str, str, str]:
    """Before and after, or one value where they are the same."""
    before, after = change.before, change.after
    return (
        arrow(f"{before.replicas:,}", f"{after.replicas:,}"),
        arrow(f"{before.leaders:,}", f"{after.leaders:,}"),
        arrow(bytes_text(before.size_bytes), bytes_text(after.size_bytes)),
        arrow(f"{bytes_text(before.bytes_per_s)}/s", f"{bytes_text(after.bytes_per_s)}/s"),
    )


def arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} > {after}"


def load_json(load: Load) -> dict[str, Any]:
    return {
        "replicas": load.replicas,
        "leaders": load.leaders,
        "bytes": load.size_bytes,
        "bytes_per_s": load.bytes_per_s,
    }


def change_json(change: Change) -> dict[str, Any]:
    return {"before": load_json(change.before), "after": load_json(change.after)}
