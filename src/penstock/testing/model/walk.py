"""Runs of the model: a schedule drawn from a seed, healing, and the search for a shorter schedule that fails alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import NO_LEADER
from penstock.testing.model.cluster import Cluster
from penstock.testing.model.history import Violation
from penstock.testing.model.process import Process
from penstock.testing.model.replica import ModelReplica
from penstock.testing.model.schedule import Schedule
from penstock.testing.model.steps import take

SETTLE_ROUNDS_MAX = 40
HEAL_ROUNDS_MAX = 120
ROUND_MS = 1_000
HEALED_RECORDS_MAX = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a schedule: no violation, or the first one, after how many steps."""

    violation: str | None
    kind: str | None
    steps: int
    counts: dict[str, int] = field(default_factory=dict[str, int])


def run(schedule: Schedule, trace: list[str] | None = None) -> Result:
    """Take the steps of a schedule on a cluster that is in sync, heal everything, and check what is left."""
    cluster = Cluster(schedule.settings, trace)
    taken = 0
    try:
        cluster.slow = frozenset()
        settle(cluster)
        cluster.slow = schedule.settings.slow
        for step in schedule.steps:
            if trace is not None:
                trace.append(f"{taken}: {step.kind} {step.broker} {step.number}")
            take(cluster, step)
            taken += 1
        heal(cluster)
    except Violation as violation:
        return Result(violation=str(violation), kind=violation.kind, steps=taken, counts=cluster.history.counts)
    return Result(violation=None, kind=None, steps=taken, counts=cluster.history.counts)


def fair_round(cluster: Cluster, number: int) -> None:
    """Every broker gets on with everything."""
    cluster.now_ms += ROUND_MS
    for broker in cluster.settings.brokers:
        process = cluster.processes.get(broker)
        if process is not None and (process.stopping or process.has_failed_directory()):
            process.paused = False
            cluster.stop(broker)
        cluster.start(broker)
    for process in list(cluster.processes.values()):
        process.paused = False
        cluster.join(process)
        for turn in range(3):
            process.client.apply()
            process.client.respond()
            cluster.learn(process)
            process.configure()
            process.control.turn(turn)
        if number % 4 == 0:
            process.fetching.clear()
        process.report_failures()
        process.repair()
        for tp, replica in process.replicas.items():
            process.send_fetch(tp)
            replica.flush()
            process.send_proposal(replica)
            if number % 3 == 2:
                cluster.shrink(process, replica)
    for _ in range(2 * len(cluster.network.messages)):
        cluster.deliver(0)


def is_settled(cluster: Cluster, tp: TopicPartition) -> tuple[Process, ModelReplica] | None:
    """The leader of a partition whose replicas are all in sync."""
    state = cluster.history.states[tp]
    if state.leader == NO_LEADER or set(state.isr) != set(state.replicas) or state.is_reassigning:
        return None
    process = cluster.processes.get(state.leader)
    replica = None if process is None else process.replicas.get(tp)
    if process is None or replica is None or replica.leader is None:
        return None
    if replica.leader.leader_epoch != state.leader_epoch or replica.leader.is_proposing:
        return None
    return process, replica


def settle(cluster: Cluster) -> None:
    """Bring everything up before the first step."""
    for number in range(SETTLE_ROUNDS_MAX):
        fair_round(cluster, number)
        if all(is_settled(cluster, tp) for tp in cluster.partitions()):
            return
    raise Violation("STUCK", f"at the start: {cluster.history.states}")


def heal(cluster: Cluster) -> None:
    """End every fault, and wait until all replicas are in sync and a write is acknowledged by all partitions."""
    cluster.history.say("everything is healed")
    cluster.network.cuts.clear()
    cluster.server.late.clear()
    cluster.slow = frozenset()
    for session in cluster.server.sessions - {each.client.session for each in cluster.processes.values()}:
        cluster.server.expire(session)
    written: dict[TopicPartition, tuple[BrokerId, int, int]] = {}
    for number in range(HEAL_ROUNDS_MAX):
        fair_round(cluster, number)
        done = [_has_written(cluster, tp, written) for tp in cluster.partitions()]
        if all(done):
            cluster.history.at_end()
            return
    offline = [tp for tp in cluster.partitions() if cluster.is_lost(tp)]
    if offline:
        cluster.history.count("offline for good")
        return
    raise Violation("STUCK", f"after everything was healed: {cluster.history.states}")


def _has_written(
    cluster: Cluster, tp: TopicPartition, written: dict[TopicPartition, tuple[BrokerId, int, int]]
) -> bool:
    """Whether a record written after the last election was acknowledged, and is committed on all replicas."""
    found = is_settled(cluster, tp)
    if found is None:
        return False
    _, replica = found
    leader = replica.leader
    assert leader is not None, "a settled partition has a leader"
    last = written.get(tp)
    if last is None or last[:2] != (leader.broker_id, leader.leader_epoch):
        value = cluster.produce(replica, HEALED_RECORDS_MAX)
        if value is not None:
            written[tp] = (leader.broker_id, leader.leader_epoch, value)
        return False
    if not any(each.record.value == last[2] for each in cluster.history.acknowledged.get(tp, ())):
        return False
    return all(
        each.offsets.high_watermark == replica.log.end for (_, of), each in cluster.history.replicas.items() if of == tp
    )


def shrink(schedule: Schedule, fails: Callable[[Result], bool], runs_max: int = 3_000) -> Schedule:
    """The schedule without steps that its failure does not need: ever smaller runs of steps are left out."""
    steps = list(schedule.steps)
    first = run(schedule)
    assert fails(first), "the schedule does not fail"
    del steps[first.steps + 1 :]
    runs = 0
    size = max(len(steps) // 2, 1)
    while True:
        at, shorter = 0, False
        while at < len(steps) and runs < runs_max:
            fewer = steps[:at] + steps[at + size :]
            runs += 1
            if fails(run(Schedule(settings=schedule.settings, steps=tuple(fewer)))):
                steps, shorter = fewer, True
            else:
                at += size
        if (size == 1 and not shorter) or runs >= runs_max:
            return Schedule(settings=schedule.settings, steps=tuple(steps))
        size = max(size // 2, 1)
