"""Compaction: the newest record of every key stays, at its offset.

A pass reads the records since the last pass into a map from key to offset, then rewrites the finished segments without
records that have a newer one in the map. Segments are read and written off the loop, a group at a time; a finished
group is swapped in on the loop. As in Kafka,

- a tombstone stays for `delete.retention.ms` after the pass that first met it, whose time is noted in the batch header;
- batches keep their offsets, their producer and their codec; a producer's last batch stays, if need be without records;
- records of aborted transactions are removed; a marker stays until no record needs it, and then as long as a tombstone.

For other replicas, beyond what Kafka does,

- the first batch of each leader epoch stays, if need be without records: the log, and every copy of it, tells where
  each epoch began;
- so does the last batch of a log that nothing follows yet: a copy reaches the same end;
- the greatest offset of a removed tombstone or marker is noted before segments without it are swapped in
  (`removal_mark`).

Topics of schedules keep more (`cleaned_fires`).
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.batch import HEADER, HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader
from penstock.model.ids import NO_LEADER_EPOCH, NO_OFFSET, Offset, ProducerEpoch, ProducerId
from penstock.model.producers import ProducerSnapshot
from penstock.storage import txn_index
from penstock.storage.active_segment import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX
from penstock.storage.cleaned_fires import CleanedFires
from penstock.storage.cleaned_txns import CleanedTxns
from penstock.storage.key_map import KeyMap
from penstock.storage.log import Log
from penstock.storage.names import LOG, SEGMENT_FILES, SWAP, TXN_INDEX, offset_name
from penstock.storage.removal_mark import RemovalMark
from penstock.storage.segment import Segment
from penstock.storage.segment_files import mark_deleted, mark_gaps
from penstock.storage.segment_writer import SegmentWriter, discard_swap
from penstock.storage.settings import LogSettings
from penstock.storage.throttle import Throttle
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.view import LogChanged, LogView, SegmentView
from penstock.storage.walk import BadBatch, BatchAt, walk
from penstock.wire.compression import UnsupportedCompression
from penstock.wire.primitives import Malformed
from penstock.wire.records import (
    ABORT_MARKER,
    RecordKey,
    batch_keys,
    decode_records,
    empty_batch,
    filter_batch,
    parse_marker,
)

TIMESTAMP_MAX = 2**63 - 1


class LastBatch(NamedTuple):
    """The last batch of an active producer, which has its newest sequence number."""

    offset: Offset
    """Its last offset; -1 when only a marker of it is left."""
    epoch: ProducerEpoch


class Cleaned(NamedTuple):
    """A group of segments, rewritten as one segment that is ready to be swapped in."""

    segment: SegmentView
    replaced: tuple[Offset, ...]
    """Base offsets of the segments it was made from."""
    removed: Offset
    """The greatest offset of a tombstone or marker that was removed; -1 where none was."""


@dataclass(slots=True)
class Totals:
    """The totals of a pass so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0


class Compaction:
    """One pass over one log. `build_map` and `clean` run off the loop, everything else on it."""

    def __init__(
        self,
        view: LogView,
        settings: LogSettings,
        *,
        dirty_from: Offset,
        end: Offset,
        committed: Offset,
        now_ms: int,
        keys_max: int,
        producers: Iterable[ProducerSnapshot],
        removal_mark: RemovalMark,
        throttle: Throttle | None = None,
    ) -> None:
        self.view = view
        self.settings = settings
        self.removal_mark = removal_mark
        self.dirty_from = dirty_from
        self.end = end
        """Records at or beyond this offset are neither read nor replaced."""
        self._committed = committed
        self._fires: CleanedFires | None = None
        """Of a topic of schedules."""
        self.now_ms = now_ms
        self.totals = Totals()
        self._keys = KeyMap(keys_max)
        self._producers = producers
        self._last_batches: dict[ProducerId, LastBatch] = {}
        self._throttle = throttle
        self._mapped_to = dirty_from
        self._rewrites = view.rewrites
        """The log's rewrite count after the swaps of this pass: any other change ends the pass."""
        self._txns = CleanedTxns([])
        self._unswapped: Cleaned | None = None
        """A group that is rewritten and not swapped in yet."""
        self._epoch = NO_LEADER_EPOCH
        """The leader epoch of the last batch that was cleaned."""
        self._removed = NO_OFFSET
        """The greatest offset of a tombstone or marker that was removed from the group being cleaned."""

    # Off the loop

    def build_map(self) -> None:
        """Map every key of the dirty part to its newest offset, as far as the map has room."""
        self._check_unchanged()
        mark_gaps(self.view.disk, self.view.path)
        self._last_batches = {one.producer_id: LastBatch(one.last_offset, one.epoch) for one in self._producers}
        self._txns = CleanedTxns(self._aborted())
        if self.settings.schedule_target:
            self._fires = CleanedFires(self.view, self._committed)
        for batch in self._batches(self.dirty_from):
            if self._keys.is_full:
                break
            self._map(batch)
            self._mapped_to = batch.header.next_offset
        else:
            self._mapped_to = self.end
        self._txns = CleanedTxns(self._aborted())

    def _check_unchanged(self) -> None:
        """Raise if the log's files were replaced: a topic that was created again has other files of the same names."""
        if self.view.rewrites_now() != self._rewrites:
            raise LogChanged(f"The files in {self.view.path} have changed while they were compacted.")

    def _map(self, batch: BatchAt) -> None:
        header = batch.header
        if header.is_control:
            self._txns.end(header, aborted=is_abort(batch))
        elif not self._txns.is_aborted(header):
            for record in keys_of(batch):
                if record.key is not None:
                    self._keys.put(record.key, record.offset)

    def _batches(self, offset: Offset) -> Iterator[BatchAt]:
        for batch in self.view.walk_from(offset, bodies=True):
            if batch.header.base_offset >= self.end:
                return
            if self._throttle is not None:
                self._throttle.done(batch.header.size)
            yield batch

    def _aborted(self) -> list[AbortedTxn]:
        """The aborted transactions in the indexes of all segments."""
        found: list[AbortedTxn] = []
        for segment in self.view.segments:
            found += txn_index.read(self.view.disk, txn_index.path_of(self.view.path, segment.base))
        return found

    def groups(self) -> list[tuple[SegmentView, ...]]:
        """Adjacent segments that are rewritten together: as many as fit into one segment."""
        settings = self.settings
        groups: list[list[SegmentView]] = []
        bytes_in_group = 0
        for at, segment in enumerate(self.view.segments):
            following = self.view.segments[at + 1].base if at + 1 < len(self.view.segments) else self.end
            if segment.base >= min(self._mapped_to, self.end) or following > self.end:
                break
            bytes_in_group += segment.size
            entries = bytes_in_group // max(1, settings.index_interval_bytes)
            if (
                groups
                and bytes_in_group <= settings.segment_bytes_effective
                and entries * OFFSET_ENTRY_BYTES <= settings.segment_index_bytes
                and following - groups[-1][0].base <= RELATIVE_OFFSET_MAX
            ):
                groups[-1].append(segment)
            else:
                groups.append([segment])
                bytes_in_group = segment.size
        return [tuple(group) for group in groups]

    def clean(self, group: tuple[SegmentView, ...]) -> Cleaned:
        """Rewrite a group without records that have a newer one in the map. `OSError` leaves the log unchanged.

        Groups are cleaned in the order of `groups`, each once: transactions reach from one into the next.
        """
        disk, path = self.view.disk, self.view.path
        self._removed = NO_OFFSET
        writer = SegmentWriter(disk, path, group[0].base, self.settings.index_interval_bytes)
        try:
            for segment in group:
                file = disk.open_read(f"{path}/{offset_name(segment.base, LOG)}")
                # Both files belong to the log so far; if it is renamed from here on, the writer fails to finish.
                self._check_unchanged()
                for batch in walk(file, 0, segment.size, offset_min=segment.base, bodies=True):
                    if self._throttle is not None:
                        self._throttle.done(batch.header.size)
                    self._clean_batch(batch, writer)
            if self._removed >= 0:
                # Before the segment gets the name by which the next start would swap it in.
                self.removal_mark.raise_to(self._removed, rewrites=self._rewrites)
            cleaned = writer.finish(group[-1].modified_ms)
        except BaseException:
            with contextlib.suppress(OSError):
                writer.discard()
            raise
        self.totals.bytes_written += cleaned.size
        self._unswapped = Cleaned(cleaned, tuple(segment.base for segment in group), self._removed)
        return self._unswapped

    def _clean_batch(self, batch: BatchAt, writer: SegmentWriter) -> None:
        header = batch.header
        self.totals.bytes_read += header.size
        begins_epoch, self._epoch = header.leader_epoch != self._epoch, header.leader_epoch
        marker_unneeded = aborted = False
        if header.is_control:
            fire_needed = None if self._fires is None else self._fires.is_needed(batch)
            if fire_needed is not None:
                marker_unneeded = not fire_needed
            else:
                marker_unneeded, entry = self._txns.end(header, aborted=is_abort(batch))
                if entry is not None:
                    writer.add_aborted(entry)
        else:
            aborted = self._txns.is_aborted(header)
        keep, has_tombstone = self._records_to_keep(batch, aborted, marker_unneeded)
        if not any(keep):
            if header.is_control and header.record_count:
                self._removed = max(self._removed, header.last_offset)
            if self._is_last_of_producer(header):
                writer.add(header, empty_batch(header))
            elif begins_epoch or header.next_offset == self.view.log_end:
                writer.add(header, empty_batch(without_producer(header)))
            return
        horizon_ms = None
        if (has_tombstone or marker_unneeded) and not header.has_delete_horizon:
            horizon_ms = self.now_ms + self.settings.delete_retention_ms
        if horizon_ms is None and all(keep):
            writer.add(header, batch.data)
            return
        with readable(batch):
            written = filter_batch(batch.data, keep, delete_horizon_ms=horizon_ms)
        writer.add(BatchHeader._make(HEADER.unpack_from(written)), written)

    def _records_to_keep(self, batch: BatchAt, aborted: bool, marker_unneeded: bool) -> tuple[list[bool], bool]:
        """Which records stay, and whether a tombstone is among them."""
        header = batch.header
        # The horizon takes the place of the base timestamp.
        is_due = header.has_delete_horizon and header.base_timestamp <= self.now_ms
        if header.is_control:
            return [not (marker_unneeded and is_due)] * header.record_count, False
        if aborted:
            self.totals.records_dropped += header.record_count
            return [False] * header.record_count, False
        keep: list[bool] = []
        has_tombstone = False
        fires = self._fires
        for record in keys_of(batch):
            if record.offset >= self._mapped_to:
                # Older records of its key may stay, so that a tombstone does.
                keep.append(True)
                if fires is not None:
                    fires.keeps(record, True)
                has_tombstone = has_tombstone or record.is_tombstone
                continue
            if record.key is None:
                stays = False
            else:
                stays = record.offset >= self._keys.newest(record.key)
                if fires is not None:
                    stays = fires.keeps(record, stays)
            if stays and record.is_tombstone:
                if is_due and (fires is None or not fires.holds(record.key)):
                    stays = False
                    self._removed = max(self._removed, record.offset)
                else:
                    has_tombstone = True
            keep.append(stays)
        self.totals.records_dropped += len(keep) - sum(keep)
        return keep, has_tombstone

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.offset >= 0:
            return last.offset == header.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    # On the loop

    def swap(self, log: Log, cleaned: Cleaned, trash: Trash) -> None:
        """Replace segments by the group that was made from them.

        After a crash at any point of this, the next start finishes it.
        """
        assert log.cleaning is self, f"{log.tp} is not being compacted by this pass"
        old = log.segments.run_of(cleaned.replaced)
        due_ms = log.clock.now_ms() + log.config.file_delete_delay_ms
        disk = log.directory.disk
        log.partition_directory.rewrites += 1
        self._rewrites = log.partition_directory.rewrites
        try:
            for segment in old:
                log.segments.forget(segment)
                for path in mark_deleted(disk, log.path, segment.base):
                    trash.add(path, due_ms)
            for kind in reversed(SEGMENT_FILES):
                name = f"{log.path}/{offset_name(cleaned.segment.base, kind)}"
                if kind != TXN_INDEX or disk.exists(name + SWAP):
                    disk.rename(name + SWAP, name)
        except OSError as error:
            raise log.directory.lost(error, f"swapping in compacted segments of {log.tp}") from error
        new = Segment(cleaned.segment.base, cleaned.segment.size, cleaned.segment.modified_ms)
        new.max_timestamp = cleaned.segment.max_timestamp
        new.max_timestamp_offset = cleaned.segment.max_timestamp_offset
        self._unswapped = None
        log.segments.replace(old, new)
        if cleaned.removed >= 0:
            log.removal_mark.removed()

    def finish(self, log: Log) -> None:
        """End a complete pass: everything that it mapped is clean."""
        assert log.cleaning is self, f"{log.tp} is not being compacted by this pass"
        log.cleaning = None
        log.cleaned_to = max(log.cleaned_to, min(self._mapped_to, self.end))

    def run(self, log: Log, trash: Trash) -> None:
        """Run the whole pass, waiting for the disk: for tools and tests."""
        self.build_map()
        for group in self.groups():
            self.swap(log, self.clean(group), trash)
        self.finish(log)

    def abandon(self, log: Log) -> None:
        """Cancel the pass. Groups that were swapped in stay, and the next pass begins where this one did.

        A group that is not swapped in is removed: the next start would swap it in for segments that have changed.
        """
        if log.cleaning is self:
            log.cleaning = None
        unswapped, self._unswapped = self._unswapped, None
        if unswapped is not None and log.directory.offline is None:
            try:
                discard_swap(log.directory.disk, log.path, unswapped.segment.base)
            except OSError as error:
                log.directory.failed(error, f"cancelling a compaction of {log.tp}")

    def truncating(self, log: Log, offset: Offset) -> None:
        """The log is about to be truncated: give the pass up if it reads or replaces what is cut."""
        if offset < self.end:
            self.abandon(log)


def without_producer(header: BatchHeader) -> BatchHeader:
    """The header of a batch that stays for its offsets alone: its producer, or transaction, needs it no more."""
    return header._replace(attributes=0, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH, base_sequence=-1)


def is_abort(batch: BatchAt) -> bool:
    """Whether a control batch is an abort marker."""
    with readable(batch):
        return any(parse_marker(record)[0] == ABORT_MARKER for record in decode_records(batch.data))


def keys_of(batch: BatchAt) -> Iterator[RecordKey]:
    """The keys of a batch's records; `BadBatch` where a codec cannot read them."""
    with readable(batch):
        yield from batch_keys(batch.data)


@contextlib.contextmanager
def readable(batch: BatchAt) -> Generator[None]:
    """Raise `BadBatch` for records that contradict their header although the checksum is right."""
    try:
        yield
    except (Malformed, UnsupportedCompression) as error:
        raise BadBatch(batch.position, batch.header.base_offset, f"its records cannot be read: {error}") from error


def plan(
    log: Log,
    now_ms: int,
    *,
    stable: Offset,
    keys_max: int,
    committed: Offset | None = None,
    throttle: Throttle | None = None,
) -> Compaction | None:
    """A pass over a log if it needs one now, otherwise None. Records from `stable`, the last stable offset, on stay.

    `committed` is the high watermark, where that is known to be further.
    The log is marked as being compacted until the pass is finished or abandoned.
    """
    config = log.config
    if "compact" not in config.cleanup_policy or log.cleaning is not None or log.cleaned_to >= log.log_end:
        return None
    view = log.view()
    if len(view.segments) < 2 or not log.txn_index.save():
        return None
    first = view.segments[0].base
    # An offset outside of the log is from before a truncation: everything is dirty again.
    dirty_from = log.cleaned_to if first <= log.cleaned_to <= log.log_end else first
    lag_ms = config.min_compaction_lag_ms
    # Without a lag every record may be compacted, also one whose timestamp is in the future.
    end = cleanable_end(view, dirty_from, min(stable, log.log_end), now_ms - lag_ms if lag_ms else TIMESTAMP_MAX)
    if end <= dirty_from:
        return None
    ends = [segment.base for segment in view.segments[1:]] + [view.log_end]
    below = [(segment, upto) for segment, upto in zip(view.segments, ends, strict=True) if upto <= end]
    dirty = [segment for segment, upto in below if upto > dirty_from]
    dirty_bytes = sum(segment.size for segment in dirty)
    all_bytes = sum(segment.size for segment, _ in below)
    if dirty_bytes == 0:
        return None
    if dirty_bytes / all_bytes <= config.min_cleanable_dirty_ratio and not is_overdue(
        view, dirty, now_ms - config.max_compaction_lag_ms
    ):
        return None
    producers = log.producers() if log.producers is not None else ()
    compaction = Compaction(
        view,
        config,
        dirty_from=dirty_from,
        end=end,
        committed=stable if committed is None else committed,
        now_ms=now_ms,
        keys_max=keys_max,
        producers=producers,
        removal_mark=log.removal_mark,
        throttle=throttle,
    )
    log.cleaning = compaction
    return compaction


def cleanable_end(view: LogView, dirty_from: Offset, stable: Offset, young_ms: int) -> Offset:
    """End of the part that may be compacted: finished segments, stable, without records that are too young."""
    end = view.segments[0].base
    for segment, following in zip(view.segments, view.segments[1:], strict=False):
        if following.base > stable:
            break
        if following.base > dirty_from and view.newest(segment)[0] > young_ms:
            break
        end = following.base
    return end


def is_overdue(view: LogView, dirty: list[SegmentView], old_ms: int) -> bool:
    """Whether a record has waited longer than the greatest lag, counted from each segment's first batch."""
    if old_ms < 0:
        return False
    for segment in dirty:
        file = view.file(segment, LOG)
        header = file.pread(HEADER_BYTES, 0) if file is not None else b""
        if len(header) == HEADER_BYTES and 0 <= BatchHeader._make(HEADER.unpack(header)).max_timestamp < old_ms:
            return True
    return False
