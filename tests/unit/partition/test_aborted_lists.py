"""The list of aborted transactions that a reader of committed data gets with its batches."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.partition.rig import NOW_MS, Rig, topic

from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.partition.replica import Replica
from penstock.storage.slices import FileSlice
from penstock.storage.txn_index import AbortedTxn
from penstock.wire.records import RecordBatchBuilder, build_marker, iter_batches

PAYLOAD_BYTES = 5_000
"""More than the index interval, so that each batch but the first has an index entry."""


class Ledger:
    """A partition that producers write to in transactions."""

    def __init__(self, **configs: str) -> None:
        self.rig = Rig(topic(configs={name.replace("_", "."): value for name, value in configs.items()}))
        self.replica: Replica = self.rig.replica()
        self.aborted: list[AbortedTxn] = []
        self._first: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, size: int = PAYLOAD_BYTES) -> None:
        builder = RecordBatchBuilder()
        builder.add(NOW_MS, None, b"x" * size)
        sequence = self._sequences.get(producer_id, 0)
        batch = builder.build(
            attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        offset = self.rig.append(self.replica, batch, internal=True).base_offset
        self._first.setdefault(producer_id, offset)
        self._sequences[producer_id] = sequence + 1

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = build_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        offset = self.rig.append(self.replica, marker, internal=True).base_offset
        first = self._first.pop(producer_id, None)
        if first is not None and not commit:
            self.aborted.append(AbortedTxn(producer_id, first, offset, min(self._first.values(), default=offset + 1)))

    def read(self, offset: int, bytes_max: int) -> tuple[int, list[AbortedTxn]]:
        """The offset after the last batch of a read, and the list of aborted transactions."""
        fetched = self.replica.read(offset, bytes_max, at_least_one=True, read_committed=True)
        data = fetched.records.contents() if isinstance(fetched.records, FileSlice) else fetched.records
        assert fetched.aborted is not None
        return max((header.last_offset + 1 for _, header in iter_batches(data)), default=offset), fetched.aborted


def aborted_one_after_the_other(count: int, **configs: str) -> Ledger:
    """Aborted transactions of a batch and a marker each: transaction n has the offsets 2n and 2n + 1."""
    ledger = Ledger(**configs)
    for _ in range(count):
        ledger.write(5)
        ledger.end(5, commit=False)
    return ledger


def test_the_list_has_the_transactions_of_the_response_and_not_all_that_follow() -> None:
    ledger = aborted_one_after_the_other(20)

    end, listed = ledger.read(8, 3 * PAYLOAD_BYTES)

    assert end < 14
    assert [entry.first_offset for entry in listed] == list(range(8, end, 2))


def test_the_list_is_as_short_in_a_finished_segment() -> None:
    ledger = aborted_one_after_the_other(20, internal_segment_bytes=str(12 * PAYLOAD_BYTES))

    end, listed = ledger.read(0, 3 * PAYLOAD_BYTES)
    assert end < 6
    assert [entry.first_offset for entry in listed] == list(range(0, end, 2))

    end, at_its_end = ledger.read(14, 40 * PAYLOAD_BYTES)
    assert end < 40
    assert [entry.first_offset for entry in at_its_end] == list(range(14, end, 2))


STEPS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from((10, 900, 5_000)), st.booleans(), st.booleans()))


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40_000)), min_size=1, max_size=8))
def test_no_transaction_of_a_response_is_missing_in_its_list(
    steps: list[tuple[int, int, bool, bool]], reads: list[tuple[int, int]]
) -> None:
    ledger = Ledger(internal_segment_bytes="16384")
    for producer_id, size, ends, commit in steps:
        ledger.write(producer_id, size)
        if ends:
            ledger.end(producer_id, commit=commit)

    stable = ledger.replica.offsets.last_stable
    for offset, bytes_max in reads:
        if offset < stable:
            end, listed = ledger.read(offset, bytes_max)
            needed = [txn for txn in ledger.aborted if txn.last_offset >= offset and txn.first_offset < end]
            allowed = [txn for txn in ledger.aborted if txn.last_offset >= offset and txn.first_offset < stable]
            assert set(needed) <= set(listed) <= set(allowed)
            assert listed == [txn for txn in allowed if txn in listed]
