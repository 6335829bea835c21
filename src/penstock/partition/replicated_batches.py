"""Checks of the batches that a follower receives from its leader, before they are appended as they are."""

from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from penstock.model.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from penstock.model.generated_errors import CorruptMessage
from penstock.model.ids import LeaderEpoch, Offset


class UnexpectedBatch(CorruptMessage):
    """A leader's batch does not continue the follower's log."""


class SoundBatches(NamedTuple):
    """The batches of a response that continue a log."""

    batches: memoryview
    base: Offset
    """The base offset of the first one; the log end where there is none."""
    fault: str | None
    """Why the batch after them does not continue the log; None where there is none."""


def sound_batches(
    records: memoryview, *, log_start: Offset, log_end: Offset, epoch_min: LeaderEpoch, epoch_max: LeaderEpoch
) -> SoundBatches:
    """The leader's batches that continue a log from `log_start` to `log_end`.

    Epochs lie between that of the log's last batch and that of the leader, and offsets rise; a compacted log has gaps.
    Only an empty log may continue with a batch that begins before it: the log start may lie within a batch. A partial
    batch at the end, which a limit on bytes leaves, is dropped.
    """
    size_all = len(records)
    position, expected, epoch = 0, log_end, epoch_min
    first_base = log_end
    fault: str | None = None
    while position + HEADER_BYTES <= size_all:
        base, length, batch_epoch, magic, crc, _, last, *_ = HEADER.unpack_from(records, position)
        end = position + length + PREFIX_BYTES
        if length + PREFIX_BYTES < HEADER_BYTES or magic != MAGIC or last < 0:
            fault = f"magic {magic}, {length} bytes, last offset delta {last}"
            break
        if end > size_all:
            break
        if base < expected and not (position == 0 and log_start == log_end and base + last >= log_end):
            fault = f"offset {base} where {expected} should follow"
            break
        if not epoch <= batch_epoch <= epoch_max:
            fault = f"leader epoch {batch_epoch}, not within {epoch} and {epoch_max}"
            break
        if crc32c(records[position + ATTRIBUTES_AT : end]) != crc:
            fault = "wrong checksum"
            break
        if position == 0:
            first_base = Offset(base)
        position, expected, epoch = end, Offset(base + last + 1), LeaderEpoch(batch_epoch)
    return SoundBatches(records[:position], first_base, fault)
