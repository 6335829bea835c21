"""Transaction verification: the coordinator confirms, before a write, that the partition is in the transaction.

Clients before transaction version 2 add their partitions first, and are verified. For later ones the broker adds the
partitions that they write to. The error of a failure depends on the errors that the client's version knows.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.coordinator_requests import submit
from penstock.coordinator.step import Result
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)
from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition
from penstock.partition.replica import VerifyTxn
from penstock.transactions.commands import AddPartitions
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import BUMPING_VERSION

PRODUCE_ABORTABLE_FROM = 11
PRODUCE_ADDS_FROM = 12
OFFSETS_ABORTABLE_FROM = 4
OFFSETS_ADD_FROM = 5
"""First versions of Produce and of TxnOffsetCommit whose clients know TransactionAbortable, and that add partitions."""

COORDINATOR_AWAY = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class TxnVerification:
    """Verifies with the coordinators of this broker."""

    def __init__(self, *, coordinators: TxnCoordinatorService, enabled: Callable[[], bool]) -> None:
        """`enabled` says whether clients that add their partitions themselves are verified at all."""
        self._coordinators = coordinators
        self._enabled = enabled

    def of_produce(self, transactional_id: str, version: int, refusal: BrokerError | None = None) -> VerifyTxn:
        """The verification of a transaction's first batch in a partition; a `refusal` is known beforehand."""
        adds = version >= PRODUCE_ADDS_FROM
        abortable = version >= PRODUCE_ABORTABLE_FROM

        def verify_txn(tp: TopicPartition, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
            error: Eventual[BrokerError | None] = refusal
            if refusal is None and (adds or self._enabled()):
                error = self._coordinators.verify(transactional_id, tp, producer_id, epoch)
            # A replica verifies in the middle of an append: another broker's coordinator would have to respond before.
            assert not isinstance(error, Deferred), "the coordinator is on this broker"
            if error is not None:
                raise error_for_producer(error, abortable=abortable, adds=adds)
            return adds

        return verify_txn

    def check_offsets(
        self,
        transactional_id: str,
        place: TopicPartition,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        version: int,
        refusal: BrokerError | None = None,
    ) -> Eventual[BrokerError | None]:
        """Why a transaction may not commit offsets to a partition of `__consumer_offsets`; None if it may."""
        adds = version >= OFFSETS_ADD_FROM

        def error_for_committer(error: BrokerError) -> BrokerError:
            produce_error = error_for_producer(error, abortable=version >= OFFSETS_ABORTABLE_FROM, adds=adds)
            # The group coordinator reports its own availability, not that of its log.
            return CoordinatorNotAvailable() if isinstance(produce_error, NotEnoughReplicas) else produce_error

        if not adds and not self._enabled():
            return None
        if refusal is not None:
            return error_for_committer(refusal)
        verified = self._coordinators.verify(transactional_id, place, producer_id, epoch)
        return after(verified, lambda error: None if error is None else error_for_committer(error))

    def add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        partitions: tuple[TopicPartition, ...],
    ) -> Eventual[BrokerError | None]:
        """Add partitions to a transaction; returns the error if that fails."""
        command = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=partitions,
            transaction_version=BUMPING_VERSION,
        )
        return submit(self._coordinators, transactional_id, command, refusal_in)


def refusal_in(result: Result) -> BrokerError | None:
    return result if isinstance(result, BrokerError) else None


def error_for_producer(error: BrokerError, *, abortable: bool, adds: bool) -> BrokerError:
    """The error for a producer whose partition is not in its transaction, as its version knows it.

    Older producers do not know the errors of a busy or missing coordinator; they retry after NotEnoughReplicas.
    """
    match error:
        case ProducerFenced():
            return InvalidProducerEpoch()
        case TransactionAbortable() if not abortable:
            return InvalidTxnState("Partition was not added to the transaction")
        case ConcurrentTransactions() if not adds:
            return NotEnoughReplicas()
        case _:
            return NotEnoughReplicas() if isinstance(error, COORDINATOR_AWAY) else error
