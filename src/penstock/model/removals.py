"""What compaction has removed from a log for good: tombstones and transaction markers."""

from typing import NamedTuple

from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset


class Removals(NamedTuple):
    """The removals of a leader's log, as it tells a follower that may not have copied what was removed."""

    mark: Offset
    """The greatest offset of a removed tombstone or marker; -1 where none was removed."""
    revision: int
    """Grows with every removal while a broker runs: one may leave the mark as it is."""


class CopyStart(NamedTuple):
    """When a follower began to copy its leader's log from the log start."""

    leader_epoch: LeaderEpoch
    revision: int
    """That of the leader's removals."""


NO_COPY = CopyStart(NO_LEADER_EPOCH, -1)
