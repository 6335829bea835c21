"""One partition: appends, reads, idempotence, transactions, going offline."""

import asyncio
import errno
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.eventual import settled
from tests.unit.partition.rig import NOW_MS, Rig, batch, topic, values

from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from penstock.model.topic import PartitionState
from penstock.partition.replica import Replica
from penstock.partition.verification import NOT_REQUIRED, WAS_OPEN, TxnProof
from penstock.wire.records import RecordBatchBuilder, build_marker


def transactional(*texts: bytes, producer_id: int = 5, epoch: int = 0, sequence: int = 0) -> bytearray:
    builder = RecordBatchBuilder()
    for text in texts:
        builder.add(NOW_MS, b"k", text)
    return builder.build(
        attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def marker(*, commit: bool, producer_id: int = 5, epoch: int = 0, coordinator: int = 0) -> bytearray:
    return build_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator,
        timestamp_ms=NOW_MS,
    )


def begin(rig: Rig, replica: Replica, *texts: bytes, **kw: Any) -> None:
    """Write to a transaction that its coordinator verifies."""
    rig.append(replica, transactional(*texts, **kw), internal=True)


def test_batches_get_the_next_offsets_and_are_readable_at_once() -> None:
    rig = Rig(topic())
    replica = rig.replica()

    first = rig.append(replica, batch(b"a", b"b"))
    second = rig.append(replica, batch(b"c"))

    assert (first.base_offset, first.end, first.log_append_time_ms, first.log_start) == (0, 2, -1, 0)
    assert (second.base_offset, second.end) == (2, 3)
    assert replica.committed(3) is None
    assert replica.durable(3) is None
    assert values(replica) == [b"a", b"b", b"c"]
    assert values(replica, 1) == [b"b", b"c"]


def test_a_read_at_the_end_is_empty_and_one_beyond_it_or_before_the_start_is_out_of_range() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b"))
    replica.delete_records(1)

    assert values(replica, 2) == []
    for offset in (0, 3, -1):
        with pytest.raises(OffsetOutOfRange):
            replica.read(offset, 100, at_least_one=True)


def test_a_read_returns_the_partitions_offsets() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b"))
    replica.delete_records(1)

    fetched = replica.read(1, 100, at_least_one=True)

    assert (fetched.high_watermark, fetched.last_stable, fetched.log_start, fetched.aborted) == (2, 2, 1, None)
    assert replica.read(2, 100, at_least_one=True, read_committed=True).aborted == []


def test_at_least_one_batch_is_returned_if_requested() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a" * 1000))

    assert len(replica.read(0, 1, at_least_one=True).records) > 1000
    assert len(replica.read(0, 1, at_least_one=False).records) == 0


def test_readers_with_an_older_or_a_newer_leader_epoch_are_refused() -> None:
    rig = Rig(topic(epoch=4))
    replica = rig.replica()

    replica.read(0, 1, at_least_one=True, leader_epoch=4)
    with pytest.raises(FencedLeaderEpoch):
        replica.read(0, 1, at_least_one=True, leader_epoch=3)
    with pytest.raises(UnknownLeaderEpoch):
        replica.read(0, 1, at_least_one=True, leader_epoch=5)


def test_a_retry_returns_the_offsets_of_the_first_append_and_writes_nothing() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"x"))
    first = rig.append(replica, batch(b"a", b"b", producer_id=5))
    rig.append(replica, batch(b"c", producer_id=5, base_sequence=2))

    again = rig.append(replica, batch(b"a", b"b", producer_id=5))

    assert (again.base_offset, again.end) == (first.base_offset, first.end) == (1, 3)
    assert again.log_append_time_ms == NOW_MS
    assert values(replica) == [b"x", b"a", b"b", b"c"]


def test_errors_for_a_gap_and_for_a_zombie_have_the_log_start() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b", producer_id=5, producer_epoch=2))
    replica.delete_records(1)

    with pytest.raises(OutOfOrderSequenceNumber) as gap:
        rig.append(replica, batch(b"c", producer_id=5, producer_epoch=2, base_sequence=9))
    with pytest.raises(InvalidProducerEpoch) as zombie:
        rig.append(replica, batch(b"c", producer_id=5, producer_epoch=1))

    assert gap.value.log_start == zombie.value.log_start == 1
    assert replica.offsets.log_end == 2


def test_producers_are_known_again_after_a_clean_stop_and_after_a_crash() -> None:
    for clean in (True, False):
        rig = Rig(topic())
        rig.append(rig.replica(), batch(b"a", producer_id=5))
        rig.append(rig.replica(), batch(b"b", producer_id=5, base_sequence=1))

        again = Rig(topic(), disk=rig.stop(clean=clean))
        replica = again.replica()

        assert again.append(replica, batch(b"b", producer_id=5, base_sequence=1)).base_offset == 1
        with pytest.raises(OutOfOrderSequenceNumber):
            again.append(replica, batch(b"d", producer_id=5, base_sequence=3))
        assert again.append(replica, batch(b"c", producer_id=5, base_sequence=2)).base_offset == 2


def test_only_batches_after_the_snapshot_are_replayed() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    for sequence in range(4):
        rig.append(replica, batch(b"a", producer_id=5, base_sequence=sequence))
    replica.snapshot(NOW_MS)
    rig.append(replica, batch(b"a", producer_id=6))

    again = Rig(topic(), disk=rig.stop(clean=False)).replica()

    five, six = again.producers.get(5), again.producers.get(6)
    assert again.snapshot_at == 4
    assert five is not None
    assert [seen[0] for seen in five.batches] == [3], "a snapshot has the last batch only"
    assert six is not None


def test_readers_of_committed_data_stop_before_an_open_transaction_and_get_the_aborted_ones() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"plain"))
    begin(rig, replica, b"a", b"b")
    rig.append(replica, batch(b"after"))

    assert replica.offsets.last_stable == 1
    assert values(replica) == [b"plain", b"a", b"b", b"after"]
    assert values(replica, read_committed=True) == [b"plain"]

    rig.append(replica, marker(commit=False), internal=True)

    assert replica.offsets.last_stable == 5
    aborted = replica.read(0, 1 << 20, at_least_one=True, read_committed=True).aborted
    assert aborted is not None
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted] == [(5, 1, 4)]
    assert replica.read(5, 100, at_least_one=True, read_committed=True).aborted == []


def test_a_committed_transaction_is_not_in_the_aborted_list() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    begin(rig, replica, b"a")
    rig.append(replica, marker(commit=True), internal=True)

    fetched = replica.read(0, 1 << 20, at_least_one=True, read_committed=True)

    assert fetched.aborted == []
    assert fetched.last_stable == 2


def test_transactions_are_recovered_after_a_crash() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    begin(rig, replica, b"a")
    rig.append(replica, marker(commit=False), internal=True)
    begin(rig, replica, b"b", sequence=1)

    again = Rig(topic(), disk=rig.stop(clean=False))
    replica = again.replica()

    assert replica.offsets.last_stable == 2
    aborted = replica.read(0, 1 << 20, at_least_one=True, read_committed=True).aborted
    assert aborted is not None
    assert [(txn.first_offset, txn.last_offset) for txn in aborted] == [(0, 1)]
    again.append(replica, transactional(b"c", sequence=2), proof=WAS_OPEN)
    with pytest.raises(TransactionCoordinatorFenced):
        again.append(replica, marker(commit=True, coordinator=-1), internal=True)
    again.append(replica, marker(commit=True, coordinator=1), internal=True)
    assert replica.offsets.last_stable == 5


def test_a_batch_that_begins_a_transaction_is_verified_once_and_by_epoch() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    guard = replica.producers.guards.begin(5, 0, 0, rig.clock.ms)

    rig.append(replica, transactional(b"a"), proof=TxnProof(guard, 0))
    rig.append(replica, transactional(b"b", sequence=1), proof=WAS_OPEN)
    with pytest.raises(InvalidTxnState):
        rig.append(replica, transactional(b"c", epoch=1), proof=WAS_OPEN)

    assert (replica.offsets.log_end, replica.offsets.last_stable) == (2, 0)


def test_a_late_marker_of_version_two_does_not_end_the_next_transaction() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    begin(rig, replica, b"a", epoch=0)
    ends = {"internal": True, "transaction_version": 2}
    rig.append(replica, marker(commit=True, epoch=1), **ends)
    rig.append(replica, marker(commit=True, epoch=1), **ends)
    begin(rig, replica, b"b", epoch=1)

    with pytest.raises(InvalidProducerEpoch):
        rig.append(replica, marker(commit=True, epoch=1), **ends)
    assert replica.offsets.last_stable == 3

    rig.append(replica, marker(commit=True, epoch=2), **ends)
    assert replica.offsets.last_stable == 5


def test_offsets_of_a_fenced_producer_are_refused() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    begin(rig, replica, b"a", epoch=0, sequence=-1)
    rig.append(replica, marker(commit=False, epoch=1), internal=True, transaction_version=2)

    with pytest.raises(InvalidProducerEpoch):
        begin(rig, replica, b"b", epoch=0, sequence=-1)
    assert replica.offsets.last_stable == replica.offsets.log_end == 2


def test_deleting_records_moves_the_start_and_never_beyond_what_is_committed() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b", b"c"))

    assert replica.delete_records(2) == 2
    assert replica.delete_records(1) == 2, "it never goes back"
    with pytest.raises(OffsetOutOfRange):
        replica.delete_records(4)
    with pytest.raises(OffsetOutOfRange):
        replica.delete_records(-2)
    assert replica.delete_records(-1) == 3
    assert replica.log.log_start == 3


class CountingWatcher:
    def __init__(self) -> None:
        self.count = 0

    def notify(self) -> None:
        self.count += 1


def test_watchers_are_notified_once_per_turn_until_they_stop_watching() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    one, two = CountingWatcher(), CountingWatcher()
    replica.watch(one)
    replica.watch(two)

    for _ in range(3):
        rig.append(replica, batch(b"a"))
    assert one.count == 0, "not in the turn of the append"
    rig.loop.run()
    assert (one.count, two.count) == (1, 1)

    replica.unwatch(two)
    replica.delete_records(1)
    rig.loop.run()
    assert (one.count, two.count) == (2, 1)


def test_an_offline_replica_fails_waiters_and_later_requests_and_notifies_watchers() -> None:
    async def run() -> None:
        was = topic(configs={"flush": "group"})
        rig = Rig(was)
        replica = rig.replica()
        watcher = CountingWatcher()
        replica.watch(watcher)
        waits = [replica.durable(rig.append(replica, batch(b"a")).end), replica.committed(1)]

        rig.change(was, None)
        rig.loop.run()

        for wait in waits:
            assert wait is not None
            with pytest.raises(UnknownTopicOrPartition):
                await settled(wait)
        assert watcher.count == 1
        for use in (lambda: rig.append(replica, batch(b"a")), lambda: replica.read(0, 1, at_least_one=True)):
            with pytest.raises(UnknownTopicOrPartition):
                use()
        late = CountingWatcher()
        replica.watch(late)
        rig.loop.run()
        assert late.count == 1
        with pytest.raises(UnknownTopicOrPartition):
            replica.durable(1)

    asyncio.run(run())


def test_no_decision_brings_back_an_offline_replica() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    replica.leave(KafkaStorageError("the disk failed"))

    replica.assume(
        PartitionState(index=0, leader=1, leader_epoch=1, replicas=(1,), isr=(1,), partition_epoch=1), NOW_MS
    )

    with pytest.raises(KafkaStorageError):
        rig.append(replica, batch(b"a"))


def test_a_broker_that_no_longer_leads_refuses_appends_and_fails_its_waiters() -> None:
    async def run() -> None:
        rig = Rig(topic(configs={"flush": "group"}))
        replica = rig.replica()
        wait = replica.committed(rig.append(replica, batch(b"a")).end)
        assert wait is not None

        replica.assume(PartitionState(index=0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(1, 2)), NOW_MS)

        with pytest.raises(NotLeaderOrFollower):
            await settled(wait)
        with pytest.raises(NotLeaderOrFollower):
            rig.append(replica, batch(b"b"))

    asyncio.run(run())


def test_acks_all_waits_for_the_replicas() -> None:
    async def run() -> None:
        rig = Rig(topic())
        replica = rig.replica()
        replica.assume(PartitionState(index=0, leader=1, leader_epoch=1, replicas=(1, 2), isr=(1, 2)), NOW_MS)
        appended = rig.append(replica, batch(b"a"), acks_all=True)
        assert values(replica) == []
        assert replica.durable(appended.end) is None
        wait = replica.committed(appended.end)
        assert wait is not None

        replica.assume(
            PartitionState(index=0, leader=1, leader_epoch=1, replicas=(1, 2), isr=(1,), partition_epoch=1), NOW_MS
        )

        await settled(wait)
        assert values(replica) == [b"a"]

    asyncio.run(run())


def test_a_retry_is_acknowledged_when_the_first_append_is_committed() -> None:
    async def run() -> None:
        rig = Rig(topic())
        replica = rig.replica()
        replica.assume(PartitionState(index=0, leader=1, leader_epoch=1, replicas=(1, 2), isr=(1, 2)), NOW_MS)
        rig.append(replica, batch(b"a", producer_id=5), acks_all=True)

        retry = rig.append(replica, batch(b"a", producer_id=5), acks_all=True)
        wait = replica.committed(retry.end)

        assert wait is not None, "no follower has it"
        replica.assume(
            PartitionState(index=0, leader=1, leader_epoch=1, replicas=(1, 2), isr=(1,), partition_epoch=1), NOW_MS
        )
        await settled(wait)
        assert replica.committed(retry.end) is None
        assert values(replica) == [b"a"]

    asyncio.run(run())


def test_a_full_disk_refuses_writes_serves_reads_and_recovers() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a"))
    rig.disk.fail("append", ".log", errno.ENOSPC, times=1)

    with pytest.raises(KafkaStorageError, match="space"):
        rig.append(replica, batch(b"b"))
    assert values(replica) == [b"a"]
    assert rig.append(replica, batch(b"c")).base_offset == 1
    assert values(replica) == [b"a", b"c"]


def test_a_failed_write_of_an_idempotent_batch_may_be_retried() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", producer_id=5))
    rig.disk.fail("append", ".log", errno.ENOSPC, times=1)
    with pytest.raises(KafkaStorageError):
        rig.append(replica, batch(b"b", producer_id=5, base_sequence=1))

    assert rig.append(replica, batch(b"b", producer_id=5, base_sequence=1)).base_offset == 1


class Life(RuleBasedStateMachine):
    """A partition compared with a list, through appends, retries, deletions, rolls, clean stops and crashes."""

    @initialize()
    def begin(self) -> None:
        self.configs = {"internal.segment.bytes": "400", "index.interval.bytes": "100"}
        self.rig = Rig(topic(configs=self.configs))
        self.model: list[bytes] = []
        self.start = 0
        self.sent: list[tuple[int, int, list[bytes]]] = []
        """Sequence, base offset and values of the producer's batches."""
        self.sequence = 0

    @property
    def replica(self) -> Replica:
        return self.rig.replica()

    @rule(texts=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
    def append(self, texts: list[bytes]) -> None:
        assert self.rig.append(self.replica, batch(*texts)).base_offset == len(self.model)
        self.model += texts

    @rule(texts=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
    def produce(self, texts: list[bytes]) -> None:
        data = batch(*texts, producer_id=7, base_sequence=self.sequence)
        assert self.rig.append(self.replica, data).base_offset == len(self.model)
        self.sent.append((self.sequence, len(self.model), texts))
        self.sequence += len(texts)
        self.model += texts

    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        if back <= len(self.sent):
            sequence, base, texts = self.sent[-back]
            try:
                appended = self.rig.append(self.replica, batch(*texts, producer_id=7, base_sequence=sequence))
                assert (appended.base_offset, appended.end) == (base, base + len(texts))
            except OutOfOrderSequenceNumber:
                # A snapshot has the last batch only: after a restart older ones may be refused, but never duplicated.
                assert back > 1

    @rule(count=st.integers(0, 3))
    def delete(self, count: int) -> None:
        self.start = min(self.start + count, len(self.model))
        assert self.replica.delete_records(self.start) == self.start

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        assert self.replica is not None
        before = self.start
        self.rig = Rig(topic(configs=self.configs), disk=self.rig.stop(clean=clean))
        # The log start is in a checkpoint, which only a clean stop is sure to have written.
        found = self.replica.offsets.log_start
        assert found == before if clean else found <= before
        self.start = found

    @rule()
    def snapshot(self) -> None:
        self.replica.snapshot(NOW_MS)

    @invariant()
    def reads_what_was_written(self) -> None:
        if hasattr(self, "rig"):
            read: list[bytes | None] = []
            while self.start + len(read) < len(self.model):
                read += values(self.replica, self.start + len(read))
            assert read == self.model[self.start :]
            assert self.replica.offsets.high_watermark == len(self.model)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_marker_whose_append_takes_the_directory_offline_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "io")

    async def scenario() -> None:
        rig = Rig(topic())
        replica = rig.replica()
        rig.append(replica, transactional(b"a"), proof=NOT_REQUIRED)
        before = replica.offsets.high_watermark
        monkeypatch.setattr("penstock.storage.txn_index.append", fail)

        appended = replica.append(memoryview(marker(commit=False)), rig.clock.ms, internal=True)

        assert not isinstance(appended, Deferred)
        assert replica.is_offline
        assert replica.offsets.high_watermark == before
        with pytest.raises(KafkaStorageError):
            replica.committed(before + 1)

    asyncio.run(scenario())
