"""Fetch sessions: what an incremental response may leave out, and which session is evicted."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock.model.generated_errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from penstock.partition.fetch_session import (
    EPOCH_MAX,
    IDLE_MS_BEFORE_EVICTION,
    CachedPartition,
    FetchSession,
    FetchSessions,
    epoch_after,
)

TOPIC = b"t" * 16
OLD_MS = IDLE_MS_BEFORE_EVICTION + 1


def sessions(slots_max: int = 10) -> FetchSessions:
    ids = count()
    return FetchSessions(slots_max, lambda bound: next(ids) % bound)


def requested(*partitions: int, offset: int = 0, topic: object = TOPIC) -> list[CachedPartition]:
    return [CachedPartition(topic, partition, offset, 1024) for partition in partitions]


def create(cache: FetchSessions, partitions: int, *, now_ms: int = 0, privileged: bool = False) -> FetchSession | None:
    session = FetchSession(requested(*range(partitions)), privileged=privileged, by_topic_id=True)
    return session if cache.register(session, now_ms) else None


def made(session: FetchSession | None) -> FetchSession:
    assert session is not None
    return session


def resume(cache: FetchSessions, session: FetchSession, now_ms: int = 0, *more: CachedPartition) -> FetchSession | None:
    return cache.resume(session.id, session.epoch, True, more, (), now_ms)


def test_a_session_starts_at_epoch_one_and_counts_requests() -> None:
    cache = sessions()
    session = made(create(cache, 2))
    assert session.epoch == 1

    assert resume(cache, session) is session
    assert session.epoch == 2


def test_epochs_wrap_to_one() -> None:
    assert epoch_after(0) == 1
    assert epoch_after(EPOCH_MAX) == 1
    assert epoch_after(-1) == -1
    cache = sessions()
    session = made(create(cache, 1))
    session.epoch = EPOCH_MAX
    resume(cache, session)
    assert session.epoch == 1


def test_an_unknown_session_a_wrong_epoch_and_a_change_between_names_and_ids_are_errors() -> None:
    cache = sessions()
    session = made(create(cache, 1))

    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(session.id + 1, 1, True, (), (), 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.resume(session.id, 2, True, (), (), 0)
    with pytest.raises(FetchSessionTopicIdError):
        cache.resume(session.id, 1, False, (), (), 0)
    assert session.epoch == 1, "a refused request does not change the epoch"


def test_a_response_is_invalid_after_a_later_request() -> None:
    cache = sessions()
    session = made(create(cache, 1))
    resume(cache, session)
    session.check_response(1)

    resume(cache, session)

    with pytest.raises(InvalidFetchSessionEpoch):
        session.check_response(1)


def test_partitions_are_added_updated_and_forgotten_by_incremental_requests() -> None:
    cache = sessions()
    session = made(create(cache, 2))

    cache.resume(session.id, 1, True, requested(1, 2, offset=50), [(TOPIC, 0), (TOPIC, 9)], 0)

    assert [(p.partition, p.fetch_offset) for p in session] == [(1, 50), (2, 50)]
    assert cache.partitions_cached == 2


def test_a_session_that_forgets_its_last_partition_closes() -> None:
    cache = sessions()
    session = made(create(cache, 1))

    assert cache.resume(session.id, 1, True, (), [(TOPIC, 0)], 0) is None
    assert session.closed
    assert len(cache) == 0
    assert cache.partitions_cached == 0


def test_a_partition_is_sent_again_only_when_something_changed() -> None:
    partition = requested(0)[0]

    assert partition.note_response(0, 5, 0, failed=False), "the first response is always news"
    assert not partition.note_response(0, 5, 0, failed=False)
    assert partition.note_response(100, 5, 0, failed=False)
    assert partition.note_response(0, 6, 0, failed=False)
    assert partition.note_response(0, 6, 1, failed=False)
    assert not partition.note_response(0, 6, 1, failed=False)


def test_an_error_is_always_sent_and_so_is_its_end() -> None:
    partition = requested(0)[0]
    partition.note_response(0, 5, 0, failed=False)

    assert partition.note_response(0, -1, -1, failed=True)
    assert partition.note_response(0, -1, -1, failed=True)
    assert partition.note_response(0, 5, 0, failed=False)


def test_a_settled_partition_is_not_read_until_activated_or_requested() -> None:
    cache = sessions()
    session = made(create(cache, 3))
    for partition in list(session):
        session.settle(partition)
    assert not session.active

    session.activate(made_partition(session, 1))
    cache.resume(session.id, 1, True, requested(2), (), 0)

    assert [p.partition for p in session.active.values()] == [1, 2]


def made_partition(session: FetchSession, index: int) -> CachedPartition:
    partition = session.get((TOPIC, index))
    assert partition is not None
    return partition


def test_a_forgotten_partition_cannot_be_activated() -> None:
    cache = sessions()
    session = made(create(cache, 2))
    gone = made_partition(session, 0)
    cache.resume(session.id, 1, True, (), [(TOPIC, 0)], 0)

    session.activate(gone)
    session.served(gone)

    assert [p.partition for p in session.active.values()] == [1]


def test_a_partition_that_gave_records_moves_to_the_end() -> None:
    session = made(create(sessions(), 3))

    session.served(made_partition(session, 0))

    assert [p.partition for p in session.active.values()] == [1, 2, 0]
    assert [p.partition for p in session] == [1, 2, 0]


class Watching:
    """A watch that notes when it is closed."""

    def __init__(self, partition: int, closed: list[int]) -> None:
        self._partition = partition
        self._closed = closed

    def close(self) -> None:
        self._closed.append(self._partition)


def test_removed_partitions_are_not_watched_any_more() -> None:
    cache = sessions()
    session = made(create(cache, 3))
    left: list[int] = []
    for partition in session:
        partition.watch = Watching(partition.partition, left)
    cache.resume(session.id, 1, True, (), [(TOPIC, 1)], 0)
    assert left == [1]
    cache.close(session.id)
    assert left == [1, 0, 2]
    cache.close(session.id)
    assert left == [1, 0, 2]


def test_a_full_cache_registers_no_session_while_all_are_young() -> None:
    cache = sessions(slots_max=2)
    create(cache, 1)
    create(cache, 1)

    assert create(cache, 100, now_ms=IDLE_MS_BEFORE_EVICTION) is None


def test_the_stalest_session_is_evicted() -> None:
    cache = sessions(slots_max=2)
    first = made(create(cache, 50, now_ms=0))
    second = made(create(cache, 1, now_ms=1))
    resume(cache, first, 2)

    assert create(cache, 1, now_ms=1 + OLD_MS) is not None

    assert cache.get(second.id) is None
    assert cache.get(first.id) is first
    assert cache.evictions == 1


def test_an_old_session_in_use_is_evicted_for_one_at_least_as_big() -> None:
    cache = sessions(slots_max=1)
    old = made(create(cache, 5, now_ms=0))
    resume(cache, old, OLD_MS)

    assert create(cache, 4, now_ms=OLD_MS) is None
    assert create(cache, 6, now_ms=OLD_MS) is not None
    assert old.closed


def test_a_session_is_young_until_it_is_used_at_the_age_of_two_minutes() -> None:
    cache = sessions(slots_max=1)
    session = made(create(cache, 5, now_ms=0))
    resume(cache, session, IDLE_MS_BEFORE_EVICTION)

    assert create(cache, 6, now_ms=OLD_MS) is None


def test_followers_evict_readers_of_any_age_and_readers_never_followers_in_use() -> None:
    cache = sessions(slots_max=1)
    reader = made(create(cache, 500, now_ms=0))

    follower = made(create(cache, 1, now_ms=1, privileged=True))
    assert reader.closed
    resume(cache, follower, OLD_MS + 1)

    assert create(cache, 900, now_ms=OLD_MS + 1) is None
    assert create(cache, 900, now_ms=OLD_MS + 1, privileged=True) is not None


def test_ids_in_use_are_not_assigned_again() -> None:
    ids = iter([4, 4, 4, 5])
    cache = FetchSessions(10, lambda bound: next(ids))

    assert [made(create(cache, 1)).id, made(create(cache, 1)).id] == [5, 6]


class Polling(RuleBasedStateMachine):
    """A reader that applies incremental responses has the same state as after a full response.

    The broker side reads only active partitions, settles the quiet ones, and activates those that change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = sessions()
        self.logs: dict[int, tuple[int, int, bool]] = dict.fromkeys(range(5), (0, 0, False))
        """partition -> high watermark, log start, failing"""
        self.session: FetchSession | None = None
        self.known: dict[int, tuple[int, int, bool]] = {}
        self.positions: dict[int, int] = {}
        self.now_ms = 0

    def activate(self, partition: int) -> None:
        if self.session is not None and (held := self.session.get((TOPIC, partition))) is not None:
            self.session.activate(held)

    @rule(partition=st.integers(0, 4), amount=st.integers(1, 3))
    def append(self, partition: int, amount: int) -> None:
        high, start, failing = self.logs[partition]
        self.logs[partition] = (high + amount, start, failing)
        self.activate(partition)

    @rule(partition=st.integers(0, 4))
    def delete(self, partition: int) -> None:
        high, _, failing = self.logs[partition]
        self.logs[partition] = (high, high, failing)
        self.activate(partition)

    @rule(partition=st.integers(0, 4), failing=st.booleans())
    def fail(self, partition: int, failing: bool) -> None:
        high, start, _ = self.logs[partition]
        self.logs[partition] = (high, start, failing)
        self.activate(partition)

    @rule(partitions=st.sets(st.integers(0, 4), min_size=1))
    def full_fetch(self, partitions: set[int]) -> None:
        if self.session is not None:
            self.cache.close(self.session.id)
        self.positions = {p: self.logs[p][0] for p in partitions}
        request = [CachedPartition(TOPIC, p, self.positions[p], 100) for p in sorted(partitions)]
        for partition in request:
            self.response(partition)
        self.known = {p: self.logs[p] for p in partitions}
        session = FetchSession(request, privileged=False, by_topic_id=True)
        self.session = session if self.cache.register(session, self.now_ms) else None

    def response(self, partition: CachedPartition) -> bool:
        high, start, failing = self.logs[partition.partition]
        size = 0 if failing else max(0, high - partition.fetch_offset)
        return partition.note_response(size, -1 if failing else high, -1 if failing else start, failing)

    @precondition(lambda self: self.session is not None)
    @rule(add=st.sets(st.integers(0, 4)), forget=st.sets(st.integers(0, 4)), follow=st.booleans())
    def poll(self, add: set[int], forget: set[int], follow: bool) -> None:
        session = self.session
        assert session is not None
        moved = {p for p in self.positions if follow and self.positions[p] < self.logs[p][0]} - forget
        for p in moved:
            self.positions[p] = self.logs[p][0]
        for p in add - forget:
            self.positions.setdefault(p, self.logs[p][0])
        request = [CachedPartition(TOPIC, p, self.positions[p], 100) for p in (add - forget) | moved]
        for p in forget:
            self.positions.pop(p, None)
            self.known.pop(p, None)
        gone = [(TOPIC, p) for p in forget]
        resumed = self.cache.resume(session.id, session.epoch, True, request, gone, self.now_ms)
        if resumed is None:
            assert not self.positions
            self.session = None
            return
        for partition in list(resumed.active.values()):
            index = partition.partition
            before = partition.fetch_offset
            if self.response(partition):
                self.known[index] = self.logs[index]
                if not self.logs[index][2] and self.logs[index][0] > before:
                    resumed.served(partition)
            else:
                resumed.settle(partition)
        assert set(self.known) == set(self.positions)
        for index, known in self.known.items():
            high, start, failing = self.logs[index]
            assert known[2] == failing
            assert failing or known[:2] == (high, start)

    @precondition(lambda self: self.session is not None)
    @rule()
    def a_quiet_poll_reads_no_partition(self) -> None:
        session = self.session
        assert session is not None
        self.poll(set(), set(), True)
        self.poll(set(), set(), True)
        if not any(self.logs[p][2] for p in self.positions):
            assert not session.active


TestPolling = Polling.TestCase
TestPolling.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
