"""Retention drops the oldest committed segments, by time, size and log start."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.storage.logs import ManualClock, Settings, batch_of, log_on, put, read_all

from penstock.storage.log import Log
from penstock.storage.retention import may_be_due, retain
from penstock.storage.trash import Trash
from penstock.testing.mem_disk import MemDisk

BATCH_BYTES = len(batch_of(b"x" * 100))
NOW = 1_000_000


def log_of(count: int, **changes: object) -> Log:
    """One batch per segment, a millisecond apart."""
    log = log_on(MemDisk(), Settings(segment_bytes_effective=BATCH_BYTES, **changes), clock=ManualClock(NOW))
    for at in range(count):
        put(log, batch_of(b"x" * 100, timestamps=NOW - 1000 + at))
    return log


def retained(log: Log, committed: int | None = None, now_ms: int = NOW) -> list[int]:
    retain(log, now_ms, committed=log.log_end if committed is None else committed, trash=Trash(log.directory.disk))
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    return [record.offset for record in read_all(log)]


def test_segments_whose_newest_record_is_too_old_are_dropped():
    assert retained(log_of(10, retention_ms=995)) == [5, 6, 7, 8, 9]


def test_when_everything_is_too_old_the_newest_segment_is_dropped_too():
    log = log_of(10, retention_ms=10)

    assert retained(log) == []
    assert (log.log_start, log.log_end, len(log.segments)) == (10, 10, 1)
    assert put(log, batch_of(b"next", timestamps=NOW)) == 10


def test_segments_beyond_the_size_limit_are_dropped():
    assert retained(log_of(10, retention_ms=-1, retention_bytes=3 * BATCH_BYTES)) == [7, 8, 9]
    assert retained(log_of(10, retention_ms=-1, retention_bytes=3 * BATCH_BYTES + 1)) == [6, 7, 8, 9]
    assert len(retained(log_of(10, retention_ms=-1, retention_bytes=-1))) == 10


def test_no_segment_beyond_the_high_watermark_is_dropped():
    assert retained(log_of(10, retention_ms=10), committed=4) == [4, 5, 6, 7, 8, 9]


def test_segments_before_the_log_start_are_dropped_whatever_the_policy():
    log = log_of(10, cleanup_policy=frozenset({"compact"}), retention_ms=10)
    log.delete_before(4)

    assert retained(log) == [4, 5, 6, 7, 8, 9]
    assert log.segments[0].base == 4


def test_a_segment_without_timestamps_is_as_old_as_its_file():
    disk = MemDisk()
    clock = ManualClock(NOW)
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES, retention_ms=100), clock=clock)
    for _ in range(3):
        put(log, batch_of(b"x" * 100, timestamps=-1))
        clock.ms += 60

    assert retained(log, now_ms=NOW + 161) == [2]


def test_dropped_files_are_removed_after_a_delay():
    log = log_of(3, retention_ms=999, file_delete_delay_ms=500)
    disk = log.directory.disk
    trash = Trash(disk)

    retain(log, NOW, committed=3, trash=trash)

    assert f"{0:020d}.log.deleted" in disk.list_directory(log.path)
    assert trash.take_due(NOW + 499) == []
    trash.remove(trash.take_due(NOW + 500))
    assert not any(name.endswith(".deleted") for name in disk.list_directory(log.path))


def test_an_unopened_log_stays_closed_while_no_segment_can_be_due():
    log = log_of(3, retention_ms=2000)
    log.opened = False
    log.oldest_ms = NOW - 1000

    assert not may_be_due(log, NOW + 1000)
    assert may_be_due(log, NOW + 1001)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 3)), min_size=1, max_size=20),
    st.integers(-1, 120),
    st.integers(-1, 3000),
    st.integers(0, 60),
)
def test_retention_agrees_with_a_list_of_segments(batches, retention_ms, retention_bytes, committed):
    config = Settings(
        segment_bytes_effective=300, segment_ms=10_000, retention_ms=retention_ms, retention_bytes=retention_bytes
    )
    log = log_on(MemDisk(), config)
    for timestamp, count in batches:
        put(log, batch_of(*[b"v"] * count, timestamps=timestamp))
    log.view()
    ends = [segment.base for segment in log.segments[1:]] + [log.log_end]
    left = [
        (s.base, s.size, log.view().newest(v)[0], end)
        for s, v, end in zip(log.segments, log.view().segments, ends, strict=True)
    ]
    committed = min(committed, log.log_end)

    retain(log, 100, committed=committed, trash=Trash(log.directory.disk))

    if retention_bytes >= 0:
        while left and sum(size for _, size, _, _ in left[1:]) >= retention_bytes and left[0][3] <= committed:
            left.pop(0)
    if retention_ms >= 0:
        while left and left[0][2] < 100 - retention_ms and left[0][3] <= committed:
            left.pop(0)
    bases = [base for base, *_ in left] or [log.log_end]
    assert [segment.base for segment in log.segments] == bases
    assert log.log_start == bases[0]
