"""The share coordinator's shard: fencing, merging, snapshots, and what survives of it."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.shares.state_rig import KEY, OTHER, TOPIC, StateRig, written

from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from penstock.shares.persister import ACKNOWLEDGED, ARCHIVED, AVAILABLE, JOINED_FROM, StateBatch
from penstock.shares.state.batches import StateBatches, rank
from penstock.shares.state.commands import ReadState
from penstock.wire.share_records import ShareKey

FEW = {"share.coordinator.snapshot.update.records.per.snapshot": "3"}


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


def acked(first: int, last: int, deliveries: int = 1) -> StateBatch:
    return StateBatch(first, last, ACKNOWLEDGED, deliveries)


def test_a_partition_that_was_not_initialized_can_be_neither_read_nor_written(rig: StateRig) -> None:
    assert rig.read_refused() is InvalidRequest
    assert rig.write_refused(acked(0, 1)) is InvalidRequest
    assert rig.summary().start_offset == -1  # type: ignore[attr-defined]


def test_a_partition_that_does_not_exist_is_unknown(rig: StateRig) -> None:
    rig.initialize()
    rig.topics.counts[TOPIC] = 0
    assert rig.initialize_refused(ShareKey("g", TOPIC, 3)) is UnknownTopicOrPartition
    assert rig.read_refused() is UnknownTopicOrPartition
    assert rig.write_refused(acked(0, 0)) is UnknownTopicOrPartition


def test_an_initialized_partition_has_no_start_until_its_leader_writes_one(rig: StateRig) -> None:
    rig.initialize(epoch=4)
    assert rig.read() == (4, -1, -1, ())
    rig.write(epoch=4, start=7, complete=0)
    assert rig.read() == (4, 7, 0, ())


def test_a_read_fences_the_leaders_before_it_and_not_its_own(rig: StateRig) -> None:
    rig.initialize()
    rig.read(leader=5)
    assert rig.write_refused(acked(0, 0), leader=4) is FencedLeaderEpoch
    assert rig.read_refused(leader=4) is FencedLeaderEpoch
    rig.write(acked(0, 0), leader=5)
    rig.restart()
    assert rig.write_refused(acked(1, 1), leader=4) is FencedLeaderEpoch, "the next coordinator knows it too"
    assert rig.read(leader=5).batches == (acked(0, 0),)


def test_a_read_is_answered_once_its_leader_epoch_is_committed(rig: StateRig) -> None:
    rig.initialize()
    rig.holding = True
    ticket = rig.send(ReadState(key=KEY, leader_epoch=1))
    assert ticket not in rig.replies
    rig.commit()
    assert ticket in rig.replies


def test_a_read_without_a_new_leader_epoch_writes_nothing(rig: StateRig) -> None:
    rig.initialize()
    rig.read(leader=1)
    events = len(rig.log)
    rig.read(leader=1)
    assert len(rig.log) == events


def test_an_older_state_epoch_is_fenced(rig: StateRig) -> None:
    rig.initialize(epoch=1)
    rig.write(acked(0, 9), start=0)
    rig.initialize(epoch=2, start=3)
    assert rig.write_refused(acked(4, 4), epoch=1) is FencedStateEpoch
    assert rig.initialize_refused(epoch=1) is FencedStateEpoch
    assert rig.read() == (2, 3, 0, ()), "what was acknowledged before the offsets were altered is void"


def test_a_repeated_initialization_keeps_what_was_acknowledged_since(rig: StateRig) -> None:
    rig.initialize(epoch=2)
    rig.write(acked(3, 3), epoch=2, start=0)
    rig.initialize(epoch=2)
    assert rig.read() == (2, 0, -1, (acked(3, 3),))


def test_altering_offsets_keeps_older_leaders_fenced(rig: StateRig) -> None:
    rig.initialize()
    rig.read(leader=6)
    rig.initialize(epoch=2, start=0)
    rig.restart()
    assert rig.read_refused(leader=5) is FencedLeaderEpoch


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(-1, 5, ACKNOWLEDGED, 1),
        StateBatch(5, 4, ACKNOWLEDGED, 1),
        StateBatch(0, 5, 1, 1),
        StateBatch(0, 5, 9, 1),
        StateBatch(0, 5, ACKNOWLEDGED, -1),
        StateBatch(0, 1 << 40, ACKNOWLEDGED, 1),
        StateBatch(1 << 40, 1 << 40, ACKNOWLEDGED, 1),
    ],
)
def test_ranges_that_no_leader_could_load_are_refused(rig: StateRig, batch: StateBatch) -> None:
    rig.initialize(start=0)

    assert rig.write_refused(batch) is InvalidRequest
    assert rig.read().batches == ()


def test_a_deleted_partition_is_unknown_and_can_begin_again(rig: StateRig) -> None:
    rig.initialize(epoch=9)
    rig.write(acked(0, 5), epoch=9, start=0)
    rig.delete()
    rig.delete()
    assert rig.read_refused() is InvalidRequest
    rig.restart()
    assert rig.read_refused() is InvalidRequest
    rig.initialize(epoch=1)
    assert rig.read() == (1, -1, -1, ())


def test_a_deleted_topic_takes_its_state_with_it(rig: StateRig) -> None:
    other = ShareKey("g", OTHER, 1)
    rig.initialize()
    rig.initialize(other)
    del rig.topics.counts[TOPIC]
    rig.run(rig.shard.on_topics_deleted([TOPIC]))
    rig.restart()
    assert rig.shard.state(KEY) is None
    assert rig.shard.state(other) is not None


def test_a_refused_write_changes_nothing_and_can_be_tried_again(rig: StateRig) -> None:
    rig.initialize()
    rig.refusing = CoordinatorNotAvailable()
    assert rig.write_refused(acked(0, 0)) is CoordinatorNotAvailable
    rig.refusing = None
    assert rig.read().batches == ()
    rig.write(acked(0, 0))
    assert rig.read().batches == (acked(0, 0),)


def test_a_write_that_is_lost_was_not_answered(rig: StateRig) -> None:
    rig.initialize()
    rig.holding = True
    ticket = rig.send(written([acked(0, 0)], KEY, 1, 0, -1, -1))
    rig.lose_leadership()
    rig.holding = False
    assert isinstance(rig.replies[ticket], NotCoordinator)
    assert rig.read().batches == ()


def test_updates_are_followed_by_a_snapshot_and_a_pruned_log_loses_nothing() -> None:
    rig = StateRig(FEW)
    rig.initialize()
    rig.initialize(ShareKey("g", TOPIC, 1))
    rig.read(leader=2)
    for offset in range(0, 40, 2):
        rig.write(acked(offset, offset), leader=2, start=offset // 2, complete=offset)
    before = rig.read(leader=2)
    # The snapshot of the idle partition is repeated, so that the records before it can go.
    rig.pass_ms(2 * 300_000)
    assert rig.pruned > 20
    assert len(rig.log) < 10
    rig.restart()
    assert rig.read(leader=2) == before
    assert rig.read_refused(leader=1) is FencedLeaderEpoch
    assert rig.read(ShareKey("g", TOPIC, 1)).start_offset == -1


def test_snapshots_stop_once_nothing_is_written(rig: StateRig) -> None:
    rig.initialize()
    rig.pass_ms(10 * 300_000)
    assert len(rig.log) == 1, "one repeated snapshot, and the first one pruned"
    rig.restart()
    rig.pass_ms(10 * 300_000)
    assert len(rig.log) == 1


def test_the_time_before_which_a_record_is_not_handed_out_survives(rig: StateRig) -> None:
    rig.initialize()
    late = StateBatch(5, 6, AVAILABLE, 2, rig.now_ms + 60_000)
    rig.write(late, StateBatch(7, 7, AVAILABLE, 2))
    rig.restart()
    assert rig.read().batches == (late, StateBatch(7, 7, AVAILABLE, 2))


# Merging


def test_what_is_finished_behind_an_unfinished_record_stays_small_however_it_was_finished() -> None:
    merged = StateBatches()
    for at in range(1, 20_001):
        merged.combine([StateBatch(at, at, ACKNOWLEDGED if at % 3 else ARCHIVED, 1 + at % 2)], 0)
    merged.combine([StateBatch(0, 0, AVAILABLE, 1)], 0)

    assert len(merged) <= JOINED_FROM
    finished = {offset for offset, (state, *_) in of_offsets(list(merged)).items() if state != AVAILABLE}
    assert finished == set(range(1, 20_001))


def of_offsets(batches: Iterator[StateBatch] | list[StateBatch]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for each in batches:
        for offset in range(each.first, each.last + 1):
            assert offset not in found, f"two ranges hold {offset}"
            found[offset] = each[2:]
    return found


RANGES = st.builds(
    lambda first, length, state, deliveries: StateBatch(first, first + length, state, deliveries),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 3),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(RANGES, st.integers(-1, 30)), max_size=25))
def test_merged_ranges_hold_the_latest_state_of_every_offset(steps: list[tuple[StateBatch, int]]) -> None:
    merged, model, start = StateBatches(), dict[int, StateBatch](), 0
    for added, wanted in steps:
        start = max(start, wanted)
        merged.combine([added], start)
        for offset in range(added.first, added.last + 1):
            before = model.get(offset)
            model[offset] = before if before is not None and rank(before) > rank(added) else added
    ranges = list(merged)
    assert of_offsets(ranges) == {offset: each[2:] for offset, each in model.items() if offset >= start}
    for before, after in pairwise(ranges):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:], "neighbours that touch differ"
