"""A follower's fetcher: one request in flight, sessions, and responses that are late, lost or of another epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.partition.rig import Rig, batch, topic

from penstock.config.load import load
from penstock.model.clock import monotonic_ms
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    FetchSessionIdNotFound,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownTopicId,
)
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from penstock.model.removals import Removals
from penstock.model.topic import TopicState
from penstock.partition.replica import Replica
from penstock.replication.fetchers import (
    INTERRUPT_MS,
    RETRY_MS_MIN,
    SHARED_BYTES_MAX,
    SHARED_S,
    UNHELD_WAIT_MS,
    Fetchers,
)
from penstock.replication.peers import PeerUnavailable, Purpose
from penstock.wire.api import list_offsets, offset_for_leader_epoch
from penstock.wire.replica_fetch import FetchedReplica, ReplicaFetchRequest, ReplicaFetchResponse

ORDERS = TopicPartition("orders", 0)
SESSION = 7


class ScriptedPeers:
    """Keeps every request until the test responds."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any, Deferred[Any]]] = []

    def send(self, broker_id: int, purpose: Purpose, api: Any, request: Any, *, timeout_ms: float) -> Deferred[Any]:
        assert purpose is Purpose.FETCH
        assert timeout_ms > 0
        result: Deferred[Any] = Deferred()
        self.sent.append((broker_id, request, result))
        return result


class SpentTurns:
    """The budget of every turn is used up."""

    def spent(self) -> bool:
        return True


def shared(leader: int = 1, epoch: int = 0, *, name: str = "orders", number: int = 1, **configs: str) -> TopicState:
    alone = topic(name, number=number, configs=configs)
    state = replace(alone.partitions[0], leader=leader, leader_epoch=epoch, replicas=(1, 2, 3), isr=(1, 2, 3))
    return replace(alone, partitions=(replace(state, partition_epoch=epoch),))


class FollowerRig:
    """Broker 2, which follows; the logs of its leaders are on rigs of their own."""

    def __init__(self, *topics: TopicState) -> None:
        self.rig = Rig(broker_id=2, fenced=True)
        self.leader = Rig()
        self.peers = ScriptedPeers()
        self.in_sync = False
        peers: Any = self.peers
        self.fetchers = Fetchers(
            broker_id=BrokerId(2),
            broker_epoch=lambda: BrokerEpoch(5),
            replicas=self.rig.replicas,
            peers=peers,
            timers=self.rig.timers,
            turns=self.rig.turns,
            call_soon=self.rig.loop.call_soon,
            clock=self.rig.clock,
            config=lambda: self.rig.config,
            in_sync=lambda _: self.in_sync,
            log=self.rig.notes,
        )
        self.rig.replicas.cluster.on_roles_changed = self.fetchers.roles_changed
        self.topics = {each.name: each for each in topics}
        for each in topics:
            self.rig.change(None, each)
            self.leader.change(None, each)
        self.rig.replicas.unfence()
        self.rig.loop.run()

    @property
    def follower(self) -> Replica:
        return self.rig.replica()

    def change(self, after: TopicState) -> None:
        self.rig.change(self.topics[after.name], after)
        self.topics[after.name] = after
        self.rig.loop.run()

    def request(self, leader: int = 1) -> ReplicaFetchRequest:
        """The request in flight to a leader."""
        [found] = [body for broker, body, result in self.peers.sent if broker == leader and result.waiting]
        assert isinstance(found, ReplicaFetchRequest)
        return found

    @property
    def is_waiting(self) -> bool:
        return any(result.waiting for _, _, result in self.peers.sent)

    def result(self) -> Deferred[Any]:
        return next(result for _, _, result in self.peers.sent if result.waiting)

    def respond(self, *partitions: FetchedReplica, error: int = 0, session_id: int = SESSION) -> None:
        response = ReplicaFetchResponse(
            throttle_time_ms=0, error_code=error, session_id=session_id, partitions=list(partitions)
        )
        self.result().resolve(response)
        self.rig.loop.run()

    def fail(self) -> None:
        self.result().fail(PeerUnavailable("gone"))
        self.rig.loop.run()

    def records(self, offset: int = 0, *, name: str = "orders", high_watermark: int = 0) -> FetchedReplica:
        """What a leader has from an offset on."""
        source = self.leader.replica(name)
        found = source.log.slice(offset, 1 << 30, end=source.log.log_end, at_least_one=True)
        fetched = answer(self.topics[name])
        fetched.records = memoryview(bytearray(found.contents() if found is not None else b""))
        fetched.high_watermark = Offset(high_watermark)
        fetched.log_start = Offset(0)
        return fetched

    def append(self, *values: bytes, name: str = "orders") -> None:
        self.leader.append(self.leader.replica(name), batch(*values))


def answer(state: TopicState, error: int = 0) -> FetchedReplica:
    fetched = FetchedReplica(state.topic_id, 0)
    fetched.error_code = error
    return fetched


def offsets(request: ReplicaFetchRequest) -> list[tuple[bytes, int]]:
    return [(each.topic_id, each.offset) for each in request.partitions]


def test_a_fetch_is_sent_after_the_last_response_was_appended_and_acknowledges_it() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a", b"b")
    first = rig.request()
    assert (first.replica_id, first.replica_epoch, first.session_id, first.session_epoch) == (2, 5, 0, 0)
    assert [(each.offset, each.leader_epoch) for each in first.partitions] == [(0, 0)]

    rig.respond(rig.records(high_watermark=1))

    assert (rig.follower.offsets.log_end, rig.follower.offsets.high_watermark) == (2, 1)
    second = rig.request()
    assert (second.session_id, second.session_epoch) == (SESSION, 1)
    assert [each.offset for each in second.partitions] == [2]


def test_a_session_is_sent_only_what_changed() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    assert len(list(rig.request().partitions)) == 2

    rig.respond()
    assert list(rig.request().partitions) == []
    rig.append(b"a")
    rig.respond(rig.records())

    assert offsets(rig.request()) == [(shared().topic_id, 1)]


def test_a_follower_tells_its_high_watermark_while_consumers_read_from_it() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.respond(rig.records())
    assert [each.high_watermark for each in rig.request().partitions] == [None]

    rig.follower.consumed_ms = monotonic_ms(rig.rig.clock)
    rig.respond(rig.records(1))
    assert [(each.offset, each.high_watermark) for each in rig.request().partitions] == [(1, 0)]
    rig.respond(rig.records(1, high_watermark=1))
    assert [(each.offset, each.high_watermark) for each in rig.request().partitions] == [(1, 1)]
    rig.respond()
    assert list(rig.request().partitions) == [], "the leader knows it already"

    rig.rig.clock.ms += 60_000
    rig.append(b"b")
    rig.respond(rig.records(1, high_watermark=1))
    assert [(each.offset, each.high_watermark) for each in rig.request().partitions] == [(2, None)]


def test_without_a_session_every_request_has_every_partition() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))

    for _ in range(3):
        rig.respond(session_id=0)
        request = rig.request()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(list(request.partitions)) == 2


def test_a_response_of_an_earlier_leader_epoch_is_dropped() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    late = rig.records()
    rig.change(shared(epoch=1))

    rig.respond(late)

    assert rig.follower.offsets.log_end == 0
    assert [each.leader_epoch for each in rig.request().partitions] == [1]


def test_a_response_that_comes_after_the_replica_leads_is_dropped() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    late = rig.records()
    result = rig.result()
    rig.change(shared(leader=2, epoch=1))

    assert not rig.is_waiting
    result.resolve(ReplicaFetchResponse(throttle_time_ms=0, error_code=0, session_id=SESSION, partitions=[late]))
    rig.rig.loop.run()
    assert rig.follower.offsets.log_end == 0
    assert len(rig.fetchers) == 0


def test_a_partition_is_fetched_from_the_leader_that_it_moved_to() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.change(shared(leader=3, epoch=1))

    assert offsets(rig.request(leader=3)) == [(shared().topic_id, 0)]
    rig.respond()
    assert list(rig.request(leader=1).forgotten) == [(shared().topic_id, 0)]


def test_a_new_partition_interrupts_a_long_poll() -> None:
    rig = FollowerRig(shared())
    result = rig.result()
    rig.topics["other"] = added = shared(name="other", number=2)
    rig.rig.change(None, added)
    assert result.waiting

    rig.rig.loop.pass_ms(INTERRUPT_MS + 20)

    assert result.abandoned
    assert len(list(rig.request().partitions)) == 2
    assert rig.request().session_epoch == 0


def test_a_poll_that_ends_in_time_is_not_interrupted() -> None:
    rig = FollowerRig(shared())
    rig.topics["other"] = added = shared(name="other", number=2)
    rig.rig.change(None, added)

    rig.respond()
    rig.rig.loop.pass_ms(INTERRUPT_MS + 20)

    request = rig.request()
    assert request.session_epoch == 1
    assert offsets(request) == [(added.topic_id, 0)]


def test_a_leader_that_answers_slowly_is_asked_once() -> None:
    rig = FollowerRig(shared())
    rig.rig.loop.pass_ms(20_000)

    assert len(rig.peers.sent) == 1


def test_a_lost_response_is_followed_by_a_new_session_after_a_pause() -> None:
    rig = FollowerRig(shared())
    rig.respond()
    assert rig.request().session_epoch == 1

    rig.fail()
    assert not rig.is_waiting
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)

    assert rig.request().session_epoch == 0
    assert offsets(rig.request()) == [(shared().topic_id, 0)]


def test_pauses_grow_up_to_the_setting() -> None:
    rig = FollowerRig(shared())
    for _ in range(10):
        rig.fail()
        rig.rig.loop.pass_ms(rig.rig.config.replica_fetch_backoff_ms + 20)
        assert rig.is_waiting
    rig.fail()
    rig.rig.loop.pass_ms(rig.rig.config.replica_fetch_backoff_ms - 100)
    assert not rig.is_waiting


def test_a_session_that_the_leader_forgot_is_begun_again_at_once_and_then_after_a_pause() -> None:
    rig = FollowerRig(shared())
    rig.respond()

    rig.respond(error=FetchSessionIdNotFound.code)
    assert rig.request().session_epoch == 0
    rig.respond(error=FetchSessionIdNotFound.code)
    assert not rig.is_waiting
    rig.rig.loop.pass_ms(500)
    assert rig.is_waiting


def test_a_leader_that_does_not_know_this_registration_is_asked_again() -> None:
    rig = FollowerRig(shared())
    rig.respond(error=StaleBrokerEpoch.code)
    assert not rig.is_waiting
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)

    assert rig.request().session_epoch == 0


def test_a_leader_that_knew_this_registration_is_believed_when_it_says_that_it_is_over() -> None:
    rig = FollowerRig(shared())
    over: list[int] = []
    rig.fetchers.on_disowned = over.append
    rig.respond(answer(shared(), StaleBrokerEpoch.code))
    assert over == [], "the leader may have yet to hear of it"
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)
    rig.respond(rig.records())
    rig.respond(answer(shared(), StaleBrokerEpoch.code))

    assert over == [5]


def test_a_partition_with_an_error_leaves_the_session_for_a_while() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.respond(answer(shared(), UnknownTopicId.code))

    assert list(rig.request().forgotten) == [(shared().topic_id, 0)]
    assert rig.fetchers.failing() == 1
    rig.respond()
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)
    rig.rig.loop.pass_ms(INTERRUPT_MS + 20)
    assert shared().topic_id in {topic_id for topic_id, _ in offsets(rig.request())}


def test_a_new_leader_epoch_ends_the_pause_of_a_partition() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.respond(answer(shared(), NotLeaderOrFollower.code))
    rig.change(shared(epoch=1))
    rig.respond()

    assert [(each.topic_id, each.leader_epoch) for each in rig.request().partitions] == [(shared().topic_id, 1)]


def test_a_log_that_diverges_is_truncated_and_fetched_again() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.append(b"b")
    rig.append(b"c")
    rig.respond(rig.records())
    rig.change(shared(epoch=1))
    rig.respond()
    assert [each.offset for each in rig.request().partitions] == [3]

    diverges = answer(shared())
    diverges.diverging = (LeaderEpoch(0), Offset(1))
    rig.respond(diverges)

    assert rig.follower.offsets.log_end == 1
    assert [(each.offset, each.last_fetched_epoch) for each in rig.request().partitions] == [(1, 0)]


def test_a_divergence_found_in_an_earlier_epoch_truncates_nothing() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.respond(rig.records())
    rig.change(shared(epoch=1))

    diverges = answer(shared())
    diverges.diverging = (LeaderEpoch(0), Offset(0))
    rig.respond(diverges)

    assert rig.follower.offsets.log_end == 1


def bounds(rig: FollowerRig, start: int, end: int) -> None:
    """Answer where the leader's log begins and ends."""
    found = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=start)
    topic_found = list_offsets.ListOffsetsTopicResponse(name="orders", partitions=[found])
    rig.result().resolve(list_offsets.Response(topics=[topic_found]))
    ended = offset_for_leader_epoch.EpochEndOffset(partition=0, end_offset=end)
    topic_ended = offset_for_leader_epoch.OffsetForLeaderTopicResult(topic="orders", partitions=[ended])
    rig.result().resolve(offset_for_leader_epoch.Response(topics=[topic_ended]))
    rig.rig.loop.run()


def test_a_follower_behind_its_leaders_log_start_begins_there() -> None:
    rig = FollowerRig(shared())
    rig.respond(answer(shared(), OffsetOutOfRange.code))

    bounds(rig, 100, 200)

    assert (rig.follower.offsets.log_start, rig.follower.offsets.log_end) == (100, 100)
    assert offsets(rig.request()) == [(shared().topic_id, 100)]


def test_a_follower_beyond_its_leaders_log_end_is_truncated_to_it() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.append(b"b")
    rig.respond(rig.records())
    rig.respond(answer(shared(), OffsetOutOfRange.code))

    bounds(rig, 0, 1)

    assert rig.follower.offsets.log_end == 1
    assert offsets(rig.request()) == [(shared().topic_id, 1)]


def test_bounds_that_come_in_another_epoch_change_nothing() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.respond(rig.records())
    rig.respond(answer(shared(), OffsetOutOfRange.code))
    rig.change(shared(epoch=1))

    bounds(rig, 100, 200)

    assert rig.follower.offsets.log_end == 1


def test_damaged_records_are_fetched_again_after_a_pause() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    damaged = rig.records()
    damaged.records[-1] ^= 1

    rig.respond(damaged)
    assert rig.follower.offsets.log_end == 0
    assert rig.rig.notes.named("replica_fetch_failed")
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)
    rig.rig.loop.pass_ms(INTERRUPT_MS + 20)

    rig.respond(rig.records())
    assert rig.follower.offsets.log_end == 1


def test_a_follower_says_how_far_it_holds_its_log_as_soon_as_it_is_flushed() -> None:
    rig = FollowerRig(shared(flush="group"))
    rig.append(b"a")
    rig.respond(rig.records())
    request = rig.request()
    assert [(each.offset, each.held_end) for each in request.partitions] == [(1, 0)]
    assert request.max_wait_ms == UNHELD_WAIT_MS

    rig.rig.flush()
    rig.respond()

    request = rig.request()
    assert [(each.offset, each.held_end) for each in request.partitions] == [(1, 1)]
    assert request.max_wait_ms == rig.rig.config.replica_fetch_wait_max_ms


def test_a_partition_gets_less_while_others_of_its_leader_have_records_too() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    alone = rig.rig.config.replica_fetch_max_bytes

    def bytes_max(name: str, at: int) -> list[int]:
        rig.append(b"x", name=name)
        rig.respond(rig.records(at, name=name))
        return [each.bytes_max for each in rig.request().partitions]

    assert bytes_max("orders", 0) == [alone]
    assert bytes_max("orders", 1) == [alone]
    assert bytes_max("other", 0) == [SHARED_BYTES_MAX] < [alone]
    assert bytes_max("orders", 2) == [SHARED_BYTES_MAX]
    rig.rig.loop.pass_ms(int(SHARED_S * 1000))
    assert bytes_max("orders", 3) == [alone]


def test_a_response_that_takes_long_to_append_is_appended_over_several_turns() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.append(b"a")
    rig.append(b"b", name="other")
    response = ReplicaFetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=SESSION,
        partitions=[rig.records(), rig.records(name="other")],
    )
    spent: Any = SpentTurns()
    rig.fetchers.turns = spent
    rig.result().resolve(response)
    assert (rig.rig.replica().offsets.log_end, rig.rig.replica("other").offsets.log_end) == (1, 0)
    assert not rig.is_waiting

    rig.rig.loop.run()

    assert rig.rig.replica("other").offsets.log_end == 1
    assert rig.is_waiting


def test_the_lag_of_a_follower_is_known() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")

    rig.respond(rig.records(high_watermark=10))

    assert list(rig.fetchers.lags()) == [(ORDERS, 1, 9)]


def test_a_topic_that_is_deleted_is_fetched_no_more() -> None:
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.rig.change(shared(), None)
    rig.respond()

    assert list(rig.request().forgotten) == [(shared().topic_id, 0)]
    assert [tp.topic for tp, _, _ in rig.fetchers.lags()] == ["other"]


def test_nothing_is_fetched_after_the_end() -> None:
    rig = FollowerRig(shared())
    result = rig.result()
    rig.fetchers.close()

    assert result.abandoned
    rig.rig.loop.pass_ms(5_000)
    assert not rig.is_waiting


def throttled(*others: TopicState) -> FollowerRig:
    rig = FollowerRig(shared(**{"follower.replication.throttled.replicas": "0:2"}), *others)
    rig.rig.config = load(
        file=None, env={}, flags={"follower.replication.throttled.rate": "100", "replica.fetch.wait.max.ms": "500"}
    )
    return rig


def test_a_throttled_follower_waits_until_its_bytes_are_within_the_rate() -> None:
    rig = throttled()
    rig.append(b"x" * 900)

    rig.respond(rig.records())
    assert not rig.is_waiting
    rig.rig.loop.pass_ms(5_000)
    assert not rig.is_waiting
    rig.rig.loop.pass_ms(6_000)

    assert [each.offset for each in rig.request().partitions] == [1]
    assert rig.fetchers.failing() == 0


def test_the_end_of_a_throttle_interrupts_no_poll_of_other_partitions() -> None:
    rig = throttled(shared(name="other", number=2))
    rig.append(b"x" * 900)
    rig.respond(rig.records())
    poll = rig.result()

    rig.rig.loop.pass_ms(11_000 + INTERRUPT_MS)

    assert rig.result() is poll
    rig.respond()
    assert [each.offset for each in rig.request().partitions] == [1]
    assert rig.request().session_epoch > 0


def test_a_follower_in_the_isr_is_not_throttled() -> None:
    rig = throttled()
    rig.in_sync = True
    rig.append(b"x" * 900)

    rig.respond(rig.records())

    assert [each.offset for each in rig.request().partitions] == [1]


def test_nothing_is_asked_of_a_leader_before_its_response_is_appended() -> None:
    """Records are views of the buffer into which the next response is received."""
    rig = FollowerRig(shared(), shared(name="other", number=2))
    rig.append(b"b", name="other")
    response = ReplicaFetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=SESSION,
        partitions=[answer(shared(), OffsetOutOfRange.code), rig.records(name="other")],
    )
    spent: Any = SpentTurns()
    rig.fetchers.turns = spent

    rig.result().resolve(response)
    assert not rig.is_waiting
    rig.rig.loop.run()

    assert rig.rig.replica("other").offsets.log_end == 1
    bounds(rig, 0, 0)
    assert rig.is_waiting


def told(rig: FollowerRig, mark: int, revision: int, offset: int = 0) -> FetchedReplica:
    fetched = rig.records(offset, high_watermark=3)
    fetched.removals = Removals(Offset(mark), revision)
    return fetched


def test_a_follower_below_the_leaders_mark_copies_the_log_again_from_its_start() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.respond(rig.records(high_watermark=1))
    rig.append(b"b")
    rig.append(b"c")

    rig.respond(told(rig, 1, 1, offset=1))

    assert rig.follower.offsets.log_end == 0
    assert [each.offset for each in rig.request().partitions] == [0]
    assert [each["removed_to"] for each in rig.rig.notes.named("log_copied_again")] == [1]

    rig.respond(told(rig, 1, 1))

    assert (rig.follower.offsets.log_end, rig.follower.offsets.high_watermark) == (3, 3)
    assert rig.follower.log.removal_mark.mark == 1
    assert len(rig.rig.notes.named("log_copied_again")) == 1


def test_a_member_of_the_isr_does_not_empty_its_log() -> None:
    rig = FollowerRig(shared())
    rig.append(b"a")
    rig.respond(rig.records(high_watermark=1))
    rig.append(b"b")
    rig.in_sync = True

    rig.respond(told(rig, 1, 1, offset=1))

    assert rig.follower.offsets.log_end == 1
    assert not rig.is_waiting
    rig.in_sync = False
    rig.rig.loop.pass_ms(RETRY_MS_MIN + 20)
    rig.respond(told(rig, 1, 1, offset=1))
    assert rig.follower.offsets.log_end == 0
