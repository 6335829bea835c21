"""Fetches: sessions that read only partitions with news, and long polls that end when they should."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.partition.rig import Rig, batch, topic
from tests.unit.partition.test_aborted_after_crash import Writers

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from penstock.model.turns import Turns
from penstock.partition.fetch import PARTITIONS_AT_ONCE_MAX, FetchJob, FetchLimits, PartitionResult, PartitionWatch
from penstock.partition.fetch_session import CachedPartition
from penstock.partition.results import Fetched
from penstock.partition.watchers import NOTIFIED_PER_LOOK

ID = (1).to_bytes(16, "big")
EVERYTHING = FetchLimits(bytes_min=1, bytes_max=1 << 30)


def wanted(*partitions: int, offset: int = 0, topic: object = ID, bytes_max: int = 1 << 20) -> list[CachedPartition]:
    return [CachedPartition(topic, partition, offset, bytes_max) for partition in partitions]


def begin(rig: Rig, asked: Sequence[CachedPartition] = (), session: int = 0, epoch: int = -1, **kw: Any) -> FetchJob:
    return rig.fetches.begin(
        kw.pop("limits", EVERYTHING),
        session_id=session,
        epoch=epoch,
        by_topic_id=kw.pop("by_topic_id", True),
        asked=asked,
        now_ms=rig.clock.ms,
        **kw,
    )


def summary(results: Sequence[PartitionResult]) -> dict[int, object]:
    """Partition -> whether it has records, or the error's name."""
    return {
        partition.partition: outcome.name if isinstance(outcome, BrokerError) else len(outcome.records) > 0
        for partition, outcome in results
    }


def opened(rig: Rig, asked: Sequence[CachedPartition], **kw: Any) -> int:
    job = begin(rig, asked, epoch=0, **kw)
    job.read()
    return job.response(rig.clock.ms)[0]


class Poll:
    """A long poll that knows whether it has completed."""

    def __init__(self, rig: Rig, job: FetchJob, wait_ms: int = 500) -> None:
        self.job = job
        self.done = False
        self.waits = not job.read()
        if self.waits:
            job.wait(wait_ms, self._completed)
        else:
            self.done = True

    def _completed(self) -> None:
        assert not self.done
        self.done = True


def test_a_read_returns_the_records_or_the_error_of_each_partition() -> None:
    rig = Rig(topic(partitions=3))
    rig.append(rig.replica(partition=0), batch(b"a"))
    job = begin(rig, [*wanted(0, 1, 9), CachedPartition(ID, 2, 7, 100)])

    assert job.read(), "a response with an error goes out at once"

    assert summary(job.results) == {0: True, 1: False, 9: "UNKNOWN_TOPIC_OR_PARTITION", 2: "OFFSET_OUT_OF_RANGE"}
    assert job.response(0) == (0, job.results)


def test_topics_are_found_by_id_or_by_name() -> None:
    rig = Rig(topic())
    by_name = begin(rig, wanted(0, topic="orders"), by_topic_id=False)
    unknown = begin(rig, wanted(0, topic=bytes(16)))
    by_name.read(), unknown.read()

    assert summary(by_name.results) == {0: False}
    assert summary(unknown.results) == {0: "UNKNOWN_TOPIC_ID"}


def test_the_byte_limit_applies_in_order_and_the_first_batch_is_always_whole() -> None:
    rig = Rig(topic(partitions=3))
    size = len(batch(b"a" * 100))
    for partition in range(3):
        rig.append(rig.replica(partition=partition), batch(b"a" * 100))

    one = begin(rig, wanted(0, 1, 2), limits=FetchLimits(bytes_min=1, bytes_max=1))
    two = begin(rig, wanted(0, 1, 2), limits=FetchLimits(bytes_min=1, bytes_max=2 * size))
    one.read(), two.read()

    assert summary(one.results) == {0: True, 1: False, 2: False}
    assert summary(two.results) == {0: True, 1: True, 2: False}


def test_a_partition_requested_twice_counts_once() -> None:
    rig = Rig(topic())
    rig.append(rig.replica(), batch(b"a"))
    job = begin(rig, [*wanted(0), *wanted(0, offset=1)])
    job.read()
    assert summary(job.results) == {0: False}


def test_an_incremental_response_has_only_partitions_with_news() -> None:
    rig = Rig(topic(partitions=2))
    session = opened(rig, wanted(0, 1))
    assert session != 0

    quiet = begin(rig, session=session, epoch=1)
    assert not quiet.read()
    assert quiet.response(0) == (session, [])

    rig.append(rig.replica(partition=1), batch(b"a"))
    rig.loop.run()
    job = begin(rig, session=session, epoch=2)
    assert job.read()
    assert summary(job.response(0)[1]) == {1: True}


def test_a_quiet_session_reads_no_partition() -> None:
    rig = Rig(topic(partitions=500))
    session = opened(rig, wanted(*range(500)))
    begin(rig, session=session, epoch=1).read()

    job = begin(rig, session=session, epoch=2)
    job.read()

    assert job.results == []
    held = rig.sessions.get(session)
    assert held is not None
    assert not held.active


def test_a_moved_log_start_is_news_without_data() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b"))
    session = opened(rig, wanted(0, offset=2))
    begin(rig, session=session, epoch=1).read()

    replica.delete_records(1)
    rig.loop.run()

    job = begin(rig, session=session, epoch=2)
    assert not job.read()
    ((_, outcome),) = job.response(0)[1]
    assert isinstance(outcome, Fetched)
    assert (outcome.log_start, len(outcome.records)) == (1, 0)


def test_a_session_is_closed_by_a_full_request_and_unknown_after() -> None:
    rig = Rig(topic())
    session = opened(rig, wanted(0))
    begin(rig, session=session, epoch=-1)

    with pytest.raises(FetchSessionIdNotFound):
        begin(rig, session=session, epoch=1)
    assert len(rig.sessions) == 0


def test_a_poll_ends_with_an_append() -> None:
    rig = Rig(topic(partitions=2))
    poll = Poll(rig, begin(rig, wanted(0, 1)))
    assert poll.waits
    assert rig.fetches.waiting == 1

    rig.append(rig.replica(partition=1), batch(b"a"))
    rig.loop.run()

    assert poll.done
    assert summary(poll.job.results) == {0: False, 1: True}
    assert rig.fetches.waiting == 0
    assert rig.loop.alarms == 0 or len(rig.timers) == 0


def test_a_poll_ends_when_its_time_is_up_and_not_before() -> None:
    rig = Rig(topic())
    poll = Poll(rig, begin(rig, wanted(0)), wait_ms=500)

    rig.loop.pass_ms(499)
    assert not poll.done
    rig.loop.pass_ms(20)

    assert poll.done
    assert summary(poll.job.results) == {0: False}


def test_a_poll_waits_for_its_minimum_of_bytes() -> None:
    rig = Rig(topic(partitions=2))
    size = len(batch(b"a"))
    limits = FetchLimits(bytes_min=3 * size, bytes_max=1 << 20)
    poll = Poll(rig, begin(rig, wanted(0, 1), limits=limits))

    for partition in (0, 1):
        rig.append(rig.replica(partition=partition), batch(b"a"))
        rig.loop.run()
        assert not poll.done
    rig.append(rig.replica(partition=0), batch(b"a"))
    rig.loop.run()

    assert poll.done
    assert poll.job.bytes_read == 3 * size


def test_bytes_found_at_first_count_toward_the_minimum() -> None:
    rig = Rig(topic())
    size = len(batch(b"a"))
    rig.append(rig.replica(), batch(b"a"))
    poll = Poll(rig, begin(rig, wanted(0), limits=FetchLimits(bytes_min=2 * size, bytes_max=1 << 20)))
    assert poll.waits

    rig.append(rig.replica(), batch(b"a"))
    rig.loop.run()

    assert poll.done
    assert poll.job.bytes_read == 2 * size


def test_a_poll_ends_when_a_partition_reaches_its_own_limit() -> None:
    rig = Rig(topic())
    poll = Poll(rig, begin(rig, wanted(0, bytes_max=10), limits=FetchLimits(bytes_min=10_000, bytes_max=1 << 20)))

    rig.append(rig.replica(), batch(b"a"))
    rig.loop.run()

    assert poll.done


def test_a_poll_ends_with_an_error_when_its_topic_is_deleted() -> None:
    was = topic()
    rig = Rig(was)
    poll = Poll(rig, begin(rig, wanted(0)))

    rig.change(was, None)
    rig.loop.run()

    assert poll.done
    assert summary(poll.job.results) == {0: "UNKNOWN_TOPIC_ID"}


def test_a_poll_ends_with_an_error_when_the_records_at_its_offset_are_deleted() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", b"b"))
    limits = FetchLimits(bytes_min=1 << 20, bytes_max=1 << 30)
    poll = Poll(rig, begin(rig, wanted(0, offset=1), limits=limits))

    replica.delete_records(2)
    rig.loop.run()

    assert poll.done
    assert summary(poll.job.results) == {0: "OFFSET_OUT_OF_RANGE"}


def test_an_open_transaction_does_not_end_the_poll_of_a_reader_of_committed_data() -> None:
    from tests.unit.partition.test_replica import marker, transactional

    rig = Rig(topic())
    replica = rig.replica()
    limits = FetchLimits(bytes_min=1, bytes_max=1 << 20, read_committed=True)
    poll = Poll(rig, begin(rig, wanted(0), limits=limits))

    rig.append(replica, transactional(b"a"), internal=True)
    rig.loop.run()
    assert not poll.done
    rig.append(replica, marker(commit=True), internal=True)
    rig.loop.run()
    assert poll.done


COMMITTED_500 = FetchLimits(bytes_min=500, bytes_max=1 << 20, read_committed=True)


@pytest.mark.parametrize("written_before", [0, 20, 50], ids=["none", "some", "all"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1 << 11], ids=["one-segment", "several-segments"])
def test_a_poll_for_many_committed_bytes_ends_with_a_transaction_of_that_size(
    written_before: int, segment_bytes: int
) -> None:
    writers = Writers(segment_bytes=segment_bytes)
    for _ in range(written_before):
        writers.write(5)
    poll = Poll(writers.rig, begin(writers.rig, wanted(0), limits=COMMITTED_500))
    for _ in range(50 - written_before):
        writers.write(5)
        writers.rig.loop.run()
    assert not poll.done

    writers.end(5, commit=True)
    writers.rig.loop.run()

    assert poll.done
    assert poll.job.bytes_read >= 500


def test_bytes_of_open_transactions_do_not_count_for_readers_of_committed_data() -> None:
    writers = Writers(segment_bytes=1 << 20)
    for producer in (5, 6):
        writers.write(producer)
    poll = Poll(writers.rig, begin(writers.rig, wanted(0), limits=COMMITTED_500))
    writers.end(5, commit=True)
    for _ in range(50):
        writers.write(6)
        writers.rig.loop.run()
    assert not poll.done

    writers.end(6, commit=False)
    writers.rig.loop.run()

    assert poll.done


def test_two_small_transactions_count_together() -> None:
    writers = Writers(segment_bytes=1 << 20)
    poll = Poll(writers.rig, begin(writers.rig, wanted(0), limits=COMMITTED_500))
    for producer, ends in ((5, False), (6, True)):
        for _ in range(3):
            writers.write(producer)
        writers.end(producer, commit=True)
        writers.rig.loop.run()
        assert poll.done is ends


def test_a_poll_of_a_session_ends_with_the_transaction_it_waited_for() -> None:
    writers = Writers(segment_bytes=1 << 20)
    for _ in range(50):
        writers.write(5)
    session = opened(writers.rig, wanted(0), limits=COMMITTED_500)
    poll = Poll(writers.rig, begin(writers.rig, session=session, epoch=1, limits=COMMITTED_500))
    assert poll.waits

    writers.end(5, commit=True)
    writers.rig.loop.run()

    assert poll.done


def test_a_closed_connection_leaves_no_timer_and_no_watcher() -> None:
    rig = Rig(topic(partitions=3))
    poll = Poll(rig, begin(rig, wanted(0, 1, 2)))

    poll.job.cancel()
    poll.job.cancel()
    rig.append(rig.replica(), batch(b"a"))
    rig.loop.pass_ms(1000)

    assert not poll.done
    assert len(rig.timers) == 0
    assert rig.fetches.waiting == 0
    assert all(not replica.watchers for replica in rig.replicas.live())


def test_a_request_without_a_session_keeps_no_watch() -> None:
    rig = Rig(topic(partitions=2))
    asked = wanted(0, 1)
    poll = Poll(rig, begin(rig, asked))
    rig.append(rig.replica(partition=0), batch(b"a"))
    rig.loop.run()
    assert poll.done

    poll.job.response(rig.clock.ms)

    assert all(not replica.watchers for replica in rig.replicas.live())
    assert [partition.watch for partition in asked] == [None, None], "nor a reference cycle"


def test_a_session_whose_reader_does_not_return_is_notified_once_and_closed_by_its_eviction() -> None:
    rig = Rig(topic(partitions=2))
    session = opened(rig, wanted(0, 1))
    begin(rig, session=session, epoch=1).read()
    assert [len(replica.watchers) for replica in rig.replicas.live()] == [1, 1]

    rig.append(rig.replica(partition=0), batch(b"a"))
    rig.loop.run()
    assert [len(rig.replica(partition=p).watchers) for p in (0, 1)] == [0, 1]
    rig.sessions.close(session)

    assert [len(rig.replica(partition=p).watchers) for p in (0, 1)] == [0, 0]
    assert len(rig.sessions) == 0


def test_a_long_poll_with_a_session_ends_when_a_settled_partition_grows() -> None:
    rig = Rig(topic(partitions=3))
    session = opened(rig, wanted(0, 1, 2))
    begin(rig, session=session, epoch=1).read()
    poll = Poll(rig, begin(rig, session=session, epoch=2))
    assert poll.waits

    rig.append(rig.replica(partition=2), batch(b"a"))
    rig.loop.run()

    assert poll.done
    assert summary(poll.job.response(0)[1]) == {2: True}


def test_a_later_request_of_a_session_ends_the_wait_of_the_earlier() -> None:
    rig = Rig(topic())
    session = opened(rig, wanted(0))
    first = Poll(rig, begin(rig, session=session, epoch=1))
    second = Poll(rig, begin(rig, session=session, epoch=2))

    assert first.done
    assert not second.done
    with pytest.raises(InvalidFetchSessionEpoch):
        first.job.response(0)


def test_a_session_evicted_while_its_reader_waits_ends_the_wait() -> None:
    rig = Rig(topic())
    session = opened(rig, wanted(0))
    poll = Poll(rig, begin(rig, session=session, epoch=1))

    rig.sessions.close(session)

    assert poll.done
    assert rig.fetches.waiting == 0


class Consuming(RuleBasedStateMachine):
    """A consumer with a session and long polls reads every record of every partition once and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(topic(partitions=4))
        self.written = dict.fromkeys(range(4), 0)
        self.positions = dict.fromkeys(range(4), 0)
        self.asked = dict(self.positions)
        self.session, self.epoch = 0, 0
        self.poll: Poll | None = None

    @rule(partition=st.integers(0, 3), count=st.integers(1, 3))
    def write(self, partition: int, count: int) -> None:
        self.rig.append(self.rig.replica(partition=partition), batch(*[b"v"] * count))
        self.written[partition] += count

    @rule()
    def turn(self) -> None:
        self.rig.loop.run()

    @precondition(lambda self: self.poll is None)
    @rule(bytes_max=st.sampled_from([1, 200, 1 << 20]))
    def ask(self, bytes_max: int) -> None:
        moved = [p for p in range(4) if self.epoch == 0 or self.positions[p] != self.asked[p]]
        request = [CachedPartition(ID, p, self.positions[p], 1 << 20) for p in moved]
        self.asked = dict(self.positions)
        limits = FetchLimits(bytes_min=1, bytes_max=bytes_max)
        self.poll = Poll(self.rig, begin(self.rig, request, session=self.session, epoch=self.epoch, limits=limits))

    @precondition(lambda self: self.poll is not None)
    @rule()
    def wait_out(self) -> None:
        self.rig.loop.pass_ms(600)
        assert self.poll is not None
        assert self.poll.done
        self.take()

    @precondition(lambda self: self.poll is not None and self.poll.done)
    @rule()
    def take(self) -> None:
        assert self.poll is not None
        session, results = self.poll.job.response(self.rig.clock.ms)
        for partition, outcome in results:
            assert isinstance(outcome, Fetched)
            if isinstance(outcome.records, bytes):
                continue
            at = partition.partition
            from penstock.wire.records import iter_batches

            for _, header in iter_batches(outcome.records.contents()):
                assert header.base_offset <= self.positions[at] < header.next_offset
                self.positions[at] = header.next_offset
        self.session, self.epoch, self.poll = session, self.epoch + 1, None

    @precondition(lambda self: self.poll is None and self.epoch > 0)
    @rule()
    def lose_the_session(self) -> None:
        self.rig.sessions.close(self.session)
        self.session = self.epoch = 0

    @invariant()
    def never_ahead(self) -> None:
        assert all(self.positions[p] <= self.written[p] for p in range(4))

    @invariant()
    def news_is_never_missed(self) -> None:
        """A poll that waits has nothing to read, once the loop has had its turn."""
        self.rig.loop.run()
        if self.poll is not None and not self.poll.done:
            assert self.asked == self.written

    def teardown(self) -> None:
        for _ in range(20):
            if self.poll is None:
                self.ask(1 << 20)
            self.wait_out()
        assert self.positions == self.written


TestConsuming = Consuming.TestCase
TestConsuming.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def never_spent() -> Turns:
    return Turns(lambda callback: None, lambda: 0.0)


class Restless(Turns):
    """A time budget that is spent after every step; its pauses run callbacks."""

    def __init__(self, meanwhile: Iterator[Callable[[], None]]) -> None:
        super().__init__(lambda callback: None, lambda: 0.0)
        self._meanwhile = meanwhile

    def spent(self) -> bool:
        return True

    async def pause(self) -> None:
        next(self._meanwhile, lambda: None)()


def test_a_read_over_several_turns_has_the_same_result_as_in_one_turn() -> None:
    count = PARTITIONS_AT_ONCE_MAX + 1
    rig = Rig(topic(partitions=count))
    for partition in range(0, count, 7):
        rig.append(rig.replica(partition=partition), batch(b"%d" % partition))
    at_once = begin(rig, wanted(*range(count)))
    assert at_once.is_large
    assert at_once.read()

    in_turns = begin(rig, wanted(*range(count)))
    assert asyncio.run(in_turns.read_in_turns(never_spent()))

    assert summary(in_turns.results) == summary(at_once.results)
    assert in_turns.bytes_read == at_once.bytes_read


def test_a_batch_appended_between_two_turns_is_not_missed_by_the_wait_that_follows() -> None:
    count = PARTITIONS_AT_ONCE_MAX + 1
    rig = Rig(topic(partitions=count))
    job = begin(rig, wanted(*range(count)))

    def arrive() -> None:
        rig.append(rig.replica(partition=0), batch(b"late"))

    turns = Restless(iter([lambda: None, lambda: None, arrive]))

    assert asyncio.run(job.read_in_turns(turns)), "partition 0 was read before it grew, and is read again"
    assert summary(job.results)[0] is True


def test_a_session_does_not_miss_a_batch_appended_between_two_turns() -> None:
    count = PARTITIONS_AT_ONCE_MAX + 1
    rig = Rig(topic(partitions=count))
    first = begin(rig, wanted(*range(count)), epoch=0)
    first.read()
    session, _ = first.response(rig.clock.ms)
    job = begin(rig, session=session, epoch=1)
    assert job.is_large

    def arrive() -> None:
        rig.append(rig.replica(partition=0), batch(b"late"))
        rig.loop.run()

    assert asyncio.run(job.read_in_turns(Restless(iter([lambda: None, lambda: None, arrive]))))
    assert summary(job.results)[0] is True


def test_a_large_read_stops_when_its_client_is_gone() -> None:
    count = PARTITIONS_AT_ONCE_MAX + 1
    rig = Rig(topic(partitions=count))
    job = begin(rig, wanted(*range(count)))
    paused: list[int] = []

    def leave_in_the_third_turn() -> None:
        paused.append(1)

    turns = Restless(iter([leave_in_the_third_turn] * count))

    assert asyncio.run(job.read_in_turns(turns, lambda: len(paused) == 3)), "there is no client to wait for"
    assert len(paused) == 3
    assert job.results == []


# Resting


@given(
    bytes_min=st.integers(1, 3000),
    appends=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), min_size=1, max_size=30),
    read_committed=st.booleans(),
    with_session=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_wait_ends_with_the_byte_that_was_missing(
    bytes_min: int, appends: list[tuple[int, int]], read_committed: bool, with_session: bool
) -> None:
    rig = Rig(topic(partitions=4))
    limits = FetchLimits(bytes_min=bytes_min, bytes_max=1 << 30, read_committed=read_committed)
    job = begin(rig, wanted(0, 1, 2, 3), limits=limits)
    if with_session:
        first = begin(rig, wanted(0, 1, 2, 3), epoch=0, limits=limits)
        first.read()
        session, _ = first.response(rig.clock.ms)
        job = begin(rig, session=session, epoch=1, limits=limits)
    completed: list[None] = []
    assert not job.read()
    job.wait(60_000, lambda: completed.append(None))
    total = 0
    for partition, size in appends:
        records = batch(b"v" * size)
        total += len(records)
        rig.append(rig.replica(partition=partition), records)
        rig.loop.run()
        assert bool(completed) == (total >= bytes_min)
        if completed:
            assert job.bytes_read == total
            break


def test_thousands_of_waiting_fetches_are_not_notified_of_every_append(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(topic(partitions=2))
    replica = rig.replica()
    limits = FetchLimits(bytes_min=1 << 30, bytes_max=1 << 30)
    for _ in range(2_000):
        job = begin(rig, wanted(0, 1), limits=limits)
        assert not job.read()
        job.wait(60_000, lambda: None)
    notified: list[None] = []
    notify = PartitionWatch.notify

    def counted(watch: PartitionWatch) -> None:
        notified.append(None)
        notify(watch)

    monkeypatch.setattr(PartitionWatch, "notify", counted)
    one = begin(rig, wanted(0), limits=FetchLimits(bytes_min=1, bytes_max=1 << 20))
    assert not one.read()
    completed: list[None] = []
    one.wait(60_000, lambda: completed.append(None))

    for _ in range(10):
        rig.append(replica, batch(b"a"))
        rig.loop.run()

    assert len(completed) == 1
    assert len(notified) == 1, "only the one that waits for a single byte"

    rig.change(topic(partitions=2), None)
    rig.loop.run()
    assert len(notified) >= 2_000, "the deletion of the topic notifies all"
    assert rig.fetches.waiting == 0


def test_many_fetches_that_complete_at_once_are_completed_over_several_turns() -> None:
    rig = Rig(topic())
    for _ in range(200):
        job = begin(rig, wanted(0), limits=EVERYTHING)
        assert not job.read()
        job.wait(60_000, pass_a_millisecond(rig))
    rig.append(rig.replica(), batch(b"a"))
    turns = 0
    while rig.fetches.waiting:
        before = rig.fetches.waiting
        rig.loop.turn()
        turns += 1
        assert before - rig.fetches.waiting <= 2 * NOTIFIED_PER_LOOK
        assert turns < 1_000
    assert turns > 3


def pass_a_millisecond(rig: Rig) -> Callable[[], None]:
    def completed() -> None:
        rig.clock.ms += 1

    return completed


def test_a_session_gets_the_error_of_an_offline_partition_that_it_has_read_to_the_end() -> None:
    async def scenario() -> None:
        rig = Rig(topic())
        replica = rig.replica()
        rig.append(replica, batch(b"a"))
        session = opened(rig, wanted(0, offset=1))
        replica.log.directory.lost(OSError(errno.EIO, "io"), "a test")

        job = begin(rig, session=session, epoch=1)

        assert job.read()
        assert summary(job.response(rig.clock.ms)[1]) == {0: "KAFKA_STORAGE_ERROR"}

    asyncio.run(scenario())
