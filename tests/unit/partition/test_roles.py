"""The rules of leaders and followers, with one replica and with several."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from penstock.model.ids import TopicPartition
from penstock.model.topic import PartitionState
from penstock.partition.follower import FetchFrom, Follower, TruncateTo
from penstock.partition.leader import INELIGIBLE_PAUSE_MS, FollowerFetched, IsrProposal, Leader
from penstock.partition.offsets import Offsets
from penstock.partition.producers import ProducerTable
from penstock.partition.role import Offline, Role, assume, fence, may_cut, refusal
from penstock.storage.epochs import LeaderEpochs


def state(
    *,
    leader: int = 1,
    epoch: int = 0,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
    version: int = 0,
    decided_min: int = 0,
) -> PartitionState:
    return PartitionState(
        index=0,
        leader=leader,
        leader_epoch=epoch,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        partition_epoch=version,
        in_sync_min=decided_min,
    )


def fresh(
    *,
    log_start: int = 0,
    log_end: int = 0,
    high_watermark: int = 0,
    durable_end: int | None = None,
    in_sync_min: int = 1,
    producers: ProducerTable | None = None,
) -> Follower:
    """A replica that has opened its log and has no leader yet."""
    offsets = Offsets.recovered(
        log_start=log_start, log_end=log_end, high_watermark=high_watermark, durable_end=durable_end
    )
    table = ProducerTable() if producers is None else producers
    return Follower(offsets, table, broker_id=1, in_sync_min=in_sync_min, flush_group=durable_end is not None)


def led(role: Role, decided: PartitionState, now_ms: int = 0) -> Leader:
    """The leader that a decision makes of a replica."""
    assumed = assume(role, decided, now_ms).role
    assert isinstance(assumed, Leader)
    return assumed


def leading(*, log_end: int = 0, high_watermark: int = 0, in_sync_min: int = 1, **kw: object) -> Leader:
    return led(fresh(log_end=log_end, high_watermark=high_watermark, in_sync_min=in_sync_min), state(**kw))  # type: ignore[arg-type]


def append(leader: Leader, log_end: int) -> bool:
    return leader.appended(leader.offsets.log_end, log_end)


def fetched(
    leader: Leader,
    follower: int,
    epoch: int,
    offset: int,
    now_ms: int = 0,
    *,
    held: int | None = None,
    broker_epoch: int = 1,
) -> FollowerFetched:
    """A follower's fetch, of its first life unless another is given."""
    return leader.follower_fetched(
        follower,
        broker_epoch=broker_epoch,
        leader_epoch=epoch,
        fetch_offset=offset,
        held_end=offset if held is None else held,
        log_start=0,
        now_ms=now_ms,
    )


def first_life(broker: int) -> int:
    return 1


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs()
    for epoch, start in entries:
        found.assign(epoch, start)
    return found


def test_with_one_replica_everything_appended_is_committed() -> None:
    partition = leading(log_end=5, high_watermark=3)
    assert partition.offsets.high_watermark == 5

    assert append(partition, 8)

    assert (partition.offsets.log_end, partition.offsets.high_watermark) == (8, 8)


def test_one_replica_is_enough_where_min_insync_replicas_exceeds_the_replicas() -> None:
    partition = leading(in_sync_min=2)

    partition.check_enough_in_sync()
    assert append(partition, 1)
    assert partition.committed(1)


def test_the_leader_epoch_of_a_request_is_checked_unless_it_has_none() -> None:
    partition = leading(epoch=5)

    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(6)


def test_a_follower_refuses_requests() -> None:
    role = assume(fresh(), state(leader=2, replicas=(1, 2)), 0).role

    assert isinstance(role, Follower)
    assert isinstance(refusal(role), NotLeaderOrFollower)


def test_a_late_decision_of_an_earlier_epoch_changes_nothing() -> None:
    partition = leading(epoch=5)

    assert assume(partition, state(epoch=4, leader=2, replicas=(1, 2)), 0) == (partition, False)

    assert partition.leader_epoch == 5


def test_the_high_watermark_is_the_least_log_end_in_the_isr() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    append(partition, 10)
    assert partition.offsets.high_watermark == 0

    assert fetched(partition, 2, 0, 7, 0).high_watermark_moved
    fetched(partition, 3, 0, 2, 0)

    assert partition.offsets.high_watermark == 7, "replica 3 is not in the ISR and does not count"


def test_a_replica_proposed_for_the_isr_counts_at_once_and_a_dropped_one_until_the_change_is_written() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    append(partition, 10)
    fetched(partition, 2, 0, 5, 0)
    fetched(partition, 3, 0, 5, 0)
    assert partition.may_join(3)

    partition.propose({1, 3}, first_life)
    fetched(partition, 2, 0, 9, 0)
    assert partition.offsets.high_watermark == 5
    fetched(partition, 3, 0, 8, 0)
    assert partition.offsets.high_watermark == 8
    fetched(partition, 3, 0, 10, 0)
    assert partition.offsets.high_watermark == 9, "replica 2 counts until its removal is written"

    assert assume(partition, state(replicas=(1, 2, 3), isr=(1, 3), version=1), 0).high_watermark_moved
    assert partition.offsets.high_watermark == 10


def test_only_one_isr_change_is_in_flight() -> None:
    partition = leading(replicas=(1, 2), isr=(1, 2))
    partition.propose({1}, first_life)

    with pytest.raises(AssertionError):
        partition.propose({1, 2}, first_life)
    partition = led(partition, state(replicas=(1, 2), isr=(1, 2), version=1))
    partition.propose({1}, first_life)


def test_the_high_watermark_does_not_advance_while_the_isr_is_too_small() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1,), in_sync_min=2)

    assert not append(partition, 3)
    assert partition.offsets.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        partition.check_enough_in_sync()


def test_acks_all_fails_where_the_isr_shrank_after_the_append() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2), in_sync_min=2)
    append(partition, 3)
    fetched(partition, 2, 0, 3, 0)
    assert partition.committed(3)
    assert not partition.committed(4)

    partition = led(partition, state(replicas=(1, 2, 3), isr=(1,), version=1))

    with pytest.raises(NotEnoughReplicasAfterAppend):
        partition.committed(3)


def test_only_fetches_of_the_current_epoch_count() -> None:
    partition = leading(replicas=(1, 2), epoch=3)
    append(partition, 4)

    with pytest.raises(FencedLeaderEpoch):
        fetched(partition, 2, 2, 4, 0)
    assert partition.offsets.high_watermark == 0
    fetched(partition, 2, 3, 4, 0)
    assert partition.offsets.high_watermark == 4


def test_a_new_epoch_resets_the_followers_progress() -> None:
    partition = leading(replicas=(1, 2), epoch=3)
    append(partition, 4)
    fetched(partition, 2, 3, 4, 0)

    partition = led(partition, state(replicas=(1, 2), epoch=4))
    append(partition, 6)

    assert partition.offsets.high_watermark == 4
    assert not partition.may_join(2)
    assert partition.followers[2].log_end == -1


def test_a_follower_joins_only_past_the_high_watermark_and_the_epochs_start() -> None:
    partition = leading(log_end=10, high_watermark=4, replicas=(1, 2, 3), isr=(1, 2), epoch=7)
    assert partition.epoch_start == 10
    assert not partition.latest_is_known()

    fetched(partition, 3, 7, 6, 0)
    assert not partition.may_join(3), "above the high watermark, but below where the epoch began"
    fetched(partition, 3, 7, 10, 0)
    assert partition.may_join(3)
    fetched(partition, 2, 7, 10, 0)
    assert partition.latest_is_known()


def test_a_member_that_falls_behind_is_a_laggard_and_one_that_keeps_up_with_a_moving_end_is_not() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2, 3))
    append(partition, 10)
    for follower in (2, 3):
        fetched(partition, follower, 0, 10, 0)
    for now_ms in range(1000, 40_000, 1000):
        before = partition.offsets.log_end
        append(partition, before + 5)
        fetched(partition, 2, 0, before, now_ms)

    assert partition.laggards(39_000, 30_000) == {3}


def test_a_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    partition = leading(replicas=(1, 2))

    with pytest.raises(NotLeaderOrFollower):
        fetched(partition, 9, 0, 0, 0)


def test_offsets_outside_the_log_are_out_of_range_and_its_end_is_not() -> None:
    offsets, tp = Offsets.recovered(log_start=3, log_end=9, high_watermark=9), TopicPartition("orders", 0)

    offsets.check_readable(3, tp)
    offsets.check_readable(9, tp)
    for offset in (2, 10, -1):
        with pytest.raises(OffsetOutOfRange):
            offsets.check_readable(offset, tp)


def test_the_log_start_never_passes_the_high_watermark() -> None:
    partition = leading(log_end=5, replicas=(1, 2), high_watermark=2)

    with pytest.raises(OffsetOutOfRange):
        partition.log_start_moved(3)
    partition.log_start_moved(2)
    partition.log_start_moved(1)
    assert partition.offsets.log_start == 2


def test_the_last_stable_offset_is_the_first_undecided_but_within_the_log() -> None:
    producers = ProducerTable()
    partition = led(fresh(log_end=4, producers=producers), state())
    assert partition.offsets.last_stable == 4

    producers.record(7, 0, 0, 0, True, 4, 0, 0)
    append(partition, 5)
    append(partition, 10)
    assert (partition.offsets.last_stable, partition.offsets.high_watermark) == (4, 10)
    partition.log_start_moved(6)
    assert partition.offsets.last_stable == 6
    append(partition, 11)
    assert partition.offsets.last_stable == 6
    producers.record_marker(7, 0, 0, 11, True, 0, 0)
    append(partition, 12)
    assert partition.offsets.last_stable == 12


def test_a_truncated_follower_keeps_its_offsets_in_order() -> None:
    follower = fresh(log_end=10, high_watermark=8)

    follower.truncated(6, ProducerTable())

    offsets = follower.offsets
    assert (offsets.log_end, offsets.local_end, offsets.high_watermark, offsets.last_stable) == (6, 6, 6, 6)


def test_a_follower_fetches_from_its_end_once_it_has_a_leader() -> None:
    follower = fresh(log_end=10, high_watermark=4, durable_end=6)
    assert follower.fetch_from(epochs()) is None

    role = assume(follower, state(leader=2, epoch=3, replicas=(1, 2)), 0).role

    assert isinstance(role, Follower)
    assert role.fetch_from(epochs((0, 0), (2, 7))) == FetchFrom(
        leader=2, leader_epoch=3, offset=10, held_end=6, last_fetched_epoch=2, log_start=0
    )


def test_a_followers_high_watermark_is_the_part_of_the_leaders_that_it_holds() -> None:
    follower = fresh(log_end=4, high_watermark=2)

    assert follower.replicated(6, leader_high_watermark=9)
    assert follower.offsets.high_watermark == 6
    assert not follower.replicated(8, leader_high_watermark=5), "it never goes back"
    assert follower.offsets.high_watermark == 6


def test_with_flush_group_a_follower_holds_only_flushed_records() -> None:
    follower = fresh(log_end=4, high_watermark=4, durable_end=4)

    assert not follower.replicated(8, leader_high_watermark=8)
    assert follower.offsets.high_watermark == 4
    assert follower.flushed(7)
    assert (follower.offsets.high_watermark, follower.offsets.local_end) == (7, 7)


def test_a_follower_truncates_to_the_end_of_the_shared_epoch_and_reports_a_loss_of_committed_records() -> None:
    follower = fresh(log_end=10, high_watermark=6)

    def cut(epoch: int, end: int, *own: tuple[int, int]) -> TruncateTo:
        return follower.diverged(epoch, end, epochs(*own))

    assert cut(2, 8, (0, 0), (2, 3), (4, 9)) == TruncateTo(offset=8, below_high_watermark=False)
    assert cut(2, 12, (0, 0), (2, 3), (4, 7)) == TruncateTo(offset=7, below_high_watermark=False)
    assert cut(2, 12, (0, 0), (1, 3), (4, 7)) == TruncateTo(offset=7, below_high_watermark=False), "it has no epoch 2"
    assert cut(2, 5, (0, 0), (2, 3), (4, 9)) == TruncateTo(offset=5, below_high_watermark=True)
    assert cut(2, 8) == TruncateTo(offset=8, below_high_watermark=False), "its epochs are unknown"


def test_a_former_leader_follows_with_its_offsets() -> None:
    partition = leading(replicas=(1, 2), epoch=3)
    append(partition, 5)

    role = assume(partition, state(leader=2, epoch=4, replicas=(1, 2)), 0).role

    assert isinstance(role, Follower)
    assert (role.leader, role.leader_epoch, role.offsets.log_end) == (2, 4, 5)


def test_an_offline_replica_stays_offline() -> None:
    offline = Offline(BrokerError("the disk failed"), 3)

    assert assume(offline, state(epoch=4), 0) == (offline, False)
    assert refusal(offline) is offline.reason


def test_a_fetch_that_catches_up_makes_the_leader_propose_the_follower() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    append(partition, 4)
    fetched(partition, 2, 0, 4, 0)

    assert fetched(partition, 3, 0, 3, 0).propose_isr is None
    assert fetched(partition, 3, 0, 4, 0).propose_isr == {1, 2, 3}
    partition.propose({1, 2, 3}, first_life)
    assert fetched(partition, 3, 0, 4, 0).propose_isr is None, "one proposal is in flight at a time"


def test_a_second_follower_is_proposed_when_the_first_proposal_has_ended() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1,))
    assert fetched(partition, 2, 0, 0).propose_isr == {1, 2}
    partition.propose({1, 2}, first_life)

    assert fetched(partition, 3, 0, 0).propose_isr is None

    partition = led(partition, state(replicas=(1, 2, 3), isr=(1, 2), version=1))
    assert fetched(partition, 3, 0, 0).propose_isr == {1, 2, 3}


def test_an_isr_without_laggards_is_proposed_unless_a_proposal_is_in_flight() -> None:
    partition = leading(log_end=10, replicas=(1, 2, 3))

    assert partition.isr_without_laggards(30_000, 30_000) is None
    assert partition.isr_without_laggards(30_001, 30_000) == {1}
    partition.propose({1}, first_life)
    assert partition.isr_without_laggards(30_001, 30_000) is None


class Replication(RuleBasedStateMachine):
    """For any sequence of appends, fetches and decisions, every member of the maximal ISR has all readable records."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = leading(replicas=(1, 2, 3), isr=(1, 2, 3), in_sync_min=2)
        self.held = {2: 0, 3: 0}
        self.version = 0
        self.seen = 0

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        append(self.partition, self.partition.offsets.log_end + count)

    @rule(follower=st.sampled_from([2, 3]), count=st.integers(0, 9), now_ms=st.integers(0, 9))
    def fetch(self, follower: int, count: int, now_ms: int) -> None:
        self.held[follower] = min(self.held[follower] + count, self.partition.offsets.log_end)
        fetched(self.partition, follower, self.partition.leader_epoch, self.held[follower], now_ms)

    @rule(follower=st.sampled_from([2, 3]))
    def drop(self, follower: int) -> None:
        if self.partition.isr == self.partition.isr_proposed and follower in self.partition.isr:
            self.partition.propose(self.partition.isr - {follower}, first_life)

    @rule(follower=st.sampled_from([2, 3]))
    def join(self, follower: int) -> None:
        if self.partition.isr == self.partition.isr_proposed and self.partition.may_join(follower):
            self.partition.propose(self.partition.isr | {follower}, first_life)

    @rule(written=st.booleans())
    def controller_responds(self, written: bool) -> None:
        if written:
            self.version += 1
            isr = tuple(sorted(self.partition.isr_proposed))
            epoch = self.partition.leader_epoch
            self._decide(epoch, isr)
        elif self.partition.proposal is not None:
            self.partition.proposal_ineligible(self.partition.proposal, 0)

    @rule()
    def elected_again(self) -> None:
        self.version += 1
        isr = tuple(sorted(self.partition.isr))
        epoch = self.partition.leader_epoch + 1
        self._decide(epoch, isr)

    def _decide(self, epoch: int, isr: tuple[int, ...]) -> None:
        self.partition = led(self.partition, state(epoch=epoch, replicas=(1, 2, 3), isr=isr, version=self.version))

    @invariant()
    def committed_is_everywhere(self) -> None:
        partition = self.partition
        assert partition.offsets.high_watermark >= self.seen, "the high watermark went back"
        if partition.offsets.high_watermark > self.seen:
            self.seen = partition.offsets.high_watermark
            assert len(partition.isr) >= 2
            assert all(self.held[replica] >= self.seen for replica in partition.isr_maximal - {1})
        offsets = partition.offsets
        assert (
            offsets.log_start <= offsets.last_stable <= offsets.high_watermark <= offsets.local_end <= offsets.log_end
        )


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_with_flush_group_a_single_leader_commits_only_flushed_records() -> None:
    partition = led(fresh(log_end=10, high_watermark=4, durable_end=6), state())

    assert (partition.offsets.high_watermark, partition.offsets.local_end, partition.offsets.log_end) == (6, 6, 10)
    assert partition.flushed(10)
    assert partition.offsets.high_watermark == 10


def test_committed_records_stay_committed_where_the_durable_end_is_unknown() -> None:
    partition = fresh(log_end=10, high_watermark=4, durable_end=0)

    assert (partition.offsets.high_watermark, partition.offsets.local_end) == (4, 4)


def test_no_follower_lags_behind_a_new_leader() -> None:
    elected_ms, lag_ms_max = 1_700_000_000_000, 30_000
    partition = led(fresh(log_end=10, high_watermark=10), state(epoch=5, replicas=(1, 2, 3)), elected_ms)
    append(partition, 11)

    assert partition.laggards(elected_ms + lag_ms_max, lag_ms_max) == frozenset()
    assert partition.laggards(elected_ms + lag_ms_max + 1, lag_ms_max) == {2, 3}


def test_an_added_replica_has_time_to_catch_up() -> None:
    partition = leading(log_end=10, replicas=(1, 2))

    partition = led(partition, state(replicas=(1, 2, 3), version=1), 50_000)

    assert partition.laggards(60_000, 30_000) == {2}


def test_a_repeated_decision_keeps_the_proposal_in_flight() -> None:
    partition = leading(log_end=10, high_watermark=5, replicas=(1, 2, 3), isr=(1, 2))
    fetched(partition, 3, partition.leader_epoch, 5, 0)
    partition.propose({1, 2, 3}, first_life)

    assert assume(partition, state(replicas=(1, 2, 3), isr=(1, 2)), 0) == (partition, False)

    assert partition.isr_maximal == {1, 2, 3}
    fetched(partition, 2, partition.leader_epoch, 10, 0)
    assert partition.offsets.high_watermark == 5, "replica 3 may be in the ISR already, so it counts"


# Broker epochs


def test_a_fetch_of_an_earlier_life_of_the_broker_is_refused() -> None:
    partition = leading(replicas=(1, 2))
    append(partition, 4)
    fetched(partition, 2, 0, 1, broker_epoch=7)

    for stale in (6, -1):
        with pytest.raises(StaleBrokerEpoch):
            fetched(partition, 2, 0, 4, broker_epoch=stale)

    assert partition.offsets.high_watermark == 1


def test_a_fetch_of_a_later_life_replaces_what_is_known_of_the_earlier_one() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    append(partition, 4)
    fetched(partition, 2, 0, 4)
    fetched(partition, 3, 0, 4, broker_epoch=7)
    assert partition.may_join(3)

    assert fetched(partition, 3, 0, 1, broker_epoch=8).propose_isr is None

    assert (partition.followers[3].held_end, partition.followers[3].broker_epoch) == (1, 8)
    assert not partition.may_join(3)


def test_a_proposal_names_the_life_in_which_a_member_fetched() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2), epoch=4, version=9)
    fetched(partition, 3, 4, 0, broker_epoch=7)

    proposal = partition.propose({1, 2, 3}, {1: 5, 2: 6, 3: 8}.__getitem__)

    assert proposal == IsrProposal(partition_epoch=9, leader_epoch=4, isr=((1, 5), (2, 6), (3, 7)))
    assert partition.proposal is proposal


# Held ends


def test_records_that_a_follower_has_not_flushed_do_not_count_for_the_high_watermark() -> None:
    partition = leading(replicas=(1, 2))
    append(partition, 4)

    assert fetched(partition, 2, 0, 4, held=3).high_watermark_moved
    assert partition.offsets.high_watermark == 3
    assert fetched(partition, 2, 0, 4, held=9).high_watermark_moved
    assert partition.offsets.high_watermark == 4, "it holds no more than it has fetched"


def test_a_follower_joins_with_what_it_has_flushed() -> None:
    partition = leading(log_end=4, high_watermark=4, replicas=(1, 2), isr=(1,))

    assert fetched(partition, 2, 0, 4, held=3).propose_isr is None
    assert fetched(partition, 2, 0, 4).propose_isr == {1, 2}


def test_a_member_that_fetches_but_does_not_flush_is_a_laggard() -> None:
    partition = leading(replicas=(1, 2))
    append(partition, 4)
    for now_ms in range(0, 40_000, 1000):
        fetched(partition, 2, 0, 4, now_ms, held=3)

    assert partition.laggards(39_000, 30_000) == {2}


# What counts


@pytest.mark.parametrize("offset", [2, 5])
def test_a_fetch_outside_of_the_log_does_not_count(offset: int) -> None:
    partition = leading(log_end=4, high_watermark=3, replicas=(1, 2, 3), isr=(1, 2))
    partition.log_start_moved(3)

    with pytest.raises(OffsetOutOfRange):
        fetched(partition, 3, 0, offset)

    assert partition.followers[3].held_end == -1


def test_a_fetch_without_a_leader_epoch_does_not_count() -> None:
    partition = leading(replicas=(1, 2))

    with pytest.raises(FencedLeaderEpoch):
        fetched(partition, 2, -1, 0)


def test_a_member_of_a_quiet_partition_does_not_lag_when_a_record_arrives() -> None:
    partition = leading(replicas=(1, 2))
    append(partition, 4)
    fetched(partition, 2, 0, 4)
    for now_ms in range(0, 3_600_000, 15_000):
        assert partition.isr_without_laggards(now_ms, 30_000) is None

    append(partition, 5)

    assert partition.isr_without_laggards(3_600_000, 30_000) is None
    assert partition.isr_without_laggards(3_615_001, 30_000) == {1}


# Min ISR


def test_the_min_isr_of_the_partition_state_replaces_that_of_the_topic() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2), in_sync_min=3, decided_min=2)
    assert not partition.too_few_in_sync

    partition.configure(in_sync_min=3, flush_group=False)
    assert not partition.too_few_in_sync

    partition = led(partition, state(replicas=(1, 2, 3), isr=(1, 2), version=1, decided_min=3))
    assert partition.too_few_in_sync


def test_a_proposed_member_does_not_make_the_isr_large_enough() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1,), in_sync_min=2)
    append(partition, 3)
    fetched(partition, 2, 0, 3)
    partition.propose({1, 2}, first_life)

    assert partition.offsets.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        partition.check_enough_in_sync()

    partition = led(partition, state(replicas=(1, 2, 3), isr=(1, 2), version=1))
    assert partition.offsets.high_watermark == 3


# Proposals


def test_only_a_newer_state_or_an_ineligible_member_ends_a_proposal() -> None:
    partition = leading(replicas=(1, 2, 3), isr=(1, 2))
    append(partition, 4)
    fetched(partition, 2, 0, 4)
    fetched(partition, 3, 0, 4)
    proposal = partition.propose({1, 2, 3}, first_life)
    append(partition, 6)
    fetched(partition, 2, 0, 6)
    other = IsrProposal(partition_epoch=9, leader_epoch=0, isr=proposal.isr)

    assert not partition.proposal_ineligible(other, 0), "a late response to another proposal"
    assert assume(partition, state(replicas=(1, 2, 3), isr=(1, 2)), 0).role is partition
    assert partition.is_proposing
    assert partition.offsets.high_watermark == 4

    assert partition.proposal_ineligible(proposal, 0)
    assert not partition.is_proposing
    assert partition.offsets.high_watermark == 6, "replica 3 is not in the ISR and will not be"


def test_a_member_is_not_proposed_again_at_once_after_it_was_ineligible() -> None:
    partition = leading(replicas=(1, 2), isr=(1,))
    fetched(partition, 2, 0, 0)
    partition.proposal_ineligible(partition.propose({1, 2}, first_life), 100)

    assert fetched(partition, 2, 0, 0, 100 + INELIGIBLE_PAUSE_MS - 1).propose_isr is None
    assert fetched(partition, 2, 0, 0, 100 + INELIGIBLE_PAUSE_MS).propose_isr == {1, 2}


# Leader epochs


def test_an_epoch_without_records_ends_every_earlier_one() -> None:
    partition = leading(log_end=10, replicas=(1, 2), epoch=5)
    known = epochs((0, 0), (3, 7))

    assert partition.end_of(5, known) == (5, 10)
    assert partition.end_of(4, known) == (3, 10), "nothing of epoch 4 is here"
    assert partition.end_of(3, known) == (3, 10)
    assert partition.end_of(2, known) == (0, 7)
    assert partition.end_of(6, known) == (-1, -1)
    assert leading(epoch=5, replicas=(1, 2)).end_of(3, epochs()) == (3, 0), "the log is empty"


def test_a_follower_with_records_of_an_epoch_that_the_leader_lacks_diverges_where_the_leaders_epoch_ends() -> None:
    partition = leading(log_end=10, replicas=(1, 2), epoch=5)
    known = epochs((0, 0), (3, 7))

    assert partition.divergence(12, 4, known) == (3, 10)
    assert partition.divergence(9, 4, known) == (3, 10)
    assert partition.divergence(10, 3, known) is None
    assert partition.divergence(8, 0, known) == (0, 7)
    assert partition.divergence(10, 5, known) is None
    with pytest.raises(OffsetOutOfRange):
        partition.divergence(10, 6, known)


def test_histories_agree_after_truncations_by_epoch_look_up_alone() -> None:
    """Truncating once is not enough where leader and follower have epochs that the other lacks."""
    leader = leading(log_end=20, replicas=(1, 2), epoch=9)
    leaders = epochs((0, 0), (2, 4), (5, 12))
    own = epochs((0, 0), (1, 3), (4, 6), (7, 16))
    follower = assume(fresh(log_end=18), state(leader=2, epoch=9, replicas=(1, 2)), 0).role
    assert isinstance(follower, Follower)

    cuts: list[int] = []
    while (found := leader.divergence(follower.offsets.log_end, own.latest, leaders)) is not None:
        cut = follower.diverged(*found, own)
        own.truncate_to(cut.offset)
        follower.truncated(cut.offset, ProducerTable())
        cuts.append(cut.offset)

    assert cuts == [16, 6, 3]
    assert own.entries() == [(0, 0)]


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_replica_does_not_lead_in_an_epoch_that_its_log_has_already(epoch: int) -> None:
    role = assume(fresh(log_end=5), state(epoch=epoch, replicas=(1, 2)), 0, newest_epoch=4).role

    assert isinstance(role, Follower)
    assert role.fetch_from(epochs()) is None
    assert isinstance(assume(role, state(epoch=5, replicas=(1, 2)), 0, newest_epoch=4).role, Leader)


def test_a_leader_goes_on_in_its_own_epoch() -> None:
    partition = leading(replicas=(1, 2), epoch=4)

    assert isinstance(assume(partition, state(epoch=4, replicas=(1, 2), version=1), 0, newest_epoch=4).role, Leader)


def test_the_only_replica_leads_in_the_epoch_of_its_former_life() -> None:
    assert isinstance(assume(fresh(log_end=5), state(epoch=4), 0, newest_epoch=4).role, Leader)


def test_a_response_to_a_request_of_another_leader_epoch_is_refused() -> None:
    follower = assume(fresh(), state(leader=2, epoch=4, replicas=(1, 2)), 0).role
    assert isinstance(follower, Follower)

    follower.check_response(4)
    for epoch in (3, 5):
        with pytest.raises(FencedLeaderEpoch):
            follower.check_response(epoch)


# Fencing


def test_a_fenced_replica_follows_no_leader_and_takes_the_same_state_again_once_admitted() -> None:
    decided = state(leader=2, epoch=4, replicas=(1, 2), version=3)
    fenced = fence(assume(fresh(), decided, 0).role)

    assert isinstance(fenced, Follower)
    assert (fenced.leader, fenced.leader_epoch) == (-1, 4)
    with pytest.raises(FencedLeaderEpoch):
        fenced.check_response(4)
    role = assume(fenced, decided, 0).role
    assert isinstance(role, Follower)
    assert role.leader == 2


def test_a_fenced_leader_does_not_lead_in_its_old_epoch_again() -> None:
    partition = leading(replicas=(1, 2), epoch=4)
    append(partition, 1)

    fenced = fence(partition)

    assert isinstance(assume(fenced, state(epoch=4, replicas=(1, 2), version=9), 0, newest_epoch=4).role, Follower)
    assert isinstance(assume(fenced, state(epoch=5, replicas=(1, 2)), 0, newest_epoch=4).role, Leader)


def test_an_offline_replica_is_not_fenced() -> None:
    offline = Offline(BrokerError("the disk failed"), 3)

    assert fence(offline) is offline


def test_a_damaged_log_is_cut_only_where_no_record_counts_on_it() -> None:
    out = state(leader=2, epoch=4, replicas=(1, 2, 3), isr=(2, 3))
    assert may_cut(out, 1, 3)
    # It fetched in this epoch: the leader may propose it by that.
    assert not may_cut(out, 1, 4)
    assert not may_cut(state(leader=2, epoch=4, replicas=(1, 2, 3)), 1, 3)
    assert not may_cut(replace(out, eligible_leader_replicas=(1,)), 1, 3)
    assert not may_cut(state(leader=1, epoch=4, replicas=(1, 2, 3), isr=(1,)), 1, 3)
