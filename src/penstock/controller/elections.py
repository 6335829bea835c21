"""Rules of a partition's leader, ISR and eligible replicas: what a death, a return or a request makes of its state.

Everything here is about one partition and returns its next state. A change raises the partition epoch, and a new leader
or the end of one raises the leader epoch. Which brokers are registered, admitted or stopping is given as `Brokers`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from penstock.metadata.records import brokers_shared
from penstock.model.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState

NONE: frozenset[BrokerId] = frozenset()
NOTHING: Mapping[BrokerId, Mapping[TopicId, frozenset[int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """What the controller knows about the brokers when it decides about partitions."""

    live: frozenset[BrokerId]
    """Registered and admitted: only these are elected."""
    fenced: frozenset[BrokerId] = NONE
    """Registered and not admitted yet. What such a broker led in its former life must end before it is admitted."""
    unclean: frozenset[BrokerId] = NONE
    """Fenced ones whose process was replaced without a clean stop."""
    unsafe: frozenset[BrokerId] = NONE
    """Fenced ones that may have lost what they acknowledged."""
    replaced: frozenset[BrokerId] = NONE
    """Fenced ones with a new log directory in the place of another."""
    stopping: frozenset[BrokerId] = NONE
    """Live ones that were asked to hand over their leaderships."""
    kept: Mapping[BrokerId, Mapping[TopicId, frozenset[int]]] = field(default_factory=lambda: NOTHING, hash=False)
    """Partitions in directories that have lost nothing, of brokers that are unsafe or replaced otherwise."""

    def about(self, topic_id: TopicId, index: int) -> "Brokers":
        """The brokers as far as one partition is concerned."""
        safe = {broker for broker, partitions in self.kept.items() if index in partitions.get(topic_id, ())}
        return replace(self, unsafe=self.unsafe - safe, replaced=self.replaced - safe) if safe else self

    @property
    def registered(self) -> frozenset[BrokerId]:
        return self.live | self.fenced

    @property
    def electable(self) -> frozenset[BrokerId]:
        return self.live - self.stopping


def in_sync_needed(state: PartitionState) -> int:
    """The ISR size below which nothing is committed: `min.insync.replicas`, or all replicas where there are fewer."""
    return state.in_sync_needed(state.in_sync_min)


def in_order(state: PartitionState, brokers: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    """Some of a partition's replicas, in the order of assignment: the preferred leader is first."""
    return brokers_shared(tuple(replica for replica in state.replicas if replica in brokers))


def with_isr(state: PartitionState, isr: Collection[BrokerId], *, unsafe: Collection[BrokerId] = ()) -> PartitionState:
    """The state with another ISR, and the eligible replicas that follow from it.

    While the ISR is smaller than the minimum nothing is committed, so replicas that leave it keep every committed
    record: they stay eligible, except those that may have lost data (`unsafe`). In a large enough ISR they would miss
    what is committed next.
    """
    assert set(isr) <= set(state.replicas), f"not replicas: {set(isr) - set(state.replicas)}"
    eligible: Collection[BrokerId] = ()
    if len(isr) < in_sync_needed(state):
        eligible = {*state.isr, *state.eligible_leader_replicas} - {*isr} - {*unsafe}
    return replace(
        state,
        isr=in_order(state, isr),
        eligible_leader_replicas=in_order(state, eligible),
        replaced_replicas=tuple(each for each in state.replaced_replicas if each not in isr),
        failed_replicas=tuple(each for each in state.failed_replicas if each not in isr),
    )


def with_in_sync_min(state: PartitionState, in_sync_min: int) -> PartitionState:
    """The state with another min.insync.replicas; replicas stay eligible only while the ISR is below the new one."""
    if state.in_sync_min == in_sync_min:
        return state
    return with_isr(replace(state, in_sync_min=in_sync_min), state.isr)


def led_by(
    state: PartitionState, leader: BrokerId, recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
) -> PartitionState:
    """The state with a new leader, in a new leader epoch."""
    assert leader in state.isr, f"broker {leader} is not in the ISR {state.isr}"
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        last_known_leader=NO_LEADER,
        leader_recovery_state=recovery,
    )


def without_leader(state: PartitionState) -> PartitionState:
    """The state after its leader's end; the leader epoch goes up, so that nothing of the former leader counts."""
    if state.leader == NO_LEADER:
        return state
    return replace(
        state,
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        last_known_leader=state.leader,
    )


def elected(state: PartitionState, candidates: Collection[BrokerId]) -> PartitionState | None:
    """The state with a leader from the ISR, else from the eligible replicas; None where no candidate is in either.

    An eligible replica becomes the whole ISR: members that are not candidates catch up again before they count. One
    whose log failed holds what is committed and cannot serve it.
    """
    for replica in state.replicas:
        if replica in state.isr and replica in candidates:
            return led_by(state, replica, state.leader_recovery_state)
    for replica in state.replicas:
        if replica in state.failed_replicas:
            continue
        if replica in state.eligible_leader_replicas and replica in candidates:
            return led_by(with_isr(state, (replica,)), replica, state.leader_recovery_state)
    return None


def next_state(state: PartitionState, brokers: Brokers) -> PartitionState:
    """The state that follows from which brokers are up; the same object where nothing changes.

    It depends on nothing but its arguments, so a controller that takes over repeats what its predecessor left undone.
    """
    known = _without_failures(state, brokers)
    after = _with_leader(_without_gone(_without_unsafe(known, brokers), brokers), state, brokers)
    return state if after == state else raised(after, state)


def raised(after: PartitionState, before: PartitionState) -> PartitionState:
    """The changed state, with the next partition epoch. The leader epoch goes up by one, or not at all."""
    epoch = before.leader_epoch if after.leader_epoch == before.leader_epoch else LeaderEpoch(before.leader_epoch + 1)
    return replace(after, leader_epoch=epoch, partition_epoch=PartitionEpoch(before.partition_epoch + 1))


def _without_failures(state: PartitionState, brokers: Brokers) -> PartitionState:
    """A broker that registers again has opened its logs again; it says so itself where they may lack records."""
    if brokers.fenced.isdisjoint(state.failed_replicas):
        return state
    return replace(state, failed_replicas=in_order(state, set(state.failed_replicas) - brokers.fenced))


def _without_unsafe(state: PartitionState, brokers: Brokers) -> PartitionState:
    """A replica that may have lost data leaves ISR and eligible replicas before its broker is admitted.

    The only replica of a partition stays: no other could be elected. One whose disk was replaced does not.
    """
    holders = {*state.isr, *state.eligible_leader_replicas}
    replaced = brokers.replaced.intersection(state.replicas).difference(state.replaced_replicas)
    if replaced:
        marked = in_order(state, {*state.replaced_replicas, *replaced})
        state = replace(state, replaced_replicas=marked)
    unsafe = (brokers.unsafe if len(state.replicas) > 1 else brokers.replaced) & holders
    if not unsafe:
        return state
    lost = with_isr(state, set(state.isr) - unsafe, unsafe=unsafe)
    return without_leader(lost) if state.leader in unsafe else lost


def _without_gone(state: PartitionState, brokers: Brokers) -> PartitionState:
    """A broker that is gone leaves the ISR, and so does one that is about to stop, where another member leads on."""
    remaining = set(state.isr) & brokers.registered
    if brokers.stopping and remaining & brokers.electable:
        remaining -= brokers.stopping
    if len(remaining) < len(state.isr):
        state = with_isr(state, remaining)
    return state if state.leader in remaining else without_leader(state)


def _with_leader(state: PartitionState, before: PartitionState, brokers: Brokers) -> PartitionState:
    """End leaderships of former lives, and elect a leader where there is none."""
    if state.leader in brokers.fenced:
        if len(state.replicas) > 1:
            state = without_leader(state)
        elif state.leader in brokers.unclean and state.leader_epoch == before.leader_epoch:
            # No other replica could lead meanwhile, so one change is enough for a new epoch.
            state = replace(state, leader_epoch=LeaderEpoch(state.leader_epoch + 1))
    if state.leader != NO_LEADER:
        return state
    return elected(state, brokers.electable) or elected(state, brokers.live) or state


# Elections that may lose records


class Risk(Enum):
    """Why an election may lose records that were acknowledged."""

    LAST_RESORT = "last resort"
    """No replica is known to have every committed record."""
    UNCLEAN = "unclean"
    """Those that have every committed record are away, and the topic allows to go on without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """How far a replica's log goes: its last leader epoch, and its log end in it."""

    epoch: LeaderEpoch
    offset: Offset

    @property
    def rank(self) -> tuple[int, int]:
        return self.epoch, self.offset


def risk_of(state: PartitionState, brokers: Brokers, *, unclean_allowed: bool) -> Risk | None:
    """Whether only an election that may lose records gives this partition a leader; None where it is not to be held."""
    if state.leader != NO_LEADER or elected(state, brokers.live) is not None:
        return None
    if not state.isr and not state.eligible_leader_replicas:
        return Risk.LAST_RESORT if risky_candidates(state, brokers) else None
    if unclean_allowed and risky_candidates(state, brokers):
        return Risk.UNCLEAN
    return None


def risky_candidates(state: PartitionState, brokers: Brokers) -> tuple[BrokerId, ...]:
    """The live replicas that have a log, without those whose disk was replaced: they hold nothing of the partition."""
    return in_order(state, brokers.live - {*state.replaced_replicas, *state.failed_replicas})


def elected_at_risk(state: PartitionState, leader: BrokerId) -> PartitionState:
    """The state with a leader that may lack committed records; it is the whole ISR, and no replica stays eligible."""
    alone = replace(state, isr=(leader,), eligible_leader_replicas=())
    kept = tuple(each for each in state.replaced_replicas if each != leader)
    return led_by(replace(alone, replaced_replicas=kept), leader, LeaderRecoveryState.RECOVERING)


def longest(ends: Iterable[tuple[BrokerId, LogEnd]]) -> BrokerId | None:
    """The replica whose log goes furthest: by its last epoch first, then by its end."""
    best: tuple[BrokerId, LogEnd] | None = None
    for broker, end in ends:
        if best is None or end.rank > best[1].rank:
            best = (broker, end)
    return None if best is None else best[0]
