"""The records of `__transaction_state` against Kafka's bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.primitives import Malformed
from penstock.wire.txn_records import TxnValue, read_txn_key, read_txn_value, txn_key, txn_value

ONGOING = TxnValue(
    producer_id=1000,
    producer_epoch=3,
    timeout_ms=60_000,
    status=1,
    partitions=(("a", (0, 2)),),
    update_ms=1_700_000_000_000,
    start_ms=1_699_999_999_000,
    previous_producer_id=1000,
    client_version=2,
)
ONGOING_BYTES = bytes.fromhex(
    "0001"  # version
    "00000000000003e8"  # producer id
    "0003"  # epoch
    "0000ea60"  # timeout
    "01"  # status
    "02" "0261" "03" "00000000" "00000002" "00"  # one topic, "a", of two partitions
    "0000018bcfe56800"  # updated
    "0000018bcfe56418"  # started
    "02" "00" "08" "00000000000003e8" "02" "02" "0002"  # tags: the producer id before, the client's version
)  # fmt: skip

LONGS = st.integers(-1, 2**63 - 1)
values = st.builds(
    TxnValue,
    producer_id=LONGS,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    status=st.integers(0, 7),
    partitions=st.none()
    | st.lists(
        st.tuples(st.text(max_size=8), st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)), max_size=4
    ).map(tuple),
    update_ms=LONGS,
    start_ms=LONGS,
    previous_producer_id=LONGS,
    next_producer_id=LONGS,
    client_version=st.integers(0, 2),
)


def test_a_value_has_the_bytes_that_kafka_writes() -> None:
    assert txn_value(ONGOING) == ONGOING_BYTES
    assert read_txn_value(ONGOING_BYTES) == ONGOING


def test_a_key_has_the_bytes_that_kafka_writes() -> None:
    assert txn_key("abc") == b"\0\0\0\3abc"
    assert read_txn_key(b"\0\0\0\3abc") == "abc"


def test_a_key_of_an_unknown_kind_is_none() -> None:
    assert read_txn_key(b"\0\1\0\3abc") is None


@given(values)
@settings(max_examples=200, deadline=None)
def test_values_round_trip(value: TxnValue) -> None:
    assert read_txn_value(txn_value(value)) == value


@given(values)
@settings(max_examples=100, deadline=None)
def test_the_older_version_has_no_tags(value: TxnValue) -> None:
    plain = value._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert read_txn_value(txn_value(value, version=0)) == plain


@given(st.binary(max_size=64))
@settings(max_examples=300, deadline=None)
def test_random_bytes_raise_only_malformed(raw: bytes) -> None:
    try:
        read_txn_value(raw)
    except Malformed:
        pass
    else:
        assert raw[:2] in (b"\0\0", b"\0\1")


@pytest.mark.parametrize("cut", range(len(ONGOING_BYTES)))
def test_a_truncated_value_is_malformed(cut: int) -> None:
    with pytest.raises(Malformed):
        read_txn_value(ONGOING_BYTES[:cut])
