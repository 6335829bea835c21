"""Guards between the verification of a transaction and the append that relies on it (KIP-890)."""

from collections import deque
from collections.abc import Callable, Iterator

import pytest
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
)
from penstock.partition.producers import ProducerTable
from penstock.partition.replica import Replica
from penstock.partition.verification import (
    GUARDS_MAX,
    NOT_REQUIRED,
    SEQUENCES,
    WAS_OPEN,
    TxnProof,
    VerificationGuard,
    VerificationGuards,
)
from penstock.wire.records import build_marker

PRODUCER = 5


def transactional(sequence: int = 0, epoch: int = 0) -> bytearray:
    return batch(
        b"a", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=True, at_ms=NOW_MS
    )


def marker(*, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    return bytearray(
        build_marker(
            commit=True,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
    )


def begin(replica: Replica, sequence: int = 0, epoch: int = 0) -> VerificationGuard:
    return replica.producers.guards.begin(PRODUCER, epoch, sequence, NOW_MS)


# The guards of a partition


def test_requests_of_one_producer_share_a_guard() -> None:
    guards = VerificationGuards()
    assert guards.begin(PRODUCER, 0, 0, 0) is guards.begin(PRODUCER, 0, 1, 0)
    assert guards.begin(PRODUCER + 1, 0, 0, 0) is not guards.begin(PRODUCER, 0, 1, 0)


def test_an_epoch_that_no_coordinator_gave_does_not_lock_out_the_producer() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    ahead = TxnProof(begin(replica, 0, epoch=7), 7, error=InvalidProducerEpoch())
    with pytest.raises(InvalidProducerEpoch):
        rig.append(replica, transactional(0, epoch=7), proof=ahead)

    rig.append(replica, transactional(3), proof=TxnProof(begin(replica, 3), 0))


def test_a_guard_after_a_dropped_one_is_another() -> None:
    guards = VerificationGuards()
    before = guards.begin(PRODUCER, 0, 0, 0)
    guards.drop(PRODUCER)
    after = guards.begin(PRODUCER, 0, 0, 0)

    assert not guards.holds(before)
    assert guards.holds(after)


def test_guards_are_bounded_and_the_oldest_goes_first() -> None:
    guards = VerificationGuards()
    first, second = guards.begin(0, 0, 0, 0), guards.begin(1, 0, 0, 0)
    for producer_id in range(2, GUARDS_MAX + 1):
        guards.begin(producer_id, 0, 0, 0)

    assert len(guards) == GUARDS_MAX
    assert not guards.holds(first)
    assert guards.holds(second)


def test_a_guard_whose_producer_is_silent_expires_with_the_producers() -> None:
    producers = ProducerTable()
    old = producers.guards.begin(PRODUCER, 0, 0, NOW_MS)
    young = producers.guards.begin(PRODUCER + 1, 0, 0, NOW_MS + 1)
    producers.expire(NOW_MS + 1000, 1000)

    assert not producers.guards.holds(old)
    assert producers.guards.holds(young)


@pytest.mark.parametrize(
    ("sequences", "lowest"),
    [((3, 5), 3), ((5, 3), 3), ((SEQUENCES - 1, 0), SEQUENCES - 1), ((0, SEQUENCES - 2), SEQUENCES - 2)],
)
def test_a_guard_keeps_the_lowest_sequence_also_where_sequences_wrap(sequences: tuple[int, int], lowest: int) -> None:
    guards = VerificationGuards()
    for sequence in sequences:
        guard = guards.begin(PRODUCER, 0, sequence, 0)
    assert guard.lowest_sequence == lowest


# The append


def test_an_append_needs_the_guard_that_holds() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    guard = begin(replica)
    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(), proof=WAS_OPEN)
    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(), proof=TxnProof(VerificationGuard(PRODUCER, 0, 0, NOW_MS), 0))
    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(epoch=1), proof=TxnProof(guard, 0))

    rig.append(replica, transactional(), proof=TxnProof(guard, 0))
    assert replica.producers.is_open(PRODUCER, 0)
    assert len(replica.producers.guards) == 0


def test_a_second_request_is_accepted_by_the_transaction_that_the_first_began() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    proof = TxnProof(begin(replica, 0), 0)
    begin(replica, 1)
    rig.append(replica, transactional(0), proof=proof)
    rig.append(replica, transactional(1), proof=proof)

    assert replica.offsets.log_end == 2


def test_a_marker_before_the_append_refuses_it_although_the_coordinator_confirmed() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, transactional(0), proof=TxnProof(begin(replica), 0))
    rig.append(replica, marker(), internal=True)
    proof = TxnProof(begin(replica, 1), 0)
    rig.append(replica, marker(), internal=True)

    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(1), proof=proof)
    # Verified again, it may begin the next transaction; the guard of before still may not.
    again = TxnProof(begin(replica, 1), 0)
    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(1), proof=proof)
    rig.append(replica, transactional(1), proof=again)


def test_a_batch_that_was_not_verified_because_its_transaction_was_open_comes_too_late_after_the_marker() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, transactional(0), proof=TxnProof(begin(replica), 0))
    rig.append(replica, transactional(1), proof=WAS_OPEN)
    rig.append(replica, marker(), internal=True)

    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(2), proof=WAS_OPEN)
    rig.append(replica, marker(epoch=1), internal=True, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        rig.append(replica, transactional(2), proof=WAS_OPEN)


def test_a_retry_of_a_written_batch_is_a_duplicate_also_after_the_marker() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    first = rig.append(replica, transactional(0), proof=TxnProof(begin(replica), 0))
    rig.append(replica, marker(), internal=True)

    assert rig.append(replica, transactional(0), proof=WAS_OPEN).base_offset == first.base_offset


def test_a_later_batch_waits_for_the_first_one_that_has_to_be_retried() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    lower, upper = begin(replica, 0), begin(replica, 1)
    with pytest.raises(NotEnoughReplicas):
        rig.append(replica, transactional(0), proof=TxnProof(lower, 0, error=NotEnoughReplicas()))
    with pytest.raises(OutOfOrderSequenceNumber):
        rig.append(replica, transactional(1), proof=TxnProof(upper, 0))

    rig.append(replica, transactional(0), proof=TxnProof(begin(replica, 0), 0))
    rig.append(replica, transactional(1), proof=TxnProof(upper, 0))


def test_a_producer_whose_epoch_is_its_transactions_begins_at_sequence_0() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    with pytest.raises(OutOfOrderSequenceNumber):
        rig.append(replica, transactional(3), proof=TxnProof(begin(replica, 3), 0, adds=True))
    replica.producers.guards.drop(PRODUCER)

    rig.append(replica, transactional(3), proof=TxnProof(begin(replica, 3), 0))


def test_leaving_leadership_drops_the_guards() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    guard = begin(replica)
    [state] = topic().partitions
    elsewhere = type(state)(index=0, leader=99, leader_epoch=state.leader_epoch + 1, replicas=(1, 99), isr=(1, 99))
    replica.assume(elsewhere, NOW_MS)

    assert not replica.producers.guards.holds(guard)


def test_a_coordinator_older_than_the_last_marker_is_not_believed() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    producers = replica.producers
    producers.check_coordinator(PRODUCER, 0)
    rig.append(replica, marker(coordinator_epoch=4), internal=True)

    producers.check_coordinator(PRODUCER, 4)
    with pytest.raises(NotCoordinator):
        producers.check_coordinator(PRODUCER, 3)


def test_an_offset_commit_needs_an_open_transaction_or_the_guard_that_holds() -> None:
    producers = ProducerTable()
    guard = producers.guards.begin(PRODUCER, 0, -1, NOW_MS)
    producers.check_unsequenced(PRODUCER, 0, TxnProof(guard, 0))
    producers.check_unsequenced(PRODUCER, 0, NOT_REQUIRED)
    with pytest.raises(NotEnoughReplicas):
        producers.check_unsequenced(PRODUCER, 0, TxnProof(guard, 0, error=NotEnoughReplicas()))
    producers.record(PRODUCER, 0, -1, 0, True, 0, NOW_MS, NOW_MS)
    producers.check_unsequenced(PRODUCER, 0, TxnProof(guard, 0))
    producers.record_marker(PRODUCER, 0, 0, 1, False, NOW_MS, NOW_MS)
    with pytest.raises(InvalidTxnState):
        producers.check_unsequenced(PRODUCER, 0, TxnProof(guard, 0))
    producers.record_marker(PRODUCER, 1, 0, 2, False, NOW_MS, NOW_MS)
    with pytest.raises(InvalidProducerEpoch):
        producers.check_unsequenced(PRODUCER, 0, TxnProof(guard, 0))


# Every order of events


class Request:
    """A batch on its way into a transaction, and what it was given for the append."""

    def __init__(self, txn: int, proof: TxnProof) -> None:
        self.txn = txn
        self.proof = proof


class Model:
    """One partition, its producer and the coordinator, whose messages arrive in any order.

    All transactions have the same epoch, as those of clients before transaction version 2, so that only the guard tells
    them apart. The client writes to the partition only after it has added it.
    """

    def __init__(self) -> None:
        self.table = ProducerTable()
        self.txn = 0
        """The coordinator's transaction: odd while it is ongoing, even when it has ended."""
        self.marker_due = False
        self.offset = 0
        self.asked: deque[Request] = deque()
        self.verified: deque[Request] = deque()
        self.accepted = 0
        self.misplaced: list[str] = []

    def enabled(self) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        if self.txn % 2:
            actions.append(self.end)
            if len(self.asked) + len(self.verified) < 2:
                actions.append(self.ask)
        elif not self.marker_due:
            actions.append(self.add)
        if self.marker_due:
            actions.append(self.mark)
        if self.asked:
            actions.append(self.answer)
        if self.verified:
            actions.append(self.append)
        return actions

    def add(self) -> None:
        self.txn += 1

    def end(self) -> None:
        self.txn += 1
        self.marker_due = True

    def mark(self) -> None:
        self.marker_due = False
        self.table.record_marker(PRODUCER, 0, 0, self.offset, False, NOW_MS, NOW_MS)
        self.offset += 1

    def ask(self) -> None:
        is_open = self.table.is_open(PRODUCER, 0)
        self.asked.append(Request(self.txn, WAS_OPEN if is_open else TxnProof(self.guard(), 0)))

    def guard(self) -> VerificationGuard:
        return self.table.guards.begin(PRODUCER, 0, 0, NOW_MS)

    def answer(self) -> None:
        request = self.asked.popleft()
        if request.proof.guard is None or self.txn % 2:
            self.verified.append(request)

    def append(self) -> None:
        request = self.verified.popleft()
        try:
            if not self.table.is_open(PRODUCER, 0):
                self.table.check_first(PRODUCER, 0, 0, request.proof)
        except BrokerError:
            return
        self.accepted += 1
        current = self.txn if self.txn % 2 else self.txn - 1
        if not self.txn % 2 and not self.marker_due:
            self.misplaced.append("no marker will end this transaction")
        elif request.txn != current:
            self.misplaced.append(f"a batch of transaction {request.txn} in transaction {current}")
        self.table.record(PRODUCER, 0, -1, 0, True, self.offset, NOW_MS, NOW_MS)
        self.offset += 1


class WithoutGuards(Model):
    """Accepts whatever the coordinator has confirmed."""

    def append(self) -> None:
        self.verified[0].proof = NOT_REQUIRED
        super().append()


class GuardedTooLate(Model):
    """Takes the guard when the response arrives, not before the question."""

    def append(self) -> None:
        request = self.verified[0]
        if request.proof.guard is not None:
            request.proof = TxnProof(self.guard(), 0)
        super().append()


class MarkersKeepGuards(Model):
    """Keeps the guard when a marker is written."""

    def mark(self) -> None:
        kept = [self.guard()] if len(self.table.guards) else []
        super().mark()
        for guard in kept:
            vars_of(self.table.guards)[PRODUCER] = guard


def vars_of(guards: VerificationGuards) -> dict[int, VerificationGuard]:
    found: dict[int, VerificationGuard] = getattr(guards, "_guards")  # noqa: B009
    return found


STEPS = 14


def runs(kind: type[Model]) -> Iterator[Model]:
    """A model after every sequence of so many events."""
    paths: list[tuple[int, ...]] = [()]
    while paths:
        path = paths.pop()
        model = kind()
        for choice in path:
            model.enabled()[choice]()
        if len(path) == STEPS:
            yield model
        else:
            paths += [(*path, choice) for choice in range(len(model.enabled()))]


def test_no_order_of_events_puts_a_batch_outside_of_its_transaction() -> None:
    accepted = 0
    for model in runs(Model):
        assert not model.misplaced
        accepted += model.accepted
    assert accepted > 1_000


@pytest.mark.parametrize("ablation", [WithoutGuards, GuardedTooLate, MarkersKeepGuards])
def test_the_model_notices_a_missing_guard(ablation: type[Model]) -> None:
    assert any(model.misplaced for model in runs(ablation))
