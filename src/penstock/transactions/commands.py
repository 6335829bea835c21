"""The commands of the transaction coordinator and their replies, independent of the wire format.

If a request fails, the response is the error itself. Errors are those of the newest version of a request; `old_clients`
translates them for older clients.
"""

from dataclasses import dataclass

from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition
from penstock.transactions.state import NO_EPOCH, NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """InitProducerId: fences the previous producer of the transactional id and aborts its open transaction.

    A producer that sends its producer id and epoch asks for a new epoch, and is rejected if it has been replaced.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_EPOCH
    two_phase_commit: bool = False
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInitialized:
    """The producer id and epoch for the producer's next writes."""

    producer_id: ProducerId
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Add partitions to a producer's transaction; the first ones begin it.

    Also for the offsets of a group (its partition of `__consumer_offsets`), and on behalf of a client with transaction
    version 2, whose first produce request to a partition adds it. `transaction_version` is FIRST_VERSION or
    BUMPING_VERSION.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """All of the partitions are part of the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Check whether these partitions are part of the producer's transaction; changes nothing."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsVerified:
    """The partitions that are not part of it: a produce request for one of them fails with TRANSACTION_ABORTABLE."""

    missing: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Commit or abort a transaction. `transaction_version` follows from the request's version."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    commit: bool
    transaction_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The outcome is decided; the producer id and epoch are those of its next transaction."""

    producer_id: ProducerId
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """From the context to its shard: the markers of the `WriteMarkers` with these ids and epoch are written."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """The transaction is complete, or already was."""


TxnCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | MarkersWritten
