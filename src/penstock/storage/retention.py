"""Retention: drops segments before the log start, segments too old, and segments that make the log too large.

Whole segments are dropped, oldest first, and only committed ones. The active segment is rolled first if it has to go.
"""

from collections.abc import Callable

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import Offset
from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.storage.segment_age import confirm_age
from penstock.storage.trash import Trash


def may_be_due(log: Log, now_ms: int) -> bool:
    """Whether retention may have something to drop; false spares opening a log that is not in use."""
    if log.size_bytes == 0:
        return False
    if log.opened:
        return True
    config = log.config
    if "delete" not in config.cleanup_policy:
        return False
    if 0 <= config.retention_bytes < log.size_bytes:
        return True
    return config.retention_ms >= 0 and now_ms - log.oldest_ms > config.retention_ms


def retain(log: Log, now_ms: int, *, committed: Offset, trash: Trash) -> int:
    """Apply a topic's retention below the high watermark, `committed`; returns how many segments were dropped."""
    if not may_be_due(log, now_ms):
        return 0
    log.open()
    config = log.config
    consume = "consume" in config.cleanup_policy
    goes = consumed(log, config.dedupe_window_records) if consume else unreadable(log)
    dropped = drop_while(log, goes, committed, trash)
    if "delete" not in config.cleanup_policy:
        return dropped
    if config.retention_bytes >= 0:
        dropped += drop_while(log, surplus(log, config.retention_bytes), committed, trash)
    if config.retention_ms >= 0:
        dropped += drop_while(log, expired(log, now_ms - config.retention_ms), committed, trash)
    return dropped


Verdict = Callable[[Segment, int], bool]
"""Whether to drop a segment, given the offset at which it ends."""


def unreadable(log: Log) -> Verdict:
    """Segments that end before the log starts: DeleteRecords moved the start."""
    return lambda segment, end: end <= log.log_start and segment is not log.segments[-1]


def consumed(log: Log, window_records: int) -> Verdict:
    """Segments that a group has consumed, also the newest: a queue that is empty takes no space.

    The last `window_records` offsets stay: their message ids are needed for as long.
    """
    keep_from = min(log.log_start, log.log_end - window_records)
    return lambda segment, end: end <= keep_from


def surplus(log: Log, bytes_max: int) -> Verdict:
    """Segments that the log can drop without falling below `bytes_max`."""
    over = log.size_bytes - bytes_max

    def goes(segment: Segment, _: int) -> bool:
        nonlocal over
        over -= segment.size
        return over >= 0

    return goes


def expired(log: Log, horizon_ms: int) -> Verdict:
    """Segments whose newest record is older than the horizon.

    The time index may be damaged: the log itself has to confirm the age of a segment before it is dropped.
    """
    disk, path = log.directory.disk, log.path

    def goes(segment: Segment, _: int) -> bool:
        if segment.age_timestamp(disk, path) >= horizon_ms:
            return False
        confirm_age(log, segment)
        return segment.age_timestamp(disk, path) < horizon_ms

    return goes


def drop_while(log: Log, verdict: Verdict, committed: Offset, trash: Trash) -> int:
    """Drop segments from the oldest on while the verdict holds."""
    # Segments that are being compacted wait for the next round.
    if log.cleaning is not None:
        return 0
    segments = log.segments.describe()
    count = 0
    for at, segment in enumerate(segments):
        newest = at == len(segments) - 1
        end = log.log_end if newest else segments[at + 1].base
        if end > committed or (newest and segment.size == 0) or not verdict(segment, end):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(segments):
        try:
            log.roll()
        except KafkaStorageError:
            # The disk is too full for a new segment: drop all but the active one.
            log.directory.check()
            count -= 1
    due_ms = log.clock.now_ms() + log.config.file_delete_delay_ms
    for path in log.drop_oldest(count):
        trash.add(path, due_ms)
    return count
