"""The aborted transactions of one log, in memory, for readers of committed data."""

from penstock.model.ids import Offset
from penstock.storage import txn_index
from penstock.storage.log import Log
from penstock.storage.txn_index import AbortedTxn


class AbortedTxns:
    """The aborted transactions in order of their markers. Most logs have none, the others few."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[AbortedTxn]) -> None:
        self._entries = entries

    @classmethod
    def load(cls, log: Log) -> "AbortedTxns":
        """Read the segments' transaction indexes. A log without them costs one listing of its directory."""
        disk = log.directory.disk
        if log.log_end == 0:
            return cls([])
        try:
            paths = [txn_index.path_of(log.path, base) for base in txn_index.bases(disk, log.path)]
            entries = [entry for path in paths for entry in txn_index.read(disk, path)]
        except OSError as error:
            raise log.directory.failed(error, f"reading the aborted transactions of {log.tp}") from error
        return cls(entries + log.txn_index.pending())

    def add(self, entry: AbortedTxn, log: Log) -> None:
        """Add a transaction whose marker was just appended to the active segment."""
        self._entries.append(entry)
        log.note_aborted(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def between(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The transactions that a reader of [start, end) has to skip."""
        return txn_index.collect(self._entries, start, end) if self._entries else []

    def forget_before(self, log_start: Offset) -> None:
        if self._entries and self._entries[0].last_offset < log_start:
            self._entries = [entry for entry in self._entries if entry.last_offset >= log_start]
