"""Timeouts of transactions, expiry of transactional ids, and queries."""

from dataclasses import replace

import pytest
from tests.unit.transactions.rig import A0, B0, TIMEOUT_MS, TV1, Rig

from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from penstock.transactions.events import TransactionForgotten, TransactionSaved
from penstock.transactions.shard import EXPIRED_PER_STEP_MAX, LATE_PER_STEP_MAX
from penstock.transactions.state import (
    BUMPING_VERSION,
    PRODUCER_EPOCH_MAX,
    STATE_BY_LABEL,
    STATE_BY_NUMBER,
    TxnState,
)
from penstock.transactions.timers import ExpiryCheck, LateCheck

CHECK_MS = 10_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Timeouts


def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0, B0, version=TV1)
    rig.pass_ms(TIMEOUT_MS)
    assert rig.state() is TxnState.ONGOING
    rig.pass_ms(CHECK_MS)
    assert rig.state() is TxnState.PREPARE_ABORT
    (markers,) = rig.markers
    assert (markers.partitions, markers.commit, markers.epoch) == ((A0, B0), False, producer[1] + 1)
    assert rig.end_refused(producer, commit=True, version=TV1) is ProducerFenced
    assert rig.add_refused(producer, A0, version=TV1) is ProducerFenced


def test_with_version_2_a_commit_after_the_timeout_is_rejected(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.pass_ms(TIMEOUT_MS + CHECK_MS)
    assert rig.end_refused(producer, commit=True) is InvalidTxnState
    rig.write_markers()
    assert rig.end_refused(producer, commit=True) is InvalidTxnState
    assert rig.end(producer, commit=False) == (producer[0], producer[1] + 1)


def test_a_producer_that_timed_out_can_continue_with_the_next_epoch(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0, version=TV1)
    rig.pass_ms(TIMEOUT_MS + CHECK_MS)
    rig.write_markers()
    assert rig.init(as_producer=producer) == (producer[0], producer[1] + 1)


@pytest.mark.parametrize("version", [TV1, BUMPING_VERSION])
def test_a_timed_out_transaction_with_exhausted_epochs_needs_no_producer_id_to_abort(rig: Rig, version: int) -> None:
    producer = with_last_epoch(rig, version=version)
    rig.ids_left = 0

    rig.pass_ms(TIMEOUT_MS + CHECK_MS)

    (markers,) = rig.markers
    assert (markers.partitions, markers.commit, markers.epoch) == ((A0,), False, PRODUCER_EPOCH_MAX)
    rig.write_markers()
    assert rig.state() is TxnState.COMPLETE_ABORT
    assert rig.add_refused(producer, A0, version=version) is ProducerFenced
    assert rig.init_refused() is CoordinatorLoadInProgress
    rig.ids_left = 1
    assert rig.init() == (1002, 0)


def test_a_producer_that_timed_out_with_exhausted_epochs_gets_a_new_id(rig: Rig) -> None:
    producer = with_last_epoch(rig, version=TV1)
    rig.pass_ms(TIMEOUT_MS + CHECK_MS)
    rig.write_markers()

    assert rig.init(as_producer=producer) == (1002, 0)
    assert rig.init(as_producer=producer) == (1002, 0)


def test_an_abort_after_the_timeout_with_exhausted_epochs_gets_a_new_producer_id(rig: Rig) -> None:
    producer = with_last_epoch(rig, version=BUMPING_VERSION)
    rig.pass_ms(TIMEOUT_MS + CHECK_MS)
    rig.write_markers()

    assert rig.end_refused(producer, commit=True) is InvalidTxnState
    assert rig.end(producer, commit=False) == (1002, 0)
    assert rig.end(producer, commit=False) == (1002, 0)


def test_a_new_producer_aborts_a_transaction_with_exhausted_epochs_without_a_producer_id(rig: Rig) -> None:
    with_last_epoch(rig, version=BUMPING_VERSION)
    rig.ids_left = 0

    assert rig.init_refused() is ConcurrentTransactions
    rig.write_markers()
    assert rig.state() is TxnState.COMPLETE_ABORT


def with_last_epoch(rig: Rig, *, version: int) -> tuple[int, int]:
    """A producer in a transaction, with the last epoch that producers get."""
    producer_id, _ = rig.init()
    rig.run_event(TransactionSaved(replace(rig.transaction(), epoch=PRODUCER_EPOCH_MAX - 1)))
    producer = producer_id, PRODUCER_EPOCH_MAX - 1
    rig.add(producer, A0, version=version)
    return producer


def test_a_decided_transaction_does_not_time_out(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.end(producer, commit=True)
    rig.pass_ms(DAY_MS)
    assert rig.state() is TxnState.PREPARE_COMMIT
    rig.write_markers()
    assert rig.state() is TxnState.COMPLETE_COMMIT


def test_the_timeout_of_a_transaction_starts_with_its_first_partition(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.pass_ms(TIMEOUT_MS - 1)
    rig.add(producer, B0)
    rig.pass_ms(CHECK_MS + 1)
    assert rig.state() is TxnState.PREPARE_ABORT


def test_a_crash_does_not_change_when_a_transaction_times_out(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.pass_ms(TIMEOUT_MS - 1)
    rig.crash()
    rig.pass_ms(CHECK_MS + 1)
    assert rig.state() is TxnState.PREPARE_ABORT


def test_an_abort_whose_append_failed_is_retried(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.refusing = CoordinatorNotAvailable()
    rig.pass_ms(TIMEOUT_MS + CHECK_MS)
    assert rig.state() is TxnState.ONGOING
    rig.refusing = None
    rig.pass_ms(CHECK_MS)
    assert rig.state() is TxnState.PREPARE_ABORT


def test_many_timed_out_transactions_are_aborted_in_several_steps(rig: Rig) -> None:
    for number in range(LATE_PER_STEP_MAX + 1):
        rig.add(rig.init(f"t{number}"), A0, name=f"t{number}")
    rig.now_ms += TIMEOUT_MS + 1
    step = rig.shard.wake(LateCheck(), rig.now_ms)
    assert len(step.events) == LATE_PER_STEP_MAX
    rig.run(step)
    rig.pass_ms(0)
    assert rig.shard.listed(rig.now_ms, states=[TxnState.ONGOING]) == []


def test_the_timeout_check_is_not_set_without_an_open_transaction(rig: Rig) -> None:
    producer = rig.init()
    assert set(rig.timers) == {ExpiryCheck()}
    rig.add(producer, A0)
    assert set(rig.timers) == {ExpiryCheck(), LateCheck()}
    rig.end(producer, commit=True)
    rig.write_markers()
    rig.pass_ms(CHECK_MS)
    assert set(rig.timers) == {ExpiryCheck()}


# Expiry of transactional ids


def test_an_unused_transactional_id_expires(rig: Rig) -> None:
    producer = rig.init()
    rig.pass_ms(7 * DAY_MS - HOUR_MS)
    assert rig.shard.count == 1
    rig.pass_ms(2 * HOUR_MS)
    assert rig.log[-1] == TransactionForgotten("t")
    assert rig.shard.count == 0
    assert rig.add_refused(producer, A0) is InvalidProducerIdMapping
    rig.crash()
    assert rig.shard.count == 0


def test_a_transactional_id_does_not_expire_while_markers_are_written(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.end(producer, commit=True)
    rig.pass_ms(30 * DAY_MS)
    assert rig.state() is TxnState.PREPARE_COMMIT


def test_many_transactional_ids_expire_in_several_steps(rig: Rig) -> None:
    for number in range(EXPIRED_PER_STEP_MAX + 1):
        rig.init(f"t{number}")
    rig.now_ms += 7 * DAY_MS
    step = rig.shard.wake(ExpiryCheck(), rig.now_ms)
    assert len(step.events) == EXPIRED_PER_STEP_MAX
    rig.run(step)
    rig.pass_ms(0)
    assert rig.shard.count == 0


def test_refused_tombstones_are_not_retried_in_a_loop(rig: Rig) -> None:
    for number in range(EXPIRED_PER_STEP_MAX + 1):
        rig.init(f"t{number}")
    rig.now_ms += 7 * DAY_MS
    rig.refusing = CoordinatorNotAvailable()
    rig.run(rig.shard.wake(ExpiryCheck(), rig.now_ms))
    assert rig.timers[ExpiryCheck()] == rig.now_ms + HOUR_MS


# Queries


def test_a_description_shows_the_current_state(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    found = rig.shard.describe("t")
    assert (found.producer_id, found.epoch, found.state.label) == (*producer, "Ongoing")
    assert (found.timeout_ms, found.partitions) == (TIMEOUT_MS, {A0})


def test_unknown_transactional_ids_cannot_be_described(rig: Rig) -> None:
    with pytest.raises(TransactionalIdNotFound):
        rig.shard.describe("t")
    with pytest.raises(InvalidRequest):
        rig.shard.describe("")


def test_lists_are_filtered(rig: Rig) -> None:
    old = rig.init("old")
    rig.add(old, A0, name="old")
    rig.now_ms += 100
    young = rig.init("young")
    rig.add(young, A0, name="young")
    rig.init("idle")

    def names(**filters: object) -> list[str]:
        return [found.transactional_id for found in rig.shard.listed(rig.now_ms, **filters)]  # type: ignore[arg-type]

    assert names() == ["old", "young", "idle"]
    assert names(states=[TxnState.ONGOING]) == ["old", "young"]
    assert names(states=[]) == []
    assert names(producer_ids=[young[0]]) == ["young"]
    assert names(states=[TxnState.ONGOING], duration_ms=99) == ["old"]
    assert names(states=[TxnState.ONGOING], duration_ms=100) == []
    assert names(matches=lambda name: name.endswith("d")) == ["old"]


def test_states_are_found_by_number_and_by_name() -> None:
    assert [STATE_BY_NUMBER[number].label for number in range(8)] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert STATE_BY_LABEL["CompleteAbort"] is TxnState.COMPLETE_ABORT
