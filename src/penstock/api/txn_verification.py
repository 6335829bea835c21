"""Whether what a producer writes belongs to its transaction, asked of the coordinator before it is written.

Clients of before transaction version 2 name their partitions first, and are checked. Later ones do not: what they write
to is added to the transaction. What each is told when that fails depends on what it understands.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.coordinator.step import Reply
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
from penstock.model.ids import TopicPartition
from penstock.partition.replica import VerifyTxn
from penstock.transactions.commands import AddPartitions
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import BUMPING_VERSION

PRODUCE_ABORTABLE_FROM = 11
PRODUCE_ADDS_FROM = 12
OFFSETS_ABORTABLE_FROM = 4
OFFSETS_ADD_FROM = 5
"""Versions of Produce and of TxnOffsetCommit whose clients understand TransactionAbortable, and those that add."""

COORDINATOR_AWAY = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class TxnVerification:
    """Asks the coordinators of this broker."""

    def __init__(self, *, coordinators: TxnCoordinatorService, enabled: Callable[[], bool]) -> None:
        """`enabled` is whether clients that name their partitions are checked at all."""
        self._coordinators = coordinators
        self._enabled = enabled

    def of_produce(self, transactional_id: str, version: int, refusal: BrokerError | None = None) -> VerifyTxn:
        """What a partition asks before it takes a transaction's first batch; a refusal is known beforehand."""
        adds = version >= PRODUCE_ADDS_FROM
        abortable = version >= PRODUCE_ABORTABLE_FROM

        def verify_txn(tp: TopicPartition, producer_id: int, epoch: int) -> bool:
            try:
                if refusal is not None:
                    raise refusal
                if adds or self._enabled():
                    self._coordinators.verify(transactional_id, tp, producer_id, epoch)
            except BrokerError as error:
                raise error_for_producer(error, abortable=abortable, adds=adds) from None
            return adds

        return verify_txn

    def check_offsets(
        self,
        transactional_id: str,
        place: TopicPartition,
        producer_id: int,
        epoch: int,
        version: int,
        refusal: BrokerError | None = None,
    ) -> None:
        """Raise where a transaction may not commit offsets to a partition of `__consumer_offsets`."""
        adds = version >= OFFSETS_ADD_FROM
        if not adds and not self._enabled():
            return
        try:
            if refusal is not None:
                raise refusal
            self._coordinators.verify(transactional_id, place, producer_id, epoch)
        except BrokerError as error:
            said = error_for_producer(error, abortable=version >= OFFSETS_ABORTABLE_FROM, adds=adds)
            # The group's coordinator speaks of itself, and not of its log.
            raise CoordinatorNotAvailable() if isinstance(said, NotEnoughReplicas) else said from None

    def add_then(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: tuple[TopicPartition, ...],
        go_on: Callable[[BrokerError | None], Any],
    ) -> Any | Coroutine[Any, Any, Any]:
        """Make partitions part of a transaction, and go on when they are, or with the reason why they are not.

        At once where that is known at once; else what is returned holds the connection until it is.
        """
        command = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=partitions,
            transaction_version=BUMPING_VERSION,
        )
        responses: list[Reply | BrokerError] = []
        later: Future[None] | None = None

        def take(reply: Reply | BrokerError) -> None:
            responses.append(reply)
            if later is not None and not later.done():
                later.set_result(None)

        try:
            self._coordinators.of(transactional_id).submit(command, take)
        except BrokerError as error:
            responses.append(error)
        if responses:
            return go_on(refusal_in(responses[0]))
        later = get_running_loop().create_future()

        async def wait(until: Future[None]) -> Any:
            await until
            return go_on(refusal_in(responses[0]))

        return wait(later)


def refusal_in(reply: Reply | BrokerError) -> BrokerError | None:
    return reply if isinstance(reply, BrokerError) else None


def error_for_producer(error: BrokerError, *, abortable: bool, adds: bool) -> BrokerError:
    """What a producer of some version is told when its partition is not part of its transaction.

    Older ones do not know that a coordinator may be busy or away; they come again when replicas are too few.
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
