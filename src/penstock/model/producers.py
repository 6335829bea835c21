"""The producer state that a log keeps on disk: last batches, and completed transactions."""

from typing import NamedTuple


class ProducerSnapshot(NamedTuple):
    """One producer in Kafka's snapshot file, in its order of fields. Without an open transaction the offset is -1."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class CompletedTxn(NamedTuple):
    """A transaction that its marker has just ended; aborted ones go to the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable: int
