"""Loading the log of a transaction coordinator: the last record of a transactional id that can be decoded counts."""

from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.transactions.events import TransactionForgotten, TransactionSaved, TxnEvent
from penstock.transactions.record_formats import TxnReader, encode_event
from penstock.transactions.state import Transaction, TxnState
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import Record, build_batch

UNREADABLE = b"\x7f\xff"


def saved(transactional_id: str, epoch: int) -> TxnEvent:
    return TransactionSaved(
        Transaction(
            transactional_id=transactional_id,
            producer_id=ProducerId(7),
            epoch=ProducerEpoch(epoch),
            timeout_ms=1_000,
            state=TxnState.EMPTY,
            updated_ms=5,
        )
    )


def read(*pairs: tuple[bytes, bytes | None]) -> tuple[list[TxnEvent], int]:
    """The events of records with these keys and values, and how many of them cannot be decoded."""
    records = [Record(offset, 5, key, value) for offset, (key, value) in enumerate(pairs)]
    reader = TxnReader()
    return reader.read(decode_columns(build_batch(records))), reader.unreadable


def test_the_last_record_of_each_id_is_read_in_the_order_of_the_log() -> None:
    events = [saved("a", 0), saved("b", 0), saved("a", 1), saved("c", 0), TransactionForgotten("b")]

    found, unreadable = read(*map(encode_event, events))

    assert found == [saved("a", 1), saved("c", 0), TransactionForgotten("b")]
    assert unreadable == 0


def test_a_record_that_cannot_be_decoded_leaves_the_one_before_it() -> None:
    first = encode_event(saved("a", 0))

    found, unreadable = read(first, (first[0], UNREADABLE))

    assert found == [saved("a", 0)]
    assert unreadable == 1
