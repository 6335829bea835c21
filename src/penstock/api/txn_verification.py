"""Transaction verification: the coordinator confirms, before a write, that the partition is in the transaction.

Clients before transaction version 2 add their partitions first, and are verified. For later ones the broker adds the
partitions that they write to. The error of a failure depends on the errors that the client's version knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from penstock.partition.replica import Replica
from penstock.partition.verification import NOT_REQUIRED, WAS_OPEN, TxnProof, VerificationGuard
from penstock.transactions.commands import AddPartitions, VerifyPartitions
from penstock.transactions.state import BUMPING_VERSION
from penstock.transactions.verifier import Question, TxnVerifier, Verified

PRODUCE_ABORTABLE_FROM = 11
PRODUCE_ADDS_FROM = 12
OFFSETS_ABORTABLE_FROM = 4
OFFSETS_ADD_FROM = 5
"""First versions of Produce and of TxnOffsetCommit whose clients know TransactionAbortable, and that add partitions."""

COORDINATOR_AWAY = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

FirstBatch = tuple[Replica, VerificationGuard, ProducerEpoch]
"""A batch that may be the first of its transaction in a partition: the guard it was given, and its producer epoch."""


class TxnProofs:
    """The proofs of a Produce request, by partition."""

    __slots__ = ("_asked", "_others")

    def __init__(self, asked: Mapping[TopicPartition, TxnProof], others: TxnProof = WAS_OPEN) -> None:
        self._asked = asked
        self._others = others

    def of(self, tp: TopicPartition) -> TxnProof:
        return self._asked.get(tp, self._others)

    @property
    def are_early(self) -> bool:
        """Whether the transaction before is not complete yet: its markers are being written."""
        return any(isinstance(proof.error, ConcurrentTransactions) for proof in self._asked.values())


ALL_OPEN = TxnProofs({})
NONE_REQUIRED = TxnProofs({}, NOT_REQUIRED)


class TxnVerification:
    """Asks the coordinators about writes of clients, and makes proofs of their responses.

    The caller takes the guards of the partitions before it asks.
    """

    def __init__(self, *, verifier: TxnVerifier, enabled: Callable[[], bool]) -> None:
        """`enabled` says whether clients that add their partitions themselves are verified at all."""
        self._verifier = verifier
        self._enabled = enabled

    def required(self, *, adds: bool) -> bool:
        return adds or self._enabled()

    def of_produce(
        self, transactional_id: str, version: int, first_batches: Sequence[FirstBatch]
    ) -> Eventual[TxnProofs]:
        """The proofs of a request, once the coordinator has verified or added the partitions of these batches."""
        adds = version >= PRODUCE_ADDS_FROM
        abortable = version >= PRODUCE_ABORTABLE_FROM
        by_producer: dict[tuple[ProducerId, ProducerEpoch], list[FirstBatch]] = {}
        for first in first_batches:
            _, guard, epoch = first
            by_producer.setdefault((guard.producer_id, epoch), []).append(first)

        def proofs(responses: list[Verified]) -> TxnProofs:
            asked: dict[TopicPartition, TxnProof] = {}
            for verified, batches in zip(responses, by_producer.values(), strict=True):
                for replica, guard, epoch in batches:
                    error = refusal(verified, replica, guard)
                    if error is not None:
                        error = error_for_producer(error, abortable=abortable, adds=adds)
                    asked[replica.tp] = TxnProof(guard, epoch, adds=adds, error=error)
            return TxnProofs(asked)

        responses: list[Eventual[Verified]] = []
        for producer, batches in by_producer.items():
            partitions = tuple(dict.fromkeys(replica.tp for replica, _, _ in batches))
            responses.append(self._verifier.ask(question(transactional_id, *producer, partitions, adds=adds)))
        return after(Deferred.all(responses), proofs)

    def of_offsets(
        self, transactional_id: str, version: int, replica: Replica, guard: VerificationGuard, epoch: ProducerEpoch
    ) -> Eventual[TxnProof]:
        """The proof of an offset commit to a partition of `__consumer_offsets`."""
        adds = version >= OFFSETS_ADD_FROM

        def proof(verified: Verified) -> TxnProof:
            error = refusal(verified, replica, guard)
            if error is not None:
                error = error_for_producer(error, abortable=version >= OFFSETS_ABORTABLE_FROM, adds=adds)
                if isinstance(error, NotEnoughReplicas):
                    # The group coordinator reports its own availability, not that of its log.
                    error = CoordinatorNotAvailable()
            return TxnProof(guard, epoch, adds=adds, error=error)

        asked = question(transactional_id, guard.producer_id, epoch, (replica.tp,), adds=adds)
        return after(self._verifier.ask(asked), proof)


def question(
    transactional_id: str,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    partitions: tuple[TopicPartition, ...],
    *,
    adds: bool,
) -> Question:
    if adds:
        return AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=partitions,
            transaction_version=BUMPING_VERSION,
        )
    return VerifyPartitions(
        transactional_id=transactional_id, producer_id=producer_id, epoch=epoch, partitions=partitions
    )


def refusal(verified: Verified, replica: Replica, guard: VerificationGuard) -> BrokerError | None:
    """Why a partition is not verified: the coordinator's error, or that a later coordinator has been here."""
    error = verified.errors.get(replica.tp)
    if error is None:
        try:
            replica.producers.check_coordinator(guard.producer_id, verified.coordinator_epoch)
        except NotCoordinator as stale:
            return stale
    return error


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
