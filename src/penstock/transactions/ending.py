"""Classifies an EndTxn request: the end of a transaction, the retry of one, or an error.

With transaction version 2 the epoch tells them apart: a first request has the current epoch, a retry the previous one.
Older versions can compare only the outcome, so a delayed request may pass for one that ends the next transaction.
"""

from enum import Enum, auto

from penstock.model.generated_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from penstock.transactions.commands import EndTransaction
from penstock.transactions.state import BUMPING_VERSION, PRODUCER_EPOCH_MAX, Transaction, TxnState
from penstock.transactions.transitions import FIRST_EPOCH


class Ending(Enum):
    """The class of a valid EndTxn request."""

    ENDS = auto()
    ENDED_BEFORE = auto()


def classify_end(old: Transaction, command: EndTransaction) -> Ending:
    """Classify a request. Raises if it is invalid."""
    if command.transaction_version >= BUMPING_VERSION:
        return _classify_bumping(old, command)
    return _classify_first(old, command)


def _classify_first(old: Transaction, command: EndTransaction) -> Ending:
    """Transaction versions 0 and 1: the epoch stays the same from one transaction to the next."""
    if old.producer_id != command.producer_id:
        raise InvalidProducerIdMapping()
    if old.epoch != command.epoch:
        raise ProducerFenced()
    if old.state is TxnState.ONGOING:
        return Ending.ENDS
    return _same_outcome(old, command)


def _classify_bumping(old: Transaction, command: EndTransaction) -> Ending:
    rotated = (
        old.previous_producer_id == command.producer_id
        and command.epoch == PRODUCER_EPOCH_MAX - 1
        and old.epoch == FIRST_EPOCH
    )
    retries = rotated or old.epoch == command.epoch + 1
    if old.producer_id != command.producer_id and not rotated:
        raise InvalidProducerIdMapping()
    if old.state is TxnState.ONGOING or old.state is TxnState.EMPTY:
        if command.epoch != old.epoch:
            raise ProducerFenced()
        if old.state is TxnState.EMPTY and command.commit:
            raise InvalidTxnState()
        return Ending.ENDS
    if old.state.prepared:
        if old.epoch != command.epoch + 1:
            raise ProducerFenced()
        return _same_outcome(old, command)
    if retries:
        ending = _same_outcome(old, command)
        # The abort of a timed-out transaction used the last epoch, which no producer gets: it needs a new producer id.
        return Ending.ENDS if old.epoch == PRODUCER_EPOCH_MAX else ending
    if command.epoch != old.epoch:
        raise ProducerFenced()
    if command.commit:
        raise InvalidTxnState()
    return Ending.ENDS


def _same_outcome(old: Transaction, command: EndTransaction) -> Ending:
    """A retry with the decided outcome. Raises InvalidTxnState if the outcome is the opposite or undecided."""
    if old.state is TxnState.PREPARE_COMMIT or old.state is TxnState.PREPARE_ABORT:
        if command.commit == (old.state is TxnState.PREPARE_COMMIT):
            raise ConcurrentTransactions()
        raise InvalidTxnState()
    decided = TxnState.COMPLETE_COMMIT if command.commit else TxnState.COMPLETE_ABORT
    if old.state is decided:
        return Ending.ENDED_BEFORE
    raise InvalidTxnState()
