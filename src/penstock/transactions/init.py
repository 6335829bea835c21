"""Who becomes the producer of a transactional id."""

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
    """Raise what is wrong with the request, whatever state its id is in."""
    if not command.transactional_id or (command.producer_id == NO_PRODUCER_ID) != (command.epoch == NO_EPOCH):
        raise InvalidRequest()
    if command.two_phase_commit and not config.transaction_two_phase_commit_enable:
        raise TransactionalIdAuthorizationFailed()
    if command.keep_prepared:
        raise UnsupportedVersion()
    if not command.two_phase_commit and not 0 < command.timeout_ms <= config.transaction_max_timeout_ms:
        raise InvalidTransactionTimeout()


def check_entitled(command: InitProducer, old: Transaction) -> None:
    """Raise ProducerFenced for a producer that names itself and has been replaced.

    It is not fenced if it may be asking again for what it has been given and never heard of: with the epoch before the
    current one, or under the producer id before, when the epochs of that were used up. While a transaction is open
    that cannot be, because somebody uses the current epoch.
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
    command: InitProducer, old: Transaction | None, producer_id: Callable[[], int], now_ms: int
) -> Transaction:
    """The id with its new producer, or the response to the retry of one. `producer_id` takes a fresh one, or raises."""
    timeout_ms = TIMEOUT_MS_NEVER if command.two_phase_commit else command.timeout_ms
    if old is None:
        return created(command.transactional_id, producer_id(), timeout_ms, now_ms)
    if old.state.prepared:
        raise ConcurrentTransactions()
    names_itself = command.producer_id != NO_PRODUCER_ID
    if not names_itself or _is_current(command, old):
        if old.exhausted:
            return rotated(old, producer_id(), timeout_ms, now_ms, last_epoch=command.epoch)
        return bumped(old, timeout_ms, now_ms, asked_by_itself=names_itself)
    if command.epoch == old.last_epoch:
        if old.epoch == PRODUCER_EPOCH_MAX:
            # Its transaction was late and it was fenced with the last epoch, which no producer gets.
            return rotated(old, producer_id(), timeout_ms, now_ms, last_epoch=command.epoch)
        return kept(old, timeout_ms, now_ms)
    raise ProducerFenced()
