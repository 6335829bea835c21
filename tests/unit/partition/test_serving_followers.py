"""A leader serves its followers' fetches: to its log end, counted, and woken by appends."""

from __future__ import annotations

from typing import Any

from tests.unit.partition.rig import Rig, batch
from tests.unit.partition.test_following import ORDERS, Proposals, shared, stored

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from penstock.partition.fetch import Fetches, FetchJob, FetchLimits
from penstock.partition.fetch_session import NO_SESSION, CachedPartition
from penstock.partition.leader import Leader
from penstock.partition.results import Fetched
from penstock.quotas.replication import ReplicationThrottle

EPOCH = 12
"""Of broker 2, as `Proposals` gives it."""


class Follower:
    """Broker 2, which fetches from a rig's broker in a session."""

    def __init__(self, rig: Rig, *, epoch: int = EPOCH, broker_id: int = 2) -> None:
        self.rig = rig
        self.proposals = Proposals(rig)
        self.limits = FetchLimits(bytes_min=1, bytes_max=1 << 20, replica_id=broker_id, replica_epoch=epoch)
        self.session_id, self.session_epoch = NO_SESSION, 0

    def begin(self, *asked: CachedPartition) -> FetchJob:
        job = self.rig.fetches.begin(
            self.limits,
            session_id=self.session_id,
            epoch=self.session_epoch,
            by_topic_id=False,
            asked=asked,
            now_ms=self.rig.clock.ms,
            privileged=True,
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

    @property
    def progress(self) -> Any:
        role = self.rig.replica().role
        assert isinstance(role, Leader)
        return role.followers[2]


def at(offset: int, *, epoch: int = 0, fetched: int = -1, held: int = -1, partition: int = 0) -> CachedPartition:
    return CachedPartition("orders", partition, offset, 1 << 20, epoch, 0, fetched, held)


def only(outcomes: list[Fetched | BrokerError]) -> Fetched:
    (found,) = outcomes
    assert isinstance(found, Fetched), found
    return found


def test_a_follower_reads_beyond_the_high_watermark() -> None:
    rig = Rig(shared())
    rig.append(rig.replica(), batch(b"a"))

    found = only(Follower(rig).fetch(at(0)))

    records = found.records
    assert not isinstance(records, bytes)
    assert records.contents() == stored(rig.replica())
    assert found.high_watermark == 0


def test_a_fetch_counts_and_its_response_has_the_high_watermark_that_it_leads_to() -> None:
    rig = Rig(shared())
    rig.append(rig.replica(), batch(b"a", b"b"))
    follower = Follower(rig)

    assert only(follower.fetch(at(2, fetched=0))).high_watermark == 2
    assert (follower.progress.held_end, follower.progress.broker_epoch) == (2, EPOCH)


def test_a_follower_that_has_not_flushed_counts_with_what_it_holds() -> None:
    rig = Rig(shared())
    rig.append(rig.replica(), batch(b"a", b"b"))

    assert only(Follower(rig).fetch(at(2, fetched=0, held=1))).high_watermark == 1


def test_a_waiting_follower_is_woken_by_an_append() -> None:
    rig = Rig(shared())
    follower = Follower(rig)
    job = follower.begin(at(0))
    assert not job.read()
    done: list[None] = []
    job.wait(500, lambda: done.append(None))

    rig.append(rig.replica(), batch(b"a"))
    rig.loop.run()

    assert done == [None]
    assert len(only(follower.respond(job)).records) > 0
    assert rig.replica().offsets.high_watermark == 0


def test_a_settled_partition_is_activated_by_an_append_and_wakes_its_follower() -> None:
    rig = Rig(shared())
    follower = Follower(rig)
    follower.fetch(at(0))
    for _ in range(2):
        assert follower.fetch() == []
    job = follower.begin()
    assert not job.read()
    done: list[None] = []
    job.wait(500, lambda: done.append(None))

    rig.append(rig.replica(), batch(b"a"))
    rig.loop.run()

    assert done == [None]
    assert len(only(follower.respond(job)).records) > 0


def test_a_follower_learns_a_high_watermark_that_another_followers_fetch_moved() -> None:
    rig = Rig(shared(replicas=(1, 2, 3)))
    rig.append(rig.replica(), batch(b"a"))
    two, three = Follower(rig), Follower(rig, epoch=13, broker_id=3)
    assert only(two.fetch(at(1, fetched=0))).high_watermark == 0
    assert two.fetch() == []

    assert only(three.fetch(at(1, fetched=0))).high_watermark == 1

    assert only(two.fetch()).high_watermark == 1


def test_a_partition_that_failed_counts_from_the_moment_it_is_served() -> None:
    rig = Rig(shared(epoch=1))
    follower = Follower(rig)
    (error,) = follower.fetch(at(0, epoch=2))
    assert isinstance(error, UnknownLeaderEpoch)

    rig.change(shared(epoch=1), shared(epoch=2, version=1))
    only(follower.fetch())

    assert follower.progress.held_end == 0


def test_a_fetch_of_a_broker_that_is_not_admitted_with_its_epoch_is_refused() -> None:
    for epoch in (-1, EPOCH - 1, EPOCH + 1):
        rig = Rig(shared())
        rig.append(rig.replica(), batch(b"a"))
        follower = Follower(rig, epoch=epoch)

        (error,) = follower.fetch(at(1))

        assert isinstance(error, StaleBrokerEpoch)
        assert rig.replica().offsets.high_watermark == 0


def test_a_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    (error,) = Follower(Rig(shared()), broker_id=9, epoch=19).fetch(at(0))

    assert isinstance(error, NotLeaderOrFollower)


def test_fetches_of_another_leader_epoch_are_refused_and_do_not_count() -> None:
    rig = Rig(shared(epoch=3))
    rig.append(rig.replica(), batch(b"a"))
    follower = Follower(rig)

    for epoch, error in ((2, FencedLeaderEpoch), (4, UnknownLeaderEpoch), (-1, FencedLeaderEpoch)):
        assert [type(found) for found in Follower(rig).fetch(at(1, epoch=epoch))] == [error]

    assert follower.progress.held_end == -1
    assert rig.replica().offsets.high_watermark == 0


def test_a_diverging_follower_hears_of_it_at_once_and_does_not_count() -> None:
    rig = Rig(shared(epoch=3))
    rig.append(rig.replica(), batch(b"a"))
    follower = Follower(rig)

    for _ in range(2):
        job = follower.begin(at(1, epoch=3, fetched=2))
        assert job.read(), "it does not wait"
        assert only(follower.respond(job)).diverging == (2, 0)

    assert follower.progress.held_end == -1
    assert rig.replica().offsets.high_watermark == 0


def test_a_fetch_outside_of_the_log_is_out_of_range() -> None:
    (error,) = Follower(Rig(shared())).fetch(at(5))

    assert isinstance(error, OffsetOutOfRange)


def test_a_waiting_follower_hears_that_leadership_ended() -> None:
    rig = Rig(shared())
    follower = Follower(rig)
    job = follower.begin(at(0))
    assert not job.read()
    done: list[None] = []
    job.wait(500, lambda: done.append(None))

    rig.change(shared(), shared(leader=2, epoch=1, version=1))
    rig.loop.run()

    assert done == [None]
    assert [type(found) for found in follower.respond(job)] == [FencedLeaderEpoch]


def test_a_follower_that_caught_up_in_its_session_is_proposed() -> None:
    rig = Rig(shared(isr=(1,)))
    rig.append(rig.replica(), batch(b"a"))
    follower = Follower(rig)

    follower.fetch(at(0))
    assert follower.proposals.sent == []
    follower.fetch(at(1, fetched=0))

    ((tp, proposal),) = follower.proposals.sent
    assert (tp, proposal.isr) == (ORDERS, ((1, 11), (2, 12)))


def test_a_partition_without_followers_has_no_second_list_of_watchers() -> None:
    rig = Rig(shared(replicas=(1,)))
    rig.append(rig.replica(), batch(b"a"), acks_all=True)

    assert rig.replica()._follower_watchers is None
    assert rig.replica().offsets.high_watermark == 1


def test_a_follower_that_has_everything_is_proposed_with_a_later_fetch() -> None:
    rig = Rig(shared(isr=(1,)))
    follower = Follower(rig)
    follower.proposals.frozen = True
    follower.fetch(at(0))
    follower.fetch()
    assert not follower.proposals.sent

    follower.proposals.frozen = False
    follower.fetch()

    assert [made.members for _, made in follower.proposals.sent] == [{1, 2}]


def test_a_follower_that_leaves_the_isr_is_looked_at_again() -> None:
    rig = Rig(shared())
    follower = Follower(rig)
    follower.fetch(at(0))
    follower.fetch()
    rig.change(shared(), shared(isr=(1,), version=1))
    rig.loop.run()

    follower.fetch()

    assert [made.members for _, made in follower.proposals.sent] == [{1, 2}]


def test_a_throttled_follower_gets_nothing_until_its_bytes_are_within_the_rate() -> None:
    topic = shared(isr=(1,), configs={"leader.replication.throttled.replicas": "0:1"})
    rig = Rig(topic)
    rig.fetches = Fetches(
        replicas=rig.replicas,
        sessions=rig.sessions,
        timers=rig.timers,
        now_ms=rig.clock.now_ms,
        throttle=ReplicationThrottle(lambda: 100, rig.clock.monotonic),
    )
    for _ in range(2):
        rig.append(rig.replica(), batch(b"x" * 500))
    follower = Follower(rig)
    follower.proposals.frozen = True

    assert len(only(follower.fetch(at(0))).records) > 500
    assert follower.fetch(at(1)) == []
    rig.loop.pass_ms(20_000)

    assert len(only(follower.fetch(at(1))).records) > 500
