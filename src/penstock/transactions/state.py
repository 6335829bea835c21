"""The state of one transactional id, an immutable value.

The value is also the record: the coordinator's state is the last record of each id.
"""

from dataclasses import dataclass
from enum import Enum

from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition

NO_PRODUCER_ID = ProducerId(-1)
NO_EPOCH = ProducerEpoch(-1)
NO_START_MS = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()

PRODUCER_EPOCH_MAX = ProducerEpoch(32_767)
"""The largest 16-bit epoch. No producer gets it: it is reserved to fence the producer with the epoch before."""

TIMEOUT_MS_NEVER = 2_147_483_647
"""The timeout of a transaction that only its producer ends (two-phase commit)."""

FIRST_VERSION = 0
"""Clients that add partitions explicitly, and keep their epoch from one transaction to the next."""
BUMPING_VERSION = 2
"""Transaction version 2: the end of a transaction bumps the producer's epoch, so that a delayed request cannot become
part of the next one."""


class TxnState(Enum):
    """The state of a transaction: its number in records, and its name in tools."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label

    @property
    def prepared(self) -> bool:
        """Whether the outcome is decided, for good, and the markers are being written."""
        return self is TxnState.PREPARE_COMMIT or self is TxnState.PREPARE_ABORT

    @property
    def resting(self) -> bool:
        """Whether no transaction is in progress."""
        return self is TxnState.EMPTY or self is TxnState.COMPLETE_COMMIT or self is TxnState.COMPLETE_ABORT


STATE_BY_NUMBER = {state.number: state for state in TxnState}
STATE_BY_LABEL = {state.label: state for state in TxnState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, its producer, and its current or last transaction.

    `last_epoch` is the epoch before the last bump that the producer itself requested, which tells a retry of that
    request from a zombie. Kafka's records do not have it: after a load it is NO_EPOCH.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    state: TxnState
    updated_ms: int
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last change, usually the same."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id for after this transaction, if the epochs of the current one are exhausted."""
    last_epoch: ProducerEpoch = NO_EPOCH
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    started_ms: int = NO_START_MS
    version: int = FIRST_VERSION
    """The transaction version of the client that changed it last."""

    @property
    def exhausted(self) -> bool:
        """Whether no epoch is left for a producer."""
        return self.epoch >= PRODUCER_EPOCH_MAX - 1
