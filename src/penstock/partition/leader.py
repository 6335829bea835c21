"""Rules of the replica that leads a partition: what is committed, who is in sync, and which ISR to propose.

No I/O and no clock: the replica reports appends, flushes and followers' fetches, and each method returns what moved and
what to do. Only this module and `follower` assign the offsets of a replica.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
)
from penstock.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
)
from penstock.model.topic import PartitionState
from penstock.partition.leader_epoch import check_epoch
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable

INELIGIBLE_PAUSE_MS = 500
"""How long a leader proposes no member after the controller called one ineligible: it may be shutting down."""


class EpochEnds(Protocol):
    """The leader epochs of a log, of which each ends where the next one begins."""

    @property
    def latest(self) -> LeaderEpoch:
        """The epoch of the last batch; `NO_LEADER_EPOCH` in an empty log."""
        ...

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The greatest known epoch not after `epoch`, and where it ends; (-1, -1) when none is known."""
        ...


class FollowerProgress:
    """How far a follower has replicated, as far as its leader knows in this epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "held_end",
        "leader_log_end_at_fetch",
        "log_end",
        "log_start",
    )

    def __init__(self, now_ms: int, broker_epoch: BrokerEpoch = NO_BROKER_EPOCH) -> None:
        self.broker_epoch = broker_epoch
        """The registration of the broker that fetched: an earlier one no longer holds what it fetched."""
        self.log_end = NO_OFFSET
        self.held_end = NO_OFFSET
        """Up to where it counts its log as held: the log end, or with `flush=group` what is on its disk."""
        self.log_start = NO_OFFSET
        self.caught_up_ms = now_ms
        """When it was last known to be caught up. Starts with the epoch: no follower lags behind a new leader."""
        self.fetched_ms = 0
        self.leader_log_end_at_fetch = NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFetched:
    """The effect of a follower's fetch, and the ISR change that it allows."""

    high_watermark_moved: bool
    propose_isr: frozenset[BrokerId] | None
    """The ISR to propose to the controller; the driver calls `propose` when it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """An ISR that a leader asks the controller to write, if the partition is still in the state that it names."""

    partition_epoch: PartitionEpoch
    leader_epoch: LeaderEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]
    """Each member with the registration that it is a member in, in order of broker id."""

    @property
    def members(self) -> frozenset[BrokerId]:
        return frozenset(broker for broker, _ in self.isr)


def stabilise(offsets: Offsets, producers: ProducerTable) -> None:
    """Set the last stable offset: where the oldest undecided transaction begins, or the high watermark."""
    high_watermark = offsets.high_watermark
    producers.advance(high_watermark)
    first_unstable = producers.first_unstable
    if first_unstable is None:
        offsets.last_stable = high_watermark
    else:
        offsets.last_stable = min(high_watermark, max(first_unstable, offsets.log_start))


def divergence_at(
    end_of_fetched: tuple[LeaderEpoch, Offset], fetch_offset: Offset, fetched_epoch: LeaderEpoch, log_start: Offset
) -> tuple[LeaderEpoch, Offset] | None:
    """Epoch and end up to which a log agrees with a reader at `fetch_offset`; None when all of it does.

    The reader's last batch is of `fetched_epoch`; `end_of_fetched` is the greatest epoch of the log not after it, and
    where that ends.
    """
    epoch, end = end_of_fetched
    if epoch < 0 or end < 0 or fetch_offset < log_start:
        raise OffsetOutOfRange(f"Could not determine the end offset of the last fetched epoch {fetched_epoch}")
    return (epoch, end) if epoch < fetched_epoch or end < fetch_offset else None


def move_log_start(offsets: Offsets, producers: ProducerTable, log_start: Offset) -> None:
    """Records below `log_start`, all of them committed, were deleted."""
    if log_start > offsets.high_watermark:
        raise OffsetOutOfRange(
            f"Cannot increment the log start offset to {log_start} since it is larger than the high watermark "
            f"{offsets.high_watermark}"
        )
    if log_start > offsets.log_start:
        offsets.log_start = log_start
    stabilise(offsets, producers)


class Leader:
    """A replica that leads its partition in one leader epoch."""

    __slots__ = (
        "_in_sync_min_decided",
        "_in_sync_needed",
        "_in_sync_needed_max",
        "_is_alone",
        "_proposes_from_ms",
        "broker_id",
        "epoch_start",
        "flush_group",
        "followers",
        "in_sync_min",
        "isr",
        "isr_proposed",
        "leader_epoch",
        "offsets",
        "partition_epoch",
        "producers",
        "proposal",
        "replicas",
        "too_few_in_sync",
    )

    def __init__(
        self,
        decided: PartitionState,
        offsets: Offsets,
        producers: ProducerTable,
        *,
        broker_id: BrokerId,
        in_sync_min: int,
        flush_group: bool,
        now_ms: int,
        epoch_start: Offset | None = None,
        progress: Mapping[BrokerId, FollowerProgress] | None = None,
    ) -> None:
        """`epoch_start` and `progress` are of an earlier decision in the same epoch: only its fetches count."""
        assert decided.leader == broker_id, f"broker {broker_id} is not the leader, {decided.leader} is"
        self.broker_id = broker_id
        self.offsets = offsets
        self.producers = producers
        self.leader_epoch = decided.leader_epoch
        self.partition_epoch = decided.partition_epoch
        self.replicas = decided.replicas
        self.isr = frozenset(decided.isr)
        self.isr_proposed = self.isr
        """The ISR proposed to the controller; equal to `isr` when no proposal is in flight."""
        self.proposal: IsrProposal | None = None
        """The proposal in flight. A newer state of the partition ends it, since that makes another leader."""
        self._proposes_from_ms = 0
        """When members may be proposed again after one was ineligible."""
        self.epoch_start = offsets.log_end if epoch_start is None else epoch_start
        """Where this leader epoch begins in the log."""
        known = progress or {}
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms)
            for replica in decided.replicas
            if replica != broker_id
        }
        self.in_sync_min = in_sync_min
        self._in_sync_min_decided = decided.in_sync_min
        self._in_sync_needed_max = len(decided.original_replicas)
        self.flush_group = flush_group
        self._settle()
        self._advance()
        stabilise(offsets, producers)

    def configure(self, *, in_sync_min: int, flush_group: bool) -> bool:
        """Apply a topic's settings; True when the high watermark moved."""
        self.in_sync_min = in_sync_min
        self.flush_group = flush_group
        self._settle()
        if not flush_group:
            # Unflushed records count as held from now on.
            self.offsets.local_end = self.offsets.log_end
        return self._advance()

    def _settle(self) -> None:
        self._is_alone = not self.followers and not self.flush_group
        """Whether an append commits at once: there are no followers, and the page cache counts as held."""
        # Controller and leader must agree on the number: the controller decides by it who is eligible as leader.
        self._in_sync_needed = min(self._in_sync_min_decided or self.in_sync_min, self._in_sync_needed_max)
        """`min.insync.replicas` of the partition's state, else of the topic; all replicas where there are fewer. Those
        that a reassignment adds do not count."""
        self.too_few_in_sync = len(self.isr) < self._in_sync_needed
        """Whether acks=all is refused and the high watermark does not advance."""

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        check_epoch(epoch, self.leader_epoch)

    # Commitment

    def appended(self, base: Offset, end: Offset) -> bool:
        """The log grew by the batch from `base` to `end`; True when the high watermark moved.

        With `flush=group` only the log end moves: readers see no record that a power failure could lose.
        """
        offsets = self.offsets
        assert base == offsets.log_end, f"a batch at {base}, the log ended at {offsets.log_end}"
        offsets.log_end = end
        if self._is_alone:
            offsets.local_end = offsets.high_watermark = end
            if self.producers.first_unstable is None:
                offsets.last_stable = end
            else:
                stabilise(offsets, self.producers)
            return True
        if self.flush_group:
            return False
        offsets.local_end = end
        return self._advance()

    def flushed(self, end: Offset) -> bool:
        """Everything below `end` is on this replica's disk; True when the high watermark moved."""
        offsets = self.offsets
        end = min(end, offsets.log_end)
        if not self.flush_group or end <= offsets.local_end:
            return False
        offsets.local_end = end
        return self._advance()

    def _advance(self) -> bool:
        """Raise the high watermark to the least held end over the maximal ISR; True when it moved.

        It never falls, even when a lagging replica joins the ISR: records once readable stay readable. While the
        committed ISR is too small it does not advance, or readers might see records that are lost with the last
        replica; a proposal that would make it large enough may never be written.
        """
        if self.too_few_in_sync:
            return False
        least = self.offsets.local_end
        if self.followers:
            # Without a proposal the two are the same, and every append comes here.
            for replica in self.isr if self.proposal is None else self.isr_maximal:
                if replica != self.broker_id:
                    progress = self.followers.get(replica)
                    least = min(least, progress.held_end if progress is not None else NO_OFFSET)
        if least <= self.offsets.high_watermark:
            return False
        self.offsets.high_watermark = least
        stabilise(self.offsets, self.producers)
        return True

    def check_enough_in_sync(self) -> None:
        """Refuse an acks=all write, before it is appended, while the ISR is below `min.insync.replicas`."""
        if self.too_few_in_sync:
            raise NotEnoughReplicas(
                f"The size of the current ISR {sorted(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {self._in_sync_needed}"
            )

    def committed(self, end: Offset) -> bool:
        """Whether acks=all may acknowledge everything below `end`; raises when the ISR shrank after the append."""
        if self.offsets.high_watermark < end:
            return False
        if self.too_few_in_sync:
            raise NotEnoughReplicasAfterAppend()
        return True

    def low_watermark(self, is_live: Callable[[BrokerId], bool]) -> Offset:
        """The least log start over the live replicas: records below are deleted wherever they could be read from."""
        least = self.offsets.log_start
        for follower, progress in self.followers.items():
            if progress.log_start < least and is_live(follower):
                least = progress.log_start
        return least

    def latest_is_known(self) -> bool:
        """Whether the high watermark covers what earlier leaders acknowledged; until then "latest" has to wait."""
        return self.offsets.high_watermark >= self.epoch_start

    def log_start_moved(self, log_start: Offset) -> None:
        """Records below `log_start`, all of them committed, were deleted."""
        move_log_start(self.offsets, self.producers, log_start)

    # Followers and the ISR

    @property
    def isr_maximal(self) -> frozenset[BrokerId]:
        """The replicas that may be in sync: the ISR and the proposed one.

        The controller may already have added a proposed replica, so committed records need its copy; a replica proposed
        for removal counts until the removal is written.
        """
        return self.isr | self.isr_proposed

    def follower_fetched(
        self,
        follower: BrokerId,
        *,
        broker_epoch: BrokerEpoch,
        leader_epoch: LeaderEpoch,
        fetch_offset: Offset,
        held_end: Offset,
        log_start: Offset,
        now_ms: int,
    ) -> FollowerFetched:
        """Record a follower's progress: it holds everything below `held_end`, and fetches from `fetch_offset`.

        There is no other acknowledgement. Only a fetch of the current leader epoch, from within the log, counts; call
        it after the check for divergence (`divergence`). A fetch of an earlier life of the broker is refused, and one
        of a later life replaces what is known of the earlier one.
        """
        if leader_epoch != self.leader_epoch:
            self.check_epoch(leader_epoch)
            raise FencedLeaderEpoch("a replica's fetch has no leader epoch")
        progress = self.followers.get(follower)
        if progress is None:
            raise NotLeaderOrFollower(f"broker {follower} holds no replica of this partition")
        if broker_epoch < progress.broker_epoch or broker_epoch == NO_BROKER_EPOCH:
            raise StaleBrokerEpoch(f"broker {follower} fetches with epoch {broker_epoch}, not {progress.broker_epoch}")
        log_end = self.offsets.log_end
        if not self.offsets.log_start <= fetch_offset <= log_end:
            raise OffsetOutOfRange(
                f"broker {follower} fetches from {fetch_offset}, and the log has {self.offsets.log_start} to {log_end}"
            )
        if broker_epoch > progress.broker_epoch:
            progress = self.followers[follower] = FollowerProgress(progress.caught_up_ms, broker_epoch)
        held_end = min(held_end, fetch_offset)
        if held_end >= log_end:
            progress.caught_up_ms = now_ms
        elif held_end >= progress.leader_log_end_at_fetch >= 0:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.log_end = fetch_offset
        progress.held_end = held_end
        progress.log_start = log_start
        progress.leader_log_end_at_fetch = log_end
        progress.fetched_ms = now_ms
        moved = self._advance()
        joins = not self.is_proposing and now_ms >= self._proposes_from_ms and self.may_join(follower)
        return FollowerFetched(high_watermark_moved=moved, propose_isr=self.isr | {follower} if joins else None)

    def end_of(self, epoch: LeaderEpoch, epochs: EpochEnds) -> tuple[LeaderEpoch, Offset]:
        """The greatest epoch not after `epoch`, and where it ends; (-1, -1) for an epoch after this leader's.

        The leader's own epoch is among the log's `epochs` from its first batch on. Before that it is known to begin at
        `epoch_start`, where every earlier epoch ends.
        """
        if epoch == NO_LEADER_EPOCH or epoch > self.leader_epoch:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.leader_epoch:
            return epoch, self.offsets.log_end
        latest = epochs.latest
        if latest < self.leader_epoch:
            if latest == NO_LEADER_EPOCH:
                return epoch, self.epoch_start
            if epoch >= latest:
                return latest, self.epoch_start
        return epochs.end_of(epoch, self.offsets.log_end)

    def divergence(
        self, fetch_offset: Offset, fetched_epoch: LeaderEpoch, epochs: EpochEnds
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Epoch and end up to which this log agrees with a reader, see `divergence_at`; None when all of it does."""
        return divergence_at(self.end_of(fetched_epoch, epochs), fetch_offset, fetched_epoch, self.offsets.log_start)

    def readable_followers(
        self, offset: Offset, epoch_of: Callable[[BrokerId], BrokerEpoch]
    ) -> Iterator[tuple[BrokerId, FollowerProgress]]:
        """The followers that a consumer can read `offset` from: in sync, live, and with the offset in their logs.

        `epoch_of` gives the admitted epoch of a broker. In another registration than the one it has fetched in, a
        follower may not have its log any more.
        """
        for follower, progress in self.followers.items():
            if (
                follower in self.isr
                and progress.log_start <= offset <= progress.log_end
                and progress.broker_epoch == epoch_of(follower) != NO_BROKER_EPOCH
            ):
                yield follower, progress

    def may_join(self, follower: BrokerId) -> bool:
        """Whether a follower may join the ISR: it holds all committed records, and the log up to this epoch's start."""
        progress = self.followers.get(follower)
        if progress is None or follower in self.isr_maximal:
            return False
        return progress.held_end >= self.offsets.high_watermark and progress.held_end >= self.epoch_start

    def laggards(self, now_ms: int, lag_ms_max: int) -> frozenset[BrokerId]:
        """ISR members that have not caught up within `lag_ms_max`.

        A member that holds the whole log is caught up now, however long ago it fetched: its session names a partition
        again only when it changes.
        """
        log_end = self.offsets.log_end
        lagging: set[BrokerId] = set()
        for replica, progress in self.followers.items():
            if replica not in self.isr:
                continue
            if progress.held_end >= log_end:
                progress.caught_up_ms = now_ms
            elif now_ms - progress.caught_up_ms > lag_ms_max:
                lagging.add(replica)
        return frozenset(lagging)

    def isr_without_laggards(self, now_ms: int, lag_ms_max: int) -> frozenset[BrokerId] | None:
        """The ISR to propose without lagging members; None when none lag, or when a proposal is in flight."""
        if self.is_proposing:
            return None
        remaining = self.isr - self.laggards(now_ms, lag_ms_max)
        return None if remaining == self.isr else remaining

    @property
    def is_proposing(self) -> bool:
        """Whether an ISR proposal is in flight; there is one at a time."""
        return self.proposal is not None

    def propose(self, isr: Iterable[BrokerId], epoch_of: Callable[[BrokerId], BrokerEpoch]) -> IsrProposal:
        """The proposal of an ISR: its members, always including the leader, count from now on until it ends.

        It ends only when the controller has written a newer state of the partition, or calls a member ineligible. A
        time-out or another refusal leaves it in flight: the write may be done, or still be under way. `epoch_of` gives
        the admitted epoch of a broker; a member that joins is proposed with the epoch in which it has fetched.
        """
        proposed = frozenset(isr)
        assert not self.is_proposing, "an ISR change is in flight already"
        assert self.broker_id in proposed, "the leader is in its ISR"
        assert proposed <= frozenset(self.replicas), f"not replicas: {proposed - frozenset(self.replicas)}"
        assert proposed != self.isr, f"the ISR is {sorted(proposed)} already"
        self.isr_proposed = proposed
        self.proposal = IsrProposal(
            partition_epoch=self.partition_epoch,
            leader_epoch=self.leader_epoch,
            isr=tuple(
                (broker, epoch_of(broker) if broker in self.isr else self.followers[broker].broker_epoch)
                for broker in sorted(proposed)
            ),
        )
        return self.proposal

    def proposal_ineligible(self, proposal: IsrProposal, now_ms: int) -> bool:
        """The controller will never write this proposal; True when it was in flight and the high watermark moved."""
        if proposal != self.proposal:
            return False
        self.proposal = None
        self.isr_proposed = self.isr
        self._proposes_from_ms = now_ms + INELIGIBLE_PAUSE_MS
        return self._advance()
