"""The state of one share partition: the records of its key, applied in order."""

from collections.abc import Sequence
from typing import cast

from penstock.model.ids import LeaderEpoch, Offset
from penstock.shares.persister import UNKNOWN_COUNT, SharePartitionState, SharePartitionSummary, StateBatch
from penstock.shares.state.batches import StateBatches
from penstock.wire.share_records import Batch, SnapshotValue, UpdateValue

UNCHANGED = -1
"""A leader epoch or start offset that an update leaves as it is."""


class ShareState:
    """What the coordinator knows of a share partition. Changed only by events."""

    __slots__ = (
        "batches",
        "create_ms",
        "delivery_complete_count",
        "fence",
        "leader_epoch",
        "snapshot_at",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "updates",
        "write_ms",
    )

    def __init__(self, value: SnapshotValue, snapshot_at: Offset | None) -> None:
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.fence = value.leader_epoch
        """The highest leader epoch of a reader: writes with a lower one are refused."""
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.create_ms = value.create_ms
        self.write_ms = value.write_ms
        self.batches = StateBatches(state_batches(value.batches))
        self.updates = 0
        """Updates since the snapshot."""
        self.snapshot_at = snapshot_at
        """An offset not above that of the snapshot; None if it was written before this broker loaded the log."""

    @property
    def is_cold(self) -> bool:
        """Whether nothing was written since the snapshot, which only repeats an older one."""
        return self.create_ms != self.write_ms and not self.updates

    def update(self, value: UpdateValue) -> None:
        if value.leader_epoch != UNCHANGED:
            self.leader_epoch = value.leader_epoch
            self.fence = max(self.fence, value.leader_epoch)
        if value.start_offset != UNCHANGED:
            self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.batches.combine(state_batches(value.batches), self.start_offset)
        self.updates += 1

    def snapshot(self, *, create_ms: int, write_ms: int) -> SnapshotValue:
        """The next snapshot, with nothing changed."""
        return SnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_ms=create_ms,
            write_ms=write_ms,
            batches=tuple(self.batches),
        )

    def described(self) -> SharePartitionState:
        return SharePartitionState(
            state_epoch=self.state_epoch,
            start_offset=Offset(self.start_offset),
            delivery_complete_count=self.delivery_complete_count,
            batches=tuple(self.batches),
        )

    def summary(self) -> SharePartitionSummary:
        return SharePartitionSummary(
            state_epoch=self.state_epoch,
            leader_epoch=LeaderEpoch(self.leader_epoch),
            start_offset=Offset(self.start_offset),
            delivery_complete_count=self.delivery_complete_count,
        )


NO_SUMMARY = SharePartitionSummary(
    state_epoch=0, leader_epoch=LeaderEpoch(0), start_offset=Offset(UNCHANGED), delivery_complete_count=UNKNOWN_COUNT
)
"""The summary of a share partition that is not initialized."""


def state_batches(batches: Sequence[Batch]) -> Sequence[StateBatch]:
    """The ranges of a record; those of an event of this broker are it already."""
    if all(type(each) is StateBatch for each in batches):
        return cast("Sequence[StateBatch]", batches)
    return [StateBatch._make(each) for each in batches]
