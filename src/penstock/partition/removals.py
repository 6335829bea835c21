"""Rules of compaction across replicas: when a follower has to copy its leader's log again, from the log start.

A tombstone is removed when every record that it deletes is gone from that log. A follower that was away may still have
such a record. It would copy the rest without the tombstone, and the deleted key would live again where it leads.
Likewise a transaction whose marker was removed would stay open. So a log remembers up to where tombstones and markers
were removed from it, or from the log that it was copied from (its mark), and a follower whose log ends at or below the
leader's mark empties its log first.

Its copy is at or below the mark for a while again. It goes on as long as the leader, in the same epoch, has removed
nothing more: the next leader may have removed tombstones that the last one still had, and so may the same one, without
moving its mark. Members of the ISR never have to: a leader removes only committed records.
"""

from penstock.model.ids import LeaderEpoch, Offset
from penstock.model.removals import CopyStart, Removals


def removals_at(removals: Removals, fetch_offset: Offset) -> Removals | None:
    """What a leader tells a follower that fetches from an offset.

    None where the follower has everything up to the mark: what it copies from there on lacks nothing.
    """
    return removals if fetch_offset <= removals.mark else None


def copies_again(removals: Removals | None, *, log_end: Offset, leader_epoch: LeaderEpoch, copied: CopyStart) -> bool:
    """Whether a follower whose log ends at `log_end` has to empty it, and copy its leader's from the log start."""
    return removals is not None and log_end <= removals.mark and copied != CopyStart(leader_epoch, removals.revision)


def mark_within(mark: Offset, log_end: Offset) -> Offset:
    """The mark of a log that ends at `log_end`, after it was cut, or as its replica begins to lead.

    Beyond its end a log lacks everything. A mark there would make the next leader's in-sync followers copy again.
    """
    return Offset(min(mark, log_end - 1))
