"""What a simulation of several brokers has beyond one of a single broker: topics with replicas, and checks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.replica import RACK_AWARE_SELECTOR
from penstock.model.ids import LeaderEpoch
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.consumers import FOLLOWER_READS, Seen
from penstock.testing.sim.faults import eventually
from penstock.testing.sim.metadata_history import MetadataHistory, Moment
from penstock.testing.sim.plan import EVENTS, LEDGER, PAIRS, UNFLUSHED, Topic
from penstock.testing.sim.recording import Recording
from penstock.testing.sim.replica_logs import check_replicas, left_behind, unequal

if TYPE_CHECKING:
    from penstock.testing.sim.world import World

SESSION_TIMEOUT_S = 3.0
"""Of brokers in the metadata store."""
SETTLED_S = 60.0
"""Within so long after everything is healed, every replica is in sync and has committed all it has."""
DEPOSED_S_MAX = 30.0
"""A leader that was deposed acknowledges records on its own for at most so long."""

SETTINGS: dict[str, str] = {
    "broker.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "leader.imbalance.check.interval.seconds": "10",
    "replica.selector.class": RACK_AWARE_SELECTOR,
}
"""Of every broker of a cluster: replicas leave and join the ISR, and sessions end, within seconds."""

INTERNAL_PREFIX = "__"
"""Of the names of internal topics."""

TRUNCATIONS = ("log_truncated", "committed_records_truncated")
"""What brokers log when a follower cuts what its leader does not have."""

FACTOR_MAX = 3
"""Replicas of a topic when it is created; with more brokers there is room for reassignments."""

EVENTS_COUNTED = (
    Moment.ELECTION,
    Moment.ISR_CHANGE,
    Moment.RESTART_WITH_LOSS,
    Moment.COORDINATOR_MOVE,
    Moment.TAKE_OVER,
    Moment.REASSIGNMENT,
    Moment.CORDON,
)
"""What each seed of a cluster must have seen; reassignments and cordons where there is room for them."""

ROOM_NEEDED = (Moment.REASSIGNMENT.value, Moment.CORDON.value)
"""Of these, what needs more brokers than replicas."""

EVENTS_OF_RUNS = ("truncations", FOLLOWER_READS)
"""What a run of many seeds must have seen. A deposed leader truncates only what it has appended on its own, and whether
a client of it writes before it is deposed is not up to the faults; nor is whether a follower of the reader's rack is in
sync while the reader runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a topic of a cluster is made."""

    topic: Topic
    factor: int
    configs: Mapping[str, str]


def layouts(
    configs: Mapping[str, str], unflushed: Mapping[str, str], *, losses: bool, power_cuts: bool
) -> tuple[Layout, ...]:
    """The topics of a cluster; those whose flush is not named have the brokers' one.

    A broker that lost its page cache and has one replica with `flush=os` leaves every ISR. So there is none where all
    brokers may lose it and nothing may be lost.
    """
    safe = {**configs, "min.insync.replicas": "2"}
    lossy = {**configs, **unflushed, "unclean.leader.election.enable": "true" if losses else "false"}
    return (
        Layout(topic=EVENTS, factor=3, configs=safe),
        Layout(topic=LEDGER, factor=3, configs=safe),
        Layout(topic=PAIRS, factor=2, configs={**configs, "min.insync.replicas": "1", "flush": "group"}),
        Layout(topic=UNFLUSHED, factor=1 if power_cuts else 3, configs=lossy),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuses:
    """Losses that elections reported: what they explain is no anomaly."""

    partitions: frozenset[str] = frozenset()
    """By the history's names."""

    def cover(self, key: str) -> bool:
        """Whether a loss explains what was found in a partition, or with an empty key in a group or a transaction.

        Where a coordinator may have lost records, groups and transactions may show anything.
        """
        return key in self.partitions or self.coordinators

    @property
    def coordinators(self) -> bool:
        """Whether a coordinator may have lost records."""
        return any(each.startswith(INTERNAL_PREFIX) for each in self.partitions)


class Cluster:
    """The brokers of one simulation, judged by what the metadata store and their disks have."""

    def __init__(
        self, world: World, brokers: Sequence[SimBroker], history: MetadataHistory, recording: Recording
    ) -> None:
        self._world = world
        self._brokers = brokers
        self._by_name = {broker.name: broker for broker in brokers}
        self._recording = recording
        self.history = history

    def reign(self, host: str, topic: str, index: int) -> int | None:
        """The leader epoch in which a broker leads a partition and knows it; None where it does not."""
        state = self.history.state(topic, index)
        broker = self._by_name[host]
        if state is None or broker.broker is None:
            return None
        leader, epoch = state.leader, state.leader_epoch
        if state.is_ghost:
            target = self.history.state(topic, state.drained_into)
            assert target is not None, f"{topic}-{index} is drained into no partition"
            leader, epoch = target.leader, LeaderEpoch(epoch + target.leader_epoch)
        known = broker.broker.image.topics.get(topic)
        if leader != broker.broker_id or known is None or index >= len(known.partitions):
            return None
        return epoch if known.shown(index).leader_epoch == epoch else None

    async def settle(self) -> bool:
        """Wait until everything has recovered from the last fault; whether it did in a bounded time."""
        await eventually(self._world, self._settled, limit_s=SETTLED_S)
        self._note("not in sync", self.history.unhealthy())
        self._note("not committed on all replicas", unequal(self._brokers, self.history))
        return self._settled()

    def _settled(self) -> bool:
        return not self.history.unhealthy() and not unequal(self._brokers, self.history)

    def _note(self, what: str, partitions: list[str]) -> None:
        if partitions:
            text = f"{what} {SETTLED_S:g} s after everything was healed: {', '.join(partitions)}"
            self._recording.finding(text, key=None)

    def compare(self) -> None:
        """Compare the replicas of every partition."""
        for topic, index, found in check_replicas(self._brokers, self.history):
            self._recording.finding(f"replicas differ: {topic}-{index}: {found}", key=None)
        for broker_id, log in left_behind(self._brokers, self.history):
            self._recording.finding(f"broker {broker_id} is no replica of {log}, and has its log", key=None)

    def excuses(self) -> Excuses:
        """The partitions that may have lost records by the store's word."""
        return Excuses(partitions=frozenset(self.history.risky()))

    def check_weak(self, seen: Seen) -> Iterator[str]:
        """Records that a leader acknowledged alone, and that are gone though it was never deposed."""
        kept = {(key, value) for key, pairs in seen.items() for _, value in pairs}
        for (key, value), sent_at in self._recording.weak.items():
            topic, _, index = key.rpartition("/")
            if (key, value) in kept or key not in seen:
                continue
            if not any(begun > sent_at - DEPOSED_S_MAX for begun in self.history.epochs_begun(topic, int(index))):
                yield f"{value} of {key} was acknowledged by a leader that was not deposed, and is gone"

    def events(self) -> dict[str, int]:
        """How often what the faults are there for happened."""
        logged: Counter[str] = Counter()
        for broker in self._brokers:
            logged.update(broker.log.counts)
        return {
            **{moment.value: self.history.counts[moment] for moment in EVENTS_COUNTED},
            "truncations": sum(logged[event] for event in TRUNCATIONS),
            FOLLOWER_READS: self._world.counts[FOLLOWER_READS],
        }
