"""Writes aborted transactions to the index files of a log, and tracks which of them are synced."""

from penstock.model.ids import Offset
from penstock.storage import txn_index
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.txn_index import AbortedTxn


class TxnIndexWriter:
    """Aborted transactions that the index files lack, and how many of those written are on the disk.

    A marker is appended to the log before its entry is written to the index. A producer snapshot promises that every
    entry before it was written, a recovery point that every entry before it was synced; a start rebuilds the others.
    """

    __slots__ = ("_directory", "_pending", "synced", "written")

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._pending: list[tuple[Offset, AbortedTxn]] = []
        """Base offset of the segment that holds the marker, and the entry."""
        self.written = 0
        """Entries written to index files."""
        self.synced = -1
        """How many of them had been written before the last flush.

        -1 before the first: a killed broker may have left entries in the page cache.
        """

    def add(self, base: Offset, aborted: AbortedTxn) -> None:
        """Write an entry to the index of the segment at `base`, which holds its marker. A full disk delays it."""
        self._pending.append((base, aborted))
        self.save()

    def pending(self) -> list[AbortedTxn]:
        """The entries that are not in the files yet, because the disk is full."""
        return [aborted for _, aborted in self._pending]

    @property
    def complete_to(self) -> Offset | None:
        """Offset of the first marker that the files lack; None when they lack none."""
        return self._pending[0][1].last_offset if self._pending else None

    def save(self) -> bool:
        """Write pending entries; whether the files have every entry now."""
        directory = self._directory
        try:
            while self._pending:
                base, aborted = self._pending[0]
                txn_index.append(directory.disk, txn_index.path_of(directory.path, base), aborted)
                del self._pending[0]
                self.written += 1
        except OSError as error:
            directory.log_directory.failed(error, f"noting an aborted transaction of {directory.tp}")
            return False
        return True

    def truncate_to(self, offset: Offset) -> None:
        """Forget pending entries whose marker is at or beyond `offset`, where the log was truncated."""
        self._pending = [(base, aborted) for base, aborted in self._pending if aborted.last_offset < offset]
