"""Rebuild of the transaction index from the log after a start.

The index is a function of the log, and the replay that rebuilds the producers' state yields it too. Entries before the
offset where the replay began are trusted. After it, a crash may have lost the last entries, or left entries whose
markers are gone.
"""

from bisect import bisect_left

from penstock.model.ids import Offset, ProducerId
from penstock.storage import txn_index
from penstock.storage.disk import replace_file
from penstock.storage.txn_index import AbortedTxn, TxnIndexDamaged
from penstock.storage.view import LogView

Aborts = dict[Offset, tuple[ProducerId, AbortedTxn | None]]
"""Offset of each abort marker, in order -> its producer, and the transaction if one was open."""


def rebuild(view: LogView, start: Offset, aborts: Aborts) -> int:
    """Rebuild the files from `start` on, given every abort of the log since; returns how many were wrong.

    Raises `TxnIndexDamaged` when an index before `start` is damaged: then the aborts of the whole log are needed.
    """
    rebuilt = 0
    indexed = set(txn_index.bases(view.disk, view.path))
    markers = list(aborts)
    for at, segment in enumerate(view.segments):
        following = view.segments[at + 1].base if at + 1 < len(view.segments) else view.log_end
        within = markers[bisect_left(markers, segment.base) : bisect_left(markers, following)]
        met = {offset: aborts[offset] for offset in within}
        if segment.base not in indexed and not met:
            continue
        path = txn_index.path_of(view.path, segment.base)
        found: list[AbortedTxn] | None = None
        try:
            found = txn_index.read(view.disk, path)
        except TxnIndexDamaged:
            if segment.base < start:
                raise
        right = _right(found or [], start, following, met)
        if right != found and (right or segment.base in indexed):
            replace_file(view.disk, path, txn_index.encode(right), sync=True)
            rebuilt += 1
    return rebuilt


def _right(found: list[AbortedTxn], start: Offset, following: Offset, met: Aborts) -> list[AbortedTxn]:
    """The correct entries of an index that has the entries `found`."""
    known = {(entry.producer_id, entry.last_offset): entry for entry in found}
    right = [entry for entry in found if entry.last_offset < min(start, following)]
    for offset, (producer_id, completed) in met.items():
        # Only the file knows a transaction whose first records are no longer in the log.
        entry = completed or known.get((producer_id, offset))
        if entry is not None and offset >= start:
            right.append(entry)
    return right
