"""Aborted transactions on their way into the index files of a log, and from there onto the disk."""

from penstock.storage import txn_index
from penstock.storage.disk import Disk
from penstock.storage.txn_index import AbortedTxn


class TxnNotes:
    """What the index files do not have yet, and how much of what they have a power cut could take.

    A marker goes into the log before its note goes into the index. A snapshot of the producers promises that every note
    before it was written, and a recovery point that every note before it is on the disk: a start makes the others anew.
    """

    __slots__ = ("_pending", "synced", "written")

    def __init__(self) -> None:
        self._pending: list[tuple[int, AbortedTxn]] = []
        """Base offset of the segment that holds the marker, and the note."""
        self.written = 0
        """Notes in index files."""
        self.synced = 0
        """How many had been written before the last flush."""

    def add(self, base: int, aborted: AbortedTxn) -> None:
        self._pending.append((base, aborted))

    def pending(self) -> list[AbortedTxn]:
        """What the files lack, because a disk was full."""
        return [aborted for _, aborted in self._pending]

    @property
    def complete_to(self) -> int | None:
        """Where the first marker is that the files lack; None when they lack none."""
        return self._pending[0][1].last_offset if self._pending else None

    def save(self, disk: Disk, directory: str) -> None:
        """Write what is pending; `OSError` keeps the rest for later."""
        while self._pending:
            base, aborted = self._pending[0]
            txn_index.append(disk, txn_index.path_of(directory, base), aborted)
            del self._pending[0]
            self.written += 1

    def truncate_to(self, offset: int) -> None:
        """Markers at or beyond `offset` are gone from the log."""
        self._pending = [(base, aborted) for base, aborted in self._pending if aborted.last_offset < offset]
