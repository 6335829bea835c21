"""InitProducerId with a transactional id."""

from dataclasses import replace

import pytest
from tests.unit.coordinator.shard_rig import START_MS
from tests.unit.transactions.rig import A0, TIMEOUT_MS, TV1, Rig

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from penstock.transactions.commands import InitProducer
from penstock.transactions.events import TransactionSaved
from penstock.transactions.state import TIMEOUT_MS_NEVER, TxnState


@pytest.fixture
def rig() -> Rig:
    return Rig()


def with_epoch(rig: Rig, epoch: int) -> tuple[int, int]:
    """A producer whose epoch has advanced to this one."""
    producer_id, _ = rig.init()
    rig.run_event(TransactionSaved(replace(rig.transaction(), epoch=epoch)))
    return producer_id, epoch


def test_a_new_id_gets_a_producer_id_and_the_first_epoch(rig: Rig) -> None:
    assert rig.init() == (1001, 0)
    assert rig.state() is TxnState.EMPTY
    assert rig.transaction().timeout_ms == TIMEOUT_MS
    assert rig.transaction().updated_ms == START_MS


def test_two_transactional_ids_have_different_producer_ids(rig: Rig) -> None:
    assert rig.init("t")[0] != rig.init("u")[0]


def test_the_next_producer_gets_the_same_producer_id_and_the_next_epoch(rig: Rig) -> None:
    producer_id, epoch = rig.init()
    assert rig.init(timeout_ms=5) == (producer_id, epoch + 1)
    assert rig.transaction().timeout_ms == 5


def test_a_new_producer_aborts_the_open_transaction_and_has_to_retry(rig: Rig) -> None:
    zombie = rig.init()
    rig.add(zombie, A0, version=TV1)
    assert rig.init_refused() is ConcurrentTransactions
    assert rig.state() is TxnState.PREPARE_ABORT
    assert rig.init_refused() is ConcurrentTransactions
    rig.write_markers()
    assert rig.init() == (zombie[0], zombie[1] + 2)
    assert rig.end_refused(zombie, commit=True, version=TV1) is ProducerFenced


def test_the_markers_of_a_fenced_producer_have_a_greater_epoch_than_its_records(rig: Rig) -> None:
    zombie = rig.init()
    rig.add(zombie, A0, version=TV1)
    rig.init_refused()
    (markers,) = rig.markers
    assert (markers.producer_id, markers.epoch, markers.commit) == (zombie[0], zombie[1] + 1, False)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_rejected(rig: Rig, timeout_ms: int) -> None:
    assert rig.init_refused(timeout_ms=timeout_ms) is InvalidTransactionTimeout
    assert rig.shard.count == 0


def test_the_longest_allowed_timeout_is_accepted(rig: Rig) -> None:
    producer_id, epoch = rig.init(timeout_ms=900_000)
    assert (producer_id >= 0, epoch, rig.shard.count) == (True, 0, 1)


@pytest.mark.parametrize(
    ("name", "producer"), [("", (-1, -1)), ("t", (1001, -1)), ("t", (-1, 0))], ids=["no id", "no epoch", "no producer"]
)
def test_an_incomplete_request_is_invalid(rig: Rig, name: str, producer: tuple[int, int]) -> None:
    assert rig.init_refused(name, as_producer=producer) is InvalidRequest


def test_a_new_id_is_rejected_until_a_producer_id_is_available(rig: Rig) -> None:
    rig.ids_left = 0
    assert rig.init_refused() is CoordinatorLoadInProgress
    assert rig.shard.count == 0
    rig.ids_left = 1
    rig.init()
    rig.init()


# Requests with a producer id and epoch


def test_a_producer_that_sends_its_epoch_gets_the_next_one(rig: Rig) -> None:
    producer = rig.init()
    assert rig.init(as_producer=producer) == (producer[0], 1)


def test_its_retry_gets_the_same_epoch_again(rig: Rig) -> None:
    producer = rig.init()
    bumped = rig.init(as_producer=producer)
    assert rig.init(as_producer=producer) == bumped
    assert rig.init(as_producer=bumped) == (producer[0], 2)


def test_a_replaced_producer_is_fenced_and_changes_nothing(rig: Rig) -> None:
    zombie = rig.init()
    rig.init()
    before = rig.transaction()
    assert rig.init_refused(as_producer=zombie) is ProducerFenced
    assert rig.transaction() == before


def test_a_zombie_does_not_abort_the_transaction_of_its_successor(rig: Rig) -> None:
    zombie = rig.init()
    producer = rig.init()
    rig.add(producer, A0)
    before = rig.transaction()
    assert rig.init_refused(as_producer=zombie) is ProducerFenced
    assert rig.transaction() == before


def test_a_producer_that_reinitializes_aborts_its_own_transaction(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    assert rig.init_refused(as_producer=producer) is ConcurrentTransactions
    rig.write_markers()
    assert rig.init(as_producer=producer) == (producer[0], producer[1] + 1)


def test_another_producer_id_is_fenced(rig: Rig) -> None:
    producer_id, epoch = rig.init()
    assert rig.init_refused(as_producer=(producer_id + 1, epoch)) is ProducerFenced


def test_a_producer_of_an_unknown_id_gets_a_new_producer_id(rig: Rig) -> None:
    assert rig.init(as_producer=(7, 12)) == (1001, 0)


def test_no_producer_is_initialized_while_markers_are_written(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    after = rig.end(producer, commit=True)
    assert rig.init_refused(as_producer=after) is ConcurrentTransactions
    rig.write_markers()
    assert rig.init(as_producer=after) == (after[0], after[1] + 1)


# Exhausted epochs


def test_no_producer_gets_the_last_epoch(rig: Rig) -> None:
    producer_id, _ = with_epoch(rig, 32_765)
    assert rig.init() == (producer_id, 32_766)
    assert rig.init() == (1002, 0)


def test_a_producer_that_missed_its_new_id_gets_it_with_a_retry(rig: Rig) -> None:
    old = with_epoch(rig, 32_766)
    new = rig.init(as_producer=old)
    assert new == (1002, 0)
    assert rig.init(as_producer=old) == new
    assert rig.init(as_producer=new) == (1002, 1)


def test_without_an_available_producer_id_the_state_is_unchanged(rig: Rig) -> None:
    with_epoch(rig, 32_766)
    before = rig.transaction()
    rig.ids_left = 0
    assert rig.init_refused() is CoordinatorLoadInProgress
    assert rig.transaction() == before


# Two-phase commit


def ask_two_phase(rig: Rig, *, keep: bool = False) -> object:
    return rig.ask(InitProducer(transactional_id="t", timeout_ms=1, two_phase_commit=True, keep_prepared=keep))


def test_two_phase_commit_has_to_be_enabled(rig: Rig) -> None:
    assert isinstance(ask_two_phase(rig), TransactionalIdAuthorizationFailed)


def test_a_two_phase_transaction_never_times_out() -> None:
    rig = Rig({"transaction.two.phase.commit.enable": "true"})
    ask_two_phase(rig)
    assert rig.transaction().timeout_ms == TIMEOUT_MS_NEVER
    rig.add((1001, 0), A0)
    rig.pass_ms(10_000_000)
    assert rig.state() is TxnState.ONGOING


def test_a_prepared_transaction_cannot_be_kept() -> None:
    rig = Rig({"transaction.two.phase.commit.enable": "true"})
    response = ask_two_phase(rig, keep=True)
    assert isinstance(response, BrokerError)
    assert type(response) is UnsupportedVersion
