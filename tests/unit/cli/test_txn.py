"""Which open transaction `penstock txn abort` chooses."""

from __future__ import annotations

import pytest

from penstock.cli.failure import Failure
from penstock.cli.txn import choose, described_json, time_text
from penstock.client.transactions import OpenTransaction, TransactionInfo


def open_at(partition: int, start_offset: int) -> OpenTransaction:
    return OpenTransaction(
        place=("t", partition),
        producer_id=start_offset + 1000,
        producer_epoch=0,
        start_offset=start_offset,
        last_timestamp_ms=0,
        coordinator_epoch=-1,
    )


FOUND = (open_at(0, 5), open_at(1, 7), open_at(1, 9))


def test_the_only_open_transaction_of_a_partition_is_meant() -> None:
    assert choose(FOUND, ("t", 0), None) == FOUND[0]


def test_one_of_several_is_meant_by_where_it_began() -> None:
    assert choose(FOUND, ("t", 1), 9) == FOUND[2]


def test_of_several_none_is_guessed() -> None:
    with pytest.raises(Failure) as refused:
        choose(FOUND, ("t", 1), None)

    assert "2 transactions are open" in str(refused.value)
    assert "7, 9" in refused.value.hint


@pytest.mark.parametrize(("partition", "start_offset"), [(2, None), (0, 6)])
def test_a_transaction_that_is_not_open_is_refused(partition: int, start_offset: int | None) -> None:
    with pytest.raises(Failure, match=r"no transaction .*is open|no transaction is open"):
        choose(FOUND, ("t", partition), start_offset)


@pytest.mark.parametrize(
    ("state", "started_ms", "open_for_ms"),
    [("Ongoing", 400, 600), ("PrepareCommit", 400, 600), ("CompleteCommit", 400, None), ("Empty", None, None)],
)
def test_only_an_open_transaction_has_a_duration(state: str, started_ms: int | None, open_for_ms: int | None) -> None:
    info = TransactionInfo(
        transactional_id="x",
        state=state,
        producer_id=1,
        producer_epoch=2,
        timeout_ms=60_000,
        started_ms=started_ms,
        places=(("t", 0),),
    )

    assert described_json(info, now_ms=1_000)["open_for_ms"] == open_for_ms


def test_times_are_written_for_any_place() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
