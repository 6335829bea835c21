"""The transitions of a transactional id, each a function from the old value to a new one.

The callers have already checked the producer. The assertions exclude transitions that no request may cause.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition
from penstock.transactions.state import (
    BUMPING_VERSION,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_ID,
    NO_START_MS,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TxnState,
)

FIRST_EPOCH = ProducerEpoch(0)


def created(transactional_id: str, producer_id: ProducerId, timeout_ms: int, now_ms: int) -> Transaction:
    """A new or expired transactional id."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=producer_id,
        epoch=FIRST_EPOCH,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        updated_ms=now_ms,
    )


def bumped(old: Transaction, timeout_ms: int, now_ms: int, *, by_producer: bool) -> Transaction:
    """The next epoch. If the current producer requested it, its old epoch is kept to recognize a retry."""
    assert not old.exhausted, f"no epoch follows {old.epoch}"
    last_epoch = old.epoch if by_producer else NO_EPOCH
    return _emptied(old, old.producer_id, ProducerEpoch(old.epoch + 1), last_epoch, timeout_ms, now_ms)


def rotated(
    old: Transaction, producer_id: ProducerId, timeout_ms: int, now_ms: int, *, last_epoch: ProducerEpoch
) -> Transaction:
    """A new producer id, because the epochs of the old one are exhausted. `last_epoch` is that of the request."""
    return _emptied(old, producer_id, FIRST_EPOCH, last_epoch, timeout_ms, now_ms)


def kept(old: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    """The current epoch again: the response to a retry."""
    return _emptied(old, old.producer_id, old.epoch, old.last_epoch, timeout_ms, now_ms)


def _emptied(
    old: Transaction,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    last_epoch: ProducerEpoch,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    assert old.state.resting, f"a new producer in state {old.state.label}"
    return replace(
        old,
        producer_id=producer_id,
        previous_producer_id=old.producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions=NO_PARTITIONS,
        started_ms=NO_START_MS,
        updated_ms=now_ms,
    )


def with_partitions(old: Transaction, partitions: Iterable[TopicPartition], version: int, now_ms: int) -> Transaction:
    """Add partitions; the first ones begin the transaction."""
    assert not old.state.prepared, f"partitions added in state {old.state.label}"
    return replace(
        old,
        previous_producer_id=old.producer_id,
        state=TxnState.ONGOING,
        partitions=old.partitions.union(partitions),
        started_ms=now_ms if old.state.resting else old.started_ms,
        updated_ms=now_ms,
        version=version,
    )


def prepared(
    old: Transaction, version: int, now_ms: int, *, commit: bool, next_producer_id: ProducerId = NO_PRODUCER_ID
) -> Transaction:
    """Decide the outcome, for good. With transaction version 2 this bumps the epoch.

    A producer of that version may abort without a transaction, to get a new epoch: no partition has been added, but
    one may still receive its records.
    """
    began = old.state is TxnState.ONGOING
    assert began or (old.state.resting and not commit and version >= BUMPING_VERSION), (
        f"{'commit' if commit else 'abort'} in state {old.state.label}"
    )
    bumps = version >= BUMPING_VERSION
    return replace(
        old,
        previous_producer_id=old.producer_id,
        next_producer_id=next_producer_id,
        epoch=min(ProducerEpoch(old.epoch + 1), PRODUCER_EPOCH_MAX) if bumps else old.epoch,
        last_epoch=old.epoch if bumps else old.last_epoch,
        state=TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        partitions=old.partitions if began else NO_PARTITIONS,
        started_ms=old.started_ms if began else now_ms,
        updated_ms=now_ms,
        version=version,
    )


def completed(old: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker. If the epochs are exhausted, the next producer id becomes current."""
    assert old.state.prepared, f"completed in state {old.state.label}"
    rotates = old.version >= BUMPING_VERSION and old.next_producer_id != NO_PRODUCER_ID
    commit = old.state is TxnState.PREPARE_COMMIT
    return replace(
        old,
        producer_id=old.next_producer_id if rotates else old.producer_id,
        previous_producer_id=old.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=FIRST_EPOCH if rotates else old.epoch,
        state=TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
    )
