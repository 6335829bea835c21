"""What a log keeps on disk of its producers: their last batches, and how their transactions ended."""

from typing import NamedTuple


class ProducerSnapshot(NamedTuple):
    """One producer as Kafka's snapshot file has it, in its order of fields. No open transaction is -1."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class CompletedTxn(NamedTuple):
    """A transaction its marker has just ended; aborted ones go to the index that readers of committed data consult."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable: int
