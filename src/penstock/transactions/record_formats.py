"""Encodes the transaction coordinator's events as records of `__transaction_state`, and decodes them."""

from collections.abc import Iterable

from penstock.model.batch import BatchHeader
from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition
from penstock.transactions.events import TransactionForgotten, TransactionSaved, TxnEvent
from penstock.transactions.state import STATE_BY_NUMBER, Transaction, TxnState
from penstock.wire import txn_records as wire
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns


def encode_event(event: TxnEvent) -> tuple[bytes, bytes | None]:
    """The key and the value of an event's record; no value is a tombstone."""
    if isinstance(event, TransactionForgotten):
        return wire.txn_key(event.transactional_id), None
    now = event.transaction
    value = wire.TxnValue(
        producer_id=now.producer_id,
        producer_epoch=now.epoch,
        timeout_ms=now.timeout_ms,
        status=now.state.number,
        partitions=None if now.state is TxnState.EMPTY else by_topic(now.partitions),
        update_ms=now.updated_ms,
        start_ms=now.started_ms,
        previous_producer_id=now.previous_producer_id,
        next_producer_id=now.next_producer_id,
        client_version=now.version,
    )
    return wire.txn_key(now.transactional_id), wire.txn_value(value)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[wire.TopicPartitions, ...]:
    """Partitions as records and responses list them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple((topic, tuple(indexes)) for topic, indexes in topics.items())


class TxnReader:
    """Decodes records into events."""

    __slots__ = ("unreadable",)

    def __init__(self) -> None:
        self.unreadable = 0

    def read(self, columns: Columns) -> list[TxnEvent]:
        """The last event of each transactional id, in order. A record that cannot be decoded is counted and skipped.

        A record has the whole state of its transactional id, so that those before it are not decoded.
        """
        events: list[TxnEvent] = []
        read: set[bytes] = set()
        data = bytes(columns.data)
        for row in reversed(range(len(columns))):
            key_at, key_size = columns.key_at[row], columns.key_sizes[row]
            key = data[key_at : key_at + key_size] if key_size >= 0 else b""
            if key in read:
                continue
            value_at, value_size = columns.value_at[row], columns.value_sizes[row]
            try:
                event = read_event(key, data[value_at : value_at + value_size] if value_size >= 0 else None)
            except Malformed:
                event = None
            if event is None:
                self.unreadable += 1
            else:
                read.add(key)
                events.append(event)
        events.reverse()
        return events

    def read_transactional(self, header: BatchHeader, batch: bytes) -> list[TxnEvent]:
        """Skip transactional batches: no coordinator writes them to this topic."""
        self.unreadable += header.record_count
        return []


def read_event(key: bytes, value: bytes | None) -> TxnEvent | None:
    """The event of a record; None if its key is of an unknown kind. Raises `Malformed`."""
    transactional_id = wire.read_txn_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return TransactionForgotten(transactional_id)
    found = wire.read_txn_value(value)
    state = STATE_BY_NUMBER.get(found.status)
    if state is None:
        raise Malformed(f"a transaction in state {found.status}")
    return TransactionSaved(
        Transaction(
            transactional_id=transactional_id,
            producer_id=ProducerId(found.producer_id),
            epoch=ProducerEpoch(found.producer_epoch),
            timeout_ms=found.timeout_ms,
            state=state,
            updated_ms=found.update_ms,
            previous_producer_id=ProducerId(found.previous_producer_id),
            next_producer_id=ProducerId(found.next_producer_id),
            partitions=frozenset(
                TopicPartition(topic, partition) for topic, indexes in found.partitions or () for partition in indexes
            ),
            started_ms=found.start_ms,
            version=found.client_version,
        )
    )
