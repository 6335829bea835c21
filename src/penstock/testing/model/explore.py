"""All schedules of a few steps: where random ones may miss an order of events, every order is tried.

The steps are coarse, so that a handful of them is a whole story: a leader fails over, a broker returns, a record is
copied. Two orders that lead to the same cluster are followed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from penstock.metadata.records import CHANGES
from penstock.testing.model.cluster import Cluster
from penstock.testing.model.history import Violation
from penstock.testing.model.process import Process
from penstock.testing.model.schedule import (
    ALL_BITS,
    ALL_COPY,
    JOINED,
    ONLY_APPEND,
    SEEN,
    Schedule,
)
from penstock.testing.model.settings import Settings
from penstock.testing.model.steps import Step, take
from penstock.testing.model.walk import Result, heal, run, settle

Move = tuple[Step, ...]
"""Steps that are taken together."""

WRITTEN: Move = (Step("data", 0, ALL_COPY),)
APPENDED: Move = (Step("data", 0, ONLY_APPEND),)
COPIED_BY_SECOND: Move = (Step("data", 0, 64 * (3 << 3 | 1 << 8)),)
COPIED_BY_THIRD: Move = (Step("data", 0, 64 * (3 << 5 | 1 << 8)),)
FIRST_FOLLOWER_LEAVES: Move = (Step("shrink", 0, 64),)
SECOND_FOLLOWER_LEAVES: Move = (Step("shrink", 0, 64 * 5),)
DECIDED: Move = (Step("settle", 0, ALL_BITS), Step("settle", 0, ALL_BITS))
LEARNED: Move = SEEN[2:]
LEADER_DIES: Move = (Step("strike leader", 0, 0),)
LEADER_LOSES_POWER: Move = (Step("strike leader", 0, 16),)
LEADER_LOSES_SESSION: Move = (Step("strike leader", 0, 24),)
RETURNED: Move = (Step("start", 0, 0), *JOINED)
WRITER_IS_CUT_OFF: Move = (Step("settle", 0, 4), Step("strike writer", 0, 3))
LATE_TRANSACTION: Move = (Step("late", 0, 1),)

MOVES: tuple[Move, ...] = (
    WRITTEN,
    APPENDED,
    COPIED_BY_SECOND,
    COPIED_BY_THIRD,
    FIRST_FOLLOWER_LEAVES,
    SECOND_FOLLOWER_LEAVES,
    DECIDED,
    LEARNED,
    LEADER_DIES,
    LEADER_LOSES_POWER,
    LEADER_LOSES_SESSION,
    RETURNED,
    WRITER_IS_CUT_OFF,
    LATE_TRANSACTION,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What an exploration found: the clusters that were seen, and a schedule that breaks a promise, if any."""

    clusters: int
    failing: Schedule | None = None
    result: Result | None = None


def explore(settings: Settings, depth: int, moves: Sequence[Move] = MOVES, opening: Move = ()) -> Explored:
    """Try every order of up to `depth` moves after an opening; each cluster that is reached is healed and checked."""
    seen: set[Hashable] = set()
    paths: list[Move] = [opening]
    for _ in range(depth + 1):
        longer: list[Move] = []
        for path in paths:
            cluster = Cluster(settings)
            try:
                settle(cluster)
                for step in path:
                    take(cluster, step)
                state = fingerprint(cluster)
                if state in seen:
                    continue
                seen.add(state)
                heal(cluster)
            except Violation:
                failing = Schedule(settings=settings, steps=path)
                return Explored(clusters=len(seen), failing=failing, result=run(failing))
            longer += [(*path, *move) for move in moves]
        paths = longer
    return Explored(clusters=len(seen))


def fingerprint(cluster: Cluster) -> Hashable:
    """What decides how a cluster goes on, with transaction numbers as they are and without the time."""
    return (
        tuple((path, node.data, node.owner) for path, node in cluster.server.tree.nodes.items() if path != CHANGES),
        tuple(cluster.server.late),
        tuple((message.channel, repr(message.body)) for message in cluster.network.messages),
        tuple(
            (broker, repr(disk.logs), disk.registration, disk.power_failed) for broker, disk in cluster.disks.items()
        ),
        tuple(of_process(process) for process in cluster.processes.values()),
        tuple((tp, tuple(done)) for tp, done in cluster.history.acknowledged.items()),
    )


def of_process(process: Process) -> Hashable:
    client = process.client
    return (
        process.broker_id,
        process.number,
        process.broker_epoch,
        process.admitted_epoch,
        client.connected,
        client.is_alive,
        len(client.sending),
        len(client.responses),
        process.control.is_active,
        tuple(
            (type(replica.role).__name__, replica.role.leader_epoch, repr(replica.offsets), repr(replica.leader))
            if replica.leader is None
            else (replica.leader.leader_epoch, repr(replica.offsets), replica.leader.proposal, replica.leader.isr)
            for replica in process.replicas.values()
        ),
    )
