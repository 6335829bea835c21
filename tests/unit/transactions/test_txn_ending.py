"""Transactions from their first partition to their last marker, with either transaction version."""

from dataclasses import replace

import pytest
from tests.unit.coordinator.shard_rig import START_MS
from tests.unit.transactions.rig import A0, A1, B0, TV1, TV2, Rig, written

from penstock.model.generated_errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
)
from penstock.transactions.commands import PartitionsVerified, TransactionCompleted
from penstock.transactions.effects import WriteMarkers
from penstock.transactions.events import TransactionSaved
from penstock.transactions.old_clients import FENCED_FROM, FENCED_FROM_INIT, error_for_version
from penstock.transactions.state import TxnState

BOTH = pytest.mark.parametrize("version", [TV1, TV2], ids=["version 1", "version 2"])
OUTCOMES = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Partitions


@BOTH
def test_the_first_partition_begins_the_transaction(rig: Rig, version: int) -> None:
    producer = rig.init()
    rig.now_ms += 5
    rig.add(producer, A0, version=version)
    rig.now_ms += 5
    rig.add(producer, A1, B0, version=version)
    found = rig.transaction()
    assert found.state is TxnState.ONGOING
    assert found.partitions == {A0, A1, B0}
    assert (found.started_ms, found.updated_ms) == (START_MS + 5, START_MS + 10)
    assert found.version == version


def test_partitions_already_in_the_transaction_are_not_appended_again(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0, A1)
    written_before = len(rig.log)
    rig.add(producer, A1)
    assert len(rig.log) == written_before


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("", (0, 0), InvalidRequest),
        ("nobody", (0, 0), InvalidProducerIdMapping),
        ("t", (1, 0), InvalidProducerIdMapping),
        ("t", (0, -1), ProducerFenced),
        ("t", (0, 1), ProducerFenced),
    ],
)
def test_partitions_from_another_producer_are_rejected(
    rig: Rig, name: str, change: tuple[int, int], error: type[Exception]
) -> None:
    rig.init()
    producer_id, epoch = rig.init()
    asker = (producer_id + change[0], epoch + change[1])
    assert rig.add_refused(asker, A0, name=name) is error
    assert type(rig.verify(asker, A0, name=name)) is error
    assert rig.state() is TxnState.EMPTY


def test_no_partition_is_added_while_markers_are_written(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0, version=TV1)
    rig.end(producer, commit=True, version=TV1)
    assert rig.add_refused(producer, A1, version=TV1) is ConcurrentTransactions
    assert isinstance(rig.verify(producer, A0), ConcurrentTransactions)
    rig.write_markers()
    rig.add(producer, A1, version=TV1)
    assert rig.transaction().partitions == {A1}


def test_verification_returns_missing_partitions_and_changes_nothing(rig: Rig) -> None:
    producer = rig.init()
    assert rig.verify(producer, A0) == PartitionsVerified(missing=frozenset({A0}))
    rig.add(producer, A0)
    before = rig.transaction()
    assert rig.verify(producer, A0, A1, B0) == PartitionsVerified(missing=frozenset({A1, B0}))
    assert rig.transaction() == before


# Ending


@BOTH
@OUTCOMES
def test_the_markers_go_to_exactly_the_partitions_of_the_transaction(rig: Rig, version: int, commit: bool) -> None:
    producer = rig.init()
    rig.add(producer, B0, version=version)
    rig.add(producer, A0, version=version)
    after = rig.end(producer, commit=commit, version=version)
    bump = 1 if version == TV2 else 0
    assert after == (producer[0], producer[1] + bump)
    assert rig.state() is (TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT)
    assert rig.markers == [
        WriteMarkers(
            transactional_id="t",
            producer_id=producer[0],
            epoch=producer[1] + bump,
            commit=commit,
            partitions=(A0, B0),
            coordinator_epoch=0,
            transaction_version=version,
        )
    ]
    rig.write_markers()
    assert rig.state() is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
    assert rig.transaction().partitions == frozenset()
    rig.add(after, A0, version=version)


@BOTH
@OUTCOMES
def test_a_retry_waits_for_the_markers_and_then_gets_the_same_response(rig: Rig, version: int, commit: bool) -> None:
    producer = rig.init()
    rig.add(producer, A0, version=version)
    after = rig.end(producer, commit=commit, version=version)
    assert rig.end_refused(producer, commit=commit, version=version) is ConcurrentTransactions
    rig.write_markers()
    log_end = len(rig.log)
    assert rig.end(producer, commit=commit, version=version) == after
    assert len(rig.log) == log_end


@BOTH
@OUTCOMES
def test_a_decided_outcome_is_final(rig: Rig, version: int, commit: bool) -> None:
    producer = rig.init()
    rig.add(producer, A0, version=version)
    rig.end(producer, commit=commit, version=version)
    assert rig.end_refused(producer, commit=not commit, version=version) is InvalidTxnState
    rig.write_markers()
    assert rig.end_refused(producer, commit=not commit, version=version) is InvalidTxnState


def test_a_delayed_end_of_an_earlier_transaction_does_not_end_the_next_one(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    after = rig.end(producer, commit=True)
    rig.write_markers()
    rig.add(after, A1)
    assert rig.end_refused(producer, commit=True) is ProducerFenced
    assert rig.end_refused(producer, commit=False) is ProducerFenced
    assert rig.state() is TxnState.ONGOING


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("", (0, 0), InvalidRequest),
        ("nobody", (0, 0), InvalidProducerIdMapping),
        ("t", (1, 0), InvalidProducerIdMapping),
        ("t", (0, -1), ProducerFenced),
        ("t", (0, 1), ProducerFenced),
    ],
)
@BOTH
def test_another_producer_cannot_end_a_transaction(
    rig: Rig, version: int, name: str, change: tuple[int, int], error: type[Exception]
) -> None:
    rig.init()
    producer_id, epoch = rig.init()
    rig.add((producer_id, epoch), A0, version=version)
    asker = (producer_id + change[0], epoch + change[1])
    assert rig.end_refused(asker, commit=True, name=name, version=version) is error
    assert rig.state() is TxnState.ONGOING


@OUTCOMES
def test_with_version_1_ending_without_a_transaction_is_rejected(rig: Rig, commit: bool) -> None:
    producer = rig.init()
    assert rig.end_refused(producer, commit=commit, version=TV1) is InvalidTxnState


def test_with_version_2_an_abort_without_a_transaction_bumps_the_epoch(rig: Rig) -> None:
    producer = rig.init()
    after = rig.end(producer, commit=False)
    assert after == (producer[0], producer[1] + 1)
    assert rig.state() is TxnState.COMPLETE_ABORT
    assert not rig.markers
    assert rig.end(producer, commit=False) == after
    assert rig.end(after, commit=False) == (producer[0], producer[1] + 2)


def test_with_version_2_a_commit_without_a_transaction_is_rejected(rig: Rig) -> None:
    producer = rig.init()
    assert rig.end_refused(producer, commit=True) is InvalidTxnState
    rig.add(producer, A0)
    after = rig.end(producer, commit=True)
    rig.write_markers()
    assert rig.end_refused(after, commit=True) is InvalidTxnState
    assert rig.end(after, commit=False) == (after[0], after[1] + 1)


def test_a_transaction_without_partitions_ends_without_markers(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, version=TV1)
    rig.end(producer, commit=True, version=TV1)
    assert rig.state() is TxnState.COMPLETE_COMMIT
    assert not rig.markers


def test_a_producer_may_switch_to_version_2_and_back(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0, version=TV1)
    rig.end(producer, commit=True, version=TV1)
    rig.write_markers()
    rig.add(producer, A0)
    after = rig.end(producer, commit=True)
    rig.write_markers()
    assert after == (producer[0], producer[1] + 1)
    rig.add(after, A0, version=TV1)
    assert rig.end(after, commit=False, version=TV1) == after


# Exhausted epochs


def used_up(rig: Rig) -> tuple[int, int]:
    producer_id, _ = rig.init()
    rig.run_event(TransactionSaved(replace(rig.transaction(), epoch=32_766)))
    return producer_id, 32_766


@OUTCOMES
def test_a_producer_with_exhausted_epochs_gets_a_new_producer_id(rig: Rig, commit: bool) -> None:
    producer = used_up(rig)
    rig.add(producer, A0)
    after = rig.end(producer, commit=commit)
    assert after == (1002, 0)
    (markers,) = rig.markers
    assert (markers.producer_id, markers.epoch) == (producer[0], 32_767)
    rig.write_markers()
    assert rig.end(producer, commit=commit) == after
    assert rig.end_refused(producer, commit=not commit) is InvalidTxnState
    rig.add(after, A0)
    assert rig.end(after, commit=True) == (1002, 1)


def test_without_an_available_producer_id_the_transaction_stays_open(rig: Rig) -> None:
    producer = used_up(rig)
    rig.add(producer, A0)
    rig.ids_left = 0
    assert rig.end_refused(producer, commit=True) is CoordinatorLoadInProgress
    assert rig.state() is TxnState.ONGOING
    assert not rig.markers
    rig.ids_left = 1
    rig.end(producer, commit=True)


# Markers, crashes and failed appends


def test_markers_are_written_only_after_the_decision_is_committed(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.holding = True
    ticket = rig.tickets + 1
    rig.submit_end(producer, commit=True)
    assert not rig.markers
    assert ticket not in rig.replies
    rig.commit()
    assert len(rig.markers) == 1
    assert ticket in rig.replies


def test_a_decision_that_was_lost_leaves_the_transaction_open(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.holding = True
    rig.submit_end(producer, commit=True)
    rig.crash()
    rig.holding = False
    assert rig.state() is TxnState.ONGOING
    rig.end(producer, commit=False)


@OUTCOMES
def test_after_a_crash_the_markers_are_written_again(rig: Rig, commit: bool) -> None:
    producer = rig.init()
    rig.add(producer, A0, A1)
    after = rig.end(producer, commit=commit)
    (before,) = rig.markers
    rig.crash()
    assert rig.markers == [replace(before, coordinator_epoch=1)]
    rig.write_markers()
    assert rig.end(producer, commit=commit) == after


def test_an_abort_without_partitions_that_a_crash_interrupted_is_completed(rig: Rig) -> None:
    producer = rig.init()
    rig.end(producer, commit=False)
    rig.log.pop()
    rig.committed -= 1
    rig.crash()
    rig.pass_ms(0)
    assert rig.state() is TxnState.COMPLETE_ABORT
    assert not rig.markers


def test_markers_are_written_after_a_load_while_no_event_can_be_appended(rig: Rig) -> None:
    for name in ("t", "u"):
        producer = rig.init(name)
        if name == "u":
            rig.add(producer, A0, name=name)
        rig.end(producer, commit=False, name=name)
    # The transaction without partitions was left prepared, as the first event of its batch.
    rig.log[:] = [event for event in rig.log if event != rig.log[2]]
    rig.committed = len(rig.log)
    rig.refusing = CoordinatorNotAvailable()
    rig.crash()

    assert [markers.transactional_id for markers in rig.markers] == ["u"]
    rig.pass_ms(1_000)
    assert rig.state() is TxnState.PREPARE_ABORT
    rig.refusing = None
    rig.pass_ms(1_000)
    assert rig.state() is TxnState.COMPLETE_ABORT


def test_markers_reported_twice_or_late_change_nothing(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    after = rig.end(producer, commit=True)
    (markers,) = rig.markers
    rig.write_markers()
    assert rig.ask(written(markers)) == TransactionCompleted()
    rig.add(after, A0)
    rig.end(after, commit=False)
    assert rig.ask(written(markers)) == TransactionCompleted()
    assert rig.state() is TxnState.PREPARE_ABORT


def test_markers_of_an_unknown_id_change_nothing(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.end(producer, commit=True)
    (markers,) = rig.markers
    assert rig.ask(written(replace(markers, transactional_id="u"))) == TransactionCompleted()
    assert rig.shard.count == 1


def test_an_end_whose_append_failed_changes_nothing(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.refusing = CoordinatorNotAvailable()
    assert rig.end_refused(producer, commit=True) is CoordinatorNotAvailable
    assert rig.state() is TxnState.ONGOING
    assert not rig.markers
    rig.refusing = None
    rig.end(producer, commit=False)


def test_a_completion_whose_append_failed_is_retried_without_new_markers(rig: Rig) -> None:
    producer = rig.init()
    rig.add(producer, A0)
    rig.end(producer, commit=True)
    rig.refusing = CoordinatorNotAvailable()
    rig.write_markers()
    rig.pass_ms(1000)
    assert rig.state() is TxnState.PREPARE_COMMIT
    rig.refusing = None
    rig.pass_ms(1000)
    assert rig.state() is TxnState.COMPLETE_COMMIT
    assert not rig.markers


# Old clients


def test_an_old_client_gets_invalid_producer_epoch() -> None:
    fenced = ProducerFenced()
    assert isinstance(error_for_version(fenced, 1, FENCED_FROM), InvalidProducerEpoch)
    assert error_for_version(fenced, 2, FENCED_FROM) is fenced
    assert isinstance(error_for_version(fenced, 3, FENCED_FROM_INIT), InvalidProducerEpoch)
    assert error_for_version(fenced, 4, FENCED_FROM_INIT) is fenced
    other = ConcurrentTransactions()
    assert error_for_version(other, 0, FENCED_FROM) is other
