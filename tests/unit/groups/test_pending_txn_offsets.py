"""Offsets within transactions: pending, then committed or discarded."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.groups.events import OffsetCommitted, OffsetForgotten, TxnOffsetPending, TxnOffsetsDecided
from penstock.groups.offset_store import SINCE_COMMIT, OffsetStore


def committed(offset: int, partition: int = 0, group: str = "g", topic: str = "t") -> OffsetCommitted:
    return OffsetCommitted(group, topic, partition, offset, -1, "", 1000)


def pending(producer_id: int, offset: int, partition: int = 0) -> TxnOffsetPending:
    return TxnOffsetPending(producer_id, 0, committed(offset, partition))


def offsets(store: OffsetStore, group: str = "g") -> dict[int, int]:
    return {found.partition: found.offset for found in store.all_of(group)}


def test_a_pending_offset_is_visible_once_its_transaction_is_committed() -> None:
    store = OffsetStore()
    store.committed(committed(3))
    store.pending(pending(1, 5))
    assert offsets(store) == {0: 3}
    assert store.unsettled("g", "t", 0)

    store.decided(TxnOffsetsDecided(1, True))

    assert offsets(store) == {0: 5}
    assert not store.unsettled("g", "t", 0)


def test_a_pending_offset_is_discarded_when_its_transaction_is_aborted() -> None:
    store = OffsetStore()
    store.pending(pending(1, 5))

    store.decided(TxnOffsetsDecided(1, False))

    assert offsets(store) == {}
    assert not store.unsettled("g", "t", 0)


def test_a_later_commit_wins_over_a_transaction_that_ends_after_it() -> None:
    store = OffsetStore()
    store.pending(pending(1, 5))
    store.committed(committed(9))
    assert store.unsettled("g", "t", 0), "as in Kafka, although it is superseded"

    store.decided(TxnOffsetsDecided(1, True))

    assert offsets(store) == {0: 9}


def test_of_two_transactions_the_later_offset_commit_wins() -> None:
    store = OffsetStore()
    store.pending(pending(1, 5))
    store.pending(pending(2, 7))

    store.decided(TxnOffsetsDecided(2, True))
    store.decided(TxnOffsetsDecided(1, True))

    assert offsets(store) == {0: 7}


def test_a_tombstone_deletes_pending_offsets() -> None:
    store = OffsetStore()
    store.pending(pending(1, 5))
    assert store.tombstones_of("g") == [OffsetForgotten("g", "t", 0)]
    assert store.of_gone_topic("t", None, 0) == [OffsetForgotten("g", "t", 0)]

    store.forgotten(OffsetForgotten("g", "t", 0))
    store.decided(TxnOffsetsDecided(1, True))

    assert offsets(store) == {}


def test_an_offset_with_a_pending_one_does_not_expire() -> None:
    store = OffsetStore()
    store.committed(committed(3, partition=0))
    store.committed(committed(3, partition=1))
    store.pending(pending(1, 5, partition=0))

    expired = store.expired("g", "t", SINCE_COMMIT, 10, 10_000)

    assert expired == [OffsetForgotten("g", "t", 1)]
    assert store.count_of("g") == 3


class Stagings(RuleBasedStateMachine):
    """The store against a list of all events in the log, of which the latest one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.store = OffsetStore()
        self.open: dict[int, list[tuple[int, int]]] = {}
        self.counts: dict[int, int] = {}
        self.next = 0

    @rule(partition=st.integers(0, 1))
    def commit(self, partition: int) -> None:
        self.next += 1
        self.store.committed(committed(self.next, partition))
        self.counts[partition] = self.next

    @rule(producer=st.integers(1, 3), partition=st.integers(0, 1))
    def add(self, producer: int, partition: int) -> None:
        self.next += 1
        self.store.pending(pending(producer, self.next, partition))
        self.open.setdefault(producer, []).append((partition, self.next))

    @rule(producer=st.integers(1, 3), commit=st.booleans())
    def decide(self, producer: int, commit: bool) -> None:
        self.store.decided(TxnOffsetsDecided(producer, commit))
        for partition, offset in self.open.pop(producer, []):
            if commit:
                self.counts[partition] = max(offset, self.counts.get(partition, 0))

    @rule(partition=st.integers(0, 1))
    def forget(self, partition: int) -> None:
        self.store.forgotten(OffsetForgotten("g", "t", partition))
        self.counts.pop(partition, None)
        for producer, places in list(self.open.items()):
            self.open[producer] = [place for place in places if place[0] != partition]

    @invariant()
    def the_latest_counts(self) -> None:
        assert offsets(self.store) == self.counts
        unsettled = {partition for places in self.open.values() for partition, _ in places}
        assert {index for index in (0, 1) if self.store.unsettled("g", "t", index)} == unsettled


TestStagings = Stagings.TestCase
TestStagings.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
