"""What is known of one transactional id: a value, of which every change makes another.

The value is also the record: the coordinator's state is always the last one written of each id.
"""

from dataclasses import dataclass
from enum import Enum

from penstock.model.ids import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_START_MS = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()

PRODUCER_EPOCH_MAX = 32_767
"""Epochs are 16 bits wide. The last is never given to a producer: it is kept to fence the one before with."""

TIMEOUT_MS_NEVER = 2_147_483_647
"""The timeout of a transaction that only its producer ends (two-phase commit)."""

FIRST_VERSION = 0
"""Clients that name their partitions beforehand, and keep their epoch from one transaction to the next."""
BUMPING_VERSION = 2
"""Transaction version 2: the end of a transaction gives its producer a new epoch, so that nothing late can be taken
for a part of the next one."""


class TxnState(Enum):
    """Where a transaction is: the number its record has, and the name that tools show."""

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
        """The outcome is decided, for good, and the markers are being written."""
        return self is TxnState.PREPARE_COMMIT or self is TxnState.PREPARE_ABORT

    @property
    def resting(self) -> bool:
        """No transaction is under way."""
        return self is TxnState.EMPTY or self is TxnState.COMPLETE_COMMIT or self is TxnState.COMPLETE_ABORT


STATE_BY_NUMBER = {state.number: state for state in TxnState}
STATE_BY_LABEL = {state.label: state for state in TxnState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id, its producer, and the transaction it is in or was in last.

    `last_epoch` is the epoch before the last bump that a producer asked for itself, which tells a retry of that
    request from a zombie. Kafka's records have no place for it: after a reload it is NO_EPOCH.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id that the id had before the last change, which is mostly the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """What the producer goes on with when this transaction is complete, where its epochs are used up."""
    last_epoch: int = NO_EPOCH
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    started_ms: int = NO_START_MS
    version: int = FIRST_VERSION
    """The transaction version of the client that changed it last."""

    @property
    def exhausted(self) -> bool:
        """There is no epoch left to give away."""
        return self.epoch >= PRODUCER_EPOCH_MAX - 1
