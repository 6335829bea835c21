"""The transactions that a compaction meets while it reads a log from its start.

They show which records were aborted, and which markers still have records that need them.
"""

from penstock.model.batch import BatchHeader
from penstock.model.ids import Offset
from penstock.storage.txn_index import AbortedTxn


class CleanedTxns:
    """The transactions that are open at one point of a compaction, which passes batches and markers in order."""

    __slots__ = ("_aborted", "_at", "_committing", "_observed", "_ongoing")

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset)
        self._at = 0
        self._ongoing: dict[int, AbortedTxn] = {}
        """Producer id -> its aborted transaction, while the pass is inside it."""
        self._observed: set[int] = set()
        """Producers of those transactions whose records the pass has met."""
        self._committing: set[int] = set()
        """Producers that have written records whose marker is still to come."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction, so that no reader ever sees it."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._ongoing.get(header.producer_id)
        if entry is not None and header.base_offset <= entry.last_offset:
            self._observed.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, *, aborted: bool) -> tuple[bool, AbortedTxn | None]:
        """End a transaction at its marker: whether to drop the marker, or the index entry to keep with it."""
        self._advance(header.last_offset)
        producer_id = header.producer_id
        if not aborted:
            needed = producer_id in self._committing
            self._committing.discard(producer_id)
            return not needed, None
        entry = self._ongoing.pop(producer_id, None)
        observed = producer_id in self._observed
        self._observed.discard(producer_id)
        return (False, entry) if entry is not None and observed else (True, None)

    def _advance(self, offset: Offset) -> None:
        """Enter the aborted transactions that have begun by `offset`."""
        while self._at < len(self._aborted) and self._aborted[self._at].first_offset <= offset:
            entry = self._aborted[self._at]
            self._ongoing[entry.producer_id] = entry
            self._at += 1
