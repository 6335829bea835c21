"""The leader epoch cache: the start offset of each epoch, by which diverged replicas find where to truncate.

Kept in Kafka's `leader-epoch-checkpoint`. Every batch has its epoch, so that recovery can rebuild the cache from the
log.
"""

from bisect import bisect_right

from penstock.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from penstock.storage.checkpoint import CheckpointDamaged, read_lines, write_lines
from penstock.storage.disk import Disk


class LeaderEpochs:
    """Epochs and their start offsets, both strictly rising."""

    __slots__ = ("_epochs", "_starts", "changed", "latest", "saves", "saves_synced")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self.latest = NO_LEADER_EPOCH
        self.changed = False
        """Whether the file lacks a change."""
        self.saves = 0
        """How often the file was written; `saves_synced` of them are on the disk."""
        self.saves_synced = 0

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Add an epoch that begins at an offset.

        An epoch that is not newer than the latest is ignored; one without records is replaced.
        """
        if epoch <= self.latest:
            return
        while self._starts and self._starts[-1] >= start:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        self.changed = True

    def start_of(self, epoch: LeaderEpoch) -> Offset | None:
        """Start offset of an epoch; None if the cache does not have it."""
        at = bisect_right(self._epochs, epoch) - 1
        return self._starts[at] if at >= 0 and self._epochs[at] == epoch else None

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the record at an offset; -1 when it is older than the first known epoch."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else NO_LEADER_EPOCH

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The greatest known epoch not after `epoch`, and where it ends; (-1, -1) when none is known.

        A follower truncates its log to that end: beyond it, the two logs may differ.
        """
        if epoch == NO_LEADER_EPOCH or not self._epochs:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        at = bisect_right(self._epochs, epoch)
        if at == len(self._epochs):
            # An epoch beyond the latest: its end is unknown.
            return NO_LEADER_EPOCH, NO_OFFSET
        if at == 0:
            # Older than every epoch of the cache: the logs may differ from the first of them on.
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def truncate_to(self, offset: Offset) -> None:
        """Drop epochs that begin at or beyond the new log end."""
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
            self.changed = True
        self.latest = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def delete_before(self, offset: Offset) -> None:
        """Drop epochs that end before the new log start; the epoch at the log start begins there now."""
        at = bisect_right(self._starts, offset) - 1
        if at > 0:
            del self._epochs[:at], self._starts[:at]
            self.changed = True
        if at >= 0 and self._starts[0] < offset:
            self._starts[0] = offset
            self.changed = True

    def clear(self) -> None:
        """Drop all epochs: the log restarts empty."""
        self._epochs.clear()
        self._starts.clear()
        self.latest = NO_LEADER_EPOCH
        self.changed = True

    def load_from(self, found: "LeaderEpochs") -> None:
        """Take over the epochs that recovery found. `saves` is not reset, or a flush in flight would count as later."""
        self._epochs = found._epochs
        self._starts = found._starts
        self.latest = found.latest
        self.changed = found.changed
        self.saves += found.saves

    def save(self, disk: Disk, path: str, *, sync: bool) -> None:
        write_lines(disk, path, (f"{epoch} {start}" for epoch, start in self.entries()), sync=sync)
        self.changed = False
        self.saves += 1
        if sync:
            self.saves_synced = self.saves

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochs":
        """Read the file; `CheckpointDamaged` when it is inconsistent."""
        epochs = cls()
        for line in read_lines(disk, path):
            try:
                epoch, start = map(int, line.split())
            except ValueError as error:
                raise CheckpointDamaged(f"{path}: not an epoch and an offset: {line!r}") from error
            if epoch <= epochs.latest or (epochs._starts and start <= epochs._starts[-1]):
                raise CheckpointDamaged(f"{path}: epoch {epoch} from {start} does not follow its predecessor")
            epochs.assign(LeaderEpoch(epoch), Offset(start))
        epochs.changed = False
        return epochs
