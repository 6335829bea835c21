"""Producer snapshots: written beside the log, and skipped when damaged, at the cost of a longer replay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.storage.logs import PATH, Settings, batch_of, log_on, put

from penstock.model.producers import ProducerSnapshot
from penstock.storage import producer_snapshot
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import SnapshotDamaged, decode, encode
from penstock.storage.recovery import Stop
from penstock.testing.mem_disk import MemDisk

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I16 = st.integers(-(2**15), 2**15 - 1)
ENTRIES = st.lists(st.builds(ProducerSnapshot, I64, I16, I32, I64, I32, I64, I32, I64), max_size=10)
ONE = ProducerSnapshot(7, 0, 4, 9, 2, 1000, -1, -1)


@given(ENTRIES)
def test_producers_are_read_back(entries):
    assert decode(encode(entries)) == entries


@given(ENTRIES, st.data())
def test_a_changed_or_shortened_snapshot_is_damaged(entries, data):
    good = encode(entries)
    at = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(SnapshotDamaged):
        decode(bytes(changed))
    with pytest.raises(SnapshotDamaged):
        decode(good[:at])


def latest(log: Log) -> tuple[int, list[ProducerSnapshot]] | None:
    return producer_snapshot.load_latest(log.directory.disk, log.path, log.log_start, log.log_end)


def test_the_newest_sound_snapshot_within_the_log_is_used():
    disk = MemDisk()
    log = log_on(disk)
    for _ in range(30):
        put(log, batch_of(b"x"))
    for offset in (10, 20):
        producer_snapshot.write(disk, PATH, encode([ONE._replace(last_offset=offset)]), offset, sync=False)
    producer_snapshot.write(disk, PATH, encode([]), 31, sync=False)
    disk.flip(f"{PATH}/{20:020d}.snapshot", 20)

    assert latest(log) == (10, [ONE._replace(last_offset=10)])


def test_a_roll_and_a_clean_stop_leave_snapshots_and_only_the_newest_are_kept():
    disk = MemDisk()
    settings = Settings(segment_bytes_effective=100)
    log = log_on(disk, settings)
    log.producers = lambda: [ONE._replace(last_offset=log.log_end - 1)]
    for _ in range(6):
        put(log, batch_of(b"x"))
    assert producer_snapshot.offsets(disk, PATH) == [4, 5]

    log.close()

    assert producer_snapshot.offsets(disk, PATH) == [5, 6]
    assert latest(log_on(disk, settings)) == (6, [ONE._replace(last_offset=5)])


def test_a_snapshot_beyond_the_recovered_log_end_is_removed():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"x"))
    size = log.size_bytes
    put(log, batch_of(b"y"))
    log.snapshot_producers([ONE], 2)
    log.segments.release()
    disk.open(f"{PATH}/{0:020d}.log").truncate(size)

    again = log_on(disk, stop=Stop.PROCESS_CRASH)

    assert latest(again) is None
    assert producer_snapshot.offsets(disk, PATH) == []


def test_truncation_removes_snapshots_beyond_it():
    disk = MemDisk()
    log = log_on(disk)
    for _ in range(4):
        put(log, batch_of(b"x"))
    log.snapshot_producers([ONE], 4)

    log.truncate_to(2)

    assert producer_snapshot.offsets(disk, PATH) == []
