"""Names of the files and directories of a log, as in Kafka."""

import re

from penstock.model.ids import Offset, TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"

CLEANED = ".cleaned"
"""Being written by a compaction; removed after a crash."""
SWAP = ".swap"
"""Finished and about to replace the segments it was made from; swapped in after a crash."""
DELETED = ".deleted"
"""Dropped, and kept for `file.delete.delay.ms`: readers may have it open."""
QUARANTINED = ".quarantined"
"""Damaged, and kept for an operator; never changed or removed."""

EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

GAPS = "offset-gaps"
"""An empty file in a log with gaps between batches: it was compacted, or damage was removed. In a log without the file,
a batch that does not begin where its predecessor ended is damaged."""

REMOVAL_MARK = "removal-mark.json"
"""Up to where compaction has removed tombstones and transaction markers."""

DELETE_DIRECTORY = "-delete"
FUTURE_DIRECTORY = "-future"
STRAY_DIRECTORY = "-stray"
"""A second copy of a log, set aside and kept for an operator."""
SEGMENT_FILES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

OFFSET_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
PARTITION_NAME = re.compile(r"(.+)-(\d+)")
NAME_BYTES_MAX = 255


def offset_name(offset: Offset, kind: str) -> str:
    return f"{offset:020d}{kind}"


def parse_offset_name(name: str) -> tuple[Offset, str] | None:
    """The offset and the kind of a segment's file; None when the name is not of that form."""
    found = OFFSET_NAME.fullmatch(name)
    return (Offset(int(found[1])), found[2]) if found else None


def partition_name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition of a directory; None for a directory being deleted or moved, or with another name."""
    if name.endswith((DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY)):
        return None
    found = PARTITION_NAME.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def marked_name(tp: TopicPartition, mark: str, unique: str) -> str:
    """The name of a directory being deleted, moved or set aside; a long topic name is shortened to fit."""
    tail = f"-{tp.partition}.{unique}{mark}"
    return tp.topic[: NAME_BYTES_MAX - len(tail)] + tail
