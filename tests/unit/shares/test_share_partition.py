"""The rules of one share partition: acquiring, acknowledging, expiry, writing, loading."""

from __future__ import annotations

import pytest

from penstock.model.generated_errors import InvalidRecordState, InvalidRequest
from penstock.model.ids import Offset
from penstock.shares import share_partition
from penstock.shares.persister import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    JOINED_FROM,
    SharePartitionState,
    StateBatch,
)
from penstock.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledged,
    Acquired,
    DeadRange,
    Limits,
    ReadBatch,
    SharePartition,
)

LIMITS = Limits(deliveries_max=5, unfinished_max=100, lock_ms=1000)
ALL = 1 << 30


def partition(start: int = 0, *batches: StateBatch, limits: Limits = LIMITS) -> SharePartition:
    return SharePartition(SharePartitionState(3, Offset(start), -1, batches), Offset(start), limits)


def acquire(
    share: SharePartition,
    member: str,
    *batches: tuple[int, int],
    most: int = ALL,
    exact: bool = False,
    batch_size: int = 0,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    at = share.next_offset()
    if at is None:
        return []
    read = [ReadBatch(*batch) for batch in batches if batch[1] >= at]
    return [
        tuple(each)
        for each in share.acquire(
            member,
            read,
            fetch_offset=at,
            records_max=most,
            records_exact=exact,
            batch_size=batch_size,
            now_ms=now_ms,
        )
    ]


def acknowledge(share: SharePartition, member: str, first: int, last: int, *types: int, now_ms: int = 0) -> bool:
    return share.acknowledge(member, [Acknowledged(first, last, types)], now_ms)


def write(share: SharePartition) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Write and commit what is queued; its start, its count and its batches."""
    begun = share.begin_write()
    assert begun is not None
    share.written(begun)
    return begun.start, begun.delivery_complete_count, [tuple(batch[:4]) for batch in begun.batches]


def fail(share: SharePartition) -> None:
    begun = share.begin_write()
    assert begun is not None
    share.write_failed(begun)


def states(share: SharePartition) -> list[tuple[int, int, int, int]]:
    return list(share.ranges())


def test_batches_are_acquired_whole_and_the_start_follows_what_is_accepted() -> None:
    share = partition()
    assert acquire(share, "a", (0, 9), (10, 19), (20, 29), most=12) == [(0, 19, 1)]
    assert acquire(share, "b", (20, 29)) == [(20, 29, 1)]
    assert acknowledge(share, "b", 20, 29, ACCEPT)
    assert write(share) == (0, 10, [(20, 29, ACKNOWLEDGED, 1)])
    assert share.delivery_complete_count == 10
    assert acknowledge(share, "a", 0, 9, ACCEPT)
    # Nothing is written of what lies below the start that the write names.
    assert write(share) == (10, 10, [])
    assert acknowledge(share, "a", 10, 19, ACCEPT)
    assert write(share) == (30, 0, [])
    assert (share.start, share.end, share.held, share.unfinished) == (30, 30, 0, 0)


def test_a_record_limit_is_exact() -> None:
    share = partition()
    assert acquire(share, "a", (0, 9), (10, 19), most=12, exact=True) == [(0, 11, 1)]
    assert acquire(share, "b", (10, 19), most=3, exact=True) == [(12, 14, 1)]
    assert acknowledge(share, "a", 2, 11, RELEASE)
    write(share)
    assert acquire(share, "b", (0, 9), (10, 19), most=4, exact=True) == [(2, 5, 2)]


def test_ranges_of_new_records_are_divided_between_batches() -> None:
    share = partition()
    acquired = acquire(share, "a", (0, 3), (4, 7), (8, 11), (12, 15), batch_size=6)
    assert acquired == [(0, 7, 1), (8, 15, 1)]
    assert acknowledge(share, "a", 5, 9, ACCEPT)


def test_only_the_holder_acknowledges_and_all_or_nothing_is_taken() -> None:
    share = partition()
    acquire(share, "a", (0, 9), most=10)
    acquire(share, "b", (10, 19), most=10)
    for wrong in (
        [Acknowledged(0, 4, [ACCEPT]), Acknowledged(5, 12, [ACCEPT])],
        [Acknowledged(0, 4, [ACCEPT]), Acknowledged(4, 5, [ACCEPT])],
        [Acknowledged(10, 10, [ACCEPT])],
    ):
        with pytest.raises(InvalidRecordState):
            share.acknowledge("a", wrong, 0)
    with pytest.raises(InvalidRequest):
        acknowledge(share, "b", 15, 20, ACCEPT)
    assert share.begin_write() is None
    assert states(share) == [(0, 19, ACQUIRED, 1)]
    assert acknowledge(share, "a", 0, 9, ACCEPT)
    with pytest.raises(InvalidRecordState):  # until its write is committed, and after it
        acknowledge(share, "a", 3, 3, RENEW)
    write(share)
    assert not acknowledge(share, "a", 0, 9, ACCEPT)  # below the start: it has no effect
    assert acknowledge(share, "b", 10, 19, ACCEPT)
    write(share)
    with pytest.raises(InvalidRecordState):
        acknowledge(share, "b", 15, 21, ACCEPT)


def test_each_offset_may_be_acknowledged_in_its_own_way() -> None:
    share = partition()
    acquire(share, "a", (0, 5))
    assert acknowledge(share, "a", 0, 5, ACCEPT, RELEASE, RELEASE, REJECT, GAP, RENEW)
    assert write(share) == (1, 2, [(1, 2, AVAILABLE, 1), (3, 4, ARCHIVED, 1)])
    assert states(share) == [(1, 2, AVAILABLE, 1), (3, 4, ARCHIVED, 1), (5, 5, ACQUIRED, 1)]
    assert acquire(share, "b", (0, 5)) == [(1, 2, 2)]


def test_a_write_that_fails_leaves_the_record_with_its_holder_unless_the_lock_expired() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 0, 4, ACCEPT)
    fail(share)
    assert states(share) == [(0, 9, ACQUIRED, 1)]
    acknowledge(share, "a", 0, 4, ACCEPT)
    assert share.expire(999) == 0
    assert share.expire(1000) == 5
    assert [share.holder(at) for at in (4, 5)] == ["a", None]
    fail(share)
    assert states(share) == [(0, 9, AVAILABLE, 1)]
    assert share.held == 0
    assert share.next_deadline_ms() is None


def test_a_write_with_an_unknown_outcome_is_followed_by_one_that_says_everything() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 5, 7, ACCEPT)
    write(share)
    # The coordinator commits this one, moves its start to 8 and forgets 5 to 7, but the leader does not hear of it.
    acknowledge(share, "a", 0, 4, ACCEPT)
    fail(share)
    acknowledge(share, "a", 8, 8, REJECT)
    assert write(share) == (0, 4, [(5, 7, ACKNOWLEDGED, 1), (8, 8, ARCHIVED, 1)])


def test_a_lock_expires_releases_and_archives_at_the_limit() -> None:
    share = partition(limits=Limits(2, 100, 1000))
    acquire(share, "a", (0, 0))
    assert share.next_deadline_ms() == 1000
    share.expire(1000)
    assert acquire(share, "b", (0, 0), now_ms=1500) == [(0, 0, 2)]
    share.expire(2499)
    assert share.holder(0) == "b"
    share.expire(2500)
    assert (share.start, share.end) == (1, 1)
    assert write(share) == (1, 0, [])


def test_a_released_record_is_archived_at_the_limit_of_deliveries() -> None:
    share = partition(limits=Limits(2, 100, 1000))
    for count in (1, 2):
        assert acquire(share, "a", (0, 1), most=1, exact=True) == [(0, 0, count)]
        acknowledge(share, "a", 0, 0, RELEASE)
        write(share)
    assert share.start == 1


def test_renewal_moves_the_deadline_of_what_is_renewed_and_writes_nothing() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    assert not acknowledge(share, "a", 3, 4, RENEW, now_ms=600)
    assert not acknowledge(share, "a", 3, 4, RENEW, now_ms=700)
    assert share.expire(1000) == 8
    assert [share.holder(at) for at in (2, 3, 4, 5)] == [None, "a", "a", None]
    assert share.expire(1699) == 0
    assert share.expire(1700) == 2


def test_a_group_may_forbid_renewal() -> None:
    share = partition(limits=LIMITS._replace(may_renew=False))
    acquire(share, "a", (0, 1))
    with pytest.raises(InvalidRecordState):
        acknowledge(share, "a", 0, 1, ACCEPT, RENEW)
    assert share.begin_write() is None


def test_what_a_member_holds_is_released_when_it_leaves_and_uses_an_attempt() -> None:
    share = partition()
    acquire(share, "a", (0, 3))
    acquire(share, "b", (4, 7))
    acknowledge(share, "a", 1, 1, ACCEPT)
    write(share)
    assert share.release_member("a")
    assert acquire(share, "b", (0, 3)) == []
    write(share)
    assert not share.release_member("a")
    assert acquire(share, "b", (0, 3)) == [(0, 0, 2), (2, 3, 2)]


def test_one_stuck_record_does_not_stop_the_partition() -> None:
    share = partition(limits=Limits(5, 100, 1 << 40))
    acquire(share, "stuck", (0, 0), most=1, exact=True)
    for first in range(1, 10_000, 100):
        assert acquire(share, "a", (first, first + 98), now_ms=1) == [(first, first + 98, 1)]
        # Ninety-nine records are held beside the stuck one: the limit is reached, in records and not in offsets.
        assert share.next_offset() is None
        acknowledge(share, "a", first, first + 98, ACCEPT)
        write(share)
        assert acquire(share, "a", (first + 99, first + 99)) == [(first + 99, first + 99, 1)]
        acknowledge(share, "a", first + 99, first + 99, ACCEPT)
        write(share)
    assert share.start == 0
    assert share.end == 10_001


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partition, "SPAN_MAX", 50)
    monkeypatch.setattr(share_partition, "RANGES_MAX", 10)
    monkeypatch.setattr(share_partition, "RECOUNT_AFTER", 4)


@pytest.mark.usefixtures("small_windows")
def test_the_window_is_bounded_in_offsets_and_in_ranges() -> None:
    share = partition()
    acquire(share, "stuck", (0, 0))
    acquire(share, "a", (1, 60))
    assert share.end == 1, "a batch that does not fit is not taken"
    acquire(share, "a", (1, 49))
    acknowledge(share, "a", 1, 49, ACCEPT)
    write(share)
    assert share.next_offset() is None
    share = partition()
    acquire(share, "a", (0, 30))
    for offset in range(1, 30, 2):
        acknowledge(share, "a", offset, offset, ACCEPT)
        write(share)
    assert share.next_offset() is None
    for offset in range(0, 31, 2):
        acknowledge(share, "a", offset, offset, ACCEPT)
        write(share)
    assert share.next_offset() == 31


def test_records_that_were_delivered_often_go_out_few_together_and_at_last_alone() -> None:
    share = partition(0, StateBatch(0, 7, AVAILABLE, 3), StateBatch(8, 9, AVAILABLE, 0))
    assert acquire(share, "a", (0, 7), (8, 9)) == [(0, 3, 4)]
    assert acquire(share, "a", (0, 5), (6, 9)) == [(4, 5, 4)]
    share.release_member("a")
    write(share)
    assert acquire(share, "a", (0, 9)) == [(0, 0, 5)]
    assert acquire(share, "a", (0, 9)) == [(1, 1, 5)]
    share = partition(0, StateBatch(0, 0, AVAILABLE, 1), StateBatch(1, 1, AVAILABLE, 4))
    assert acquire(share, "a", (0, 9)) == [(0, 0, 2)], "what comes before it does not go out with it"


def test_a_load_makes_available_what_lies_between_written_ranges() -> None:
    share = partition(5, StateBatch(5, 6, ACKNOWLEDGED, 1), StateBatch(9, 9, ARCHIVED, 5), StateBatch(12, 12, 0, 2))
    assert share.start == 7
    assert states(share) == [(7, 8, AVAILABLE, 0), (9, 9, ARCHIVED, 5), (10, 11, AVAILABLE, 0), (12, 12, AVAILABLE, 2)]
    assert share.delivery_complete_count == 1
    assert acquire(share, "a", (0, 20), most=ALL) == [(7, 8, 1), (10, 11, 1), (12, 12, 3), (13, 20, 1)]


def test_offsets_that_compaction_removed_are_archived_when_they_are_read() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    share.release_member("a")
    write(share)
    assert acquire(share, "a", (4, 9)) == [(4, 9, 2)]
    assert share.start == 4
    assert acquire(share, "a", (20, 29)) == [(20, 29, 1)]
    assert states(share)[1:] == [(10, 19, ARCHIVED, 0), (20, 29, ACQUIRED, 1)]


def test_batches_of_aborted_transactions_are_archived_and_the_rest_is_acquired() -> None:
    share = partition()
    read = [ReadBatch(0, 4), ReadBatch(5, 9, True), ReadBatch(10, 14), ReadBatch(15, 19, True)]
    acquired = share.acquire("a", read, fetch_offset=0, records_max=ALL, records_exact=False, batch_size=0, now_ms=0)
    assert acquired == [Acquired(0, 4, 1), Acquired(10, 14, 1)]
    acknowledge(share, "a", 0, 4, ACCEPT)
    acknowledge(share, "a", 10, 14, ACCEPT)
    write(share)
    assert share.start == share.end == 20


@pytest.mark.parametrize("exact", [False, True])
def test_batches_without_records_are_handed_out_only_beside_records(exact: bool) -> None:
    share = partition()
    empty = [ReadBatch(0, 4, is_empty=True), ReadBatch(5, 5, is_empty=True)]

    def read(*batches: ReadBatch) -> list[Acquired]:
        return share.acquire(
            "m", batches, fetch_offset=share.end, records_max=8, records_exact=exact, batch_size=0, now_ms=0
        )

    # A client that gets no record of a response may acknowledge none of its offsets.
    assert read(*empty) == []
    assert write(share) == (6, 0, [])
    beside = read(ReadBatch(6, 6, is_empty=True), ReadBatch(7, 7), ReadBatch(8, 8, is_empty=True))
    assert beside == [Acquired(7 if exact else 6, 8, 1)]
    # With the first of them the member would have all that it asked for.
    assert read(ReadBatch(9, 16, is_empty=True), ReadBatch(17, 17)) == [Acquired(17, 17, 1)]


def test_a_moved_log_start_forgets_what_is_gone_and_lets_its_holder_acknowledge_it() -> None:
    share = partition()
    acquire(share, "a", (0, 9))
    acknowledge(share, "a", 2, 3, ACCEPT)
    begun = share.begin_write()
    assert begun is not None
    acknowledge(share, "a", 6, 7, RELEASE)
    assert share.log_start_moved(Offset(7))
    assert (share.start, share.held, share.unfinished) == (7, 3, 3)
    share.written(begun)
    assert not acknowledge(share, "a", 4, 5, ACCEPT)
    assert write(share) == (7, 0, [(7, 7, AVAILABLE, 1)])
    assert states(share) == [(7, 7, AVAILABLE, 1), (8, 9, ACQUIRED, 1)]
    assert share.log_start_moved(Offset(50))
    assert (share.start, share.end, share.held, share.next_deadline_ms()) == (50, 50, 0, None)


BACKOFF = LIMITS._replace(backoff_ms=10, backoff_ms_max=35)


def test_a_released_record_waits_longer_each_time_up_to_the_longest() -> None:
    share = partition(limits=BACKOFF)
    now_ms, waits = 0, []
    for deliveries in range(1, 5):
        assert acquire(share, "m", (0, 0), now_ms=now_ms) == [(0, 0, deliveries)]
        assert acknowledge(share, "m", 0, 0, RELEASE, now_ms=now_ms)
        begun = share.begin_write()
        assert begun is not None
        share.written(begun)
        wakes_ms = share.next_deadline_ms()
        assert wakes_ms is not None
        assert [batch.not_before_ms for batch in begun.batches] == [wakes_ms]
        waits.append(wakes_ms - now_ms)
        assert share.expire(wakes_ms - 1) == 0
        assert acquire(share, "m", (0, 0), now_ms=wakes_ms - 1) == []
        assert share.expire(wakes_ms) == 1
        now_ms = wakes_ms

    assert waits == [10, 20, 35, 35]


def test_others_go_out_while_one_waits_and_the_start_waits_for_it() -> None:
    share = partition(limits=BACKOFF)
    acquire(share, "m", (0, 1))
    acknowledge(share, "m", 0, 0, RELEASE)
    acknowledge(share, "m", 1, 1, ACCEPT)
    write(share)

    assert acquire(share, "n", (0, 1), (2, 3)) == [(2, 3, 1)]
    assert share.start == 0
    share.expire(10)
    assert acquire(share, "n", (0, 1), now_ms=10) == [(0, 0, 2)]


def test_a_lock_that_expires_and_a_leader_that_changes_keep_the_backoff() -> None:
    share = partition(limits=BACKOFF)
    acquire(share, "m", (0, 0))
    assert share.expire(1005) == 1
    begun = share.begin_write()
    assert begun is not None
    [batch] = begun.batches
    assert batch.not_before_ms == 1010

    state = SharePartitionState(3, Offset(0), -1, [batch])
    later = SharePartition(state, Offset(0), BACKOFF, now_ms=5, wall_ahead_ms=1000)
    assert later.next_deadline_ms() == 10
    assert later.next_offset() == 1
    assert later.expire(10) == 1
    assert later.next_offset() == 0


def test_a_backoff_that_a_wrong_clock_wrote_lasts_no_longer_than_the_group_says() -> None:
    state = SharePartitionState(3, Offset(0), -1, [StateBatch(0, 0, AVAILABLE, 2, 1 << 50)])

    share = SharePartition(state, Offset(0), BACKOFF, now_ms=5)
    without = SharePartition(state, Offset(0), LIMITS, now_ms=5)

    assert share.next_deadline_ms() == 5 + BACKOFF.backoff_after(2)
    assert without.next_offset() == 0, "the group has no backoff any more"


def test_what_a_leaving_member_held_does_not_wait() -> None:
    share = partition(limits=BACKOFF)
    acquire(share, "m", (0, 0))

    assert share.release_member("m")
    write(share)

    assert acquire(share, "n", (0, 0)) == [(0, 0, 2)]


def test_a_record_given_up_by_its_lock_is_copied_only_once_that_is_written() -> None:
    share = partition(limits=LIMITS._replace(deliveries_max=1, has_dead_letters=True))
    acquire(share, "m", (0, 2))
    acknowledge(share, "m", 1, 1, ACCEPT)
    assert share.expire(1000) == 2

    assert share.begin_copy(9) == []
    begun = share.begin_write()
    assert begun is not None
    assert share.begin_copy(9) == [], "its write is on its way"
    share.written(begun)

    assert share.begin_copy(1) == [DeadRange(0, 0, 1)]
    assert share.begin_copy(9) == [], "others are on their way"
    share.copied([DeadRange(0, 0, 1)])
    assert share.begin_copy(9) == [DeadRange(2, 2, 1)]
    assert write(share)[0] == 2


def test_a_write_after_one_that_failed_says_again_how_long_records_wait() -> None:
    share = partition(limits=BACKOFF)
    acquire(share, "m", (0, 1))
    acknowledge(share, "m", 0, 0, RELEASE)
    write(share)
    acknowledge(share, "m", 1, 1, RELEASE)
    fail(share)
    acknowledge(share, "m", 1, 1, RELEASE, now_ms=5)

    begun = share.begin_write()

    assert begun is not None
    assert [(each.first, each.last, each.not_before_ms) for each in begun.batches] == [(0, 0, 10), (1, 1, 15)]


def test_what_is_finished_in_turns_of_two_kinds_is_written_again_as_one_range() -> None:
    share = partition(limits=LIMITS._replace(unfinished_max=2 * JOINED_FROM))
    acquire(share, "m", (0, JOINED_FROM))
    types = [ACCEPT, REJECT] * (JOINED_FROM // 2)
    share.acknowledge("m", [Acknowledged(1, JOINED_FROM, types)], 0)
    fail(share)
    share.acknowledge("m", [Acknowledged(1, JOINED_FROM, types)], 0)

    assert write(share) == (0, JOINED_FROM, [(1, JOINED_FROM, ARCHIVED, 1)])


def test_renewing_a_lock_often_costs_no_memory() -> None:
    share = partition()
    acquire(share, "m", (0, 0))
    for now_ms in range(1000):
        acknowledge(share, "m", 0, 0, RENEW, now_ms=now_ms)

    assert len(share._deadlines) < 200
    assert share.next_deadline_ms() == 999 + LIMITS.lock_ms


@pytest.mark.parametrize(
    "batch",
    [StateBatch(0, 1 << 40, ACKNOWLEDGED, 1), StateBatch(5, 3, ACKNOWLEDGED, 1), StateBatch(0, 5, ACQUIRED, 1)],
)
def test_a_state_that_no_leader_has_written_is_not_loaded(batch: StateBatch) -> None:
    with pytest.raises(ValueError, match=str(batch.first)):
        partition(0, batch)
