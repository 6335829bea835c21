"""Recovery after a crash: the log ends at the last sound batch, and committed records are never truncated."""

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.storage.logs import (
    PATH,
    Seeded,
    Settings,
    batch_of,
    log_on,
    put,
    read_all,
    values_of,
)

from penstock.model.batch import BatchHeader
from penstock.model.ids import TopicPartition
from penstock.storage import txn_index
from penstock.storage.checkpoint import CheckpointDamaged, encode_offsets, read_offsets
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.names import GAPS, LOG, OFFSET_INDEX, QUARANTINED, offset_name
from penstock.storage.recovery import Stop
from penstock.storage.retention import retain
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.testing.mem_disk import MemDisk
from penstock.wire.records import iter_batches

SMALL = Settings(segment_bytes_effective=2000, index_interval_bytes=150)
CRASHES = [Stop.PROCESS_CRASH, Stop.MACHINE_CRASH]
BATCHES = 8


def written() -> tuple[MemDisk, list[int]]:
    """The disk of a log of a few batches that was not closed, and where each batch starts."""
    disk = MemDisk()
    log = log_on(disk, Settings(index_interval_bytes=150))
    starts = []
    for at in range(BATCHES):
        starts.append(log.size_bytes)
        put(log, batch_of(b"%d" % at, b"+" * at, timestamps=at))
    log.segments.release()
    starts.append(log.size_bytes)
    return disk, starts


def newest_file(disk: MemDisk) -> str:
    return max(f"{PATH}/{name}" for name in disk.list_directory(PATH) if name.endswith(LOG))


def copy_of(disk: MemDisk) -> MemDisk:
    """The same files on a new disk."""
    copy = MemDisk()
    copy.make_directory(PATH, parents=True)
    for name in disk.list_directory(PATH):
        copy.write_file(f"{PATH}/{name}", disk.read_file(f"{PATH}/{name}"))
    return copy


@pytest.mark.parametrize("stop", CRASHES)
def test_a_log_cut_at_any_byte_recovers_to_the_last_whole_batch(stop):
    disk, starts = written()
    path = newest_file(disk)
    for size in range(starts[-1] + 1):
        cut = copy_of(disk)
        cut.open(path).truncate(size)

        log = log_on(cut, stop=stop)

        whole = sum(start <= size for start in starts[1:])
        assert log.log_end == whole * 2
        assert values_of(read_all(log)) == [v for at in range(whole) for v in (b"%d" % at, b"+" * at)]
        assert put(log, batch_of(b"next")) == whole * 2
        assert values_of(read_all(log))[-1] == b"next"
        active = log.open_active()
        assert active.offsets.is_sound()
        assert active.times.is_sound()


def test_a_bit_flipped_anywhere_in_the_last_batches_recovers_to_the_one_before():
    disk, starts = written()
    path = newest_file(disk)
    for position in range(starts[-4], starts[-1]):
        flipped = copy_of(disk)
        flipped.flip(path, position, 1 << (position % 8))

        log = log_on(flipped, stop=Stop.MACHINE_CRASH)

        damaged = next(at for at, start in enumerate(starts[1:]) if position < start)
        in_batch = position - starts[damaged]
        if 12 <= in_batch < 16:
            # The leader epoch is outside the CRC, as in Kafka; offsets and records are unchanged.
            assert log.log_end == BATCHES * 2
            continue
        assert log.log_end == damaged * 2
        assert len(read_all(log)) == damaged * 2


def test_after_a_process_crash_a_flipped_bit_loses_only_its_batch():
    """Batches after the damage were written, whether they are below a checkpoint or not."""
    disk, starts = written()
    path = newest_file(disk)
    for position in range(starts[-1]):
        flipped = copy_of(disk)
        flipped.flip(path, position, 1 << (position % 8))

        log = log_on(flipped, stop=Stop.PROCESS_CRASH)

        damaged = next(at for at, start in enumerate(starts[1:]) if position < start)
        if 12 <= position - starts[damaged] < 16:
            # The leader epoch is outside the CRC, as in Kafka; offsets and records are unchanged.
            assert log.log_end == BATCHES * 2
            continue
        lost = {damaged * 2, damaged * 2 + 1}
        assert [record.offset for record in read_all(log)] == [at for at in range(BATCHES * 2) if at not in lost]
        assert log.log_end == (BATCHES * 2 if damaged < BATCHES - 1 else damaged * 2)


@pytest.mark.parametrize("stop", CRASHES)
@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"\xff" * 100, bytes(range(256)) * 3])
def test_garbage_after_the_last_batch_is_cut_off(stop, tail):
    disk, starts = written()
    disk.open(newest_file(disk)).append(tail)

    log = log_on(disk, stop=stop)

    assert log.log_end == BATCHES * 2
    assert log.size_bytes == starts[-1] == disk.stat(newest_file(disk)).size
    assert [finding.event for finding in log.loader.findings] == ["log_cut"]


def test_segments_after_a_damaged_batch_are_dropped_when_they_were_not_committed():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=200))
    for at in range(20):
        put(log, batch_of(b"%d" % at))
    third = log.segments[2]
    disk.flip(third.path(PATH, LOG), third.size - 1)

    again = log_on(disk, SMALL, stop=Stop.MACHINE_CRASH)

    assert again.log_end < log.segments[3].base
    assert len(read_all(again)) == again.log_end
    assert [segment.base for segment in again.segments] == [segment.base for segment in log.segments[:3]]


@pytest.mark.parametrize("tail", [b"\0" * 47, batch_of(b"never acknowledged")[:-1]], ids=["zeros", "partial"])
@pytest.mark.parametrize("recovered_to", ["the end of the segment", "the start"])
def test_a_partial_batch_that_comes_back_before_a_later_segment_costs_no_record(tail, recovered_to):
    """It was removed and the next segment was begun; the power cut undid the removal alone."""
    disk = MemDisk()
    log = log_on(disk, SMALL)
    at = 0
    while len(log.segments) < 3:
        put(log, batch_of(b"%d" % at))
        at += 1
    log.segments.release()
    second, third = [segment.base for segment in log.segments][1:]
    path = f"{PATH}/{offset_name(second, LOG)}"
    size = disk.stat(path).size
    disk.open(path).append(tail)

    again = log_on(
        disk,
        SMALL,
        stop=Stop.MACHINE_CRASH,
        recovery_point=third if recovered_to == "the end of the segment" else 0,
        high_watermark=at,
    )

    assert values_of(read_all(again)) == [b"%d" % number for number in range(at)]
    assert disk.stat(path).size == size
    assert f"{offset_name(second, LOG)}{QUARANTINED}" not in disk.list_directory(PATH)


def test_batches_below_the_recovery_point_are_not_read_again():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=200))
    for at in range(20):
        put(log, batch_of(b"%d" % at))
    log.flush()
    put(log, batch_of(b"more"))
    disk.flip(log.segments[0].path(PATH, LOG), 70)

    again = log_on(disk, SMALL, stop=Stop.MACHINE_CRASH, recovery_point=log.recovery_point)

    assert again.log_end == 21
    assert again.loader.findings == []


def test_damage_among_committed_records_is_quarantined_and_the_rest_is_served():
    disk, starts = written()
    path = newest_file(disk)
    before = bytearray(disk.read_file(path))
    disk.flip(path, starts[3] + 65)
    before[starts[3] + 65] ^= 1

    log = log_on(disk, stop=Stop.MACHINE_CRASH, high_watermark=BATCHES * 2)

    assert log.log_end == BATCHES * 2
    assert [record.offset for record in read_all(log)] == [at for at in range(BATCHES * 2) if at not in (6, 7)]
    assert disk.read_file(path + ".quarantined") == bytes(before)
    assert [(finding.event, finding.offset, finding.serious) for finding in log.loader.findings] == [
        ("segment_quarantined", 6, True)
    ]
    assert put(log, batch_of(b"next")) == BATCHES * 2


@pytest.mark.parametrize("field", [5, 8, 16, 23], ids=["base offset", "length", "magic", "last offset"])
def test_sound_batches_are_found_after_a_damaged_header(field):
    disk, starts = written()
    path = newest_file(disk)
    disk.flip(path, starts[2] + field, 0x41)

    log = log_on(disk, stop=Stop.MACHINE_CRASH, high_watermark=BATCHES * 2)

    assert [record.offset for record in read_all(log)] == [at for at in range(BATCHES * 2) if at not in (4, 5)]


def test_damage_in_an_older_segment_leaves_the_newer_ones():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=250))
    for at in range(20):
        put(log, batch_of(b"%d" % at))
    second = log.segments[1]
    disk.flip(second.path(PATH, LOG), 66)

    again = log_on(disk, SMALL, stop=Stop.MACHINE_CRASH, high_watermark=20)

    assert again.log_end == 20
    assert [record.offset for record in read_all(again)] == [at for at in range(20) if at != second.base]


def test_a_quarantined_file_survives_later_starts():
    disk, starts = written()
    path = newest_file(disk)
    disk.flip(path, starts[3] + 65)
    log_on(disk, stop=Stop.MACHINE_CRASH, high_watermark=BATCHES * 2)
    kept = disk.read_file(path + ".quarantined")

    for stop in Stop:
        log = log_on(disk, stop=stop, high_watermark=BATCHES * 2)
        assert log.log_end == BATCHES * 2

    assert disk.read_file(path + ".quarantined") == kept


def test_a_quarantined_segment_keeps_its_transaction_index():
    disk, starts = written()
    index = txn_index.path_of(PATH, 0)
    txn_index.append(disk, index, AbortedTxn(5, 2, 9, 10))
    disk.flip(newest_file(disk), starts[3] + 65)

    log_on(disk, stop=Stop.MACHINE_CRASH, high_watermark=BATCHES * 2)

    assert txn_index.read(disk, index) == [AbortedTxn(5, 2, 9, 10)]


def test_offsets_of_missing_committed_records_are_not_used_again():
    disk, starts = written()
    disk.open(newest_file(disk)).truncate(starts[5])

    log = log_on(disk, stop=Stop.MACHINE_CRASH, high_watermark=BATCHES * 2)

    assert log.log_end == BATCHES * 2
    assert len(read_all(log)) == 10
    assert log.slice(12, 100, end=log.log_end, at_least_one=True) is None
    assert put(log, batch_of(b"next")) == BATCHES * 2
    assert [record.offset for record in read_all(log)][-2:] == [9, 16]
    assert [finding.event for finding in log.loader.findings] == ["committed_records_missing"]


def test_leftovers_of_deletions_and_compactions_and_orphan_indexes_are_removed():
    disk, _ = written()
    for name in (
        f"{0:020d}.log.deleted",
        f"{0:020d}.log.cleaned",
        f"{0:020d}.index.swap",
        f"{999:020d}.index",
        f"{999:020d}.timeindex",
        "leader-epoch-checkpoint.tmp",
    ):
        disk.write_file(f"{PATH}/{name}", b"x")

    log = log_on(disk, stop=Stop.PROCESS_CRASH)

    assert log.log_end == BATCHES * 2
    assert sorted(disk.list_directory(PATH)) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "leader-epoch-checkpoint",
    ]


@pytest.mark.parametrize("stop", list(Stop))
def test_a_missing_index_is_rebuilt(stop):
    disk = MemDisk()
    log = log_on(disk, SMALL)
    for at in range(100):
        put(log, batch_of(b"%d" % at, timestamps=at))
    log.close()
    before = {name: disk.read_file(f"{PATH}/{name}") for name in disk.list_directory(PATH) if "index" in name}
    for name in before:
        disk.unlink(f"{PATH}/{name}")

    again = log_on(disk, SMALL, stop=stop)
    again.close()

    assert values_of(read_all(again)) == [b"%d" % at for at in range(100)]
    assert {name: disk.read_file(f"{PATH}/{name}") for name in before} == before


def test_an_index_of_zeros_is_rebuilt_after_a_crash():
    disk, _ = written()
    path = newest_file(disk).replace(".log", ".index")
    good = disk.read_file(path)
    assert good
    disk.write_file(path, bytes(len(good) + 16))

    log = log_on(disk, Settings(index_interval_bytes=150), stop=Stop.PROCESS_CRASH)

    assert log.log_end == BATCHES * 2
    assert disk.read_file(path) == good


def test_leader_epochs_are_rebuilt_from_the_batches():
    disk = MemDisk()
    log = log_on(disk, SMALL)
    for at in range(60):
        put(log, batch_of(b"%d" % at), epoch=at // 20)
    expected = log.epochs.entries()
    log.close()
    disk.write_file(f"{PATH}/leader-epoch-checkpoint", b"0\n9\nnonsense")

    again = log_on(disk, SMALL)

    assert again.epochs.entries() == expected == [(0, 0), (1, 20), (2, 40)]
    assert LeaderEpochs.load(disk, f"{PATH}/leader-epoch-checkpoint").entries() == expected


def test_an_epoch_whose_batches_are_truncated_is_forgotten():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"a"), epoch=1)
    size = log.size_bytes
    put(log, batch_of(b"b"), epoch=2)
    log.segments.release()
    disk.open(newest_file(disk)).truncate(size)

    again = log_on(disk, stop=Stop.PROCESS_CRASH)

    assert again.epochs.entries() == [(1, 0)]


@pytest.mark.parametrize("stop", list(Stop))
def test_a_log_start_beyond_the_log_end_is_ignored(stop):
    disk, _ = written()

    log = log_on(disk, stop=stop, log_start=100)

    assert (log.log_start, log.log_end) == (0, 16)
    assert len(read_all(log)) == 16
    assert [finding.event for finding in log.loader.findings] == ["log_start_distrusted"]


def test_a_log_that_lost_deleted_records_continues_at_its_high_watermark():
    disk, _ = written()

    log = log_on(disk, stop=Stop.MACHINE_CRASH, log_start=100, high_watermark=100)

    assert (log.log_start, log.log_end) == (100, 100)
    assert read_all(log) == []
    assert put(log, batch_of(b"a")) == 100


STEPS = st.lists(st.sampled_from(["append", "append", "append", "flush", "roll", "drop"]), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2**32), st.sampled_from([0, 300, 4096]))
def test_flushed_records_survive_a_power_cut(steps, seed, interval):
    config = Settings(segment_bytes_effective=400, index_interval_bytes=interval)
    disk = MemDisk()
    log = log_on(disk, config)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    flushed = 0
    for step in steps:
        if step == "append":
            put(log, batch_of(b"%d" % log.log_end, b"x" * 40))
        elif step == "flush":
            log.flush()
            flushed = log.log_end
        elif step == "roll":
            log.roll()
        elif log.log_end > 4:
            log.delete_before(log.log_end - 4)
            retain(log, 0, committed=log.log_end, trash=Trash(disk))
    start, end, point = log.log_start, log.log_end, log.recovery_point

    disk.crash(Seeded(seed))
    again = log_on(disk, config, stop=Stop.MACHINE_CRASH, log_start=min(start, flushed), recovery_point=point)

    assert flushed <= again.log_end <= end
    records = read_all(again)
    expected = list(range(again.log_start, again.log_end))
    assert [record.offset for record in records] == expected
    assert all(record.value == b"%d" % record.offset for record in records if record.offset % 2 == 0)
    assert put(again, batch_of(b"next")) == again.log_end - 1


def test_a_checkpoint_shorter_than_its_count_is_damaged():
    disk = MemDisk()
    disk.make_directory("/d")
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c", 12): 2**40}
    disk.write_file("/d/x", encode_offsets(offsets.items()))

    assert disk.read_file("/d/x") == b"0\n2\na 0 5\nb-c 12 1099511627776\n"
    assert read_offsets(disk, "/d/x") == offsets
    assert read_offsets(disk, "/d/missing") == {}
    for damaged in (b"", b"0\n", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na zero 5\n", b"\xff\xfe"):
        disk.write_file("/d/x", damaged)
        with pytest.raises(CheckpointDamaged, match="/d/x"):
            read_offsets(disk, "/d/x")


COMPACTED_BATCHES = 9


def compacted() -> MemDisk:
    """A log of three segments that may have gaps, as after compaction."""
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=250, index_interval_bytes=150))
    for at in range(COMPACTED_BATCHES):
        put(log, batch_of(b"v%02d" % at))
    log.close()
    disk.write_file(f"{PATH}/{GAPS}", b"")
    return disk


def batches_on(disk: MemDisk) -> list[tuple[str, int, BatchHeader]]:
    """File, position and header of every batch."""
    found: list[tuple[str, int, BatchHeader]] = []
    for name in sorted(name for name in disk.list_directory(PATH) if name.endswith(LOG)):
        data = disk.read_file(f"{PATH}/{name}")
        found += [(f"{PATH}/{name}", position, header) for position, header in iter_batches(data)]
    return found


@pytest.mark.parametrize("stop", [Stop.PROCESS_CRASH, Stop.MACHINE_CRASH])
def test_a_damaged_base_offset_in_a_compacted_log_loses_only_its_batch(stop):
    disk = compacted()
    assert len({path for path, _, _ in batches_on(disk)}) == 3

    for path, position, header in batches_on(disk):
        for bit in range(64):
            damaged = copy.deepcopy(disk)
            damaged.flip(path, position + 7 - bit // 8, 1 << bit % 8)
            log_on(damaged, stop=stop, high_watermark=COMPACTED_BATCHES)
            left = {each.base_offset for _, _, each in batches_on(damaged)}
            others = set(range(COMPACTED_BATCHES)) - {header.base_offset}
            assert others <= left, f"bit {bit} of offset {header.base_offset}: {others - left} are gone"


@pytest.mark.parametrize("stop", [Stop.CLEAN, Stop.MACHINE_CRASH])
def test_a_segment_that_another_one_covers_is_quarantined(stop):
    disk = compacted()
    [first, *_] = sorted(name for name in disk.list_directory(PATH) if name.endswith(LOG))
    extra = f"{PATH}/{1:020d}{LOG}"
    disk.write_file(extra, disk.read_file(f"{PATH}/{first}")[-80:])
    # With an index, the first segment would be trusted without a scan.
    disk.unlink(f"{PATH}/{0:020d}{OFFSET_INDEX}")

    log = log_on(disk, stop=stop, high_watermark=COMPACTED_BATCHES)

    assert [record.offset for record in read_all(log)] == list(range(COMPACTED_BATCHES))
    assert disk.exists(extra + QUARANTINED)
    assert not disk.exists(extra)
