"""Offsets and leadership of one partition, with one replica and with several."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from penstock.model.topic import PartitionState
from penstock.partition.state import Partition


def state(
    *,
    leader: int = 1,
    epoch: int = 0,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
    version: int = 0,
) -> PartitionState:
    return PartitionState(
        index=0,
        leader=leader,
        leader_epoch=epoch,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        partition_epoch=version,
    )


def leading(*, log_end: int = 0, high_watermark: int = 0, **kw: object) -> Partition:
    partition = Partition(local=1, log_start=0, log_end=log_end, high_watermark=high_watermark)
    partition.assume(state(**kw), 0)  # type: ignore[arg-type]
    return partition


def test_with_one_replica_everything_appended_is_committed() -> None:
    partition = leading(log_end=5, high_watermark=3)
    assert partition.high_watermark == 5

    assert partition.appended(8)

    assert (partition.log_end, partition.high_watermark) == (8, 8)


def test_one_replica_is_enough_where_more_are_asked_for_than_exist() -> None:
    partition = leading()
    partition.in_sync_min = 2

    partition.check_enough_in_sync()
    assert partition.appended(1)
    assert partition.committed(1)


def test_the_leader_epoch_of_a_request_is_checked_unless_it_has_none() -> None:
    partition = leading(epoch=5)

    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(6)


def test_a_broker_that_does_not_lead_says_so() -> None:
    partition = leading(leader=2, replicas=(1, 2))

    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader()


def test_late_news_of_an_earlier_epoch_changes_nothing() -> None:
    partition = leading(epoch=5)

    assert not partition.assume(state(epoch=4, leader=2, replicas=(1, 2)), 0)

    assert partition.leads
    assert partition.leader_epoch == 5


def test_the_high_watermark_is_the_least_log_end_in_the_isr() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    partition.appended(10)
    assert partition.high_watermark == 0

    assert partition.follower_fetched(2, 0, 7, 0, now_ms=0)
    partition.follower_fetched(3, 0, 2, 0, now_ms=0)

    assert partition.high_watermark == 7, "replica 3 is not in the ISR and does not count"


def test_a_replica_asked_into_the_isr_counts_before_the_response_and_a_dropped_one_until_it() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    partition.appended(10)
    partition.follower_fetched(2, 0, 5, 0, 0)
    partition.follower_fetched(3, 0, 5, 0, 0)
    assert partition.may_join(3)

    partition.propose({1, 3})
    partition.follower_fetched(2, 0, 9, 0, 0)
    assert partition.high_watermark == 5
    partition.follower_fetched(3, 0, 8, 0, 0)
    assert partition.high_watermark == 8
    partition.follower_fetched(3, 0, 10, 0, 0)
    assert partition.high_watermark == 9, "replica 2 counts until its removal is written"

    partition.assume(state(replicas=(1, 2, 3), isr=(1, 3), version=1), 0)
    assert partition.high_watermark == 10


def test_only_one_isr_change_is_in_flight() -> None:
    partition = leading(replicas=(1, 2), isr=(1, 2))
    partition.propose({1})

    with pytest.raises(AssertionError):
        partition.propose({1, 2})
    partition.proposal_failed()
    partition.propose({1})


def test_the_high_watermark_stands_while_the_isr_is_too_small() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1,))
    partition.in_sync_min = 2

    assert not partition.appended(3)
    assert partition.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        partition.check_enough_in_sync()


def test_acks_all_fails_where_the_isr_shrank_after_the_append() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    partition.in_sync_min = 2
    partition.appended(3)
    partition.follower_fetched(2, 0, 3, 0, 0)
    assert partition.committed(3)
    assert not partition.committed(4)

    partition.assume(state(replicas=(1, 2, 3), isr=(1,), version=1), 0)

    with pytest.raises(NotEnoughReplicasAfterAppend):
        partition.committed(3)


def test_only_fetches_of_the_current_epoch_count() -> None:
    partition = leading(replicas=(1, 2), epoch=3)
    partition.appended(4)

    with pytest.raises(FencedLeaderEpoch):
        partition.follower_fetched(2, 2, 4, 0, 0)
    assert partition.high_watermark == 0
    partition.follower_fetched(2, 3, 4, 0, 0)
    assert partition.high_watermark == 4


def test_a_new_epoch_forgets_how_far_followers_were() -> None:
    partition = leading(replicas=(1, 2), epoch=3)
    partition.appended(4)
    partition.follower_fetched(2, 3, 4, 0, 0)

    partition.assume(state(replicas=(1, 2), epoch=4), 0)
    partition.appended(6)

    assert partition.high_watermark == 4
    assert not partition.may_join(2)
    assert partition.followers[2].log_end == -1


def test_a_follower_joins_only_past_the_high_watermark_and_the_epochs_start() -> None:
    partition = leading(log_end=10, high_watermark=4, replicas=(1, 2, 3), isr=(1, 2), epoch=7)
    assert partition.epoch_start == 10
    assert not partition.latest_is_known()

    partition.follower_fetched(3, 7, 6, 0, 0)
    assert not partition.may_join(3), "above the high watermark, but below where the epoch began"
    partition.follower_fetched(3, 7, 10, 0, 0)
    assert partition.may_join(3)
    partition.follower_fetched(2, 7, 10, 0, 0)
    assert partition.latest_is_known()


def test_a_member_that_falls_behind_is_a_laggard_and_one_that_keeps_up_with_a_moving_end_is_not() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.appended(10)
    for follower in (2, 3):
        partition.follower_fetched(follower, 0, 10, 0, now_ms=0)
    for now_ms in range(1000, 40_000, 1000):
        before = partition.log_end
        partition.appended(before + 5)
        partition.follower_fetched(2, 0, before, 0, now_ms)

    assert partition.laggards(39_000, 30_000) == {3}


def test_a_stranger_is_no_follower() -> None:
    partition = leading(replicas=(1, 2))

    with pytest.raises(NotLeaderOrFollower):
        partition.follower_fetched(9, 0, 0, 0, 0)


def test_offsets_outside_the_log_are_out_of_range_and_its_end_is_not() -> None:
    partition = Partition(local=1, log_start=3, log_end=9, high_watermark=9)

    partition.check_readable(3)
    partition.check_readable(9)
    for offset in (2, 10, -1):
        with pytest.raises(OffsetOutOfRange):
            partition.check_readable(offset)


def test_the_log_start_never_passes_the_high_watermark() -> None:
    partition = leading(log_end=5, replicas=(1, 2), high_watermark=2)

    with pytest.raises(OffsetOutOfRange):
        partition.start_moved(3)
    partition.start_moved(2)
    partition.start_moved(1)
    assert partition.log_start == 2


def test_the_last_stable_offset_is_the_first_undecided_but_within_the_log() -> None:
    partition = leading(log_end=10)

    partition.stabilise(None)
    assert partition.last_stable == 10
    partition.stabilise(4)
    assert partition.last_stable == 4
    partition.start_moved(6)
    assert partition.last_stable == 6
    partition.stabilise(4)
    assert partition.last_stable == 6


def test_a_follower_that_is_cut_keeps_its_offsets_in_order_and_a_leader_is_never_cut() -> None:
    partition = leading(leader=2, replicas=(1, 2), log_end=10, high_watermark=8)
    partition.truncated(6)
    assert (partition.log_end, partition.high_watermark, partition.last_stable) == (6, 6, 6)

    with pytest.raises(AssertionError):
        leading(log_end=10).truncated(6)


class Replication(RuleBasedStateMachine):
    """Whatever followers, controller and appends do: what readers saw is on every member of the maximal ISR."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
        self.partition.in_sync_min = 2
        self.held = {2: 0, 3: 0}
        self.version = 0
        self.seen = 0

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.partition.appended(self.partition.log_end + count)

    @rule(follower=st.sampled_from([2, 3]), count=st.integers(0, 9), now_ms=st.integers(0, 9))
    def fetch(self, follower: int, count: int, now_ms: int) -> None:
        self.held[follower] = min(self.held[follower] + count, self.partition.log_end)
        self.partition.follower_fetched(follower, self.partition.leader_epoch, self.held[follower], 0, now_ms)

    @rule(follower=st.sampled_from([2, 3]))
    def drop(self, follower: int) -> None:
        if self.partition.isr == self.partition.isr_proposed and follower in self.partition.isr:
            self.partition.propose(self.partition.isr - {follower})

    @rule(follower=st.sampled_from([2, 3]))
    def join(self, follower: int) -> None:
        if self.partition.isr == self.partition.isr_proposed and self.partition.may_join(follower):
            self.partition.propose(self.partition.isr | {follower})

    @rule(written=st.booleans())
    def controller_responds(self, written: bool) -> None:
        if written:
            self.version += 1
            isr = tuple(sorted(self.partition.isr_proposed))
            epoch = self.partition.leader_epoch
            self.partition.assume(state(epoch=epoch, replicas=(1, 2, 3), isr=isr, version=self.version), 0)
        else:
            self.partition.proposal_failed()

    @rule()
    def elected_again(self) -> None:
        self.version += 1
        isr = tuple(sorted(self.partition.isr))
        epoch = self.partition.leader_epoch + 1
        self.partition.assume(state(epoch=epoch, replicas=(1, 2, 3), isr=isr, version=self.version), 0)

    @invariant()
    def committed_is_everywhere(self) -> None:
        partition = self.partition
        assert partition.high_watermark >= self.seen, "the high watermark went back"
        if partition.high_watermark > self.seen:
            self.seen = partition.high_watermark
            assert len(partition.isr) >= 2
            assert all(self.held[replica] >= self.seen for replica in partition.isr_maximal - {1})
        assert partition.log_start <= partition.last_stable <= partition.high_watermark <= partition.log_end


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_leader_alone_commits_what_is_on_its_disk_and_no_more_where_that_counts() -> None:
    partition = Partition(local=1, log_start=0, log_end=10, high_watermark=4, local_end=6)

    partition.assume(state(), 0)

    assert (partition.high_watermark, partition.local_end, partition.log_end) == (6, 6, 10)
    assert partition.flushed(10)
    assert partition.high_watermark == 10


def test_what_was_committed_stays_so_where_the_durable_end_is_not_known() -> None:
    partition = Partition(local=1, log_start=0, log_end=10, high_watermark=4, local_end=0)

    assert (partition.high_watermark, partition.local_end) == (4, 4)


def test_nobody_lags_behind_a_leader_of_this_moment() -> None:
    elected_ms, lag_ms_max = 1_700_000_000_000, 30_000
    partition = Partition(local=1, log_start=0, log_end=10, high_watermark=10)

    partition.assume(state(epoch=5, replicas=(1, 2, 3)), elected_ms)
    partition.appended(11)

    assert partition.laggards(elected_ms + lag_ms_max, lag_ms_max) == frozenset()
    assert partition.laggards(elected_ms + lag_ms_max + 1, lag_ms_max) == {2, 3}


def test_a_replica_that_is_added_has_its_time_to_catch_up() -> None:
    partition = leading(log_end=10, replicas=(1, 2))

    partition.assume(state(replicas=(1, 2, 3), version=1), 50_000)

    assert partition.laggards(60_000, 30_000) == {2}


def test_the_same_state_again_leaves_a_proposal_in_flight() -> None:
    partition = leading(log_end=10, high_watermark=5, replicas=(1, 2, 3), isr=(1, 2))
    partition.follower_fetched(3, partition.leader_epoch, 5, 0, 0)
    partition.propose({1, 2, 3})

    assert not partition.assume(state(replicas=(1, 2, 3), isr=(1, 2)), 0)

    assert partition.isr_maximal == {1, 2, 3}
    partition.follower_fetched(2, partition.leader_epoch, 10, 0, 0)
    assert partition.high_watermark == 5, "the one that may be in the ISR already counts"
