"""ShareFetch and ShareAcknowledge on one broker: sessions, waiting, writes that fail, and leaders that change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.eventual import deliver
from tests.unit.partition.rig import ManualThreads, Rig, batch, topic
from tests.unit.shares.share_leader_rig import Leader, runs

from penstock.api.leader_hints import LeaderHints
from penstock.api.registry import RequestContext
from penstock.api.share_fetch import ShareFetch, encode_fetched
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    FencedStateEpoch,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownTopicOrPartition,
)
from penstock.model.ids import LeaderEpoch, Offset
from penstock.model.topic import TopicState
from penstock.observe.counters import TopicTraffic
from penstock.quotas.client_quotas import ClientQuotas
from penstock.shares.fetch import PARTITIONS_AT_ONCE_MAX, ShareFetches
from penstock.shares.leader import LedSharePartitions
from penstock.shares.persister import SharePartitionState
from penstock.shares.sessions import ShareSessions
from penstock.shares.settings import GroupSettings, duration_ms
from penstock.shares.share_partition import ACCEPT, RELEASE
from penstock.storage.names import LOG, offset_name
from penstock.wire.api import share_acknowledge, share_fetch

GROUP = "g"
LOCK_MS = 30_000
WAIT_MS = 500


class Persister:
    """A coordinator that answers when a test says so."""

    def __init__(self) -> None:
        self.state = SharePartitionState(0, Offset(-1), -1, ())
        self.is_ready = True
        """Whether reads and writes are answered at once."""
        self.reads: list[Deferred[SharePartitionState]] = []
        self.writes: list[tuple[tuple[Any, ...], Deferred[None]]] = []
        self.epochs: list[LeaderEpoch] = []

    def read(self, group: str, topic_id: object, index: int, epoch: LeaderEpoch) -> Deferred[SharePartitionState]:
        self.epochs.append(epoch)
        self.reads.append(Deferred())
        if self.is_ready:
            self.reads[-1].resolve(self.state)
        return self.reads[-1]

    def write(self, *write: Any) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.writes.append((write, done))
        if self.is_ready:
            self.commit()
        return done

    def commit(self) -> None:
        """Commit the newest write."""
        write, done = self.writes[-1]
        self.state = SharePartitionState(0, write[5], write[6], write[7])
        done.resolve(None)


class Line:
    """A client's connection, as far as these requests look at it."""

    listener = "PLAINTEXT"

    def __init__(self) -> None:
        self.closed = False
        self.callbacks: dict[Callable[[Any], None], None] = {}

    def when_closed(self, callback: Callable[[Any], None]) -> None:
        self.callbacks[callback] = None

    def close(self) -> None:
        self.closed = True
        for callback in self.callbacks:
            callback(self)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a handler that has time enough in this turn."""
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        return ended.value.value


class Member:
    """A member of the group, with a connection of its own."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.line = Line()
        self.epoch = 0

    def _context(self, key: int) -> RequestContext:
        return RequestContext(self.line, key, 2, 1, "client", self.broker.rig.clock.ms)  # type: ignore[arg-type]

    def fetch(self, *acks: tuple[int, int, int], partitions: int = 1, **fields: Any) -> list[Any]:
        """Send a fetch of the next epoch; the list gets its response. Acknowledgements are of every partition."""
        wanted = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100} | fields
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        request = share_fetch.Request(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=self.broker.topic.topic_id,
                    partitions=[
                        share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=batches)
                        for index in range(partitions)
                    ],
                )
            ],
            **wanted,
        )
        self.epoch += 1
        responses: list[Any] = []
        self.pending = self.broker.api.fetch(self._context(78), request)
        deliver(self.pending, responses)
        return responses

    def fetched(self, *acks: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        """What a fetch gets that does not wait."""
        (response,) = self.fetch(*acks, **fields)
        return acquired(response)

    def acknowledge(self, *acks: tuple[int, int, int], epoch: int | None = None) -> list[Any]:
        request = share_acknowledge.Request(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self.broker.topic.topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=[kind]
                                )
                                for first, last, kind in acks
                            ],
                        )
                    ],
                )
            ],
        )
        self.epoch += epoch is None
        responses: list[Any] = []
        deliver(self.broker.api.acknowledge(self._context(79), request), responses)
        return responses


class Broker:
    """One broker that leads a partition, with the handlers of both requests."""

    def __init__(
        self, *, threads: ManualThreads | None = None, sessions_max: int = 10, partitions: int = 1, **configs: str
    ) -> None:
        self.topic = topic(partitions=partitions)
        self.rig = Rig(self.topic)
        self.persister = Persister()
        self.sessions = ShareSessions()
        self.threads = threads or ManualThreads()
        self.quotas = ClientQuotas(11, 1_000)
        overrides = {
            GROUP: {"share.auto.offset.reset": "earliest"} | {k.replace("_", "."): v for k, v in configs.items()}
        }
        self.led = LedSharePartitions(
            replicas=self.rig.replicas,
            persister=self.persister,  # type: ignore[arg-type]
            settings=GroupSettings(overrides, lambda: self.rig.config),
            timers=self.rig.timers,
            threads=self.threads,
            spawn=lambda work: work.close(),
            now_ms=lambda: self.rig.clock.ms,
            now_wall_ms=self.rig.clock.now_ms,
            has_sessions=self.sessions.of_group.__contains__,
            log=self.rig.notes,
        )
        loop: Any = SimpleNamespace(run_in_executor=lambda threads, work, *args: threads.submit(work, *args))
        self.fetches = ShareFetches(led=self.led, timers=self.rig.timers, threads=self.threads, loop=loop)
        self.api = ShareFetch(
            fetches=self.fetches,
            sessions=self.sessions,
            timers=self.rig.timers,
            turns=self.rig.turns,
            hints=LeaderHints(MetadataImage()),
            quotas=self.quotas,
            traffic=TopicTraffic(),
            bytes_max=lambda: 1 << 20,
            sessions_max=lambda: sessions_max,
            is_enabled=lambda: True,
        )

    def produce(self, *values: bytes, partition: int = 0) -> None:
        self.rig.append(self.rig.replica(partition=partition), batch(*values))

    def lead(self, **fields: Any) -> None:
        """A decision of the controller about the partition."""
        (state,) = self.topic.partitions
        after: TopicState = replace(self.topic, partitions=(replace(state, **fields),))
        self.rig.change(self.topic, after)
        self.topic = after

    def member(self, name: str = "m") -> Member:
        return Member(self, name)


def acquired(response: Any) -> list[tuple[int, int, int]]:
    assert response.error_code == 0
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for found in response.responses
        for partition in found.partitions
        for each in partition.acquired_records
    ]


def error_of(response: Any) -> int:
    """The error of the only partition."""
    (found,) = response.responses
    (partition,) = found.partitions
    code: int = partition.error_code
    return code


def ack_error_of(response: Any) -> int:
    (found,) = response.responses
    (partition,) = found.partitions
    code: int = partition.acknowledge_error_code
    return code


# Waiting


def test_a_fetch_waits_for_records_and_gets_them_at_once() -> None:
    broker = Broker()
    waiting = broker.member().fetch()
    assert not waiting
    broker.produce(b"a", b"b")
    broker.rig.loop.run()
    assert acquired(waiting[0]) == [(0, 1, 1)]
    assert broker.fetches.waiting == 0


def test_of_several_members_that_wait_one_gets_the_records() -> None:
    broker = Broker()
    waiting = [broker.member(name).fetch() for name in "abc"]
    broker.produce(b"a")
    broker.rig.loop.run()
    assert [len(each) for each in waiting] == [1, 0, 0]
    broker.produce(b"b")
    broker.rig.loop.run()
    assert [len(each) for each in waiting] == [1, 1, 0]
    broker.rig.loop.pass_ms(WAIT_MS + 20)
    assert acquired(waiting[2][0]) == []


def test_a_fetch_waits_for_the_least_number_of_bytes_until_its_time_is_up() -> None:
    broker = Broker()
    waiting = broker.member().fetch(min_bytes=200)
    broker.produce(b"a")
    broker.rig.loop.pass_ms(WAIT_MS - 20)
    assert not waiting
    broker.rig.loop.pass_ms(40)
    assert acquired(waiting[0]) == [(0, 0, 1)]
    waits = broker.fetches.acquisition_wait
    assert (waits.count, waits.sum_seconds) == (1, pytest.approx(WAIT_MS / 1_000, abs=0.02))
    waiting = (second := broker.member("second")).fetch(min_bytes=130)
    broker.produce(b"b")
    broker.rig.loop.run()
    assert not waiting
    broker.produce(b"c")
    broker.rig.loop.run()
    assert acquired(waiting[0]) == [(1, 2, 1)], second.name


def test_a_fetch_that_waits_gets_what_expires_and_what_is_released() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    first, second = broker.member("first"), broker.member("second")
    assert first.fetched(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert second.fetched() == [(1, 1, 1)]
    waiting = second.fetch()
    first.acknowledge((0, 0, RELEASE))
    assert acquired(waiting[0]) == [(0, 0, 2)]
    waiting = first.fetch(max_wait_ms=2 * LOCK_MS)
    broker.rig.loop.pass_ms(LOCK_MS - 20)
    assert not waiting
    broker.rig.loop.pass_ms(40)
    assert acquired(waiting[0]) == [(0, 0, 3), (1, 1, 2)]


def test_records_that_are_not_in_memory_are_read_by_a_thread_first() -> None:
    broker = Broker()
    broker.produce(*(b"x" * 1000 for _ in range(100)))
    log = broker.rig.replica().log
    log.roll()
    broker.produce(b"later")
    broker.rig.disk.evict(f"{log.path}/{offset_name(Offset(0), LOG)}")
    waiting = broker.member().fetch(max_wait_ms=0)
    assert not waiting
    assert broker.threads.work() == 1
    assert acquired(waiting[0]) == [(0, 99, 1)]


def test_a_client_that_leaves_ends_its_wait() -> None:
    broker = Broker()
    member = broker.member()
    member.fetch()
    member.line.close()
    broker.produce(b"a")
    broker.rig.loop.run()
    assert broker.fetches.waiting == 0
    assert broker.member("other").fetched() == [(0, 0, 1)]


# Sessions


def test_a_session_goes_by_its_epochs() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    member = broker.member()
    member.epoch = 1
    assert [response.error_code for response in member.fetch()] == [ShareSessionNotFound.code]
    assert [response.error_code for response in member.acknowledge(epoch=0)] == [InvalidShareSessionEpoch.code]
    member.epoch = 0
    assert [response.error_code for response in member.fetch((0, 0, ACCEPT))] == [InvalidRequest.code]
    member.epoch = 0
    assert member.fetched() == [(0, 1, 1)]
    member.epoch = 3
    assert [response.error_code for response in member.fetch()] == [InvalidShareSessionEpoch.code]
    member.epoch = 1
    assert error_of(member.acknowledge((0, 0, ACCEPT))[0]) == 0
    assert ack_error_of(member.fetch((1, 1, ACCEPT), max_wait_ms=0)[0]) == 0


def test_a_later_request_ends_the_one_that_waits_and_nothing_is_acquired_for_it() -> None:
    broker = Broker()
    member = broker.member()
    waiting = member.fetch()
    again = member.fetch()
    assert [response.error_code for response in waiting] == [InvalidShareSessionEpoch.code]
    broker.produce(b"a")
    broker.rig.loop.run()
    assert acquired(again[0]) == [(0, 0, 1)]


def test_sessions_are_limited_and_a_client_too_many_waits_for_its_answer() -> None:
    broker = Broker(sessions_max=1)
    broker.member("first").fetch(max_wait_ms=0)
    waiting = broker.member("second").fetch()
    assert not waiting
    broker.rig.loop.pass_ms(WAIT_MS + 20)
    assert [response.error_code for response in waiting] == [ShareSessionLimitReached.code]


@pytest.mark.parametrize("by", ["connection", "fetch", "acknowledgement"])
def test_a_session_that_ends_releases_what_its_member_holds(by: str) -> None:
    broker = Broker()
    broker.produce(b"a", b"b", b"c")
    first, second = broker.member("first"), broker.member("second")
    assert first.fetched() == [(0, 2, 1)]
    waiting = second.fetch()
    if by == "connection":
        first.line.close()
    elif by == "fetch":
        first.epoch = -1
        assert ack_error_of(first.fetch((0, 0, ACCEPT))[0]) == 0
    else:
        assert error_of(first.acknowledge((0, 0, ACCEPT), epoch=-1)[0]) == 0
    assert acquired(waiting[0]) == [(0 if by == "connection" else 1, 2, 2)]


def test_nothing_is_kept_of_a_group_without_sessions() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    member = broker.member()
    assert member.fetched() == [(0, 1, 1)]
    broker.persister.is_ready = False
    member.line.close()
    assert len(broker.led) == 1, "a write is on its way"
    broker.persister.commit()
    assert len(broker.led) == 0
    broker.persister.is_ready = True
    assert broker.member("other").fetched() == [(0, 1, 2)]


# Writing


def test_an_acknowledgement_is_answered_when_it_is_written() -> None:
    broker = Broker()
    broker.produce(b"a", b"b", b"c")
    member = broker.member()
    assert member.fetched() == [(0, 2, 1)]
    broker.persister.is_ready = False
    first, second = member.acknowledge((0, 0, ACCEPT)), member.acknowledge((1, 1, ACCEPT))
    assert (first, second) == ([], [])
    assert len(broker.persister.writes) == 1, "one write at a time"
    broker.persister.commit()
    assert error_of(first[0]) == 0
    assert not second
    assert broker.persister.writes[-1][0][5:] == (2, 0, [])
    broker.persister.commit()
    assert error_of(second[0]) == 0


def test_a_write_that_fails_is_an_error_and_its_records_stay_with_their_member() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    member = broker.member()
    assert member.fetched() == [(0, 1, 1)]
    broker.persister.is_ready = False
    failed = member.fetch((0, 0, ACCEPT), max_wait_ms=0)
    broker.persister.writes[-1][1].fail(CoordinatorNotAvailable())
    assert ack_error_of(failed[0]) == CoordinatorNotAvailable.code
    broker.persister.is_ready = True
    assert error_of(member.acknowledge((0, 1, ACCEPT))[0]) == 0


def test_a_fenced_leader_answers_as_one_and_loads_the_state_again() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    member = broker.member()
    assert member.fetched() == [(0, 1, 1)]
    broker.persister.is_ready = False
    failed, queued = member.acknowledge((0, 0, ACCEPT)), member.acknowledge((1, 1, ACCEPT))
    broker.persister.writes[-1][1].fail(FencedStateEpoch())
    assert error_of(failed[0]) == error_of(queued[0]) == NotLeaderOrFollower.code
    broker.persister.state = SharePartitionState(1, Offset(1), -1, ())
    broker.persister.is_ready = True
    assert error_of(member.acknowledge((1, 1, ACCEPT))[0]) == UnknownTopicOrPartition.code
    assert member.fetched() == [(1, 1, 1)]


def test_a_state_that_cannot_be_read_fails_its_partition_and_is_read_again() -> None:
    broker = Broker()
    broker.produce(b"a")
    member = broker.member()
    broker.persister.is_ready = False
    waiting = member.fetch()
    broker.persister.reads[-1].fail(CoordinatorNotAvailable())
    assert error_of(waiting[0]) == CoordinatorNotAvailable.code
    waiting = member.fetch()
    broker.persister.reads[-1].resolve(broker.persister.state)
    assert acquired(waiting[0]) == [(0, 0, 1)]


def begins_at_the_end(broker: Broker) -> Member:
    """The first member of a group that begins at the end of a log with a record."""
    broker.produce(b"before")
    member = broker.member("first")
    assert member.fetched(max_wait_ms=0) == []
    return member


@pytest.mark.parametrize("by", ["session", "leader", "leader of held records"])
def test_where_a_group_has_begun_it_goes_on_although_it_has_finished_nothing(by: str) -> None:
    """Else what was produced since would be lost: the next leader, or the next session, would begin at the end."""
    broker = Broker(share_auto_offset_reset="latest")
    first = begins_at_the_end(broker)
    broker.produce(b"after")
    if by == "session":
        first.line.close()
    else:
        if by == "leader of held records":
            assert first.fetched() == [(1, 1, 1)]
        broker.lead(leader=2, leader_epoch=1)
        broker.lead(leader=1, leader_epoch=2)
        broker.rig.loop.run()
    assert broker.member("second").fetched() == [(1, 1, 1)]


def test_nothing_is_handed_out_before_it_is_written_where_the_group_begins() -> None:
    broker = Broker(share_auto_offset_reset="latest")
    broker.produce(b"before")
    broker.persister.is_ready = False
    member = broker.member()
    waiting = member.fetch()
    broker.persister.reads[-1].resolve(broker.persister.state)
    broker.produce(b"after")
    broker.rig.loop.run()
    assert not waiting
    broker.persister.writes[-1][1].fail(CoordinatorNotAvailable())
    assert error_of(waiting[0]) == CoordinatorNotAvailable.code
    broker.persister.is_ready = True
    broker.produce(b"later")
    assert member.fetched(max_wait_ms=0) == []
    assert broker.persister.writes[-1][0][5:] == (3, 0, ())


# Leaders


def test_a_leader_that_goes_ends_what_waits_and_knows_nothing_when_it_returns() -> None:
    broker = Broker()
    broker.produce(b"a", b"b")
    first, second = broker.member("first"), broker.member("second")
    assert first.fetched(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert second.fetched() == [(1, 1, 1)]
    waiting = second.fetch()
    broker.lead(leader=2, leader_epoch=1)
    broker.rig.loop.run()
    assert error_of(waiting[0]) == NotLeaderOrFollower.code
    assert error_of(first.acknowledge((0, 0, ACCEPT))[0]) == NotLeaderOrFollower.code
    broker.lead(leader=1, leader_epoch=2)
    broker.rig.loop.run()
    assert second.fetched() == [(0, 1, 1)]
    assert broker.persister.epochs == [0, 2]


def test_a_leader_that_goes_on_in_the_next_epoch_keeps_what_is_held() -> None:
    broker = Broker()
    broker.produce(b"a")
    member = broker.member()
    assert member.fetched() == [(0, 0, 1)]
    broker.lead(leader_epoch=1)
    broker.rig.loop.run()
    assert error_of(member.acknowledge((0, 0, ACCEPT))[0]) == 0
    assert broker.persister.writes[-1][0][4] == 1
    broker.lead(leader_epoch=3)  # another broker may have led in epoch 2
    broker.rig.loop.run()
    assert len(broker.led) == 0


def test_a_log_start_that_moves_takes_the_share_partition_with_it() -> None:
    broker = Broker()
    for value in (b"a", b"b", b"c"):
        broker.produce(value)
    member = broker.member()
    assert member.fetched(max_records=1) == [(0, 0, 1)]
    broker.rig.replica().delete_records(Offset(2))
    assert member.fetched((0, 0, ACCEPT)) == [(2, 2, 1)]


def test_a_member_of_many_partitions_gets_records_of_all_and_is_woken_by_any() -> None:
    many = 2 * PARTITIONS_AT_ONCE_MAX + 1
    broker = Broker(partitions=many)
    for index in (0, PARTITIONS_AT_ONCE_MAX, many - 1):
        broker.produce(b"a", partition=index)
    member = broker.member()
    (response,) = member.fetch(partitions=many)
    assert acquired(response) == [(0, 0, 1)] * 3
    (response,) = member.fetch((0, 0, ACCEPT), partitions=many, max_wait_ms=0)
    errors = Counter(each.acknowledge_error_code for each in response.responses[0].partitions)
    assert errors == {0: 3, InvalidRecordState.code: many - 3}
    waiting = member.fetch(partitions=many, max_records=1)
    assert not waiting
    broker.produce(b"b", partition=many - 2)
    broker.rig.loop.run()
    assert [each.partition_index for each in waiting[0].responses[0].partitions] == [many - 2]
    assert broker.fetches.waiting == 0
    (response,) = member.fetch(partitions=many, max_records=1, max_wait_ms=0)
    assert response.responses == []


# Quotas and settings


def test_a_client_over_its_quota_gets_what_is_acquired_and_is_throttled_then(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.produce(b"a")
    quota = SimpleNamespace(value_max=lambda *_: None, record=lambda *_: 70)
    broker.api._quotas = SimpleNamespace(enabled=True, fetch=quota)  # type: ignore[assignment]
    throttled: list[int] = []
    monkeypatch.setattr(RequestContext, "throttle", lambda _, wait_ms: throttled.append(wait_ms))
    assert broker.member().fetched() == [(0, 0, 1)]
    assert throttled == [70]


def test_the_lock_of_a_group_lasts_as_long_as_its_setting_says() -> None:
    broker = Broker(share_record_lock_duration_ms="2000")
    broker.produce(b"a")
    (response,) = broker.member("first").fetch()
    assert response.acquisition_lock_timeout_ms == 2000
    broker.rig.loop.pass_ms(2_020)
    assert broker.member("second").fetched() == [(0, 0, 2)]


@runs
async def test_a_group_may_begin_with_the_records_of_the_last_hour() -> None:
    made = Leader(topic(), settings={"share.auto.offset.reset": "by_duration:PT1H"})
    for age_ms in (7_200_000, 3_600_001, 3_599_999, 0):
        made.rig.append(made.rig.replica(), batch(b"v", at_ms=made.rig.clock.ms - age_ms))
    made.share()
    await asyncio.gather(*made.tasks)
    assert made.coordinator.writes == [(2, [])]
    assert made.fetch() == [(2, 3, 1)]
    made.begin()
    made.rig.clock.ms += 3_600_000
    assert made.fetch() == [(2, 3, 1)]


@pytest.mark.parametrize(
    ("reset", "ms"),
    [("by_duration:PT1H30M", 5_400_000), ("by_duration:P1DT0.5S", 86_400_500), ("latest", None)],
)
def test_a_reset_by_duration(reset: str, ms: int | None) -> None:
    assert duration_ms(reset) == ms


# Encoding

ACQUIRED = st.builds(
    share_fetch.AcquiredRecords,
    first_offset=st.integers(0, 1 << 40),
    last_offset=st.integers(0, 1 << 40),
    delivery_count=st.integers(0, 5),
)
PARTITIONS = st.builds(
    share_fetch.PartitionData,
    partition_index=st.integers(0, 9),
    error_code=st.sampled_from([0, 3]),
    error_message=st.none() | st.text(max_size=5),
    acknowledge_error_code=st.sampled_from([0, 121]),
    acknowledge_error_message=st.none() | st.text(max_size=5),
    current_leader=st.builds(share_fetch.LeaderIdAndEpoch, leader_id=st.integers(0, 3), leader_epoch=st.integers(0, 9)),
    records=st.binary(max_size=300),
    acquired_records=st.lists(ACQUIRED, max_size=3),
)
RESPONSES = st.builds(
    share_fetch.Response,
    throttle_time_ms=st.integers(0, 9),
    error_code=st.sampled_from([0, 42]),
    acquisition_lock_timeout_ms=st.integers(0, 60_000),
    responses=st.lists(
        st.builds(
            share_fetch.ShareFetchableTopicResponse,
            topic_id=st.binary(min_size=16, max_size=16),
            partitions=st.lists(PARTITIONS, max_size=2),
        ),
        max_size=2,
    ),
    node_endpoints=st.lists(
        st.builds(share_fetch.NodeEndpoint, node_id=st.integers(0, 3), host=st.text(max_size=4), rack=st.none()),
        max_size=1,
    ),
)


@given(RESPONSES)
def test_the_response_is_encoded_as_the_generated_codec_does(response: share_fetch.Response) -> None:
    assert b"".join(map(bytes, encode_fetched(response, 2))) == share_fetch.encode_response(response, 2)
