"""A truncated follower forgets all state of the truncated batches: offsets, producers, aborted transactions."""

from __future__ import annotations

import pytest
from tests.unit.partition.rig import NOW_MS, records
from tests.unit.partition.test_aborted_after_crash import Writers

from penstock.model.topic import PartitionState

SEGMENT_SIZES = [600, 1 << 20]


def become_follower(writers: Writers) -> None:
    writers.replica.assume(
        PartitionState(index=0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(1, 2), partition_epoch=1), NOW_MS
    )


def become_leader(writers: Writers) -> None:
    writers.replica.assume(
        PartitionState(index=0, leader=1, leader_epoch=2, replicas=(1, 2), isr=(1,), partition_epoch=2), NOW_MS
    )


@pytest.mark.parametrize("segment_bytes", SEGMENT_SIZES)
@pytest.mark.parametrize("snapshot_at", [None, 3, 9])
def test_aborted_transactions_beyond_the_truncation_are_forgotten(segment_bytes: int, snapshot_at: int | None) -> None:
    writers = Writers(segment_bytes=segment_bytes)
    for at in range(4):
        for producer_id in (5, 6):
            writers.write(producer_id)
        writers.end(5, commit=False)
        if snapshot_at == writers.replica.offsets.log_end:
            writers.replica.snapshot(NOW_MS)
        if at == 2:
            writers.end(6, commit=False)
    replica = writers.replica
    assert [entry.last_offset for entry in replica.aborted().between(0, 13)] == [2, 5, 8, 9, 12]
    become_follower(writers)

    writers.rig.replicas.truncate({replica.tp: 7})

    assert [entry.last_offset for entry in replica.aborted().between(0, 13)] == [2, 5]
    state = replica.offsets
    assert (state.log_end, state.local_end, state.high_watermark) == (7, 7, 7)
    assert state.last_stable == 1, "the transaction of producer 6 is open again"
    assert replica.producers.is_open(5, 0), "and so is the third of producer 5"
    entry = replica.producers.get(6)
    assert entry is not None
    assert entry.batches[-1][:2] == (1, 4)

    become_leader(writers)
    writers.end(6, commit=False)
    assert [entry[:3] for entry in replica.aborted().between(0, 13)] == [(5, 0, 2), (5, 3, 5), (6, 1, 7)]
    assert replica.log.epochs.entries() == [(0, 0), (2, 7)]


@pytest.mark.parametrize("segment_bytes", SEGMENT_SIZES)
def test_a_truncated_log_is_the_same_after_a_kill(segment_bytes: int) -> None:
    writers = Writers(segment_bytes=segment_bytes)
    for _ in range(5):
        writers.write(5)
        writers.end(5, commit=False)
    writers.replica.note_committed()
    writers.rig.store.checkpoint()
    become_follower(writers)
    writers.rig.replicas.truncate({writers.replica.tp: 5})

    again = Writers(disk=writers.rig.stop(clean=False), segment_bytes=segment_bytes)

    assert again.replica.offsets.log_end == 5
    assert len(records(again.replica)) > 0
    assert [entry.last_offset for entry in again.replica.aborted().between(0, 10)] == [1, 3]
    assert again.replica.offsets.last_stable == 4
