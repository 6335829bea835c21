"""Confirms the age of a segment in its log, before retention drops it because of its time index.

A time index that lost pages, or its end, makes a segment look older than it is. The check reads the two ends that
matter: the batch that the last entry names, and the batches after the last entry of the offset index. What fails it is
rebuilt from the whole segment.
"""

from penstock.model.batch import HEADER, HEADER_BYTES, BatchHeader
from penstock.storage.disk import Disk
from penstock.storage.log import Log
from penstock.storage.names import LOG, OFFSET_INDEX
from penstock.storage.offset_index import OffsetIndexFile
from penstock.storage.recovery import Finding
from penstock.storage.scan import SegmentScan
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.walk import BadBatch, find, walk


def confirm_age(log: Log, segment: Segment) -> None:
    """Correct the greatest timestamp of a finished segment if it comes from an index that contradicts the log."""
    if not segment.timestamp_read:
        return
    directory = log.partition_directory
    try:
        if not agrees(segment, directory.disk, directory.path):
            correct(log, segment)
    except FileNotFoundError:
        # A segment without its log file has no record to keep.
        pass
    except OSError as error:
        raise directory.failed(error, f"reading the timestamps of {directory.tp}") from error
    segment.timestamp_read = False


def agrees(segment: Segment, disk: Disk, path: str) -> bool:
    """Whether a batch has the timestamp of the last index entry, and no batch after the indexed ones a greater one."""
    file = disk.open_read(segment.path(path, LOG))
    try:
        entries = disk.open_read(segment.path(path, OFFSET_INDEX))
    except FileNotFoundError:
        return False
    index = OffsetIndexFile(entries, entries.size())
    newest, offset = segment.max_timestamp, segment.max_timestamp_offset
    try:
        if newest != NO_TIMESTAMP:
            found = find(file, index.floor(offset - segment.base, wait=True), segment.size, offset, wait=True)
            if found is None:
                return False
            header = BatchHeader._make(HEADER.unpack(file.pread(HEADER_BYTES, found[0])))
            if header.max_timestamp != newest:
                return False
        rest = walk(file, index.last_position(), segment.size, offset_min=segment.base, bodies=False)
        return all(batch.header.max_timestamp <= newest for batch in rest)
    except BadBatch:
        return False


def correct(log: Log, segment: Segment) -> None:
    """Take the greatest timestamp from the batches, and rebuild the indexes. Reads every header of the segment."""
    directory = log.partition_directory
    disk, path = directory.disk, directory.path
    scan = SegmentScan(segment.base)
    scan.run(disk.open_read(segment.path(path, LOG)), segment.size, log.config.index_interval_bytes, verify=False)
    claimed = segment.max_timestamp
    segment.max_timestamp, segment.max_timestamp_offset = scan.max_timestamp, scan.max_timestamp_offset
    if scan.bad is not None:
        # The records behind the damage are at most as old as the file.
        segment.max_timestamp = max(scan.max_timestamp, segment.modified_ms)
    detail = f"the time index said {claimed}, the batches say {segment.max_timestamp}"
    directory.report(Finding(event="indexes_rebuilt", path=path, offset=segment.base, detail=detail))
    if scan.bad is not None:
        return
    try:
        scan.replace(disk, path)
    except OSError as error:
        directory.log_directory.failed(error, f"saving an index of {directory.tp}")
    log.segments.forget(segment)
