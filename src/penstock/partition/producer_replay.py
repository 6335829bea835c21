"""Rebuilds a partition's producer table from its log: the newest snapshot, then every batch after it.

The same batches show which transactions were aborted, so that the transaction index is corrected on the way.
"""

from typing import NamedTuple

from penstock.model.ids import NO_COORDINATOR_EPOCH, NO_OFFSET, Offset
from penstock.partition.producers import ProducerTable, seen_at_load
from penstock.storage import producer_snapshot, txn_rebuild
from penstock.storage.txn_index import AbortedTxn, TxnIndexDamaged
from penstock.storage.txn_rebuild import Aborts
from penstock.storage.view import LogView
from penstock.storage.walk import BatchAt
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker


class Replayed(NamedTuple):
    """The producers of a log, rebuilt by a replay."""

    table: ProducerTable
    snapshot_at: Offset
    """The offset of the snapshot it started from; -1: none."""
    rebuilt: int
    """Number of transaction index files that disagreed with the log and were rewritten."""


class Replay:
    """Builds a producer table and the list of aborts from a log, reading each batch once."""

    def __init__(self, view: LogView, now_ms: int, idle_ms_max: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._idle_ms_max = idle_ms_max
        self.table = ProducerTable()
        self.aborts: Aborts = {}

    def run(self, start: Offset) -> None:
        if start < self._view.log_end:
            for batch in self._view.walk_from(start, bodies=False, control_bodies=True):
                if batch.header.producer_id >= 0:
                    self._replay(batch)

    def _replay(self, batch: BatchAt) -> None:
        header = batch.header
        seen_ms = seen_at_load(header.max_timestamp, self._now_ms, self._idle_ms_max)
        if header.is_control:
            self._replay_marker(batch, seen_ms)
            return
        self.table.record(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.is_transactional,
            header.base_offset,
            header.max_timestamp,
            seen_ms,
        )

    def _replay_marker(self, batch: BatchAt, seen_ms: int) -> None:
        """Replay a marker. Compaction may have emptied its batch; it ends the transaction all the same."""
        header = batch.header
        aborted, coordinator_epoch = False, NO_COORDINATOR_EPOCH
        if header.record_count > 0:
            try:
                kind, coordinator_epoch = parse_marker(decode_records(batch.data)[0])
            except (Malformed, UnsupportedCompression):
                return
            aborted = kind == ABORT_MARKER
        completed = self.table.record_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            header.base_offset,
            aborted,
            header.max_timestamp,
            seen_ms,
        )
        if aborted:
            entry = None if completed is None else AbortedTxn.of(completed)
            self.aborts[header.base_offset] = header.producer_id, entry


def replay_producers(view: LogView, high_watermark: Offset, now_ms: int, idle_ms_max: int) -> Replayed:
    """The table as of the view's end. May read much.

    A transaction stays undecided for readers until the high watermark has passed its marker: until then, the marker may
    be truncated under another leader.
    """
    replay = Replay(view, now_ms, idle_ms_max)
    found = producer_snapshot.load_latest(view.disk, view.path, view.log_start, view.log_end)
    start = view.log_start
    if found is not None:
        start, entries = found
        replay.table.load(entries, now_ms, idle_ms_max)
    replay.table.advance(high_watermark)
    replay.run(start)
    rebuilt = rebuild_aborted(view, start, replay)
    replay.table.expire(now_ms, idle_ms_max)
    return Replayed(replay.table, start if found is not None else NO_OFFSET, rebuilt)


def rebuild_aborted(view: LogView, start: Offset, replay: Replay) -> int:
    """Correct the transaction index; returns how many files changed. An unreadable file needs a replay of all."""
    try:
        return txn_rebuild.rebuild(view, start, replay.aborts)
    except TxnIndexDamaged:
        whole = Replay(view, 0, 0)
        whole.run(view.log_start)
        return txn_rebuild.rebuild(view, view.segments[0].base, whole.aborts)
