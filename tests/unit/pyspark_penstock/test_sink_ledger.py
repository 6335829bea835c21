"""What a sink remembers, and who may change it: every decision is a function of the state."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_penstock.ledger import (
    LEDGER_PARTITIONS,
    LedgerMissing,
    LedgerState,
    SinkAhead,
    SinkError,
    SinkNames,
    Superseded,
    Written,
    claim,
    decide,
    decode_state,
    encode_state,
    void,
)

WRITTEN = (
    Written(task=0, attempt=0, producer_id=10, epoch=3, rows=5, fingerprint=99),
    Written(task=1, attempt=1, producer_id=11, epoch=0, rows=7, fingerprint=98),
)
DECIDED = LedgerState(batch=4, generation=2, run="run-a", query="q", written_in=2, written=WRITTEN)


def taken_over(state: LedgerState | None, *, batch: int, begin: bool = False, query: str = "q") -> LedgerState:
    return claim(state, batch=batch, run="run-b", query=query, may_begin=begin)


def test_the_first_batch_of_a_sink_begins_its_ledger() -> None:
    assert taken_over(None, batch=0) == LedgerState(batch=-1, generation=1, run="run-b", query="q")


def test_a_later_batch_without_a_ledger_is_an_error_and_not_a_second_copy() -> None:
    with pytest.raises(LedgerMissing, match="ledgerMissing"):
        taken_over(None, batch=7)
    assert taken_over(None, batch=7, begin=True).generation == 1


def test_every_run_has_a_generation_of_its_own_and_keeps_what_is_decided() -> None:
    now = taken_over(DECIDED, batch=5)

    assert (now.generation, now.run) == (3, "run-b")
    assert (now.batch, now.written, now.written_in) == (4, WRITTEN, 2)


def test_a_checkpoint_that_is_older_than_the_output_is_refused() -> None:
    with pytest.raises(SinkAhead, match=r"batch 3 .* batch 4"):
        taken_over(DECIDED, batch=3)


def test_a_batch_that_is_partly_in_is_not_passed_over() -> None:
    with pytest.raises(SinkError, match="batch 4 is partly in"):
        taken_over(replace(DECIDED, lost=(1,)), batch=5)


def test_two_queries_cannot_share_a_sink() -> None:
    with pytest.raises(SinkAhead, match="belongs to query q"):
        taken_over(DECIDED, batch=0, query="other")
    fresh = taken_over(DECIDED, batch=0, query="other", begin=True)
    assert (fresh.batch, fresh.generation, fresh.written) == (-1, 3, ())


def test_only_the_current_generation_decides() -> None:
    with pytest.raises(Superseded):
        decide(DECIDED, batch=5, generation=1, query="q", written=())
    with pytest.raises(Superseded):
        decide(None, batch=5, generation=2, query="q", written=())


def test_a_batch_is_decided_once() -> None:
    other = (Written(task=0, attempt=5, producer_id=77, epoch=0, rows=1, fingerprint=1),)

    assert decide(DECIDED, batch=4, generation=2, query="q", written=WRITTEN) == DECIDED
    assert decide(DECIDED, batch=4, generation=2, query="q", written=()) == DECIDED
    with pytest.raises(Superseded, match="other transactions"):
        decide(DECIDED, batch=4, generation=2, query="q", written=other)
    later = decide(DECIDED, batch=5, generation=2, query="q", written=other)
    assert (later.batch, later.written, later.written_in) == (5, other, 2)


def test_lost_transactions_of_a_decided_batch_are_decided_again() -> None:
    broken = replace(DECIDED, generation=3, run="run-b", lost=(1,))
    again = (Written(task=1, attempt=0, producer_id=12, epoch=0, rows=7, fingerprint=98),)

    whole = decide(broken, batch=4, generation=3, query="q", written=again)

    assert (whole.written, whole.written_in, whole.lost) == (again, 3, ())


def test_a_batch_with_lost_transactions_is_whole_only_when_all_of_them_are_written_again() -> None:
    broken = replace(DECIDED, generation=3, run="run-b", lost=(0, 1))

    with pytest.raises(SinkError, match=r"batch 4 is partly in: the transactions of tasks \[0\]"):
        decide(broken, batch=4, generation=3, query="q", written=WRITTEN[1:])


def test_what_is_void_cannot_be_decided() -> None:
    dead = void(DECIDED, batch=5, generation=2)

    assert dead is not None
    with pytest.raises(Superseded):
        decide(dead, batch=5, generation=2, query="q", written=WRITTEN)


def test_a_decided_batch_cannot_be_made_void() -> None:
    assert void(DECIDED, batch=4, generation=2) is None


@given(
    tasks=st.integers(0, 3000),
    batch=st.integers(-1, 2**40),
    lost=st.lists(st.integers(0, 5000), max_size=5).map(tuple),
)
def test_a_state_survives_its_pieces_whatever_larger_state_was_there(tasks: int, batch: int, lost: tuple[int]) -> None:
    written = tuple(
        Written(task=n, attempt=0, producer_id=1000 + n, epoch=n % 9, rows=n, fingerprint=n * 7919)
        for n in range(tasks)
    )
    state = LedgerState(batch=batch, generation=9, run="r", query="q", written_in=8, written=written, lost=lost)

    pieces = encode_state(state)

    assert all(len(piece) <= 4096 for piece in pieces)
    assert decode_state(pieces + ["left over"] * (LEDGER_PARTITIONS - len(pieces))) == state


def test_more_tasks_than_a_ledger_can_name_are_refused() -> None:
    written = tuple(
        Written(task=n, attempt=0, producer_id=n, epoch=0, rows=n * 7919 % 10007, fingerprint=n * 2654435761 % 2**32)
        for n in range(20_000)
    )
    with pytest.raises(SinkError, match="coalesce"):
        encode_state(replace(DECIDED, written=written))


def test_a_transactional_id_tells_its_generation() -> None:
    names = SinkNames(sink="orders-g7")

    assert names.generation_of(names.transactional_id(12, 3, 0)) == 12
    assert names.generation_of(names.ledger) is None
    assert names.generation_of("orders-g7") is None


def test_a_sink_does_not_take_another_ones_transactions_for_its_own() -> None:
    other = SinkNames(sink="orders-g7").transactional_id(1, 0, 0)

    assert SinkNames(sink="orders").generation_of(other) is None
