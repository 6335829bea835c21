"""Compaction compared with a dictionary: the newest record of every key stays, at its offset."""

import contextlib
import errno

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.storage.logs import (
    FOREVER,
    ManualClock,
    Seeded,
    Settings,
    batch_of,
    directory_of,
    log_on,
    put,
    read_all,
)

from penstock.model.batch import DELETE_HORIZON_FLAG
from penstock.model.producers import ProducerSnapshot
from penstock.storage import compaction, txn_index
from penstock.storage.compaction import Compaction
from penstock.storage.key_map import KeyMap, keys_max_of
from penstock.storage.log import Log
from penstock.storage.move import begin_move, try_switch
from penstock.storage.names import EPOCHS, TXN_INDEX
from penstock.storage.recovery import Stop
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.storage.view import LogChanged
from penstock.testing.mem_disk import MemDisk, PowerCut
from penstock.wire.records import Record, build_batch, build_marker, filter_batch, parse_batch_header

COMPACT = Settings(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes_effective=300,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
KEYS_MAX = 1000


def pass_over(log: Log, now_ms: int = 0, *, keys_max: int = KEYS_MAX, stable: int | None = None) -> Compaction | None:
    """Run one compaction, if one is due."""
    due = compaction.plan(log, now_ms, stable=log.log_end if stable is None else stable, keys_max=keys_max)
    if due is not None:
        due.run(log, Trash(log.directory.disk))
    return due


def keyed(log: Log, key: bytes, value: bytes | None, *, timestamp: int = 0, producer_id: int = -1) -> int:
    return put(log, batch_of(value, keys=[key], timestamps=timestamp, producer_id=producer_id, sequence=0))


def test_of_every_key_the_newest_record_stays_at_its_offset():
    log = log_on(MemDisk(), COMPACT)
    for at in range(30):
        keyed(log, b"k%d" % (at % 3), b"%d" % at)
    log.roll()

    pass_over(log)

    assert [(r.offset, r.key, r.value) for r in read_all(log)] == [
        (27, b"k0", b"27"),
        (28, b"k1", b"28"),
        (29, b"k2", b"29"),
    ]
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert log.log_end == 30


def test_the_newest_segment_is_never_compacted():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"k", b"old")
    log.roll()
    keyed(log, b"k", b"new")

    pass_over(log)

    assert [r.value for r in read_all(log)] == [b"old", b"new"]


def test_records_beyond_the_stable_offset_stay():
    log = log_on(MemDisk(), COMPACT)
    for at in range(10):
        keyed(log, b"k", b"%d" % at)
        log.roll()

    pass_over(log, stable=4)

    assert [r.offset for r in read_all(log)] == [3, 4, 5, 6, 7, 8, 9]


def test_a_tombstone_is_removed_after_its_retention():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"k", b"value", timestamp=10)
    keyed(log, b"k", None, timestamp=20)
    log.roll()

    pass_over(log, 5000)
    assert [(r.offset, r.value, r.timestamp_ms) for r in read_all(log)] == [(1, None, 20)]
    _, header = log.view().batches(0)
    assert header.attributes & DELETE_HORIZON_FLAG
    assert header.base_timestamp == 6000

    keyed(log, b"other", b"x")
    log.roll()
    pass_over(log, 5999)
    assert [r.key for r in read_all(log)] == [b"k", b"other"]

    keyed(log, b"third", b"x")
    log.roll()
    pass_over(log, 6000)
    assert [r.key for r in read_all(log)] == [b"other", b"third"]


def test_records_younger_than_the_minimum_lag_stay():
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), "min_compaction_lag_ms": 100}))
    for at in range(6):
        keyed(log, b"k", b"%d" % at, timestamp=at * 100)
        log.roll()

    pass_over(log, now_ms=400)

    assert [r.offset for r in read_all(log)] == [3, 4, 5]


def test_a_log_is_not_compacted_until_enough_of_it_is_dirty():
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), "min_cleanable_dirty_ratio": 0.5}))
    for at in range(20):
        keyed(log, b"%d" % at, b"x" * 50)
    log.roll()
    assert pass_over(log) is not None
    keyed(log, b"0", b"y")
    log.roll()

    assert compaction.plan(log, 0, stable=log.log_end, keys_max=10) is None
    assert log.cleaning is None


def test_a_record_older_than_the_maximum_lag_is_compacted_whatever_the_dirty_ratio():
    changed = {"min_cleanable_dirty_ratio": 0.9, "max_compaction_lag_ms": 500, "segment_ms": FOREVER}
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), **changed}))
    for at in range(20):
        keyed(log, b"%d" % at, b"x" * 50, timestamp=0)
    log.roll()
    assert pass_over(log, 0) is not None
    keyed(log, b"0", b"y", timestamp=1000)
    log.roll()

    assert pass_over(log, 1499) is None
    assert pass_over(log, 1501) is not None
    assert [r.value for r in read_all(log) if r.key == b"0"] == [b"y"]


def test_a_map_too_small_for_the_log_takes_several_passes():
    log = log_on(MemDisk(), COMPACT)
    for at in range(60):
        keyed(log, b"k%d" % (at % 20), b"%d" % at)
    log.roll()

    passes = 0
    while pass_over(log, keys_max=7) is not None:
        passes += 1

    assert passes > 2
    assert [r.offset for r in read_all(log)] == list(range(40, 60))


def test_small_segments_are_merged_up_to_the_segment_size():
    log = log_on(MemDisk(), COMPACT)
    for at in range(40):
        keyed(log, b"k%d" % at, b"v")
        log.roll()

    pass_over(log)

    assert len(log.segments) < 25
    assert all(segment.size <= 300 for segment in log.segments)
    assert len(read_all(log)) == 40


def test_a_batch_keeps_its_codec_and_offsets_when_records_are_removed():
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), "segment_bytes_effective": 10_000}))
    put(log, batch_of(b"a" * 100, b"b" * 100, b"c" * 100, keys=[b"1", b"2", b"3"], codec=4))
    put(log, batch_of(b"new", keys=[b"2"]))
    log.roll()

    pass_over(log)

    header = next(log.view().batches(0))
    assert (header.codec, header.base_offset, header.last_offset, header.record_count) == (4, 0, 2, 2)
    assert [r.offset for r in read_all(log)] == [0, 2, 3]


def test_the_last_batch_of_a_producer_stays_without_records():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"k", b"mine", producer_id=7)
    keyed(log, b"k", b"other")
    log.roll()
    log.producers = lambda: [ProducerSnapshot(7, 0, 0, 0, 0, 0, -1, -1)]

    pass_over(log)

    first, second = log.view().batches(0)
    assert (first.producer_id, first.record_count, first.base_sequence) == (7, 0, 0)
    assert second.base_offset == 1
    assert [r.value for r in read_all(log)] == [b"other"]


def test_an_empty_batch_is_removed_once_its_producer_is_forgotten():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"first", b"of its epoch")
    keyed(log, b"k", b"mine", producer_id=7)
    keyed(log, b"k", b"other")
    log.roll()
    log.producers = lambda: [ProducerSnapshot(7, 0, 0, 1, 0, 0, -1, -1)]
    pass_over(log)
    assert [h.base_offset for h in log.view().batches(0)] == [0, 1, 2]
    keyed(log, b"x", b"more")
    log.roll()
    log.producers = list

    pass_over(log)

    assert [h.base_offset for h in log.view().batches(0)] == [0, 2, 3]


def txn_batch(producer_id: int, key: bytes, value: bytes) -> bytearray:
    return build_batch(
        [Record(0, 0, key, value)], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def marker(producer_id: int, *, commit: bool) -> bytearray:
    return build_marker(commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0)


def test_an_aborted_record_does_not_replace_an_older_one_of_its_key():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"k", b"committed")
    put(log, txn_batch(1, b"k", b"aborted"))
    end = put(log, marker(1, commit=False))
    path = f"{log.path}/{0:020d}.txnindex"
    txn_index.append(log.directory.disk, path, AbortedTxn(1, 1, end, 1))
    log.roll()

    pass_over(log)

    assert [r.value for r in read_all(log)[:1]] == [b"committed"]
    assert [(h.base_offset, h.is_control) for h in log.view().batches(0)] == [(0, False), (2, True)]
    assert txn_index.read(log.directory.disk, path) == [AbortedTxn(1, 1, end, 1)]


def test_a_log_is_not_compacted_while_a_full_disk_delays_its_transaction_index():
    disk = MemDisk()
    log = log_on(disk, COMPACT)
    keyed(log, b"k", b"committed")
    put(log, txn_batch(1, b"k", b"aborted"))
    end = put(log, marker(1, commit=False))
    disk.fail("append", TXN_INDEX, errno.ENOSPC)
    log.note_aborted(AbortedTxn(1, 1, end, 1))
    log.roll()

    assert pass_over(log) is None

    disk.faults.clear()
    pass_over(log)
    assert [r.value for r in read_all(log)[:1]] == [b"committed"]


def test_an_unneeded_marker_is_removed_after_the_retention_of_tombstones():
    log = log_on(MemDisk(), COMPACT)
    put(log, txn_batch(1, b"k", b"v1"))
    put(log, marker(1, commit=True))
    keyed(log, b"k", b"v2")
    log.roll()

    def control_batches(now_ms: int) -> int:
        keyed(log, b"filler%d" % now_ms, b"x")
        log.roll()
        pass_over(log, now_ms)
        return sum(header.is_control for header in log.view().batches(0))

    # The first pass still reads the record; the second finds the marker alone, and sets its delete horizon.
    assert control_batches(100) == 1
    assert control_batches(200) == 1
    assert control_batches(1199) == 1
    assert log.removal_mark.mark == -1
    assert control_batches(1200) == 0
    assert log.removal_mark.mark == 1


def test_the_map_is_bounded_in_entries_and_distinguishes_long_keys():
    keys = KeyMap(keys_max_of(600))
    keys.put(b"x" * 100, 1)
    keys.put(b"x" * 101, 2)
    assert not keys.is_full

    keys.put(b"short", 3)

    assert keys.is_full
    assert [keys.newest(key) for key in (b"x" * 100, b"x" * 101, b"short", b"missing")] == [1, 2, 3, -1]


def settings_of(config: Settings) -> dict[str, object]:
    return {name: getattr(config, name) for name in Settings.__slots__}


Step = tuple[str, int, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("put"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(1)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("compact"), st.sampled_from([0, 500, 1500]), st.sampled_from([2, 5, 1000])),
        st.tuples(st.just("reopen"), st.integers(0, 2), st.just(0)),
    ),
    max_size=40,
)


class KeyedLog:
    """A log, the dictionary that its readers should end up with, and every record written."""

    def __init__(self, disk: MemDisk) -> None:
        self.disk = disk
        self.clock = ManualClock(0)
        self.log = log_on(disk, COMPACT, clock=self.clock)
        self.state: dict[bytes, bytes] = {}
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.cleaned_to = 0

    def step(self, step: Step) -> None:
        name, first, second = step
        if name in ("put", "delete"):
            keys = [b"k%d" % ((first + at) % 6) for at in range(second)]
            values = [None if name == "delete" else b"%d" % (self.log.log_end + at) for at in range(second)]
            base = put(self.log, batch_of(*values, keys=keys, timestamps=self.clock.ms))
            for at, (key, value) in enumerate(zip(keys, values, strict=True)):
                self.written[base + at] = (key, value)
                if value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = value
        elif name == "roll":
            self.log.roll()
        elif name == "compact":
            self.clock.ms += first
            self.log.roll()
            pass_over(self.log, self.clock.ms, keys_max=second)
            self.cleaned_to = self.log.cleaned_to
        else:
            self.reopen(list(Stop)[first])

    def reopen(self, stop: Stop) -> None:
        self.log.close(clean=stop is Stop.CLEAN)
        point, end = self.log.recovery_point, self.log.log_end
        self.log = log_on(self.disk, COMPACT, clock=self.clock, stop=stop, recovery_point=point)
        self.log.cleaned_to = self.cleaned_to
        if not self.log.segments:
            self.log.log_end = end

    def check(self) -> None:
        """Readers from the start end up with the dictionary, and see only records that were written at their offset."""
        seen: dict[bytes, bytes | None] = {}
        offsets: list[int] = []
        for record in read_all(self.log):
            assert self.written[record.offset] == (record.key, record.value)
            assert record.key is not None
            seen[record.key] = record.value
            offsets.append(record.offset)
        assert {key: value for key, value in seen.items() if value is not None} == self.state
        assert offsets == sorted(offsets)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_readers_end_up_with_the_dictionary_after_any_passes(steps):
    keyed_log = KeyedLog(MemDisk())
    for step in steps:
        keyed_log.step(step)
        keyed_log.check()

    keyed_log.step(("compact", 0, 1000))
    keyed_log.check()
    newest = {key: offset for offset, (key, _) in keyed_log.written.items()}
    assert all(newest[record.key or b""] == record.offset for record in read_all(keyed_log.log))


def prepared(disk: MemDisk) -> KeyedLog:
    keyed_log = KeyedLog(disk)
    for at in range(24):
        keyed_log.step(("delete" if at % 5 == 4 else "put", at % 6, 2 if at % 5 != 4 else 1))
    keyed_log.step(("roll", 0, 0))
    keyed_log.log.flush()
    keyed_log.disk.sync_directory("/data")
    keyed_log.disk.sync_directory("/")
    return keyed_log


def operations_of_a_pass() -> int:
    keyed_log = prepared(MemDisk())
    before = keyed_log.disk.operations
    pass_over(keyed_log.log, 0)
    return keyed_log.disk.operations - before


@pytest.mark.parametrize("power", [False, True], ids=["process killed", "power cut"])
def test_a_crash_at_any_point_of_a_pass_neither_loses_nor_restores_a_record(power):
    for point in range(operations_of_a_pass() + 1):
        for seed in range(2 if power else 1):
            disk = MemDisk()
            keyed_log = prepared(disk)
            disk.cut_power_at = disk.operations + point
            with contextlib.suppress(PowerCut):
                pass_over(keyed_log.log, 0)
            if power:
                disk.crash(Seeded(point * 10 + seed))
            else:
                disk.kill()

            keyed_log.reopen(Stop.MACHINE_CRASH if power else Stop.PROCESS_CRASH)

            keyed_log.check()
            leftovers = [
                name for name in disk.list_directory(keyed_log.log.path) if name.endswith((".swap", ".cleaned"))
            ]
            assert leftovers == []
            keyed_log.step(("put", 1, 1))
            keyed_log.step(("compact", 2000, 1000))
            keyed_log.check()


def test_a_full_disk_leaves_the_log_as_it_was():
    disk = MemDisk()
    keyed_log = prepared(disk)
    disk.capacity_bytes = (
        sum(disk.stat(f"/data/orders-0/{n}").size for n in disk.list_directory("/data/orders-0")) + 100
    )
    due = compaction.plan(keyed_log.log, 0, stable=keyed_log.log.log_end, keys_max=1000)
    assert due is not None

    with pytest.raises(OSError, match="No space left"):
        due.run(keyed_log.log, Trash(disk))
    due.abandon(keyed_log.log)

    keyed_log.check()
    assert not [n for n in disk.list_directory(keyed_log.log.path) if n.endswith((".swap", ".cleaned"))]
    disk.capacity_bytes = 1 << 40
    keyed_log.step(("compact", 0, 1000))
    keyed_log.check()


def test_a_cancelled_pass_leaves_no_files_that_a_start_would_swap_in():
    disk = MemDisk()
    keyed_log = prepared(disk)
    due = compaction.plan(keyed_log.log, 0, stable=keyed_log.log.log_end, keys_max=1000)
    assert due is not None
    due.build_map()
    due.clean(due.groups()[0])

    due.abandon(keyed_log.log)

    assert not [n for n in disk.list_directory(keyed_log.log.path) if n.endswith((".swap", ".cleaned"))]
    keyed_log.step(("compact", 0, 1000))
    keyed_log.check()


@pytest.mark.parametrize("seen", range(0, 60, 7))
def test_a_reader_off_the_loop_notices_that_a_pass_has_changed_the_files(seen: int):
    log = log_on(MemDisk(), COMPACT)
    for at in range(60):
        keyed(log, b"k%d" % (at % 3), b"%d" % at)
    log.roll()
    walk = log.view().walk_from(0, bodies=True)
    offsets = [next(walk).header.base_offset for _ in range(seen)]

    pass_over(log)

    # It reads the open file to its end; any other file of that name now has other records.
    with pytest.raises(LogChanged):
        offsets.extend(batch.header.base_offset for batch in walk)
    assert offsets == list(range(len(offsets)))
    assert [batch.base_offset for batch in log.view().batches(0) if batch.record_count] == [57, 58, 59]


def test_a_compacted_segment_is_indexed_like_an_appended_one():
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), "segment_bytes_effective": 100_000}))
    for at in range(400):
        keyed(log, b"k%d" % (at % 100), b"x" * 20, timestamp=at)
    log.roll()

    pass_over(log)

    assert [h.base_offset for h in log.view().batches(350)] == list(range(350, 400))
    for offset in (300, 333, 399):
        found = log.slice(offset, 1 << 20, end=log.log_end, at_least_one=True)
        assert found is not None
        assert parse_batch_header(found.contents()).base_offset == offset
    found = log.view().offset_for_time(377)
    assert found is not None
    assert (found.timestamp, found.offset) == (377, 377)


def test_epochs_can_be_rebuilt_from_a_compacted_log():
    disk = MemDisk()
    log = log_on(disk, COMPACT)
    for at in range(12):
        put(log, batch_of(b"%d" % at, keys=[b"k"], timestamps=0), epoch=at // 3)
    log.roll()
    pass_over(log)
    expected = [(0, 0), (1, 3), (2, 6), (3, 9)]
    assert [r.offset for r in read_all(log)] == [11]
    assert log.epochs.entries() == expected
    log.close()
    disk.unlink(f"{log.path}/{EPOCHS}")

    assert log_on(disk, COMPACT).epochs.entries() == expected


def test_the_last_batch_of_a_log_without_active_records_stays():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"other", b"x")
    keyed(log, b"k", b"value")
    keyed(log, b"k", None)
    log.roll()
    pass_over(log, 0)
    log.cleaned_to = 0

    pass_over(log, 5000)

    assert [(h.next_offset, h.record_count) for h in log.view().batches(0)] == [(1, 1), (3, 0)]
    assert log.removal_mark.mark == 2


def test_a_due_tombstone_beyond_the_map_stays():
    log = log_on(MemDisk(), Settings(**{**settings_of(COMPACT), "segment_bytes_effective": 10_000}))
    keyed(log, b"k", b"value")
    for at in range(4):
        keyed(log, b"filler%d" % at, b"x")
    tombstone = filter_batch(bytes(batch_of(None, keys=[b"k"], timestamps=0)), [True], delete_horizon_ms=10)
    put(log, tombstone)
    log.roll()

    pass_over(log, 5000, keys_max=2)

    assert {r.key: r.value for r in read_all(log)}[b"k"] is None
    assert log.removal_mark.mark == -1


def test_records_appended_after_a_truncation_are_not_clean():
    log = log_on(MemDisk(), COMPACT)
    keyed(log, b"k", b"value")
    for at in range(5):
        keyed(log, b"%d" % at, b"x")
    log.roll()
    pass_over(log)
    assert log.cleaned_to == 6
    log.lower_marks(3)
    log.truncate_to(3)
    keyed(log, b"k", None)
    for at in range(5):
        keyed(log, b"%d" % at, b"y")
    log.roll()

    for now_ms in (0, 5000):
        pass_over(log, now_ms)
        keyed(log, b"more", b"x")
        log.roll()
    pass_over(log, 9000)

    assert b"k" not in {r.key for r in read_all(log)}


def test_a_mark_survives_restarts_and_moves():
    disk = MemDisk()
    log = log_on(disk, COMPACT)
    keyed(log, b"k", b"value")
    keyed(log, b"k", None)
    keyed(log, b"other", b"x")
    log.roll()
    pass_over(log, 0)
    log.cleaned_to = 0
    pass_over(log, 5000)
    assert log.removal_mark.mark == 1
    log.close()
    log = log_on(disk, COMPACT)
    assert log.removal_mark.mark == 1
    disk.make_directory("/other")
    move = begin_move(log, directory_of(disk, home="/other"), "x")
    assert move is not None
    move.copy()
    assert try_switch(move)
    log.close()

    assert log_on(disk, COMPACT, path="/other/orders-0").removal_mark.mark == 1
