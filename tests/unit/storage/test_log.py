"""A log returns the appended records at their offsets, whatever happens to its segments."""

import copy
import errno
from collections.abc import Sequence

import pytest
from tests.unit.storage.logs import (
    PATH,
    ManualClock,
    Seeded,
    Settings,
    batch_of,
    directory_of,
    log_on,
    put,
    read_all,
    read_from,
    values_of,
)

from penstock.model.generated_errors import KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from penstock.storage import txn_index
from penstock.storage.disk import RealDisk
from penstock.storage.log import Log
from penstock.storage.names import LOG, TXN_INDEX, offset_name
from penstock.storage.recovery import Stop
from penstock.storage.txn_index import AbortedTxn
from penstock.testing.mem_disk import MemDisk
from penstock.wire.records import parse_batch_header


def test_appended_batches_are_read_at_the_offsets_they_got():
    log = log_on(MemDisk())

    bases = [put(log, batch_of(b"a", b"b")), put(log, batch_of(b"c")), put(log, batch_of(b"d", b"e", b"f"))]

    assert bases == [0, 2, 3]
    assert log.log_end == 6
    assert [(r.offset, r.value) for r in read_from(log, 0)] == list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f"]))


def test_a_batch_is_stored_as_it_was_sent_but_for_offset_and_epoch():
    log = log_on(MemDisk())
    put(log, batch_of(b"first"))
    sent = batch_of(b"x", b"y")
    before = bytes(sent)

    put(log, sent, epoch=7)

    found = log.slice(1, 1 << 20, end=log.log_end, at_least_one=True)
    assert found is not None
    stored = found.contents()
    assert stored[16:] == before[16:]
    header = parse_batch_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 7)


def test_reading_in_the_middle_of_a_batch_gives_the_whole_batch():
    log = log_on(MemDisk())
    put(log, batch_of(b"a", b"b", b"c"))

    found = log.slice(1, 1 << 20, end=log.log_end, at_least_one=True)

    assert found is not None
    assert parse_batch_header(found.contents()).base_offset == 0


def test_offsets_outside_the_log_are_refused_and_its_end_is_empty():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))
    log.delete_before(1)

    assert log.slice(1, 100, end=1, at_least_one=True) is None
    with pytest.raises(OffsetOutOfRange):
        log.slice(0, 100, end=1, at_least_one=True)
    with pytest.raises(OffsetOutOfRange):
        log.slice(2, 100, end=1, at_least_one=True)


def test_a_slice_ends_at_a_batch_and_within_its_bytes():
    log = log_on(MemDisk(), Settings(index_interval_bytes=100))
    batches = [batch_of(bytes([at]) * 50) for at in range(40)]
    for batch in batches:
        put(log, batch)
    size = len(batches[0])

    for offset in range(40):
        for bytes_max in (size, size + 1, 3 * size - 1, 10 * size):
            found = log.slice(offset, bytes_max, end=log.log_end, at_least_one=False)
            assert found is not None
            assert len(found) <= bytes_max
            assert len(found) % size == 0


def test_a_first_batch_that_does_not_fit_is_returned_only_with_at_least_one():
    log = log_on(MemDisk())
    put(log, batch_of(b"x" * 500))
    put(log, batch_of(b"y"))

    assert log.slice(0, 100, end=log.log_end, at_least_one=False) is None
    assert values_of(read_from(log, 0, bytes_max=100)) == [b"x" * 500]


def test_no_record_at_or_beyond_the_given_end_is_read():
    log = log_on(MemDisk(), Settings(segment_bytes_effective=400))
    for at in range(20):
        put(log, batch_of(b"%d" % at, b"%d" % at))

    for end in range(0, 41, 2):
        for offset in range(end):
            assert all(record.offset < end for record in read_from(log, offset, end=end))
        assert log.slice(end, 1 << 20, end=end, at_least_one=True) is None


def test_a_batch_that_reaches_across_the_end_is_not_read():
    log = log_on(MemDisk())
    put(log, batch_of(b"a", b"b"))
    put(log, batch_of(b"c", b"d"))

    assert values_of(read_from(log, 0, end=3)) == [b"a", b"b"]


def test_segments_roll_by_size_and_are_read_across():
    log = log_on(MemDisk(), Settings(segment_bytes_effective=300, index_interval_bytes=0))

    for at in range(50):
        put(log, batch_of(b"%d" % at))

    assert len(log.segments) > 10
    assert all(segment.size <= 300 for segment in log.segments)
    assert values_of(read_all(log)) == [b"%d" % at for at in range(50)]


def test_a_segment_rolls_when_a_batch_is_too_much_newer_than_its_first():
    log = log_on(MemDisk(), Settings(segment_ms=1000))
    put(log, batch_of(b"a", timestamps=5000))
    put(log, batch_of(b"b", timestamps=6000))
    put(log, batch_of(b"c", timestamps=100))

    put(log, batch_of(b"d", timestamps=6001))

    assert [segment.base for segment in log.segments] == [0, 3]


def test_a_segment_without_timestamps_ages_by_the_clock():
    clock = ManualClock(10_000)
    log = log_on(MemDisk(), Settings(segment_ms=1000), clock=clock)
    put(log, batch_of(b"a", timestamps=-1))
    clock.ms += 1000
    put(log, batch_of(b"b", timestamps=-1))
    clock.ms += 1

    put(log, batch_of(b"c", timestamps=-1))

    assert [segment.base for segment in log.segments] == [0, 2]


def test_a_compacted_log_rolls_in_time_for_its_longest_compaction_lag():
    settings = Settings(segment_ms=10_000, max_compaction_lag_ms=500, cleanup_policy=frozenset({"compact"}))
    log = log_on(MemDisk(), settings)
    put(log, batch_of(b"a", timestamps=0))

    put(log, batch_of(b"b", timestamps=501))

    assert len(log.segments) == 2


def test_jitter_only_shortens_a_segments_age():
    log = log_on(MemDisk(), Settings(segment_ms=1000, segment_jitter_ms=400))
    put(log, batch_of(b"a", timestamps=0))

    put(log, batch_of(b"b", timestamps=600))
    assert len(log.segments) == 1
    put(log, batch_of(b"c", timestamps=1001))

    assert len(log.segments) == 2


def test_a_segment_rolls_when_its_index_is_full():
    log = log_on(MemDisk(), Settings(segment_index_bytes=60, index_interval_bytes=0))

    for at in range(20):
        put(log, batch_of(b"%d" % at))

    assert len(log.segments) > 2
    assert values_of(read_all(log)) == [b"%d" % at for at in range(20)]


def test_a_segment_rolls_before_its_offsets_no_longer_fit_the_index():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))
    log.log_end = 2**31

    put(log, batch_of(b"b"))

    assert [segment.base for segment in log.segments] == [0, 2**31]


def test_a_batch_larger_than_a_segment_is_refused_by_name_and_size():
    log = log_on(MemDisk(), Settings(segment_bytes_effective=200))

    with pytest.raises(RecordListTooLarge, match="orders-0, which exceeds the maximum configured segment size of 200"):
        put(log, batch_of(b"x" * 300))

    assert (log.log_end, log.size_bytes) == (0, 0)


def test_a_new_segment_size_applies_to_the_segment_being_written():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))

    log.config = Settings(segment_bytes_effective=100)
    put(log, batch_of(b"b"))

    assert len(log.segments) == 2


def test_rolling_an_empty_log_makes_no_second_segment():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))
    log.roll()

    log.roll()

    assert [segment.base for segment in log.segments] == [0, 1]


def test_followers_append_batches_with_the_offsets_they_have():
    leader = log_on(MemDisk())
    for at in range(5):
        put(leader, batch_of(b"%d" % at, b"+"), epoch=3)
    found = leader.slice(0, 1 << 20, end=leader.log_end, at_least_one=True)
    assert found is not None
    follower = log_on(MemDisk())

    follower.append_stamped(memoryview(bytearray(found.contents())), lambda *_: None)

    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries() == leader.epochs.entries() == [(3, 0)]


def fetched(*offsets_and_epochs: tuple[int, int], timestamps: Sequence[int] | None = None) -> bytearray:
    """Batches of two records at these offsets and epochs, as a leader sends them."""
    batches = bytearray()
    for at, (offset, epoch) in enumerate(offsets_and_epochs):
        leader = log_on(MemDisk())
        leader.log_end = offset
        time = 1000 if timestamps is None else timestamps[at]
        put(leader, batch_of(b"%d" % offset * 20, b"+", timestamps=time), epoch=epoch)
        found = leader.slice(offset, 1 << 20, end=offset + 2, at_least_one=True)
        assert found is not None
        batches += found.contents()
    return batches


RUN = [(at * 2, at // 12) for at in range(20)] + [(50 + at * 3, 2) for at in range(20)]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(index_interval_bytes=200),
        Settings(index_interval_bytes=0, segment_index_bytes=60),
        Settings(index_interval_bytes=300, segment_index_bytes=60),
        Settings(segment_bytes_effective=700, index_interval_bytes=100),
        Settings(segment_ms=5_000),
    ],
)
def test_batches_of_one_fetch_are_stored_as_if_they_came_one_by_one(settings: Settings):
    timestamps = [1000 + at * 700 for at in range(len(RUN))]
    batches = fetched(*RUN, timestamps=timestamps)
    together, one_by_one = log_on(MemDisk(), settings), log_on(MemDisk(), settings)
    calls: list[tuple[int, bytes]] = []

    together.append_stamped(memoryview(batches), lambda header, batch: calls.append((header.base_offset, bytes(batch))))
    position = 0
    while position < len(batches):
        size = parse_batch_header(batches[position:]).size
        one_by_one.append_stamped(memoryview(batches)[position : position + size], lambda *_: None)
        position += size

    assert [offset for offset, _ in calls] == [offset for offset, _ in RUN]
    assert b"".join(batch for _, batch in calls) == batches
    assert state_of(together) == state_of(one_by_one)
    assert read_all(together) == read_all(one_by_one)


def state_of(log: Log) -> tuple[object, ...]:
    active = log.active
    assert active is not None
    described = log.segments.describe()
    segments = [(each.base, each.size, each.max_timestamp, each.max_timestamp_offset) for each in described]
    tail = active.tail_from, active.tail_lasts, active.tail_positions, active.unindexed
    index = list(active.offsets.offsets), list(active.offsets.positions)
    return log.log_end, log.size_bytes, log.epochs.entries(), segments, tail, index


def copied_with_gaps(settings: Settings) -> tuple[MemDisk, Log]:
    """A log that a follower has copied from a compacted one: offsets are missing before every batch."""
    disk = MemDisk()
    log = log_on(disk, settings, replicated=True)
    log.append_stamped(memoryview(fetched(*((at * 10, 0) for at in range(12)))), lambda *_: None)
    log.flusher.run(log.log_end)
    return disk, log


def test_a_power_cut_takes_nothing_of_a_copied_log_with_gaps_that_was_flushed():
    settings = Settings(segment_bytes_effective=400)
    disk, log = copied_with_gaps(settings)
    records = read_all(log)

    disk.crash(Seeded())
    again = log_on(disk, settings, stop=Stop.MACHINE_CRASH, replicated=True)

    assert len(again.segments) > 2
    assert read_all(again) == records


def test_a_power_cut_that_took_the_end_of_a_segment_takes_what_follows_from_a_replicated_log():
    settings = Settings(segment_bytes_effective=400)
    disk, log = copied_with_gaps(settings)
    first, second = (segment.base for segment in log.segments.describe()[:2])
    kept = [record for record in read_all(log) if record.offset < second - 2]
    path = f"{PATH}/{offset_name(first, LOG)}"
    disk.open(path).truncate(disk.stat(path).size - len(fetched((second - 2, 0))))
    compacted = copy.deepcopy(disk)

    again = log_on(disk, settings, stop=Stop.MACHINE_CRASH, replicated=True)
    below = log_on(compacted, settings, stop=Stop.MACHINE_CRASH, replicated=True, recovery_point=second)

    assert read_all(again) == kept
    assert again.log_end < second
    # What is missing below the recovery point was compacted away.
    assert below.log_end == log.log_end


def test_batches_of_one_fetch_are_written_with_one_call():
    disk = MemDisk()
    log = log_on(disk)
    log.append_stamped(memoryview(fetched((0, 0))), lambda *_: None)
    batches = fetched((2, 0), (4, 0), (6, 0), (9, 0))
    appends: list[int] = []
    active = log.active
    assert active is not None
    write = active.file.append

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(active.file), "append", lambda file, data: appends.append(len(data)) or write(data))
        log.append_stamped(memoryview(batches), lambda *_: None)

    assert appends == [len(batches)]


def test_batches_of_one_fetch_that_do_not_fit_on_the_disk_are_removed_together():
    disk = MemDisk()
    log = log_on(disk)
    log.append_stamped(memoryview(fetched((0, 0))), lambda *_: None)
    before = state_of(log)
    recorded: list[int] = []
    disk.capacity_bytes = disk.used_bytes() + 150

    with pytest.raises(KafkaStorageError):
        log.append_stamped(memoryview(fetched((2, 0), (4, 0))), lambda header, _: recorded.append(header.base_offset))

    assert state_of(log) == before
    assert not recorded
    disk.capacity_bytes *= 2
    log.append_stamped(memoryview(fetched((2, 0), (4, 0))), lambda *_: None)
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3, 4, 5]


def test_a_gap_between_batches_is_skipped():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))
    later = log_on(MemDisk())
    later.log_end = 10
    put(later, batch_of(b"b"))
    found = later.slice(10, 1 << 20, end=11, at_least_one=True)
    assert found is not None

    log.append_stamped(memoryview(bytearray(found.contents())), lambda *_: None)

    assert [record.offset for record in read_from(log, 5)] == [10]
    assert [record.offset for record in read_all(log)] == [0, 10]


def test_truncation_removes_the_batch_that_holds_the_offset():
    log = log_on(MemDisk(), Settings(segment_bytes_effective=300))
    for at in range(10):
        put(log, batch_of(b"%da" % at, b"%db" % at), epoch=at // 5)

    log.truncate_to(7)

    assert log.log_end == 7
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3, 4, 5]
    assert put(log, batch_of(b"new"), epoch=2) == 7
    assert values_of(read_all(log))[-1] == b"new"
    assert log.epochs.entries() == [(0, 0), (2, 7)]


def test_truncation_forgets_the_transactions_whose_markers_it_removes():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"first"))
    for at in range(1, 5):
        put(log, batch_of(b"%d" % at))
        log.note_aborted(AbortedTxn(at, at - 1, at, at))
    disk.fail("append", TXN_INDEX, errno.ENOSPC)
    put(log, batch_of(b"unwritten"))
    log.note_aborted(AbortedTxn(5, 4, 5, 5))
    disk.faults.clear()

    log.truncate_to(3)

    assert log.txn_index.save()
    assert [entry.last_offset for entry in txn_index.read(disk, txn_index.path_of(log.path, 0))] == [1, 2]


def test_truncating_everything_restarts_the_log_at_the_offset():
    log = log_on(MemDisk())
    for at in range(4):
        put(log, batch_of(b"%d" % at))

    log.truncate_to(0)

    assert (log.log_start, log.log_end, log.size_bytes) == (0, 0, 0)
    assert put(log, batch_of(b"again")) == 0
    assert values_of(read_all(log)) == [b"again"]


def test_a_follower_can_restart_at_a_higher_offset():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))

    log.restart_at(100)

    assert (log.log_start, log.log_end) == (100, 100)
    assert put(log, batch_of(b"b")) == 100


@pytest.mark.parametrize("stop", list(Stop))
def test_a_log_is_the_same_after_it_was_opened_again(stop):
    disk = MemDisk()
    settings = Settings(segment_bytes_effective=1000, index_interval_bytes=200)
    log = log_on(disk, settings)
    for at in range(100):
        put(log, batch_of(b"%d" % at, timestamps=at * 10), epoch=at // 30)
    if stop is Stop.CLEAN:
        log.close()
    else:
        log.abandon()

    again = log_on(disk, settings, stop=stop)

    assert (again.log_end, again.size_bytes) == (log.log_end, log.size_bytes)
    assert again.epochs.entries() == log.epochs.entries()
    assert read_all(again) == read_all(log)
    assert again.view().max_timestamp() == log.view().max_timestamp()
    assert put(again, batch_of(b"next")) == 100


def test_files_are_closed_and_opened_again_within_their_bound():
    disk = MemDisk()
    directory = directory_of(disk, files_max=3)
    settings = Settings(segment_bytes_effective=200, index_interval_bytes=0)
    logs = [log_on(disk, settings, directory=directory, path=f"/data/t-{at}") for at in range(6)]

    for value in range(10):
        for log in logs:
            put(log, batch_of(b"%d" % value))
            assert len(directory.files) <= 3
    for log in logs:
        assert values_of(read_all(log)) == [b"%d" % value for value in range(10)]
        assert len(directory.files) <= 3


def test_a_slice_can_be_read_after_its_segment_is_deleted(tmp_path):
    disk = RealDisk()
    log = log_on(disk, path=str(tmp_path / "t-0"))
    put(log, batch_of(b"kept"))
    found = log.slice(0, 1 << 20, end=1, at_least_one=True)
    assert found is not None

    log.restart_at(0)
    log.close(clean=False)

    assert b"kept" in found.contents()
    assert found.fileno() >= 0


def test_a_slice_of_evicted_pages_is_not_resident_until_warmed():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=20_000))
    for at in range(40):
        put(log, batch_of(bytes([at]) * 1000))
    log.roll()
    for name in disk.list_directory(log.path):
        disk.evict(f"{log.path}/{name}")

    found = log.slice(3, 5000, end=log.log_end, at_least_one=True)

    assert found is not None
    assert not found.resident()
    found.warm()
    assert found.resident()
    assert parse_batch_header(found.contents()).base_offset == 3
    assert len(found) <= 5000


def test_a_cold_offset_in_the_active_segment_is_looked_up_off_the_loop():
    disk = MemDisk()
    settings = Settings(index_interval_bytes=4096)
    log = log_on(disk, settings)
    for at in range(40):
        put(log, batch_of(bytes([at]) * 1000))
    log.close()
    again = log_on(disk, settings)
    again.open_active()
    disk.evict(f"{log.path}/00000000000000000000.log")

    for end in (40, 20):
        found = again.slice(3, 5000, end=end, at_least_one=True)
        assert found is not None
        assert not found.resident()
        found.warm()
        assert parse_batch_header(found.contents()).base_offset == 3
        assert 0 < len(found) <= 5000
        disk.evict(f"{log.path}/00000000000000000000.log")
