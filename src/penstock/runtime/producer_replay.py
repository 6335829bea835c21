"""Making a partition's producer table from its log: the newest snapshot, then every batch behind it."""

from penstock.core.producers import ProducerTable, seen_at_load
from penstock.model.batch import BatchHeader
from penstock.storage import producer_snapshot
from penstock.storage.view import LogView
from penstock.wire.primitives import Malformed
from penstock.wire.records import ABORT_MARKER, decode_records, parse_marker


def replay_producers(view: LogView, now_ms: int, idle_ms_max: int) -> tuple[ProducerTable, int]:
    """The table as of the view's end, and the offset of the snapshot it started from (-1: none). May read much."""
    table = ProducerTable()
    found = producer_snapshot.load_latest(view.disk, view.path, view.log_start, view.log_end)
    start = view.log_start
    if found is not None:
        start, entries = found
        table.load(entries, now_ms, idle_ms_max)
    if start < view.log_end:
        for batch in view.walk_from(start, bodies=False):
            header = batch.header
            if header.producer_id >= 0 and header.base_offset >= start:
                replay_batch(table, view, header, now_ms, idle_ms_max)
    table.advance(view.log_end)
    table.expire(now_ms, idle_ms_max)
    return table, start if found is not None else -1


def replay_batch(table: ProducerTable, view: LogView, header: BatchHeader, now_ms: int, idle_ms_max: int) -> None:
    seen_ms = seen_at_load(header.max_timestamp, now_ms, idle_ms_max)
    if header.is_control:
        replay_marker(table, view, header, seen_ms)
        return
    table.record(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_offset_delta,
        header.is_transactional,
        header.base_offset,
        header.max_timestamp,
        seen_ms,
    )


def replay_marker(table: ProducerTable, view: LogView, header: BatchHeader, seen_ms: int) -> None:
    """What ended the transaction is in the record itself; compaction may have emptied the batch, and the end stands."""
    whole = next(view.walk_from(header.base_offset, bodies=True), None)
    aborted, coordinator_epoch = False, -1
    if whole is not None and whole.header.record_count > 0:
        try:
            kind, coordinator_epoch = parse_marker(decode_records(whole.data)[0])
        except Malformed:
            return
        aborted = kind == ABORT_MARKER
    table.record_marker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset,
        aborted,
        header.max_timestamp,
        seen_ms,
    )
