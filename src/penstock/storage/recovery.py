"""Recovery: loads a log's directory and repairs it after a crash.

In order: remove leftovers of deletions and compactions, finish complete swaps, remove indexes without a segment,
rebuild missing indexes. After an unclean stop, verify the batches from the recovery point on, and truncate the log at
the first damaged one, unless records after it were committed: those are kept (see `quarantine`).

A log that other brokers have too is truncated in any case: it copies the rest from its leader, and must not pretend to
hold what it lacks.
"""

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from penstock.model.ids import OFFSET_ZERO, LeaderEpoch, Offset
from penstock.storage import producer_snapshot, quarantine
from penstock.storage.checkpoint import CheckpointDamaged
from penstock.storage.disk import Disk, FileStat
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.names import (
    CLEANED,
    DELETED,
    EPOCHS,
    GAPS,
    LOG,
    OFFSET_INDEX,
    QUARANTINED,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_name,
)
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.scan import SegmentScan
from penstock.storage.segment import Segment
from penstock.storage.segment_files import mark_gaps, remove_segment
from penstock.storage.time_index import TimeIndex
from penstock.storage.walk import GAP_MAX, BadBatch, walk

PROCESS_CRASH_RESCAN_BYTES = 1024 * 1024
"""Bytes of the newest segment that are read again when only the process died: the kernel still has all completed
writes, so only the last one can be torn. The margin covers missing index entries, and changes by other programs."""

RELATIVE_OFFSETS = 2**31


class Stop(Enum):
    """How the last broker on the log stopped."""

    CLEAN = "clean"
    PROCESS_CRASH = "process crash"
    """The process died and the machine did not: every completed write is in the page cache."""
    MACHINE_CRASH = "machine crash"
    """Anything that was not fsynced may be missing, in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about a log that an operator should know."""

    event: str
    path: str
    offset: Offset
    detail: str
    serious: bool = False
    """Whether records that were committed are lost or set aside."""
    restorable: bool = False
    """Whether other brokers have them."""


@dataclass(slots=True, kw_only=True)
class Loaded:
    """The result of loading a log's directory."""

    segments: list[Segment]
    log_start: Offset
    log_end: Offset
    epochs: LeaderEpochs
    findings: list[Finding]


def load(
    disk: Disk,
    path: str,
    *,
    stop: Stop,
    log_start: Offset,
    recovery_point: Offset,
    high_watermark: Offset,
    interval: int,
    whole: bool = False,
    replicated: bool = False,
) -> Loaded:
    """Load a partition's directory and repair it. `OSError` when the disk fails.

    With `whole` every batch is verified, also after a clean stop. A `replicated` log has copies on other brokers.
    """
    recovery = Recovery(disk, path, interval, high_watermark, whole=whole, replicated=replicated)
    try:
        return recovery.load(stop, log_start, recovery_point)
    except BadBatch as damage:
        if whole:
            raise
        # A crash cannot damage this part, so it is bit rot: the batches after it may have been read.
        end = max(high_watermark, recovery.end)
        again = Recovery(disk, path, interval, end, whole=True, replicated=replicated)
        again.findings = [*recovery.findings, recovery.finding("damage_found", damage.offset, str(damage))]
        return again.load(stop, log_start, recovery_point)


class Recovery:
    """The loading of one directory."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        interval: int,
        high_watermark: Offset,
        *,
        whole: bool = False,
        replicated: bool = False,
    ) -> None:
        self.replicated = replicated
        self.disk = disk
        self.path = path
        self.interval = interval
        self.high_watermark = high_watermark
        self.whole = whole
        self.end = OFFSET_ZERO
        """Where the segments end, once they are loaded."""
        self.findings: list[Finding] = []
        self.segments: list[Segment] = []
        self.epochs_met: list[tuple[LeaderEpoch, Offset]] = []
        self.gap_max = 0
        """Offsets that may be missing between two batches."""

    def load(self, stop: Stop, log_start: Offset, recovery_point: Offset) -> Loaded:
        names = self._tidy(self.disk.list_directory(self.path))
        self.gap_max = GAP_MAX if GAPS in names else 0
        self.end = self._load_segments(names, stop, recovery_point)
        log_end = max(self.end, log_start if not self.segments else OFFSET_ZERO)
        if self.replicated:
            known_end = max(self.high_watermark, recovery_point)
            if log_end < known_end:
                detail = f"records up to {known_end} are not on the disk, and are copied from the leader"
                self._report_lost("replica_records_missing", log_end, detail)
                log_start = min(log_start, log_end)
        elif (stop is not Stop.CLEAN or self.whole) and log_end < self.high_watermark:
            self._keep_offsets(log_end)
            log_end = self.high_watermark
        if log_end < log_start:
            # Only committed records are deleted, so that a log never ends before its start.
            detail = f"the checkpoint says that the log starts at {log_start}, and it ends at {log_end}"
            self._report("log_start_distrusted", log_start, detail, serious=True)
            log_start = self.segments[0].base
        elif self.segments:
            log_start = max(log_start, self.segments[0].base)
        epochs = self._load_epochs(stop, log_start, log_end)
        if stop is not Stop.CLEAN and any(name.endswith(SNAPSHOT) for name in names):
            # Beyond the recovery point a power cut may have lost entries of the transaction index: replay finds them.
            trusted_end = min(log_end, recovery_point) if stop is Stop.MACHINE_CRASH else log_end
            producer_snapshot.prune(self.disk, self.path, log_end=trusted_end, settled=recovery_point)
        return Loaded(
            segments=self.segments, log_start=log_start, log_end=log_end, epochs=epochs, findings=self.findings
        )

    def finding(self, event: str, offset: Offset, detail: str, *, serious: bool = False) -> Finding:
        return Finding(event=event, path=self.path, offset=offset, detail=detail, serious=serious)

    def _report(self, event: str, offset: Offset, detail: str, *, serious: bool = False) -> None:
        self.findings.append(self.finding(event, offset, detail, serious=serious))

    def _report_lost(self, event: str, offset: Offset, detail: str) -> None:
        """Report records that this replica has lost, and others have."""
        self.findings.append(replace(self.finding(event, offset, detail, serious=True), restorable=True))

    # Leftovers of a crash

    def _tidy(self, names: list[str]) -> set[str]:
        """Remove or finish everything unfinished; returns the names that remain."""
        kept: set[str] = set()
        for name in names:
            if name.endswith((DELETED, CLEANED, ".tmp")):
                self.disk.unlink(f"{self.path}/{name}")
            else:
                kept.add(name)
        swaps = sorted(name.removesuffix(SWAP) for name in kept if name.endswith(SWAP))
        if swaps:
            kept = self._finish_swaps(swaps, kept)
        for name in sorted(kept):
            found = parse_offset_name(name)
            if found is not None and found[1] in SEGMENT_FILES and offset_name(found[0], LOG) not in kept:
                self.disk.unlink(f"{self.path}/{name}")
                kept.discard(name)
        return kept

    def _finish_swaps(self, swaps: list[str], names: set[str]) -> set[str]:
        """Finish the complete swaps, which have a `.log.swap` file: each replaces the segments it covers."""
        for base in [found[0] for name in swaps if (found := parse_offset_name(name)) is not None and found[1] == LOG]:
            log = f"{self.path}/{offset_name(base, LOG)}"
            scan = SegmentScan(base)
            stat = self.disk.stat(log + SWAP)
            scan.run(self.disk.open_read(log + SWAP), stat.size, self.interval, verify=True)
            if scan.bad is not None:
                # It was fsynced before the rename, so a crash cannot have damaged it: keep it for the operator.
                self._report("swap_damaged", base, str(scan.bad), serious=True)
                self.disk.rename(log + SWAP, log + SWAP + QUARANTINED)
                continue
            for other in bases_of(names):
                if base <= other < max(scan.next_offset, base + 1):
                    remove_segment(self.disk, self.path, other)
            txn = f"{self.path}/{offset_name(base, TXN_INDEX)}"
            if self.disk.exists(txn + SWAP):
                self.disk.rename(txn + SWAP, txn)
            scan.save(self.disk, self.path, stat.modified_ms, sync=True)
            self.disk.rename(log + SWAP, log)
            self._report("swap_finished", base, f"{scan.size} bytes, to offset {scan.next_offset}")
        for name in swaps:
            if self.disk.exists(f"{self.path}/{name}{SWAP}"):
                self.disk.unlink(f"{self.path}/{name}{SWAP}")
        return set(self.disk.list_directory(self.path))

    # Segments

    def _load_segments(self, names: set[str], stop: Stop, recovery_point: Offset) -> Offset:
        """Load every segment, verified as the kind of stop requires; returns the log end."""
        bases = bases_of(names)
        end = bases[0] if bases else OFFSET_ZERO
        for at, base in enumerate(bases):
            if base < end:
                self._set_overlap_aside(base, end)
                continue
            following = bases[at + 1] if at + 1 < len(bases) else None
            checked = stop is not Stop.CLEAN and (following is None or following >= recovery_point)
            doubt = Stop.MACHINE_CRASH if self.whole else stop if checked else Stop.CLEAN
            indexed = all(offset_name(base, kind) in names for kind in (OFFSET_INDEX, TIME_INDEX))
            scan, stat = self._scan(base, doubt, following, indexed=indexed)
            if scan is None:
                assert following is not None
                end = following
                segment = Segment(base, stat.size, stat.modified_ms)
                # A killed broker may have left its indexes in the page cache.
                segment.indexes_synced = not checked
                self.segments.append(segment)
                continue
            # A power cut may have kept the next segment and lost the end of this one. In a log with gaps that looks
            # like one more; other brokers have the records. Below the recovery point nothing is lost.
            doubtful = stop is Stop.MACHINE_CRASH and following is not None and following > recovery_point
            gap_max = 0 if self.replicated and doubtful else self.gap_max
            if scan.bad is None and following is not None and following - scan.next_offset > gap_max:
                scan.bad = BadBatch(scan.size, scan.next_offset, f"the next segment begins at {following}")
            # A partial batch that was removed, and that a power cut brought back: no record is missing.
            leftover = scan.bad is not None and scan.next_offset == following and scan.gap_at is None
            if (
                scan.bad is not None
                and not leftover
                and (self._damaged_from(scan) < self.high_watermark or self._is_rot(scan, stop, following))
            ):
                scan = self._before_damage(scan) if self.replicated else self._set_aside(scan, following)
            end = scan.next_offset
            self.epochs_met += scan.epochs
            cut = scan.bad is not None
            if cut:
                self._cut(scan, stat)
            # Flushes visit what was checked, and nothing else.
            self.segments.append(self._describe(scan, stat, sync=cut or not checked))
            if cut and not leftover:
                for later in bases[at + 1 :]:
                    self._report("segment_dropped", later, "it comes after a damaged batch")
                    remove_segment(self.disk, self.path, later)
                break
        return end

    def _scan(
        self, base: Offset, stop: Stop, following: Offset | None, *, indexed: bool
    ) -> tuple[SegmentScan | None, FileStat]:
        """Scan the part of a segment that the stop may have damaged; None when there is none."""
        path = f"{self.path}/{offset_name(base, LOG)}"
        stat = self.disk.stat(path)
        whole = stop is Stop.MACHINE_CRASH
        walked = partial(SegmentScan.run, interval=self.interval, gap_max=self.gap_max, offset_end=following)
        if following is not None and not whole and indexed:
            return None, stat
        file = self.disk.open_read(path)
        scan = SegmentScan(base)
        if not whole:
            margin = PROCESS_CRASH_RESCAN_BYTES if stop is Stop.PROCESS_CRASH else 0
            # One of the two alone cannot say what the other lacks.
            offsets = OffsetIndex.load(self._read_index(base, OFFSET_INDEX) if indexed else b"")
            times = TimeIndex.load(self._read_index(base, TIME_INDEX) if indexed else b"")
            positions = offsets.positions[:]
            last_position = positions[-1] if positions else -1
            last_offset = times.offsets[-1] if len(times) else -1
            if offsets.is_sound() and times.is_sound() and scan.resume(file, stat.size - margin, offsets, times):
                start = scan.size
                walked(scan, file, stat.size, verify=stop is not Stop.CLEAN)
                if scan.bad is None or scan.size > start:
                    # Save the index entries that a crash lost: without them every later search is longer.
                    right = last_position < stat.size and base + last_offset < scan.next_offset and scan.bad is None
                    complete = stop is Stop.CLEAN or scan.offsets.positions == positions
                    needless = stop is Stop.PROCESS_CRASH and not len(scan.offsets)
                    scan.indexed = right and (needless or (complete and indexed))
                    return scan, stat
            scan = SegmentScan(base)
        walked(scan, file, stat.size, verify=True)
        return scan, stat

    def _read_index(self, base: Offset, kind: str) -> bytes:
        return self.disk.read_file(f"{self.path}/{offset_name(base, kind)}")

    def _describe(self, scan: SegmentScan, stat: FileStat, *, sync: bool) -> Segment:
        if scan.indexed:
            segment = scan.segment(stat.modified_ms)
            segment.indexes_synced = False
            return segment
        return scan.save(self.disk, self.path, stat.modified_ms, sync=sync)

    def _cut(self, scan: SegmentScan, stat: FileStat) -> None:
        """Cut off what cannot be read, durably: all before it may be below the recovery point, which no flush visits.

        A power cut would bring the damage back, and the next recovery would not look for it there.
        """
        self._report("log_cut", scan.next_offset, f"{stat.size - scan.size} bytes: {scan.bad}")
        file = self.disk.open(f"{self.path}/{offset_name(scan.base, LOG)}")
        file.truncate(scan.size)
        file.sync()

    def _is_rot(self, scan: SegmentScan, stop: Stop, following: Offset | None) -> bool:
        """Whether sound batches follow the damage although only the process crashed.

        A process crash tears only the last write, so the batches after the damage were appended and may have been read.
        """
        if stop is not Stop.PROCESS_CRASH:
            return False
        if following is not None:
            return True
        path = f"{self.path}/{offset_name(scan.base, LOG)}"
        file, limit = self.disk.open_read(path), Offset(scan.base + RELATIVE_OFFSETS)
        start = scan.size if self.gap_max else scan.size + 1
        return quarantine.next_sound(file, start, file.size(), self._damaged_from(scan), limit) is not None

    def _damaged_from(self, scan: SegmentScan) -> Offset:
        """Where damage may begin: a raised base offset looks like a gap, and the batch after it looks damaged."""
        return scan.floor if self.gap_max else scan.next_offset

    def _set_overlap_aside(self, base: Offset, end: Offset) -> None:
        """Quarantine a segment whose offsets its predecessor covers too, which a crash cannot cause."""
        log = f"{self.path}/{offset_name(base, LOG)}"
        quarantine.keep(self.disk, log)
        detail = f"its predecessor reaches {end}; the file is kept as {offset_name(base, LOG)}{QUARANTINED}"
        self._report("overlap_set_aside", base, detail, serious=True)
        remove_segment(self.disk, self.path, base)

    def _set_aside(self, scan: SegmentScan, following: Offset | None) -> SegmentScan:
        """Quarantine damage among committed records, and scan the sound batches of the segment."""
        limit = following if following is not None else Offset(scan.base + RELATIVE_OFFSETS)
        gap_max = self.gap_max
        self._allow_gaps()
        lost = quarantine.set_aside(self.disk, self.path, scan.base, limit, gap_max)
        name = offset_name(scan.base, LOG) + QUARANTINED
        detail = f"{scan.bad}; {lost} bytes are damaged; the original file is kept as {name}"
        self._report("segment_quarantined", scan.next_offset, detail, serious=True)
        repaired = SegmentScan(scan.base)
        path = f"{self.path}/{offset_name(scan.base, LOG)}"
        repaired.run(self.disk.open_read(path), self.disk.stat(path).size, self.interval, verify=True)
        assert repaired.bad is None, f"{path}: {repaired.bad} after repair"
        return repaired

    def _before_damage(self, scan: SegmentScan) -> SegmentScan:
        """The part of a segment before the damage, to be cut there: the rest is copied from the leader."""
        detail = f"{scan.bad}; everything from here on is copied from the leader"
        self._report_lost("replica_damaged", self._damaged_from(scan), detail)
        if scan.gap_at is None:
            return scan
        # The batch after the gap may be the damaged one: its base offset has no checksum.
        sound = SegmentScan(scan.base)
        path = f"{self.path}/{offset_name(scan.base, LOG)}"
        sound.run(self.disk.open_read(path), scan.gap_at, self.interval, verify=False)
        sound.bad = scan.bad
        return sound

    def _keep_offsets(self, log_end: Offset) -> None:
        """Committed records are missing at the end: continue after them, so that no offset is used twice."""
        self._allow_gaps()
        detail = f"records up to {self.high_watermark} were committed and are not on the disk"
        self._report("committed_records_missing", log_end, detail, serious=True)
        segment = Segment(self.high_watermark, 0, self.segments[-1].modified_ms if self.segments else 0)
        self.disk.open(segment.path(self.path, LOG), create=True)
        self.segments.append(segment)

    def _allow_gaps(self) -> None:
        mark_gaps(self.disk, self.path)
        self.gap_max = GAP_MAX

    def _load_epochs(self, stop: Stop, log_start: Offset, log_end: Offset) -> LeaderEpochs:
        """The epoch file, corrected by the batches that were read; rebuilt from the log if it is missing or damaged."""
        path = f"{self.path}/{EPOCHS}"
        try:
            epochs = LeaderEpochs.load(self.disk, path)
        except CheckpointDamaged as damage:
            self._report("epochs_rebuilt", log_start, str(damage))
            epochs = LeaderEpochs()
        if not len(epochs):
            self._rebuild_epochs(epochs)
        # An epoch is saved before its first batch is written, so only a power cut can lose it.
        if stop is Stop.MACHINE_CRASH:
            for epoch, offset in self.epochs_met:
                epochs.assign(epoch, offset)
        epochs.truncate_to(log_end)
        epochs.delete_before(log_start)
        if epochs.changed:
            epochs.save(self.disk, path, sync=False)
        return epochs

    def _rebuild_epochs(self, epochs: LeaderEpochs) -> None:
        for segment in self.segments:
            if segment.size:
                file = self.disk.open_read(segment.path(self.path, LOG))
                for batch in walk(file, 0, segment.size, offset_min=segment.base, bodies=False):
                    epochs.assign(batch.header.leader_epoch, batch.header.base_offset)


def bases_of(names: set[str]) -> list[Offset]:
    """Base offsets of the segments among a directory's names."""
    return sorted(found[0] for found in map(parse_offset_name, names) if found is not None and found[1] == LOG)
