"""What a coordinator of transactions can be asked, and how it responds, in its own terms.

A request that fails is answered with the error itself. Errors are those of the newest version of a request; what older
clients get instead is in `old_clients`.
"""

from dataclasses import dataclass

from penstock.model.ids import TopicPartition
from penstock.transactions.state import NO_EPOCH, NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """Make me the producer of this id: whoever was it before is fenced, and its open transaction aborted.

    A producer that names its id and epoch asks for a new epoch of its own, and is refused if it has been replaced.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    two_phase_commit: bool = False
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInitialized:
    """What a producer writes as from now on."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """These partitions belong to my transaction, which begins with the first of them.

    Also for the offsets of a group (its partition of `__consumer_offsets`), and for a broker that got records of a
    client with transaction version 2, which announces nothing. `transaction_version` is FIRST_VERSION or
    BUMPING_VERSION.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """They are part of the transaction, all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Are these partitions part of this producer's transaction? Nothing is changed."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsVerified:
    """Which of the partitions are not part of it: a record for one of them fails with TransactionAbortable."""

    missing: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Commit what was written, or abort it. `transaction_version` is that of the request's version."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    transaction_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The outcome is decided, and what the producer writes its next transaction as."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """From the context to its shard: a `WriteMarkers` with this id, producer id and epoch has been carried out."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class MarkersNoted:
    """The transaction is complete, or was before."""


TxnCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | MarkersWritten
TxnReply = ProducerInitialized | PartitionsAdded | PartitionsVerified | TransactionEnded | MarkersNoted
