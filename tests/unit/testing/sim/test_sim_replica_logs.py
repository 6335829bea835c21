"""The comparison of compacted replicas: by the values that are left, and by committed ones only."""

from __future__ import annotations

from typing import Any

from tests.unit.partition.rig import batch

from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.testing.sim.replica_logs import values_of
from penstock.wire.records import build_marker

PRODUCER = ProducerId(7)


def at(offset: int, data: bytearray) -> tuple[int, bytes]:
    """A batch as it is in a log."""
    data[0:8] = offset.to_bytes(8)
    return offset, bytes(data)


def written(offset: int, value: bytes | None, **facts: Any) -> tuple[int, bytes]:
    return at(offset, batch(value, **facts))


def in_txn(offset: int, value: bytes) -> tuple[int, bytes]:
    return written(offset, value, producer_id=PRODUCER, is_transactional=True)


def marker(offset: int, *, commit: bool) -> tuple[int, bytes]:
    data = build_marker(
        commit=commit, producer_id=PRODUCER, producer_epoch=ProducerEpoch(0), coordinator_epoch=0, timestamp_ms=0
    )
    return at(offset, bytearray(data))


def test_a_key_has_its_last_value_and_a_deleted_one_none() -> None:
    assert values_of(dict([written(0, b"a"), written(1, b"b")])) == {b"k": b"b"}
    assert values_of(dict([written(0, b"a"), written(1, None)])) == {}


def test_values_of_an_aborted_transaction_count_in_no_replica() -> None:
    compacted = dict([written(0, b"a"), marker(2, commit=False)])
    whole = dict([written(0, b"a"), in_txn(1, b"b"), marker(2, commit=False)])
    assert values_of(whole) == values_of(compacted) == {b"k": b"a"}


def test_values_of_a_committed_transaction_count() -> None:
    assert values_of(dict([written(0, b"a"), in_txn(1, b"b"), marker(2, commit=True)])) == {b"k": b"b"}
    assert values_of(dict([in_txn(0, b"a"), marker(1, commit=True), in_txn(2, b"b"), marker(3, commit=False)])) == {
        b"k": b"a"
    }
