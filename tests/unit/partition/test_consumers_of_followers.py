"""Consumers with a rack: the leader sends them to a follower, which serves what is committed (KIP-392)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.partition.rig import NOW_MS, Rig, batch
from tests.unit.partition.test_following import Pair, Proposals, copy, shared, stored

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from penstock.model.ids import TopicPartition
from penstock.partition.fetch import Fetches, FetchJob, FetchLimits
from penstock.partition.fetch_session import NO_SESSION, CachedPartition
from penstock.partition.follower import FollowerUnconfirmed
from penstock.partition.replica_selector import ReplicaSelector, select_in_rack
from penstock.partition.results import Fetched
from penstock.wire.records import build_marker

RACKS = {1: "north", 2: "south", 3: "west"}
WAIT_MS = 500


class RackReader:
    """A consumer of partition 0 of orders, in a session."""

    def __init__(self, rig: Rig, *, rack: str = "south", committed: bool = False, bytes_min: int = 1) -> None:
        self.rig = rig
        self.limits = FetchLimits(
            bytes_min=bytes_min, bytes_max=1 << 20, rack=rack, listener="PLAINTEXT", read_committed=committed
        )
        self.session_id, self.session_epoch = NO_SESSION, 0
        self.done = 0

    def begin(self, *asked: CachedPartition) -> FetchJob:
        job = self.rig.fetches.begin(
            self.limits,
            session_id=self.session_id,
            epoch=self.session_epoch,
            by_topic_id=False,
            asked=asked,
            now_ms=self.rig.clock.ms,
        )
        self.session_epoch += 1
        return job

    def respond(self, job: FetchJob) -> list[Fetched | BrokerError]:
        self.session_id, results = job.response(self.rig.clock.ms)
        return [outcome for _, outcome in results]

    def fetch(self, *asked: CachedPartition) -> list[Fetched | BrokerError]:
        """A request that does not wait."""
        job = self.begin(*asked)
        job.read()
        return self.respond(job)

    def wait(self, *asked: CachedPartition) -> FetchJob:
        """A request that waits."""
        job = self.begin(*asked)
        assert not job.read(), job.results

        def completed() -> None:
            self.done += 1

        job.wait(WAIT_MS, completed)
        return job


def at(offset: int, *, epoch: int = -1, fetched: int = -1) -> CachedPartition:
    return CachedPartition("orders", 0, offset, 1 << 20, epoch, -1, fetched)


def only(outcomes: list[Fetched | BrokerError]) -> Fetched:
    (found,) = outcomes
    assert isinstance(found, Fetched), found
    return found


def refusal(outcomes: list[Fetched | BrokerError]) -> type[BrokerError]:
    (found,) = outcomes
    assert isinstance(found, BrokerError), found
    return type(found)


def contents(found: Fetched) -> bytes:
    return found.records if isinstance(found.records, bytes) else bytes(found.records.contents())


def with_racks(rig: Rig, select: ReplicaSelector | None = select_in_rack, listener: str = "PLAINTEXT") -> Proposals:
    """Let a rig's broker choose the replicas of consumers, by the racks of brokers 1 to 3 that have a listener."""
    rig.fetches = Fetches(
        replicas=rig.replicas,
        sessions=rig.sessions,
        timers=rig.timers,
        now_ms=rig.clock.now_ms,
        select=select,
        rack_of=lambda broker, asked: RACKS[broker] if asked == listener else None,
    )
    return Proposals(rig)


def leader_of_three(records: int = 2, **kw: Any) -> Rig:
    """Broker 1 leads; brokers 2 and 3 have its records, and are live with epochs 12 and 13."""
    rig = Rig(shared(replicas=(1, 2, 3), **kw))
    with_racks(rig)
    if records:
        rig.append(rig.replica(), batch(*[b"r"] * records))
    for follower in (2, 3):
        fetched_by(rig, follower, records)
    return rig


def fetched_by(rig: Rig, follower: int, offset: int, *, log_start: int = 0, epoch: int | None = None) -> None:
    rig.replica().follower_fetched(
        follower,
        broker_epoch=10 + follower if epoch is None else epoch,
        leader_epoch=rig.replica().role.leader_epoch,
        fetch_offset=offset,
        held_end=offset,
        log_start=log_start,
        now_ms=rig.clock.now_ms(),
    )


class TestLeader:
    """The leader's answer to a consumer that names its rack."""

    def test_a_consumer_is_sent_to_the_replica_of_its_rack(self) -> None:
        rig = leader_of_three()

        for rack, preferred in (("south", 2), ("west", 3)):
            job = RackReader(rig, rack=rack).begin(at(0))
            assert job.read(), "it does not wait"
            [(_, found)] = job.results
            assert isinstance(found, Fetched)
            assert (found.preferred_replica, len(found.records), found.high_watermark) == (preferred, 0, 2)

    @pytest.mark.parametrize("rack", ["north", "elsewhere", ""])
    def test_a_consumer_of_the_leaders_rack_or_of_none_reads_from_the_leader(self, rack: str) -> None:
        found = only(RackReader(leader_of_three(), rack=rack).fetch(at(0)))

        assert found.preferred_replica < 0
        assert len(found.records)

    def test_without_a_selector_consumers_read_from_the_leader(self) -> None:
        rig = leader_of_three()
        with_racks(rig, None)

        assert len(only(RackReader(rig).fetch(at(0))).records)

    def test_a_broker_without_the_consumers_listener_is_not_chosen(self) -> None:
        rig = leader_of_three()
        with_racks(rig, listener="INTERNAL")

        assert len(only(RackReader(rig).fetch(at(0))).records)

    def test_a_consumer_that_has_everything_is_sent_on_without_waiting(self) -> None:
        job = RackReader(leader_of_three()).begin(at(2))

        assert job.read()

    def test_a_replica_outside_of_the_isr_is_not_chosen(self) -> None:
        rig = leader_of_three()
        before = shared(replicas=(1, 2, 3))
        rig.change(before, shared(replicas=(1, 2, 3), isr=(1, 3), version=1))

        assert len(only(RackReader(rig).fetch(at(0))).records)
        assert only(RackReader(rig, rack="west").fetch(at(0))).preferred_replica == 3

    def test_a_replica_that_lacks_the_offset_is_not_chosen(self) -> None:
        rig = leader_of_three()
        rig.append(rig.replica(), batch(b"more"))
        fetched_by(rig, 2, 2, log_start=1)

        assert only(RackReader(rig).fetch(at(0))).preferred_replica < 0, "it has deleted it"
        assert only(RackReader(rig).fetch(at(1))).preferred_replica == 2
        assert only(RackReader(rig).fetch(at(2))).preferred_replica == 2
        assert only(RackReader(rig).fetch(at(3))).preferred_replica < 0, "it does not have it yet"

    def test_a_replica_that_has_not_fetched_in_this_epoch_is_not_chosen(self) -> None:
        rig = leader_of_three()
        rig.change(shared(replicas=(1, 2, 3)), shared(replicas=(1, 2, 3), epoch=1, version=1))

        assert only(RackReader(rig).fetch(at(0))).preferred_replica < 0
        fetched_by(rig, 2, 2)
        assert only(RackReader(rig).fetch(at(0))).preferred_replica == 2

    def test_a_broker_that_is_gone_or_registered_again_is_not_chosen(self) -> None:
        for epoch in (-1, 22):
            rig = leader_of_three()
            rig.replicas.cluster.broker_epoch_of = lambda broker, epoch=epoch: epoch if broker == 2 else 10 + broker

            assert len(only(RackReader(rig).fetch(at(0))).records)

    def test_a_consumer_of_another_leader_epoch_is_refused_before_it_is_sent_on(self) -> None:
        rig = leader_of_three(epoch=3)

        assert refusal(RackReader(rig).fetch(at(0, epoch=2))) is FencedLeaderEpoch
        assert refusal(RackReader(rig).fetch(at(0, epoch=4))) is UnknownLeaderEpoch
        assert only(RackReader(rig).fetch(at(0, epoch=3))).preferred_replica == 2

    def test_a_session_repeats_the_preferred_replica_until_the_partition_leaves_it(self) -> None:
        reader = RackReader(leader_of_three())

        for asked in ((at(0),), (), ()):
            assert only(reader.fetch(*asked)).preferred_replica == 2

    def test_a_waiting_consumer_is_sent_on_when_its_replica_can_serve_it(self) -> None:
        rig = leader_of_three()
        rig.append(rig.replica(), batch(b"more"))
        fetched_by(rig, 3, 3)
        reader = RackReader(rig)
        job = reader.wait(at(3))

        fetched_by(rig, 2, 3)
        rig.loop.run()

        assert reader.done == 1
        assert only(reader.respond(job)).preferred_replica == 2


class TestFollower:
    """A follower that consumers read from."""

    def test_it_serves_up_to_its_own_high_watermark(self) -> None:
        pair = Pair()
        pair.append(b"a", b"b")
        pair.append(b"c")
        copy(pair.leader, pair.follower, high_watermark=2)

        found = only(RackReader(pair.two).fetch(at(0)))

        assert contents(found) == bytes(stored(pair.leader))[: len(contents(found))]
        assert (found.high_watermark, found.last_stable, found.log_start) == (2, 2, 0)
        assert not len(only(RackReader(pair.two).fetch(at(2))).records), "the third record is not committed here"

    def test_a_consumer_without_a_rack_is_refused(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)

        assert refusal(RackReader(pair.two, rack="").fetch(at(0))) is NotLeaderOrFollower

    def test_a_fetch_beyond_the_high_watermark_waits_until_it_is_reached(self) -> None:
        pair = Pair()
        pair.append(b"a", b"b")
        copy(pair.leader, pair.follower, high_watermark=0)
        reader = RackReader(pair.two)
        job = reader.wait(at(0))

        copy(pair.leader, pair.follower, high_watermark=2)
        pair.two.loop.run()

        assert reader.done == 1
        assert contents(only(reader.respond(job))) == bytes(stored(pair.leader))

    def test_a_settled_partition_wakes_its_consumer_when_the_high_watermark_moves(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)
        reader = RackReader(pair.two)
        only(reader.fetch(at(0)))
        assert reader.fetch() == []
        job = reader.wait()

        pair.append(b"a")
        copy(pair.leader, pair.follower, high_watermark=0)
        pair.two.loop.run()
        assert reader.done == 0
        copy(pair.leader, pair.follower, high_watermark=1)
        pair.two.loop.run()

        assert reader.done == 1
        assert len(only(reader.respond(job)).records)

    def test_offsets_outside_of_its_log_are_out_of_range(self) -> None:
        pair = Pair()
        pair.append(b"a", b"b")
        copy(pair.leader, pair.follower, high_watermark=2)
        pair.follower.log.delete_before(1)
        pair.follower.start_moved()

        assert refusal(RackReader(pair.two).fetch(at(0))) is OffsetOutOfRange
        assert refusal(RackReader(pair.two).fetch(at(3))) is OffsetOutOfRange

    def test_a_reader_of_committed_data_gets_stable_records_and_the_aborted_transactions(self) -> None:
        pair = Pair()
        pair.append(b"plain")
        pair.one.append(pair.leader, batch(b"undone", producer_id=7, is_transactional=True), internal=True)
        copy(pair.leader, pair.follower, high_watermark=2)

        found = only(RackReader(pair.two, committed=True).fetch(at(0)))
        assert (found.last_stable, found.aborted) == (1, [])
        uncommitted = only(RackReader(pair.two).fetch(at(0)))
        assert len(contents(uncommitted)) > len(contents(found))

        marker = build_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
        pair.one.append(pair.leader, marker, internal=True)
        copy(pair.leader, pair.follower, high_watermark=3)

        found = only(RackReader(pair.two, committed=True).fetch(at(0)))
        assert found.last_stable == 3
        assert [(each.producer_id, each.first_offset) for each in found.aborted or ()] == [(7, 1)]

    def test_epochs_are_checked(self) -> None:
        pair = Pair(epoch=3)
        copy(pair.leader, pair.follower)

        assert refusal(RackReader(pair.two).fetch(at(0, epoch=2))) is FencedLeaderEpoch
        assert refusal(RackReader(pair.two).fetch(at(0, epoch=4))) is UnknownLeaderEpoch
        only(RackReader(pair.two).fetch(at(0, epoch=3)))

    def test_a_reader_whose_log_diverges_hears_of_it(self) -> None:
        pair = Pair(epoch=3)
        pair.append(b"a")
        copy(pair.leader, pair.follower)

        job = RackReader(pair.two).begin(at(1, fetched=2))
        assert job.read(), "it does not wait"
        [(_, found)] = job.results
        assert isinstance(found, Fetched)
        assert found.diverging == (2, 0)
        assert refusal(RackReader(pair.two).fetch(at(1, fetched=4))) is OffsetOutOfRange, "an epoch it does not have"

    def test_before_its_leader_has_responded_it_serves_nothing(self) -> None:
        """After an unclean election its high watermark may cover records that are lost."""
        pair = Pair()
        pair.append(b"a")
        copy(pair.leader, pair.follower, high_watermark=1)
        reader = RackReader(pair.two)
        pair.two.change(shared(), shared(epoch=1, version=1))

        job = reader.wait(at(0))
        pair.two.loop.run()
        assert reader.done == 0

        pair.one.change(shared(), shared(epoch=1, version=1))
        copy(pair.leader, pair.follower)
        pair.two.loop.run()
        assert reader.done == 1
        assert len(only(reader.respond(job)).records)

    def test_a_follower_that_is_confirmed_between_read_and_wait_serves_at_once(self) -> None:
        """As between the turns of a read of many partitions."""
        pair = Pair()
        pair.append(b"a")
        reader = RackReader(pair.two)
        job = reader.begin(at(0))
        assert not job.read()
        copy(pair.leader, pair.follower, high_watermark=1)
        done: list[None] = []

        job.wait(WAIT_MS, lambda: done.append(None))

        assert done == [None]
        assert len(only(reader.respond(job)).records)

    def test_a_consumer_of_an_unconfirmed_follower_returns_to_the_leader_when_its_time_is_up(self) -> None:
        reader = RackReader(Pair().two)
        job = reader.wait(at(0))

        reader.rig.loop.pass_ms(WAIT_MS + 20)

        assert reader.done == 1
        assert refusal(reader.respond(job)) is FollowerUnconfirmed
        assert FollowerUnconfirmed.code == NotLeaderOrFollower.code

    def test_outside_of_the_isr_it_refuses_at_once_and_wakes_those_who_wait(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)
        reader = RackReader(pair.two)
        job = reader.wait(at(0))

        pair.two.change(shared(), shared(isr=(1,), version=1))
        pair.two.loop.run()

        assert reader.done == 1
        assert refusal(reader.respond(job)) is NotLeaderOrFollower
        again = RackReader(pair.two).begin(at(0))
        assert again.read(), "it does not wait"

    def test_it_serves_on_in_the_same_epoch_when_the_isr_changes(self) -> None:
        pair = Pair(replicas=(1, 2, 3))
        copy(pair.leader, pair.follower)

        pair.two.change(shared(replicas=(1, 2, 3)), shared(replicas=(1, 2, 3), isr=(1, 2), version=1))

        only(RackReader(pair.two).fetch(at(0)))

    def test_a_fenced_broker_serves_nothing_until_its_leader_has_responded_again(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)
        pair.two.replicas.fence()

        RackReader(pair.two).wait(at(0))
        pair.two.replicas.unfence()
        RackReader(pair.two).wait(at(0))
        copy(pair.leader, pair.follower)
        only(RackReader(pair.two).fetch(at(0)))

    def test_a_truncation_ends_the_wait_for_offsets_that_are_gone(self) -> None:
        pair = Pair()
        pair.append(b"a", b"b")
        copy(pair.leader, pair.follower, high_watermark=0)
        reader = RackReader(pair.two)
        job = reader.wait(at(2))

        pair.two.replicas.truncate({TopicPartition("orders", 0): 0})
        pair.two.loop.run()

        assert reader.done == 1
        assert refusal(reader.respond(job)) is FollowerUnconfirmed, "until the leader agrees"
        pair.follower.replicate(memoryview(b""), leader_epoch=0, high_watermark=0, log_start=0, now_ms=NOW_MS)
        assert refusal(reader.fetch()) is OffsetOutOfRange

    def test_a_consumer_that_waits_at_a_leader_is_refused_when_it_follows(self) -> None:
        rig = leader_of_three()
        reader = RackReader(rig, rack="north")
        job = reader.wait(at(2, epoch=0))

        rig.change(shared(replicas=(1, 2, 3)), shared(leader=2, replicas=(1, 2, 3), epoch=1, version=1))
        rig.loop.run()

        assert reader.done == 1
        assert refusal(reader.respond(job)) is FencedLeaderEpoch


class TestHighWatermark:
    """A follower that consumers read from learns the high watermark at once; others do not ask for it."""

    def test_it_is_told_to_the_leader_only_while_consumers_read(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)
        now_ms = pair.two.clock.now_ms()
        assert pair.follower.fetch_position(now_ms).high_watermark is None

        only(RackReader(pair.two).fetch(at(0)))
        assert pair.follower.fetch_position(now_ms).high_watermark == 0

        assert pair.follower.fetch_position(now_ms + 60_000).high_watermark is None

    def test_a_consumer_that_waits_for_long_counts(self) -> None:
        pair = Pair()
        copy(pair.leader, pair.follower)
        RackReader(pair.two).wait(at(0))

        assert pair.follower.fetch_position(pair.two.clock.now_ms() + 60_000).high_watermark == 0

    def test_before_the_first_response_of_an_epoch_it_is_unknown(self) -> None:
        pair = Pair()
        RackReader(pair.two).wait(at(0))

        assert pair.follower.fetch_position(pair.two.clock.now_ms()).high_watermark == -1


def replica_fetch(offset: int, high_watermark: int | None = None, *, held: int = -1) -> CachedPartition:
    told = {} if high_watermark is None else {"follower_high_watermark": high_watermark}
    return CachedPartition("orders", 0, offset, 1 << 20, 0, 0, 0 if offset else -1, held, **told)


class FollowerFetches(RackReader):
    """The fetches of a follower, in a session."""

    def __init__(self, rig: Rig, broker_id: int) -> None:
        super().__init__(rig)
        self.limits = replace(self.limits, rack="", replica_id=broker_id, replica_epoch=10 + broker_id)


class TestHighWatermarkAtLeader:
    """How soon the leader tells its followers the high watermark."""

    def test_a_follower_with_consumers_is_woken_when_another_followers_fetch_commits(self) -> None:
        rig = leader_of_three(0)
        rig.append(rig.replica(), batch(b"a"))
        two, three = FollowerFetches(rig, 2), FollowerFetches(rig, 3)
        job = two.wait(replica_fetch(1, 0))

        three.fetch(replica_fetch(1))
        rig.loop.run()

        assert two.done == 1
        assert only(two.respond(job)).high_watermark == 1

    def test_a_follower_without_consumers_is_not(self) -> None:
        rig = leader_of_three(0)
        rig.append(rig.replica(), batch(b"a"))
        two, three = FollowerFetches(rig, 2), FollowerFetches(rig, 3)
        two.wait(replica_fetch(1))

        three.fetch(replica_fetch(1))
        rig.loop.run()

        assert two.done == 0

    def test_the_follower_whose_own_fetch_commits_hears_of_it_without_waiting(self) -> None:
        rig = leader_of_three(0)
        rig.append(rig.replica(), batch(b"a"))
        FollowerFetches(rig, 2).fetch(replica_fetch(1))

        job = FollowerFetches(rig, 3).begin(replica_fetch(1, 0))

        assert job.read()

    def test_a_high_watermark_is_told_once(self) -> None:
        rig = leader_of_three()
        two = FollowerFetches(rig, 2)
        job = two.begin(replica_fetch(2, 0))
        assert job.read()
        two.respond(job)

        two.wait(replica_fetch(2, 0))

    def test_a_high_watermark_that_the_follower_does_not_hold_can_wait(self) -> None:
        rig = leader_of_three()
        two = FollowerFetches(rig, 2)

        two.wait(replica_fetch(2, 1, held=1))

    def test_the_first_response_of_an_epoch_does_not_wait_if_consumers_do(self) -> None:
        rig = leader_of_three()
        two = FollowerFetches(rig, 2)
        two.fetch(replica_fetch(2, 2))
        assert two.fetch() == []
        rig.change(shared(replicas=(1, 2, 3)), shared(replicas=(1, 2, 3), epoch=1, version=1))

        job = two.begin(CachedPartition("orders", 0, 2, 1 << 20, 1, 0, 0, -1, -1))

        assert job.read()
        assert only(two.respond(job)).high_watermark == 2

    def test_a_follower_hears_from_its_leader_in_each_epoch(self) -> None:
        rig = leader_of_three()
        two = FollowerFetches(rig, 2)
        two.fetch(replica_fetch(2))
        assert two.fetch() == []
        rig.change(shared(replicas=(1, 2, 3)), shared(replicas=(1, 2, 3), epoch=1, version=1))

        only(two.fetch(CachedPartition("orders", 0, 2, 1 << 20, 1, 0, 0)))
