"""The producer state that a log keeps on disk: last batches, and completed transactions."""

from typing import NamedTuple

from penstock.model.ids import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId

DERIVED_BITS = 40
"""A derived producer id has the client's in its lower bits, and the index of a drained partition plus one above them.
"""

PRODUCER_ID_MAX = (1 << DERIVED_BITS) - 1
"""The greatest producer id of a client. At a thousand ids a second they last for 34 years."""

SCHEDULE_IDS_FROM = 3 << 61
"""From here on, a producer id is that of fires of a schedule partition, and has one of a client's range in its lower
bits. Derived ids are below: there are no more than 2^22 partitions."""

EPOCH_MAX = 2**15 - 1


def schedule_producer_id(allocated: ProducerId) -> ProducerId:
    """The producer id under which fires are delivered, from one that was allocated for them."""
    assert 0 <= allocated <= PRODUCER_ID_MAX, f"{allocated} is no allocated producer id"
    return ProducerId(SCHEDULE_IDS_FROM + allocated)


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
