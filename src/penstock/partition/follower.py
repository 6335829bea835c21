"""Rules of the replica that follows a leader: where to fetch from, where to truncate to, what is committed.

No I/O: the replica reports appends, flushes and truncations, and each method returns what moved or what to do. Only
this module and `leader` assign the offsets of a replica.
"""

from dataclasses import dataclass

from penstock.model.generated_errors import FencedLeaderEpoch, NotLeaderOrFollower
from penstock.model.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OFFSET_ZERO,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
)
from penstock.model.removals import CopyStart, Removals
from penstock.partition.leader import EpochEnds, divergence_at, move_log_start, stabilise
from penstock.partition.leader_epoch import check_epoch
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable
from penstock.partition.removals import copies_again

NO_PARTITION_EPOCH = PartitionEpoch(-1)


class FollowerUnconfirmed(NotLeaderOrFollower):
    """A follower that may serve consumers soon: its leader has not confirmed yet that their logs agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrom:
    """The next fetch of a follower from its leader; its offset is the follower's acknowledgement."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset
    held_end: Offset
    """Up to where the follower counts its log as held; less than `offset` with `flush=group`."""
    last_fetched_epoch: LeaderEpoch
    """The epoch of the follower's last batch: the leader finds by it where the two logs diverge."""
    log_start: Offset
    high_watermark: Offset | None = None
    """The follower's, where consumers read from it: the leader responds as soon as it can raise that (KIP-1166)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """Truncate the log to `offset`, where the leader's history begins to differ."""

    offset: Offset
    below_high_watermark: bool
    """Whether that truncates committed records, which must be reported."""


class Follower:
    """A replica that follows a leader, or waits for one to be elected."""

    __slots__ = (
        "_leader_high_watermark",
        "broker_id",
        "confirmed",
        "flush_group",
        "in_sync",
        "in_sync_min",
        "leader",
        "leader_epoch",
        "offsets",
        "partition_epoch",
        "producers",
    )

    def __init__(
        self,
        offsets: Offsets,
        producers: ProducerTable,
        *,
        broker_id: BrokerId,
        in_sync_min: int,
        flush_group: bool,
        leader: BrokerId = NO_BROKER,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH,
        in_sync: bool = False,
        confirmed: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.offsets = offsets
        self.producers = producers
        self.in_sync_min = in_sync_min
        """The topic's `min.insync.replicas`, for when this replica leads."""
        self.flush_group = flush_group
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.in_sync = in_sync
        """Whether this replica is in the ISR, by the controller's last decision."""
        self.confirmed = confirmed
        """Whether the leader of this epoch has responded to a fetch, so that this log agrees with its log."""
        self._leader_high_watermark = OFFSET_ZERO
        stabilise(offsets, producers)

    def configure(self, *, in_sync_min: int, flush_group: bool) -> bool:
        """Apply a topic's settings; True when the high watermark moved."""
        self.in_sync_min = in_sync_min
        self.flush_group = flush_group
        if not flush_group:
            # Unflushed records count as held from now on.
            self.offsets.local_end = self.offsets.log_end
        return self._advance()

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        check_epoch(epoch, self.leader_epoch)

    def check_response(self, leader_epoch: LeaderEpoch) -> None:
        """Refuse a leader's response to a request of another leader epoch: appends and truncations are fenced by it."""
        if leader_epoch != self.leader_epoch or self.leader == NO_BROKER:
            raise FencedLeaderEpoch(
                f"a response of leader epoch {leader_epoch}, and the current is {self.leader_epoch}"
            )

    def fetch_from(self, epochs: EpochEnds, *, has_consumers: bool = False) -> FetchFrom | None:
        """The next fetch from the leader; None while there is no leader. `has_consumers`: some read from here."""
        if self.leader == NO_BROKER:
            return None
        offsets = self.offsets
        high_watermark: Offset | None = None
        if has_consumers:
            # They wait for the first response of the epoch too.
            high_watermark = offsets.high_watermark if self.confirmed else NO_OFFSET
        return FetchFrom(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            offset=offsets.log_end,
            held_end=offsets.local_end,
            last_fetched_epoch=epochs.latest,
            log_start=offsets.log_start,
            high_watermark=high_watermark,
        )

    def copies_again(self, removals: Removals | None, copied: CopyStart) -> bool:
        """Whether to empty the log, and to copy the leader's from its start. See `removals`."""
        return copies_again(removals, log_end=self.offsets.log_end, leader_epoch=self.leader_epoch, copied=copied)

    def replicated(self, log_end: Offset, leader_high_watermark: Offset) -> bool:
        """The log grew to `log_end` by the leader's records; True when the high watermark moved."""
        offsets = self.offsets
        assert log_end >= offsets.log_end, f"log end went back from {offsets.log_end} to {log_end}"
        offsets.log_end = log_end
        if not self.flush_group:
            offsets.local_end = log_end
        self._leader_high_watermark = leader_high_watermark
        self.confirmed = True
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
        """The leader decides on the high watermark; a follower's is the part of it that the follower holds."""
        committed = min(self._leader_high_watermark, self.offsets.local_end)
        if committed <= self.offsets.high_watermark:
            return False
        self.offsets.high_watermark = committed
        stabilise(self.offsets, self.producers)
        return True

    @property
    def serves_consumers(self) -> bool:
        """Whether consumers may read here, up to the high watermark.

        Not before the leader of this epoch has confirmed the log: after an unclean election, it may have records below
        its high watermark that are lost. And not outside of the ISR, where a consumer would lag with its follower.
        """
        return self.confirmed and self.in_sync

    def check_serves_consumers(self) -> None:
        """Refuse a consumer that has to read from the leader, for now or until this replica is in sync."""
        if self.serves_consumers:
            return
        if self.in_sync or self.leader == NO_BROKER:
            raise FollowerUnconfirmed()
        raise NotLeaderOrFollower()

    def divergence(
        self, fetch_offset: Offset, fetched_epoch: LeaderEpoch, epochs: EpochEnds
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Epoch and end up to which this log agrees with a consumer, see `divergence_at`; None when all of it does."""
        offsets = self.offsets
        end_of = epochs.end_of(fetched_epoch, offsets.log_end)
        return divergence_at(end_of, fetch_offset, fetched_epoch, offsets.log_start)

    def diverged(self, epoch: LeaderEpoch, end: Offset, epochs: EpochEnds) -> TruncateTo:
        """Where to truncate to: the leader's log agrees with this one up to the `end` of `epoch`, at most.

        Where this log does not have the epoch, its greatest earlier one ends before. The next fetch shows whether the
        histories agree now; if not, its response names an earlier epoch. Truncating to the high watermark would be
        wrong: a follower's may lag behind records it holds that the leader has committed.
        """
        _, own_end = epochs.end_of(epoch, self.offsets.log_end)
        return self._truncate_to(end if own_end < 0 else min(end, own_end))

    def beyond_leader(self, leader_log_end: Offset) -> TruncateTo:
        """Where to truncate to when the leader's log ends before this one, and no epoch says where they diverge."""
        return self._truncate_to(leader_log_end)

    def _truncate_to(self, offset: Offset) -> TruncateTo:
        offset = min(offset, self.offsets.log_end)
        return TruncateTo(offset=offset, below_high_watermark=offset < self.offsets.high_watermark)

    def truncated(self, log_end: Offset, producers: ProducerTable) -> None:
        """The log was truncated; `producers` are those of the rest."""
        offsets = self.offsets
        assert log_end <= offsets.log_end, f"a cut to {log_end}, beyond the log's end {offsets.log_end}"
        self.producers = producers
        self.confirmed = False
        offsets.log_end = log_end
        offsets.local_end = min(offsets.local_end, log_end)
        offsets.log_start = min(offsets.log_start, log_end)
        offsets.high_watermark = min(offsets.high_watermark, log_end)
        stabilise(offsets, producers)

    def restarted(self, log_start: Offset, producers: ProducerTable) -> None:
        """The log was emptied and goes on at `log_start`: the leader has deleted everything before."""
        offsets = self.offsets
        self.producers = producers
        self.confirmed = False
        offsets.log_start = offsets.log_end = offsets.local_end = offsets.high_watermark = log_start
        stabilise(offsets, producers)

    def log_start_moved(self, log_start: Offset) -> None:
        """Records below `log_start`, all of them committed, were deleted."""
        move_log_start(self.offsets, self.producers, log_start)
