"""The rules of InitProducerId for a transactional id."""

from collections.abc import Callable

from penstock.config.broker import BrokerConfig
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from penstock.model.ids import ProducerId
from penstock.transactions.commands import InitProducer
from penstock.transactions.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    PRODUCER_EPOCH_MAX,
    TIMEOUT_MS_NEVER,
    Transaction,
    TxnState,
)
from penstock.transactions.transitions import bumped, created, kept, rotated


def check_init(command: InitProducer, config: BrokerConfig) -> None:
    """Validate the request, independent of the transactional id's state."""
    if not command.transactional_id or (command.producer_id == NO_PRODUCER_ID) != (command.epoch == NO_EPOCH):
        raise InvalidRequest()
    if command.two_phase_commit and not config.transaction_two_phase_commit_enable:
        raise TransactionalIdAuthorizationFailed()
    if command.keep_prepared:
        raise UnsupportedVersion()
    if not command.two_phase_commit and not 0 < command.timeout_ms <= config.transaction_max_timeout_ms:
        raise InvalidTransactionTimeout()


def check_producer(command: InitProducer, old: Transaction) -> None:
    """Raise ProducerFenced if the request's producer id and epoch have been replaced.

    A request may be the retry of one whose response was lost: with the epoch before the current one, or with the
    previous producer id, if its epochs are exhausted. While a transaction is open it cannot be a retry, because a
    producer already uses the current epoch.
    """
    if command.producer_id == NO_PRODUCER_ID or _is_current(command, old):
        return
    known = command.producer_id == old.producer_id or (
        command.producer_id == old.previous_producer_id and command.epoch >= PRODUCER_EPOCH_MAX - 1
    )
    if not known or old.state is TxnState.ONGOING:
        raise ProducerFenced()


def _is_current(command: InitProducer, old: Transaction) -> bool:
    return (command.producer_id, command.epoch) == (old.producer_id, old.epoch)


def initialized(
    command: InitProducer, old: Transaction | None, producer_id: Callable[[], ProducerId], now_ms: int
) -> Transaction:
    """The transactional id with its new epoch, or the same one for a retry. `producer_id` allocates one, or raises."""
    timeout_ms = TIMEOUT_MS_NEVER if command.two_phase_commit else command.timeout_ms
    if old is None:
        return created(command.transactional_id, producer_id(), timeout_ms, now_ms)
    if old.state.prepared:
        raise ConcurrentTransactions()
    has_producer_id = command.producer_id != NO_PRODUCER_ID
    if not has_producer_id or _is_current(command, old):
        if old.exhausted:
            return rotated(old, producer_id(), timeout_ms, now_ms, last_epoch=command.epoch)
        return bumped(old, timeout_ms, now_ms, by_producer=has_producer_id)
    if command.epoch == old.last_epoch:
        if old.epoch == PRODUCER_EPOCH_MAX:
            # Its transaction timed out and it was fenced with the last epoch, which no producer gets.
            return rotated(old, producer_id(), timeout_ms, now_ms, last_epoch=command.epoch)
        return kept(old, timeout_ms, now_ms)
    raise ProducerFenced()
