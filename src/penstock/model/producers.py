"""The producer state that a log keeps on disk: last batches, and completed transactions."""

from typing import NamedTuple

from penstock.model.ids import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId


class ProducerSnapshot(NamedTuple):
    """One producer in Kafka's snapshot file, in its order of fields. Without an open transaction the offset is -1."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int
    coordinator_epoch: CoordinatorEpoch
    txn_first_offset: Offset


class CompletedTxn(NamedTuple):
    """A transaction that its marker has just ended; aborted ones go to the transaction index."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool
    last_stable: Offset
