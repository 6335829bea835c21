"""One partition, as its replicas agree on it: who leads, in which epoch, and how far its log is committed.

A partition does not hold records. It knows offsets: where the log starts and ends, the high watermark below which every
in-sync replica has everything, and the last stable offset below which no transaction is undecided. Readers see records
below the high watermark, and only those.

    log_start <= last_stable <= high_watermark <= local_end <= log_end
"""

from collections.abc import Iterable

from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from penstock.model.topic import PartitionState

NO_EPOCH = -1
"""How a client says that it does not know the epoch, which asks for no check."""

UNKNOWN_OFFSET = -1


class ReplicaProgress:
    """How far a follower has got, as far as its leader knows in this epoch."""

    __slots__ = ("caught_up_ms", "fetched_ms", "leader_log_end_at_fetch", "log_end", "log_start")

    def __init__(self, now_ms: int) -> None:
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.caught_up_ms = now_ms
        """When it was last known to have caught up. It starts with the epoch: nobody lags behind a leader of this
        moment."""
        self.fetched_ms = 0
        self.leader_log_end_at_fetch = UNKNOWN_OFFSET


class Partition:
    """The offsets and the leadership of one partition on this broker."""

    __slots__ = (
        "epoch_start",
        "followers",
        "high_watermark",
        "in_sync_min",
        "isr",
        "isr_proposed",
        "last_stable",
        "leader",
        "leader_epoch",
        "leads",
        "local",
        "local_end",
        "log_end",
        "log_start",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self, *, local: int, log_start: int, log_end: int, high_watermark: int, local_end: int | None = None
    ) -> None:
        assert 0 <= log_start <= log_end, f"log start {log_start} beyond log end {log_end}"
        self.local = local
        self.log_start = log_start
        self.log_end = log_end
        self.high_watermark = min(max(high_watermark, log_start), log_end)
        self.local_end = log_end if local_end is None else min(max(local_end, self.high_watermark), log_end)
        """How much of the log this replica answers for: all of it, or with `flush=group` what is on its disk."""
        self.last_stable = self.high_watermark
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.leads = False
        self.replicas: tuple[int, ...] = ()
        self.in_sync_min = 1
        """`min.insync.replicas`, as configured; a partition with fewer replicas than that asks for all of them."""
        self.isr: frozenset[int] = frozenset()
        self.isr_proposed: frozenset[int] = frozenset()
        """What the leader has asked the controller for; equal to `isr` when nothing is in flight."""
        self.epoch_start = UNKNOWN_OFFSET
        """Where the leader's epoch begins in the log."""
        self.followers: dict[int, ReplicaProgress] = {}

    # Leadership

    def assume(self, state: PartitionState, now_ms: int) -> bool:
        """Take on what the controller decided; True when a new leader epoch began here.

        A decision that is not newer than the one held changes nothing, in particular no ISR proposal in flight: the
        same state may be delivered again.
        """
        if (state.leader_epoch, state.partition_epoch) <= (self.leader_epoch, self.partition_epoch):
            return False
        fresh = state.leader_epoch > self.leader_epoch
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.isr = self.isr_proposed = frozenset(state.isr)
        self.leads = state.leader == self.local
        if not self.leads:
            self.followers = {}
            return fresh
        if fresh:
            # Only fetches of this epoch count, so what is known of followers from an earlier one does not.
            self.epoch_start = self.log_end
            self.followers = {}
        others = [replica for replica in state.replicas if replica != self.local]
        self.followers = {replica: self.followers.get(replica) or ReplicaProgress(now_ms) for replica in others}
        self.advance()
        return fresh

    def check_leader(self) -> None:
        if not self.leads:
            raise NotLeaderOrFollower()

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older leader, or a newer one than we do; -1 knows nothing and passes."""
        if epoch == self.leader_epoch or epoch == NO_EPOCH:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"the request's leader epoch {epoch} is older than the current one, {self.leader_epoch}"
            )
        raise UnknownLeaderEpoch(f"the request's leader epoch {epoch} is newer than the known one, {self.leader_epoch}")

    # Commitment

    @property
    def isr_maximal(self) -> frozenset[int]:
        """Whoever may be in sync: committed or asked for.

        A replica the controller may already have admitted must hold what we call committed, and one we asked to drop
        counts until the drop is written.
        """
        return self.isr | self.isr_proposed

    def advance(self) -> bool:
        """Raise the high watermark to the least log end over the maximal ISR; True when it moved.

        It only rises, also when a replica that lags joins the ISR: what was read stays readable. And it stands while
        the ISR is too small, or what is read might be lost with the last replica that has it.
        """
        if not self.leads or len(self.isr) < min(self.in_sync_min, len(self.replicas)):
            return False
        least = self.local_end
        followers = self.followers
        if followers:
            for replica in self.isr_maximal:
                if replica != self.local:
                    progress = followers.get(replica)
                    least = min(least, progress.log_end if progress is not None else UNKNOWN_OFFSET)
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def appended(self, log_end: int) -> bool:
        """The leader's log grew; True when the high watermark moved with it, as it does with a single replica."""
        assert log_end >= self.log_end, f"log end went back from {self.log_end} to {log_end}"
        self.log_end = self.local_end = log_end
        return self.advance()

    def flushed(self, end: int) -> bool:
        """Everything below `end` is on this replica's disk; True when the high watermark moved with it.

        Only where the disk is what counts (`flush=group`): then an append moves `log_end` alone, and readers see
        nothing that a power cut could take back.
        """
        if end <= self.local_end:
            return False
        assert end <= self.log_end, f"flushed to {end}, beyond the log's end {self.log_end}"
        self.local_end = end
        return self.advance()

    def follower_fetched(self, follower: int, epoch: int, from_offset: int, log_start: int, now_ms: int) -> bool:
        """Note how far a follower is, which its fetch says: it has all before; True when the high watermark moved.

        There is no other acknowledgement, and only a fetch of the current epoch counts as one.
        """
        self.check_leader()
        self.check_epoch(epoch)
        progress = self.followers.get(follower)
        if progress is None:
            raise NotLeaderOrFollower(f"broker {follower} holds no replica of this partition")
        if from_offset >= self.log_end:
            progress.caught_up_ms = now_ms
        elif from_offset >= progress.leader_log_end_at_fetch >= 0:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.log_end = from_offset
        progress.log_start = log_start
        progress.leader_log_end_at_fetch = self.log_end
        progress.fetched_ms = now_ms
        return self.advance()

    def may_join(self, follower: int) -> bool:
        """In sync means: holds all that is committed, and at least up to where this epoch began."""
        progress = self.followers.get(follower)
        if progress is None or follower in self.isr_maximal:
            return False
        return progress.log_end >= self.high_watermark and progress.log_end >= self.epoch_start

    def laggards(self, now_ms: int, lag_ms_max: int) -> frozenset[int]:
        """ISR members not caught up within `lag_ms_max`."""
        return frozenset(
            replica
            for replica in self.isr
            if replica != self.local
            and (progress := self.followers.get(replica)) is not None
            and progress.log_end < self.log_end
            and now_ms - progress.caught_up_ms > lag_ms_max
        )

    def propose(self, isr: Iterable[int]) -> None:
        """Ask for another ISR; one proposal is in flight at a time, and the leader never proposes itself away."""
        proposed = frozenset(isr)
        assert self.isr_proposed == self.isr, "an ISR change is in flight already"
        assert self.local in proposed, "the leader is in its ISR"
        assert proposed <= frozenset(self.replicas), f"not replicas: {proposed - frozenset(self.replicas)}"
        self.isr_proposed = proposed

    def proposal_failed(self) -> None:
        self.isr_proposed = self.isr

    def check_enough_in_sync(self) -> None:
        """acks=all promises `min.insync.replicas` copies; refuse before writing what cannot be promised."""
        needed = min(self.in_sync_min, len(self.replicas))
        if len(self.isr) < needed:
            raise NotEnoughReplicas(
                f"The size of the current ISR {sorted(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {needed}"
            )

    def committed(self, end: int) -> bool:
        """Whether acks=all may answer for everything below `end`; raises when it is written but not safe."""
        if self.high_watermark < end:
            return False
        if len(self.isr_maximal) < min(self.in_sync_min, len(self.replicas)):
            raise NotEnoughReplicasAfterAppend()
        return True

    # Reading

    def stabilise(self, first_unstable: int | None) -> None:
        """Readers of committed data stop where the oldest undecided transaction begins."""
        bound = self.high_watermark
        if first_unstable is not None:
            bound = min(bound, max(first_unstable, self.log_start))
        self.last_stable = bound

    def check_readable(self, offset: int) -> None:
        """Between log start and log end an offset is or will be readable; elsewhere it never was or is gone."""
        if offset < self.log_start or offset > self.log_end:
            raise OffsetOutOfRange(
                f"Received request for offset {offset}, but the log holds offsets {self.log_start} to {self.log_end}"
            )

    def latest_is_known(self) -> bool:
        """A fresh leader's high watermark may lag what was acknowledged before it; then "latest" has to wait."""
        return self.high_watermark >= self.epoch_start

    def start_moved(self, log_start: int) -> None:
        """Records below `log_start` were deleted. Only committed ones may be."""
        if log_start > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset to {log_start} since it is larger than the high watermark "
                f"{self.high_watermark}"
            )
        if log_start > self.log_start:
            self.log_start = log_start
            self.last_stable = max(self.last_stable, log_start)

    def truncated(self, log_end: int) -> None:
        """A follower's log was cut. A leader never cuts its own."""
        assert not self.leads, "a leader never truncates itself"
        self.log_end = log_end
        self.local_end = min(self.local_end, log_end)
        self.log_start = min(self.log_start, log_end)
        self.high_watermark = min(self.high_watermark, log_end)
        self.last_stable = min(self.last_stable, log_end)
