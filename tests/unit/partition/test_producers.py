"""The producer table: duplicates, sequence gaps, fencing, transactions, snapshots."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from penstock.partition.producers import (
    BATCHES_KEPT,
    PRODUCERS_MAX,
    RELOAD_GRACE_MS,
    SEQUENCE_MAX,
    Duplicate,
    ProducerTable,
)

DAY_MS = 86_400_000


def append(table: ProducerTable, base_offset: int, sequence: int, *, epoch: int = 0, delta: int = 0, **kw: int) -> None:
    """Check and record a batch of producer 7 as a leader does."""
    transactional = bool(kw.get("transactional", 0))
    assert table.check(kw.get("producer_id", 7), epoch, sequence, delta, transactional) is None
    table.record(
        kw.get("producer_id", 7),
        epoch,
        sequence,
        delta,
        transactional,
        base_offset,
        kw.get("timestamp", 1000 + base_offset),
        kw.get("now_ms", 0),
    )


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    table = ProducerTable()

    assert table.check(7, 3, 4711, 9, False) is None


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    table = ProducerTable()
    append(table, 0, 0, delta=4)

    assert table.check(7, 0, 5, 0, False) is None
    with pytest.raises(OutOfOrderSequenceNumber, match=r"6 \(incoming seq. number\), 4 \(current end"):
        table.check(7, 0, 6, 0, False)


def test_a_retry_of_one_of_the_last_five_batches_is_a_duplicate() -> None:
    table = ProducerTable()
    for batch in range(6):
        append(table, batch * 10, batch * 3, delta=2)

    responses = [table.check(7, 0, batch * 3, 2, False) for batch in range(1, 6)]

    assert responses == [Duplicate(b * 10, b * 10 + 2, 1000 + b * 10) for b in range(1, 6)]


def test_a_retry_older_than_five_batches_is_out_of_order() -> None:
    table = ProducerTable()
    for batch in range(BATCHES_KEPT + 1):
        append(table, batch, batch)

    with pytest.raises(OutOfOrderSequenceNumber):
        table.check(7, 0, 0, 0, False)


def test_a_batch_that_only_overlaps_an_old_one_is_out_of_order() -> None:
    table = ProducerTable()
    append(table, 0, 0, delta=4)

    with pytest.raises(OutOfOrderSequenceNumber):
        table.check(7, 0, 0, 3, False)
    with pytest.raises(OutOfOrderSequenceNumber):
        table.check(7, 0, 1, 3, False)


def test_the_sequence_wraps_to_zero_after_its_greatest() -> None:
    table = ProducerTable()
    append(table, 0, SEQUENCE_MAX)

    assert table.check(7, 0, 0, 5, False) is None


def test_a_batch_across_the_wrap_is_followed_and_recognised() -> None:
    table = ProducerTable()
    append(table, 0, SEQUENCE_MAX - 1, delta=3)

    assert table.check(7, 0, SEQUENCE_MAX - 1, 3, False) == Duplicate(0, 3, 1000)
    assert table.check(7, 0, 2, 0, False) is None


def test_an_older_epoch_is_fenced_even_when_it_repeats_an_old_batch() -> None:
    table = ProducerTable()
    append(table, 0, 0, epoch=1)
    append(table, 1, 0, epoch=2)

    with pytest.raises(InvalidProducerEpoch):
        table.check(7, 1, 0, 0, False)


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    table = ProducerTable()
    append(table, 0, 0, epoch=1)

    assert table.check(7, 2, 0, 0, False) is None
    with pytest.raises(OutOfOrderSequenceNumber, match="new epoch"):
        table.check(7, 2, 1, 0, False)


def test_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    table = ProducerTable()
    append(table, 0, 0, epoch=1)
    append(table, 1, 0, epoch=2)

    assert table.check(7, 2, 0, 0, False) == Duplicate(1, 1, 1001)
    entry = table.get(7)
    assert entry is not None
    assert len(entry.batches) == 1


def test_an_idle_producer_expires_unless_it_has_an_open_transaction() -> None:
    table = ProducerTable()
    append(table, 0, 0, producer_id=1, now_ms=0)
    append(table, 1, 0, producer_id=2, now_ms=0, transactional=1)
    append(table, 2, 0, producer_id=3, now_ms=1)

    assert table.expire(DAY_MS, DAY_MS) == 1
    assert sorted(id_ for id_, _ in table) == [2, 3]


def test_the_table_is_bounded_by_forgetting_the_producers_idle_longest() -> None:
    table = ProducerTable()
    for producer_id in range(PRODUCERS_MAX):
        table.record(producer_id, 0, 0, 0, False, producer_id, 0, producer_id)

    table.record(PRODUCERS_MAX, 0, 0, 0, False, PRODUCERS_MAX, 0, PRODUCERS_MAX)

    assert len(table) == PRODUCERS_MAX - PRODUCERS_MAX // 10 + 1
    assert table.get(0) is None
    assert table.get(PRODUCERS_MAX - 1) is not None


def test_readers_of_committed_data_stop_at_the_oldest_open_transaction() -> None:
    table = ProducerTable()
    append(table, 5, 0, producer_id=1, transactional=1)
    append(table, 6, 0, producer_id=2, transactional=1)
    append(table, 7, 1, producer_id=1, transactional=1)
    assert table.first_unstable == 5

    completed = table.record_marker(1, 0, 0, 8, True, 0, 0)

    assert completed is not None
    assert (completed.first_offset, completed.last_offset, completed.aborted, completed.last_stable) == (5, 8, True, 6)
    assert table.first_unstable == 5, "the marker is not below the high watermark yet"
    table.advance(9)
    assert table.first_unstable == 6
    table.record_marker(2, 0, 0, 9, False, 0, 0)
    table.advance(10)
    assert table.first_unstable is None


def test_a_marker_without_data_completes_nothing() -> None:
    table = ProducerTable()

    assert table.record_marker(1, 3, 2, 8, False, 0, 0) is None
    assert table.first_unstable is None
    with pytest.raises(InvalidProducerEpoch):
        table.check(1, 2, 0, 0, True)


def test_a_non_transactional_batch_inside_a_transaction_is_refused() -> None:
    table = ProducerTable()
    append(table, 0, 0, transactional=1)

    with pytest.raises(InvalidTxnState):
        table.check(7, 0, 1, 0, False)


def test_markers_of_an_older_coordinator_or_producer_epoch_are_fenced() -> None:
    table = ProducerTable()
    append(table, 0, 0, epoch=4, transactional=1)
    table.record_marker(7, 4, 2, 1, False, 0, 0)

    with pytest.raises(TransactionCoordinatorFenced):
        table.check_marker(7, 4, 1)
    with pytest.raises(InvalidProducerEpoch):
        table.check_marker(7, 3, 2)
    table.check_marker(7, 4, 2)


def test_after_a_marker_of_a_bumped_epoch_the_sequence_starts_at_zero() -> None:
    table = ProducerTable()
    append(table, 0, 5, epoch=1, transactional=1)
    table.record_marker(7, 2, 0, 1, True, 0, 0)

    assert table.check(7, 2, 0, 0, False) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        table.check(7, 2, 6, 0, False)


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    table = ProducerTable()
    append(table, 10, 0, delta=1, transactional=1)
    append(table, 12, 2, delta=3, transactional=1)
    append(table, 4, 0, producer_id=8, transactional=1)
    other = ProducerTable()

    other.load(table.snapshot(), now_ms=5000, idle_ms_max=DAY_MS)

    assert other.snapshot() == table.snapshot()
    assert other.first_unstable == 4
    assert other.check(7, 0, 2, 3, True) == Duplicate(12, 15, 1012)
    assert other.check(7, 0, 6, 0, True) is None


def test_a_producer_of_historical_data_is_kept_for_a_while_after_a_restart() -> None:
    table = ProducerTable()
    append(table, 0, 0, timestamp=1)
    other = ProducerTable()
    now_ms = 100 * DAY_MS
    other.load(table.snapshot(), now_ms, DAY_MS)

    assert other.expire(now_ms + RELOAD_GRACE_MS - 1, DAY_MS) == 0
    assert other.expire(now_ms + RELOAD_GRACE_MS, DAY_MS) == 1


class Producers(RuleBasedStateMachine):
    """The table compared with a search through a list of all batches appended."""

    @initialize(start=st.sampled_from([0, 17, SEQUENCE_MAX - 3]))
    def begin(self, start: int) -> None:
        self.table = ProducerTable()
        self.log: list[tuple[int, int, int, int, int]] = []
        """producer id, epoch, base sequence, delta, base offset"""
        self.end = 0
        self.start = start

    def expected(self, producer_id: int, epoch: int, sequence: int, delta: int) -> object:
        mine = [b for b in self.log if b[0] == producer_id]
        if not mine:
            return None
        current = mine[-1][1]
        if epoch < current:
            return InvalidProducerEpoch
        if epoch > current:
            return None if sequence == 0 else OutOfOrderSequenceNumber
        recent = [b for b in mine if b[1] == epoch]
        since_bump = []
        for batch in reversed(mine):
            if batch[1] != epoch:
                break
            since_bump.insert(0, batch)
        assert recent == since_bump
        last = since_bump[-1]
        if sequence == (last[2] + last[3] + 1) % (SEQUENCE_MAX + 1):
            return None
        for batch in since_bump[-5:]:
            if (batch[2], batch[3]) == (sequence, delta):
                return Duplicate(batch[4], batch[4] + delta, batch[4] + 100)
        return OutOfOrderSequenceNumber

    def produce(self, producer_id: int, epoch: int, sequence: int, delta: int) -> None:
        expected = self.expected(producer_id, epoch, sequence, delta)
        try:
            got: object = self.table.check(producer_id, epoch, sequence, delta, False)
        except BrokerError as error:
            got = type(error)
        assert got == expected
        if got is None:
            self.table.record(producer_id, epoch, sequence, delta, False, self.end, self.end + 100, 0)
            self.log.append((producer_id, epoch, sequence, delta, self.end))
            self.end += delta + 1

    @rule(producer_id=st.integers(0, 2), delta=st.integers(0, 3))
    def next_batch(self, producer_id: int, delta: int) -> None:
        mine = [b for b in self.log if b[0] == producer_id]
        sequence = (mine[-1][2] + mine[-1][3] + 1) % (SEQUENCE_MAX + 1) if mine else self.start
        self.produce(producer_id, mine[-1][1] if mine else 0, sequence, delta)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.produce(*data.draw(st.sampled_from(self.log[-8:]))[:4])

    @rule(producer_id=st.integers(0, 2), epoch=st.integers(0, 3), sequence=st.integers(0, 9), delta=st.integers(0, 3))
    def anything(self, producer_id: int, epoch: int, sequence: int, delta: int) -> None:
        self.produce(producer_id, epoch, sequence, delta)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def truncate_and_replay(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.log)))
        self.log = self.log[:keep]
        self.end = self.log[-1][4] + self.log[-1][3] + 1 if self.log else 0
        self.table.clear()
        for producer_id, epoch, sequence, delta, offset in self.log:
            self.table.record(producer_id, epoch, sequence, delta, False, offset, offset + 100, 0)

    @invariant()
    def five_at_most(self) -> None:
        assert all(1 <= len(entry.batches) <= BATCHES_KEPT for _, entry in self.table)


TestProducers = Producers.TestCase
TestProducers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Transactions(RuleBasedStateMachine):
    """The first unstable offset compared with a search of the whole log."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.end = 0
        self.high_watermark = 0
        self.open: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.decided: list[tuple[int, int]] = []

    @rule(producer_id=st.integers(0, 3), delta=st.integers(0, 2))
    def write(self, producer_id: int, delta: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        assert self.table.check(producer_id, 0, sequence, delta, True) is None
        self.table.record(producer_id, 0, sequence, delta, True, self.end, 0, 0)
        self.sequences[producer_id] = sequence + delta + 1
        self.open.setdefault(producer_id, self.end)
        self.end += delta + 1

    @rule(producer_id=st.integers(0, 3), aborted=st.booleans())
    def finish(self, producer_id: int, aborted: bool) -> None:
        self.table.check_marker(producer_id, 0, 0)
        completed = self.table.record_marker(producer_id, 0, 0, self.end, aborted, 0, 0)
        first = self.open.pop(producer_id, None)
        if first is None:
            assert completed is None
        else:
            assert completed == (producer_id, first, self.end, aborted, min(self.open.values(), default=self.end + 1))
            self.decided.append((first, self.end))
        self.end += 1

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, self.end))
        self.table.advance(self.high_watermark)

    @rule()
    def restart_when_all_is_committed(self) -> None:
        self.high_watermark = self.end
        self.table.advance(self.end)
        other = ProducerTable()
        other.load(self.table.snapshot(), 0, DAY_MS)
        self.table = other

    @invariant()
    def first_unstable_is_the_least_undecided(self) -> None:
        undecided = [*self.open.values(), *(first for first, marker in self.decided if marker >= self.high_watermark)]
        assert self.table.first_unstable == min(undecided, default=None)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Counted(int):
    """An offset that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return super().__lt__(other)


def test_the_cost_of_transactions_beyond_the_high_watermark_does_not_grow_with_their_number() -> None:
    """A replay after a crash may read thousands whose markers are beyond the last checkpoint."""
    table = ProducerTable()
    count = 4096

    for at in range(count):
        table.record(at, 0, 0, 0, True, Counted(2 * at), 0, 0)
        table.record_marker(at, 0, 0, Counted(2 * at + 1), True, 0, 0)
    table.advance(2 * count)

    assert table.first_unstable is None
    assert Counted.compared < 40 * count, "a few per transaction and per halving of their number"


def test_a_frozen_table_stays_as_it_was_while_the_table_changes() -> None:
    table = ProducerTable()
    for producer_id in range(3):
        table.record(producer_id, 0, 0, 0, producer_id == 2, producer_id, 1000, 1000)
    before = table.snapshot()

    frozen = table.freeze()
    table.record(0, 0, 1, 0, False, 3, 2000, 2000)
    table.record(1, 5, 0, 0, False, 4, 2000, 2000)
    table.record_marker(2, 0, 1, 5, False, 2000, 2000)
    table.record(9, 0, 0, 0, False, 6, 2000, 2000)
    table.expire(3000 + DAY_MS, DAY_MS)

    assert list(frozen) == before
    assert len(frozen) == 3


def test_an_entry_is_copied_once_after_a_freeze() -> None:
    table = ProducerTable()
    table.record(0, 0, 0, 0, False, 0, 1000, 1000)
    first = table.freeze()
    table.record(0, 0, 1, 0, False, 1, 1000, 1000)
    held = table.get(0)
    table.record(0, 0, 2, 0, False, 2, 1000, 1000)

    assert table.get(0) is held
    assert [entry.last_offset for entry in first] == [0]
    assert [entry.last_offset for entry in table.freeze()] == [2]
