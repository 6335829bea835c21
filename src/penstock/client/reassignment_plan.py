"""Plans of reassignments on the side of an operator: which replicas partitions are to have, and what that copies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.admin import PartitionInfo
from penstock.client.reassignments import Place

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class PlanError(ValueError):
    """A plan that cannot be made, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition before and after."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(each for each in self.after if each not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(each for each in self.before if each not in self.after)


def rotated(replicas: Sequence[int], by: int) -> tuple[int, ...]:
    """The same brokers, beginning with another: partitions on the same brokers have different preferred leaders."""
    at = by % len(replicas)
    return (*replicas[at:], *replicas[:at])


def with_factor(
    partition: PartitionInfo,
    factor: int,
    *,
    racks: Mapping[int, str | None],
    load: Counter[int],
    cordoned: Collection[int] = (),
) -> tuple[int, ...]:
    """The replicas of a partition with another replication factor.

    Those it has stay; the last ones go, those that are not in sync first and `cordoned` brokers second. New ones are on
    live brokers in racks without a replica, then on those with the fewest replicas, and never on cordoned ones. `load`
    counts replicas by broker, and is kept current.
    """
    kept = list(partition.replicas)
    while len(kept) > factor:
        behind = [each for each in kept if each not in partition.isr]
        others = [each for each in kept if each != partition.leader]
        others.sort(key=lambda each: each in cordoned)
        gone = behind[-1] if behind else others[-1]
        kept.remove(gone)
        load[gone] -= 1
    while len(kept) < factor:
        used = {racks.get(each) for each in kept}
        free = [each for each in racks if each not in kept and each not in cordoned]
        if not free:
            there = f"there are {len(racks)}"
            closed = len(set(racks).intersection(cordoned))
            raise PlanError(
                f"a replication factor of {factor} needs {factor} live brokers, and "
                + (f"{there}, {closed} of them cordoned" if closed else there)
            )
        chosen = min(free, key=lambda each: (racks[each] is not None and racks[each] in used, load[each], each))
        kept.append(chosen)
        load[chosen] += 1
    return tuple(kept)


def parse_plan(text: str) -> dict[Place, tuple[int, ...]]:
    """A plan in the format of Kafka's kafka-reassign-partitions; raises `PlanError` for anything else."""
    try:
        document: Any = json.loads(text)
        version, partitions = document.get("version", 1), document["partitions"]
        wanted = [
            ((str(each["topic"]), int(each["partition"])), tuple(int(broker) for broker in each["replicas"]))
            for each in partitions
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"it is no plan of kafka-reassign-partitions: {type(error).__name__}: {error}") from error
    if version != 1:
        raise PlanError(f"it is a plan of version {version}, and only 1 is known")
    twice = [place for place, count in Counter(place for place, _ in wanted).items() if count > 1]
    if twice:
        raise PlanError(f"{twice[0][0]}-{twice[0][1]} is in it twice")
    return dict(wanted)


def throttled_replicas(moves: Iterable[Move]) -> dict[str, tuple[str, str]]:
    """The throttled leaders and followers of each topic, as Kafka's tool sets them: replicas before, and added ones."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in moves:
        if move.adding:
            leaders.setdefault(move.topic, []).extend(f"{move.partition}:{each}" for each in move.before)
            followers.setdefault(move.topic, []).extend(f"{move.partition}:{each}" for each in move.adding)
    return {topic: (",".join(leaders[topic]), ",".join(followers[topic])) for topic in leaders}


def throttled_brokers(moves: Iterable[Move]) -> frozenset[int]:
    """The brokers that copy from each other."""
    return frozenset(each for move in moves if move.adding for each in (*move.before, *move.after))
