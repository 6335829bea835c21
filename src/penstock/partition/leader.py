"""Rules of the replica that leads a partition: what is committed, who is in sync, and which ISR to propose.

No I/O and no clock: the replica reports appends, flushes and followers' fetches, and each method returns what moved and
what to do. Only this module and `follower` assign the offsets of a replica.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.model.generated_errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from penstock.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from penstock.model.topic import PartitionState
from penstock.partition.leader_epoch import check_epoch
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable


class FollowerProgress:
    """How far a follower has replicated, as far as its leader knows in this epoch."""

    __slots__ = ("caught_up_ms", "fetched_ms", "leader_log_end_at_fetch", "log_end", "log_start")

    def __init__(self, now_ms: int) -> None:
        self.log_end = NO_OFFSET
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


def stabilise(offsets: Offsets, producers: ProducerTable) -> None:
    """Set the last stable offset: where the oldest undecided transaction begins, or the high watermark."""
    high_watermark = offsets.high_watermark
    producers.advance(high_watermark)
    first_unstable = producers.first_unstable
    if first_unstable is None:
        offsets.last_stable = high_watermark
    else:
        offsets.last_stable = min(high_watermark, max(first_unstable, offsets.log_start))


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
        "_in_sync_needed",
        "_is_alone",
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
        self.epoch_start = offsets.log_end if epoch_start is None else epoch_start
        """Where this leader epoch begins in the log."""
        known = progress or {}
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms)
            for replica in decided.replicas
            if replica != broker_id
        }
        self.in_sync_min = in_sync_min
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
        self._in_sync_needed = min(self.in_sync_min, len(self.replicas))
        """`min.insync.replicas`, or all replicas where there are fewer."""
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

        It never falls, even when a lagging replica joins the ISR: records once readable stay readable. While the ISR is
        too small it does not advance, or readers might see records that are lost with the last replica.
        """
        if self.too_few_in_sync:
            return False
        least = self.offsets.local_end
        if self.followers:
            for replica in self.isr_maximal:
                if replica != self.broker_id:
                    progress = self.followers.get(replica)
                    least = min(least, progress.log_end if progress is not None else NO_OFFSET)
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
        if len(self.isr_maximal) < self._in_sync_needed:
            raise NotEnoughReplicasAfterAppend()
        return True

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
        self, follower: BrokerId, epoch: LeaderEpoch, from_offset: Offset, log_start: Offset, now_ms: int
    ) -> FollowerFetched:
        """Record a follower's progress: it holds everything below the offset that it fetches from.

        There is no other acknowledgement, and only a fetch of the current leader epoch counts.
        """
        self.check_epoch(epoch)
        progress = self.followers.get(follower)
        if progress is None:
            raise NotLeaderOrFollower(f"broker {follower} holds no replica of this partition")
        log_end = self.offsets.log_end
        if from_offset >= log_end:
            progress.caught_up_ms = now_ms
        elif from_offset >= progress.leader_log_end_at_fetch >= 0:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.log_end = from_offset
        progress.log_start = log_start
        progress.leader_log_end_at_fetch = log_end
        progress.fetched_ms = now_ms
        moved = self._advance()
        joins = not self.is_proposing and self.may_join(follower)
        return FollowerFetched(high_watermark_moved=moved, propose_isr=self.isr | {follower} if joins else None)

    def may_join(self, follower: BrokerId) -> bool:
        """Whether a follower may join the ISR: it holds all committed records, and the log up to this epoch's start."""
        progress = self.followers.get(follower)
        if progress is None or follower in self.isr_maximal:
            return False
        return progress.log_end >= self.offsets.high_watermark and progress.log_end >= self.epoch_start

    def laggards(self, now_ms: int, lag_ms_max: int) -> frozenset[BrokerId]:
        """ISR members that have not caught up within `lag_ms_max`."""
        log_end = self.offsets.log_end
        return frozenset(
            replica
            for replica in self.isr
            if replica != self.broker_id
            and (progress := self.followers.get(replica)) is not None
            and progress.log_end < log_end
            and now_ms - progress.caught_up_ms > lag_ms_max
        )

    def isr_without_laggards(self, now_ms: int, lag_ms_max: int) -> frozenset[BrokerId] | None:
        """The ISR to propose without lagging members; None when none lag, or when a proposal is in flight."""
        if self.is_proposing:
            return None
        remaining = self.isr - self.laggards(now_ms, lag_ms_max)
        return None if remaining == self.isr else remaining

    @property
    def is_proposing(self) -> bool:
        """Whether an ISR proposal is in flight; there is one at a time."""
        return self.isr_proposed != self.isr

    def propose(self, isr: Iterable[BrokerId]) -> None:
        """An ISR proposal was sent: its members, always including the leader, count from now on."""
        proposed = frozenset(isr)
        assert not self.is_proposing, "an ISR change is in flight already"
        assert self.broker_id in proposed, "the leader is in its ISR"
        assert proposed <= frozenset(self.replicas), f"not replicas: {proposed - frozenset(self.replicas)}"
        self.isr_proposed = proposed

    def proposal_failed(self) -> None:
        """The controller refused the proposal in flight."""
        self.isr_proposed = self.isr
