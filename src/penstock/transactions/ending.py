"""Whether an EndTxn ends the transaction, repeats one that has ended it, or comes too late.

With transaction version 2 the epoch tells them apart: who asks with the current epoch asks for the first time, who asks
with the one before asks again. Without it only the outcome does, so that a delayed request may be taken for another.
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
    """The outcomes of an EndTxn that is not refused."""

    ENDS = auto()
    ENDED_BEFORE = auto()


def judge_end(old: Transaction, command: EndTransaction) -> Ending:
    """Whether an EndTxn ends the transaction now or repeats one that has. Raises why it is refused."""
    return (
        _judge_bumping(old, command) if command.transaction_version >= BUMPING_VERSION else _judge_first(old, command)
    )


def _judge_first(old: Transaction, command: EndTransaction) -> Ending:
    """Transaction version 0 or 1: the epoch stays the same from one transaction to the next."""
    if old.producer_id != command.producer_id:
        raise InvalidProducerIdMapping()
    if old.epoch != command.epoch:
        raise ProducerFenced()
    if old.state is TxnState.ONGOING:
        return Ending.ENDS
    return _same_outcome(old, command)


def _judge_bumping(old: Transaction, command: EndTransaction) -> Ending:
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
        # A late transaction was aborted with the last epoch, which no producer gets: this one gets a new producer id.
        return Ending.ENDS if old.epoch == PRODUCER_EPOCH_MAX else ending
    if command.epoch != old.epoch:
        raise ProducerFenced()
    if command.commit:
        raise InvalidTxnState()
    return Ending.ENDS


def _same_outcome(old: Transaction, command: EndTransaction) -> Ending:
    """A retry of what was decided. Raises InvalidTxnState where the opposite was, or nothing."""
    if old.state is TxnState.PREPARE_COMMIT or old.state is TxnState.PREPARE_ABORT:
        if command.commit == (old.state is TxnState.PREPARE_COMMIT):
            raise ConcurrentTransactions()
        raise InvalidTxnState()
    decided = TxnState.COMPLETE_COMMIT if command.commit else TxnState.COMPLETE_ABORT
    if old.state is decided:
        return Ending.ENDED_BEFORE
    raise InvalidTxnState()
