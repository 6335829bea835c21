"""Rules of the replica that follows a leader: where to fetch from, where to truncate to, what is committed.

No I/O: the replica reports appends, flushes and truncations, and each method returns what moved or what to do. Only
this module and `leader` assign the offsets of a replica.
"""

from dataclasses import dataclass

from penstock.model.ids import NO_BROKER, NO_LEADER_EPOCH, OFFSET_ZERO, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from penstock.partition.leader import move_log_start, stabilise
from penstock.partition.leader_epoch import check_epoch
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable

NO_PARTITION_EPOCH = PartitionEpoch(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrom:
    """The next fetch of a follower from its leader; its offset is the follower's acknowledgement."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    offset: Offset
    held_end: Offset
    """Up to where the follower counts its log as held; less than `offset` with `flush=group`."""


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
        "flush_group",
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

    def fetch_from(self) -> FetchFrom | None:
        """The next fetch from the leader; None while there is no leader."""
        if self.leader == NO_BROKER:
            return None
        offsets = self.offsets
        return FetchFrom(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            offset=offsets.log_end,
            held_end=offsets.local_end,
        )

    def replicated(self, log_end: Offset, leader_high_watermark: Offset) -> bool:
        """The log grew to `log_end` by the leader's records; True when the high watermark moved."""
        offsets = self.offsets
        assert log_end >= offsets.log_end, f"log end went back from {offsets.log_end} to {log_end}"
        offsets.log_end = log_end
        if not self.flush_group:
            offsets.local_end = log_end
        self._leader_high_watermark = leader_high_watermark
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

    def diverged(self, leader_epoch_end: Offset, own_epoch_end: Offset) -> TruncateTo:
        """Where to truncate to, given the ends of the newest epoch that leader and follower may share.

        The next fetch shows whether the histories agree now; if not, its response names an earlier epoch. Truncating to
        the high watermark would be wrong: a follower's may lag behind records it holds that the leader has committed.
        """
        offset = min(leader_epoch_end, own_epoch_end, self.offsets.log_end)
        return TruncateTo(offset=offset, below_high_watermark=offset < self.offsets.high_watermark)

    def truncated(self, log_end: Offset, producers: ProducerTable) -> None:
        """The log was truncated; `producers` are those of the rest."""
        offsets = self.offsets
        assert log_end <= offsets.log_end, f"a cut to {log_end}, beyond the log's end {offsets.log_end}"
        self.producers = producers
        offsets.log_end = log_end
        offsets.local_end = min(offsets.local_end, log_end)
        offsets.log_start = min(offsets.log_start, log_end)
        offsets.high_watermark = min(offsets.high_watermark, log_end)
        stabilise(offsets, producers)

    def log_start_moved(self, log_start: Offset) -> None:
        """Records below `log_start`, all of them committed, were deleted."""
        move_log_start(self.offsets, self.producers, log_start)
