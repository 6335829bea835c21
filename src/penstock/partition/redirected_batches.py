"""Batches of partitions that are drained and resume: restamped for the target, empty for what the target has."""

from penstock.model.batch import CRC_AT, PRODUCER_ID_AT
from penstock.model.ids import ProducerId
from penstock.partition.redirect import AdoptedBatch
from penstock.wire.records import RecordBatchBuilder, crc_of

PRODUCER_ID_BYTES = 8
CRC_BYTES = 4


def restamped(batch: memoryview, producer_id: ProducerId) -> bytearray:
    """A copy of the batch with another producer id, and the checksum that it needs."""
    copied = bytearray(batch)
    copied[PRODUCER_ID_AT : PRODUCER_ID_AT + PRODUCER_ID_BYTES] = producer_id.to_bytes(
        PRODUCER_ID_BYTES, "big", signed=True
    )
    copied[CRC_AT : CRC_AT + CRC_BYTES] = crc_of(copied, 0, len(copied)).to_bytes(CRC_BYTES, "big")
    return copied


def empty_batch(adopted: AdoptedBatch) -> bytearray:
    """A batch without records, as compaction leaves it: the producer's epoch and sequences, at offsets of their own."""
    return RecordBatchBuilder().build(
        producer_id=adopted.producer_id,
        producer_epoch=adopted.epoch,
        base_sequence=adopted.base_sequence,
        last_offset_delta=adopted.last_offset_delta,
        max_timestamp_ms=adopted.timestamp,
    )
