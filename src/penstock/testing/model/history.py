"""What clients and an observer of all replicas saw in a run of the model, and whether it may be.

Every method is called at the moment something happens and raises `Violation` where a promise is broken. Elections that
may lose records, and that the metadata reports as such, excuse the loss of what was acknowledged before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.metadata.nodes import Changes
from penstock.metadata.records import PARTITIONS, chunk_of, unpack_partitions
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState
from penstock.partition.leader import Leader
from penstock.partition.offsets import Offsets
from penstock.partition.role import Offline, Role
from penstock.testing.model.disk import Record, RecordLog


class Violation(Exception):
    """A promise of replication was broken. `kind` is one word, the same for all breaches of one promise."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Seen(Protocol):
    """What the history looks at in a replica."""

    tp: TopicPartition
    broker_id: BrokerId
    log: RecordLog
    broker_epoch: BrokerEpoch
    """With which its broker was admitted; none while it is fenced."""
    decided: PartitionState | None
    """The state that gave it its role."""
    role: Role
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A record that a producer got a response for, from the leader of `leader_epoch`."""

    offset: Offset
    record: Record
    leader_epoch: LeaderEpoch


class History:
    """The promises made in one run."""

    def __init__(self, trace: list[str] | None = None) -> None:
        self.trace = trace
        self.states: dict[TopicPartition, PartitionState] = {}
        """The partitions as the store has them now."""
        self.acknowledged: dict[TopicPartition, list[Acknowledged]] = {}
        self.counts: dict[str, int] = {}
        self.replicas: dict[tuple[BrokerId, TopicPartition], Seen] = {}
        """Replicas of processes that run, whether connected or not."""
        self._names: dict[TopicId, str] = {}
        self._lives: dict[tuple[TopicPartition, LeaderEpoch], tuple[int, ...]] = {}
        self._appended: dict[tuple[TopicPartition, LeaderEpoch, Offset], Record] = {}
        self._read: dict[tuple[TopicPartition, Offset], Record] = {}
        self._log_starts: dict[TopicPartition, Offset] = {}
        self._excused: dict[TopicPartition, LeaderEpoch] = {}
        """The epoch of the last election that was reported as a possible loss."""

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(text)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def name_topic(self, topic_id: TopicId, name: str) -> None:
        self._names[topic_id] = name

    # The metadata

    def committed_metadata(self, changes: Changes) -> None:
        """A transaction was done in the store."""
        for change in changes.changes:
            if change.data is not None and change.path.rpartition("/")[0] == PARTITIONS:
                topic_id, chunk = chunk_of(change.path)
                for state in unpack_partitions(change.data, chunk):
                    self._decided(TopicPartition(self._names[topic_id], state.index), state)

    def _decided(self, tp: TopicPartition, state: PartitionState) -> None:
        before = self.states.get(tp)
        self.states[tp] = state
        if before is None or before == state:
            return
        self.say(
            f"  {tp}: leader {state.leader} epoch {state.leader_epoch} isr {state.isr} "
            f"eligible {state.eligible_leader_replicas} min {state.in_sync_min} at {state.partition_epoch}"
        )
        if state.partition_epoch != before.partition_epoch + 1:
            raise Violation("OVERWRITTEN", f"{tp} went from {before} to {state}")
        if state.leader_epoch < before.leader_epoch:
            raise Violation("EPOCH", f"{tp}: the leader epoch went back from {before} to {state}")
        if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            raise Violation("EPOCH", f"{tp}: two leaders in epoch {state.leader_epoch}")
        if not set(state.isr) <= set(state.replicas) or (state.leader != NO_LEADER and state.leader not in state.isr):
            raise Violation("STATE", f"{tp}: {state}")
        self._check_holders(tp, before, state)
        gone = set(before.replicas) - set(state.replicas)
        if gone and state.leader_epoch == before.leader_epoch:
            raise Violation("EPOCH", f"{tp}: {sorted(gone)} removed without a new epoch: {before} to {state}")
        if before.is_reassigning and not state.is_reassigning:
            self.count("reassignments")
        if state.isr != before.isr:
            self.count("ISR changes")
        if state.leader_epoch > before.leader_epoch and state.leader != NO_LEADER:
            self.count("elections")
            self._elected(tp, before, state)

    def _check_holders(self, tp: TopicPartition, before: PartitionState, state: PartitionState) -> None:
        """The last replica that has everything is not given up because its log cannot be used for the time being."""
        if state.isr or state.eligible_leader_replicas:
            return
        for broker in (*before.isr, *before.eligible_leader_replicas):
            replica = self.replicas.get((broker, tp))
            # One that is not admitted may have lost records before.
            if replica is None or replica.broker_epoch == NO_BROKER_EPOCH:
                continue
            if isinstance(replica.role, Offline) and not replica.log.damage_known:
                raise Violation("GIVEN UP", f"{tp}: {before} became {state}, and broker {broker} has everything")

    def _elected(self, tp: TopicPartition, before: PartitionState, state: PartitionState) -> None:
        if state.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            return
        if before.leader_recovery_state is state.leader_recovery_state and state.leader in (
            *before.isr,
            *before.eligible_leader_replicas,
        ):
            # A clean election among those that follow an earlier loss.
            return
        self.count("reported losses")
        self._excused[tp] = state.leader_epoch
        if before.isr or before.eligible_leader_replicas:
            raise Violation("NEEDLESS", f"{tp}: {before} became {state} with possible loss")

    def excuses(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Whether a later election, reported as a possible loss, excuses the loss of what was written in an epoch."""
        excused = self._excused.get(tp)
        return excused is not None and leader_epoch < excused

    # Replicas

    def removed(self, replica: Seen, state: PartitionState) -> None:
        """A broker is about to delete the log of a replica that it no longer holds."""
        self.count("removals")
        if replica.log.records and replica.log.records[-1].epoch >= state.leader_epoch:
            raise Violation("REMOVED", f"{replica.tp} on broker {replica.broker_id} is newer than {state}")

    def leads(self, replica: Seen, leader_epoch: LeaderEpoch, life: tuple[int, ...]) -> None:
        """A replica became leader."""
        tp = replica.tp
        self.say(
            f"broker {replica.broker_id} leads {tp} in epoch {leader_epoch}: "
            f"{[*replica.log.records]} hw {replica.offsets.high_watermark}"
        )
        if self._lives.setdefault((tp, leader_epoch), life) != life:
            raise Violation("TWO LIVES", f"epoch {leader_epoch} of {tp} is served by {life} too")
        for each in self.acknowledged.get(tp, ()):
            if each.leader_epoch < leader_epoch:
                self._check_has(replica, each)

    def _check_has(self, replica: Seen, acknowledged: Acknowledged) -> None:
        tp, offset = replica.tp, acknowledged.offset
        if offset < self._log_starts.get(tp, 0) or self.excuses(tp, acknowledged.leader_epoch):
            return
        found = replica.log.get(offset)
        if found != acknowledged.record:
            raise Violation(
                "LOST", f"{acknowledged} of {tp} is not in the log of broker {replica.broker_id}, which has {found}"
            )

    def appends(self, replica: Seen, offset: Offset, record: Record) -> None:
        """A leader appends a record."""
        self.say(f"broker {replica.broker_id} appends {record} to {replica.tp} at {offset}")
        self._check_admitted(replica)
        key = (replica.tp, record.epoch, offset)
        if self._appended.setdefault(key, record) != record:
            raise Violation("TWICE", f"{self._appended[key]} and {record} at {offset} of {replica.tp}")

    def acknowledges(self, replica: Seen, offset: Offset, record: Record, leader_epoch: LeaderEpoch) -> None:
        """A leader responds to a producer with acks=all."""
        self.say(f"broker {replica.broker_id} acknowledges {record} of {replica.tp} at {offset}")
        self.count("acknowledged")
        self._check_admitted(replica)
        decided = replica.decided
        if decided is not None and len(decided.isr) < decided.in_sync_needed(decided.in_sync_min):
            raise Violation("TOO FEW", f"broker {replica.broker_id} acknowledges {record} with {decided}")
        done = Acknowledged(offset, record, leader_epoch)
        self.acknowledged.setdefault(replica.tp, []).append(done)
        for other in self._others(replica):
            if isinstance(other.role, Leader) and other.role.leader_epoch > leader_epoch:
                self._check_has(other, done)

    def _check_admitted(self, replica: Seen) -> None:
        if replica.broker_epoch == NO_BROKER_EPOCH:
            raise Violation("FENCED", f"broker {replica.broker_id} leads {replica.tp} and is not admitted")

    def committed(self, replica: Seen) -> None:
        """A replica's high watermark may have moved: below the least of two, logs are the same."""
        tp, log = replica.tp, replica.log
        for other in self._others(replica):
            start = max(log.start, other.log.start)
            end = min(replica.offsets.high_watermark, other.offsets.high_watermark)
            mine, theirs = log.read(start, end), other.log.read(start, end)
            if mine == theirs:
                continue
            for one, two in zip(mine, theirs, strict=True):
                if one != two and not self.excuses(tp, min(one.epoch, two.epoch)):
                    raise Violation(
                        "DIFFER",
                        f"{tp} below {end}: {log.records} on broker {replica.broker_id}, "
                        f"{other.log.records} on broker {other.broker_id}",
                    )

    def _others(self, replica: Seen) -> Iterable[Seen]:
        return [
            other
            for (broker_id, tp), other in self.replicas.items()
            if tp == replica.tp and broker_id != replica.broker_id
        ]

    def truncates(self, replica: Seen, end: Offset, *, reported: bool) -> None:
        """A follower is about to truncate its log."""
        self.say(f"broker {replica.broker_id} truncates {replica.tp} to {end}: {[*replica.log.records]}")
        self.count("truncations")
        gone = replica.log.read(end, replica.offsets.high_watermark)
        if any(not self.excuses(replica.tp, record.epoch) for record in gone):
            raise Violation("TRUNCATED", f"{replica.tp} on broker {replica.broker_id} loses committed {gone}")
        if gone and not reported:
            raise Violation("SILENT", f"{replica.tp} on broker {replica.broker_id} loses {gone} without a report")

    def deleted(self, tp: TopicPartition, log_start: Offset) -> None:
        """DeleteRecords was acknowledged."""
        self._log_starts[tp] = max(self._log_starts.get(tp, Offset(0)), log_start)
        self.count("deletions")

    # Readers

    def consumed(self, replica: Seen, offset: Offset, record: Record) -> None:
        """A consumer read a record."""
        key = (replica.tp, offset)
        earlier = self._read.setdefault(key, record)
        if earlier != record:
            self._read[key] = record
            if not self.excuses(replica.tp, min(earlier.epoch, record.epoch)):
                raise Violation("READ", f"{earlier} and {record} at {offset} of {replica.tp}")

    def latest(self, replica: Seen, offset: Offset) -> None:
        """A leader gave the latest offset."""
        role = replica.role
        assert isinstance(role, Leader), "only a leader knows the latest offset"
        for each in self.acknowledged.get(replica.tp, ()):
            earlier = each.leader_epoch < role.leader_epoch and not self.excuses(replica.tp, each.leader_epoch)
            if earlier and each.offset >= offset:
                raise Violation("LATEST", f"{offset} of {replica.tp} is before {each}")

    def at_end(self) -> None:
        """Everything is healed: every replica has every acknowledged record."""
        for tp, acknowledged in self.acknowledged.items():
            for (_, of), replica in self.replicas.items():
                for each in acknowledged:
                    if of == tp:
                        self._check_has(replica, each)
