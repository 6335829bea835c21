"""Indexes of finished segments survive a power cut, and retention drops no segment because its index is damaged."""

from collections.abc import Callable
from dataclasses import replace

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
)

from penstock.model.clock import Randomness
from penstock.model.ids import Offset
from penstock.storage import txn_index
from penstock.storage.disk import Disk, DiskFile
from penstock.storage.log import Log
from penstock.storage.move import begin_move, try_switch
from penstock.storage.names import LOG, OFFSET_INDEX, SEGMENT_FILES, SWAP, TIME_INDEX, offset_name
from penstock.storage.recovery import Stop
from penstock.storage.retention import retain
from penstock.storage.time_index import ENTRY, ENTRY_BYTES
from penstock.storage.trash import Trash
from penstock.storage.txn_index import AbortedTxn
from penstock.testing.mem_disk import MemDisk

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
CONFIG = Settings(index_interval_bytes=100, retention_ms=WEEK_MS)
BATCHES = 10
INDEXES = (OFFSET_INDEX, TIME_INDEX)


class Nothing:
    """A power cut that keeps nothing of the writes since the last fsync."""

    def below(self, bound: int) -> int:
        return 0

    def uuid_bytes(self) -> bytes:
        raise AssertionError


def written(disk: MemDisk) -> Log:
    """A log of some batches from yesterday in one segment, with names that survive a power cut."""
    log = log_on(disk, CONFIG, clock=ManualClock(NOW))
    disk.sync_directory("/")
    disk.sync_directory("/data")
    fill(log)
    return log


def fill(log: Log) -> None:
    for at in range(BATCHES):
        put(log, batch_of(b"x" * 100, timestamps=NOW - DAY_MS + at))


def again_on(disk: MemDisk, log: Log, stop: Stop) -> Log:
    """The log of the next broker."""
    return log_on(
        disk, CONFIG, stop=stop, clock=ManualClock(NOW), recovery_point=log.recovery_point, high_watermark=log.log_end
    )


def cut_power(disk: MemDisk, randomness: Randomness) -> None:
    """Cut the power; of the changes to the partition's directory none is lost."""
    disk.sync_directory(PATH)
    disk.crash(randomness)


def name_of(base: int, kind: str, path: str = PATH) -> str:
    return f"{path}/{offset_name(Offset(base), kind)}"


def indexes_of(disk: Disk, base: int, path: str = PATH) -> list[bytes]:
    return [disk.read_file(name_of(base, kind, path)) for kind in INDEXES]


def dropped_by_retention(log: Log) -> int:
    return retain(log, NOW, committed=log.log_end, trash=Trash(log.directory.disk))


def rolled_where_the_last_flush_ended(disk: MemDisk) -> tuple[Log, Stop]:
    log = written(disk)
    log.flush()
    log.roll()
    put(log, batch_of(b"next", timestamps=NOW))
    log.flush()
    return log, Stop.MACHINE_CRASH


def rolled_where_the_last_flush_ended_and_closed(disk: MemDisk) -> tuple[Log, Stop]:
    log = written(disk)
    log.flush()
    log.roll()
    log.close()
    return log, Stop.CLEAN


def closed_and_rolled_later(disk: MemDisk) -> tuple[Log, Stop]:
    log = written(disk)
    log.close()
    again = again_on(disk, log, Stop.CLEAN)
    again.roll()
    put(again, batch_of(b"next", timestamps=NOW))
    again.flush()
    return again, Stop.MACHINE_CRASH


def recovered_and_closed(disk: MemDisk) -> tuple[Log, Stop]:
    log = written(disk)
    log.flush()
    log.roll()
    log.segments.abandon()
    cut_power(disk, Nothing())
    again = again_on(disk, log, Stop.MACHINE_CRASH)
    again.close()
    return again, Stop.CLEAN


def killed_and_closed(disk: MemDisk) -> tuple[Log, Stop]:
    log = written(disk)
    log.flush()
    log.roll()
    log.segments.abandon()
    again = again_on(disk, log, Stop.PROCESS_CRASH)
    again.close()
    return again, Stop.CLEAN


def rebuilt_below_the_recovery_point(disk: MemDisk) -> tuple[Log, Stop]:
    log, _ = rolled_where_the_last_flush_ended(disk)
    log.segments.abandon()
    for kind in INDEXES:
        disk.unlink(name_of(0, kind))
    disk.sync_directory(PATH)
    again = again_on(disk, log, Stop.PROCESS_CRASH)
    put(again, batch_of(b"one more", timestamps=NOW))
    again.flush()
    return again, Stop.MACHINE_CRASH


def swapped_in_by_a_start(disk: MemDisk) -> tuple[Log, Stop]:
    log, _ = rolled_where_the_last_flush_ended(disk)
    log.segments.abandon()
    disk.rename(name_of(0, LOG), name_of(0, LOG) + SWAP)
    for kind in INDEXES:
        disk.unlink(name_of(0, kind))
    again = again_on(disk, log, Stop.PROCESS_CRASH)
    put(again, batch_of(b"one more", timestamps=NOW))
    again.flush()
    return again, Stop.MACHINE_CRASH


@pytest.mark.parametrize(
    "live",
    [
        rolled_where_the_last_flush_ended,
        rolled_where_the_last_flush_ended_and_closed,
        closed_and_rolled_later,
        recovered_and_closed,
        killed_and_closed,
        rebuilt_below_the_recovery_point,
        swapped_in_by_a_start,
    ],
)
@pytest.mark.parametrize("randomness", [Nothing(), Seeded(1), Seeded(2)], ids=["nothing", "some", "others"])
def test_a_finished_segment_below_the_recovery_point_keeps_its_indexes_through_a_power_cut(
    live: Callable[[MemDisk], tuple[Log, Stop]], randomness: Randomness
) -> None:
    disk = MemDisk()
    whole = MemDisk()
    reference = written(whole)
    reference.roll()
    good = indexes_of(whole, 0)
    assert all(len(index) > ENTRY_BYTES for index in good)

    log, stop = live(disk)
    end = log.log_end
    cut_power(disk, randomness)
    again = again_on(disk, log, stop)

    assert again.log_end == end
    assert indexes_of(disk, 0) == good
    assert dropped_by_retention(again) == 0
    assert len(read_all(again)) == end


def closed(disk: MemDisk) -> Log:
    log = written(disk)
    log.flush()
    log.close()
    return log


def closed_twice(disk: MemDisk) -> Log:
    again = again_on(disk, closed(disk), Stop.CLEAN)
    fill(again)
    again.flush()
    again.close()
    return again


def rebuilt_and_closed(disk: MemDisk) -> Log:
    log = closed(disk)
    disk.unlink(name_of(0, TIME_INDEX))
    again = again_on(disk, log, Stop.CLEAN)
    fill(again)
    again.flush()
    again.close()
    return again


def recovered_whole_and_closed(disk: MemDisk) -> Log:
    log = written(disk)
    log.flush()
    log.segments.abandon()
    disk.crash(Nothing())
    again = again_on(disk, log, Stop.MACHINE_CRASH)
    again.close()
    return again


@pytest.mark.parametrize("live", [closed, closed_twice, rebuilt_and_closed, recovered_whole_and_closed])
def test_the_newest_segment_keeps_its_indexes_through_a_power_cut_after_a_clean_stop(
    live: Callable[[MemDisk], Log],
) -> None:
    disk = MemDisk()
    live(disk)
    written_before = indexes_of(disk, 0)
    assert all(len(index) > ENTRY_BYTES for index in written_before)

    disk.crash(Nothing())

    assert indexes_of(disk, 0) == written_before


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("missing", [None, *INDEXES])
def test_a_segment_without_one_of_its_indexes_gets_both_of_them_from_the_log(
    missing: str | None, finished: bool
) -> None:
    disk = MemDisk()
    log = log_on(disk, CONFIG, clock=ManualClock(NOW))
    put(log, batch_of(b"x" * 100, timestamps=NOW + DAY_MS))
    fill(log)
    if finished:
        log.roll()
    log.close()
    good = indexes_of(disk, 0)
    if missing is not None:
        disk.unlink(name_of(0, missing))

    again = again_on(disk, log, Stop.CLEAN)

    assert again.segments[0].greatest_timestamp(disk, PATH) == NOW + DAY_MS
    assert indexes_of(disk, 0) == good


def finished(disk: MemDisk) -> Log:
    """A log whose first segment is finished, closed."""
    log, _ = rolled_where_the_last_flush_ended(disk)
    log.close()
    return log


def entry(timestamp: int, relative: int) -> bytes:
    return ENTRY.pack(timestamp, relative)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda good: bytes(len(good)),
    "one entry of zeros": lambda good: entry(0, 0),
    "no entry": lambda good: b"",
    "an offset beyond the segment": lambda good: good[:-ENTRY_BYTES] + entry(NOW - 30 * DAY_MS, 5000),
    "an offset that no batch ends at": lambda good: good[:-ENTRY_BYTES] + entry(NOW - 30 * DAY_MS, BATCHES - 1),
    "the timestamp of no batch": lambda good: entry(NOW - 30 * DAY_MS, 0),
    "a lost end": lambda good: good[: 3 * ENTRY_BYTES],
    "a damaged end": lambda good: good[:-ENTRY_BYTES] + bytes(ENTRY_BYTES),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("positions", ["kept", "zeros", "wild", "missing"])
def test_retention_drops_no_segment_for_a_damaged_index_and_rebuilds_it(damage: str, positions: str) -> None:
    disk = MemDisk()
    log = finished(disk)
    offsets, times = indexes_of(disk, 0)
    disk.write_file(name_of(0, TIME_INDEX), DAMAGED[damage](times))
    if positions in ("zeros", "wild"):
        disk.write_file(
            name_of(0, OFFSET_INDEX), bytes(len(offsets)) if positions == "zeros" else b"\x00\x00\x00\x07" * 8
        )
    # The greatest timestamp is the last one: an index without its end is older by some milliseconds.
    now_ms = NOW - DAY_MS + BATCHES - 1 + WEEK_MS
    again = again_on(disk, log, Stop.CLEAN)
    if positions == "missing":
        disk.unlink(name_of(0, OFFSET_INDEX))
    again.segments[0].open(disk, PATH)

    dropped = retain(again, now_ms, committed=again.log_end, trash=Trash(disk))

    assert dropped == 0
    assert len(read_all(again)) == again.log_end
    assert [record.offset for record in read_from(again, BATCHES - 1)] == [BATCHES - 1]
    assert indexes_of(disk, 0) == [offsets, times]
    assert retain(again, now_ms + 1, committed=again.log_end, trash=Trash(disk)) == 1


@pytest.mark.parametrize("closing", [False, True])
def test_a_moved_log_keeps_its_indexes_through_a_power_cut_before_the_move_is_settled(closing: bool) -> None:
    disk = MemDisk()
    log = written(disk)
    for _ in range(2):
        log.roll()
        fill(log)
    log.flush()
    bases = [segment.base for segment in log.segments]
    assert len(bases) == 3
    disk.make_directory("/two")
    disk.sync_directory("/")
    move = begin_move(log, directory_of(disk, home="/two"), "aa")
    assert move is not None
    move.copy()
    assert try_switch(move)
    if closing:
        log.close()
    else:
        put(log, batch_of(b"next", timestamps=NOW))
        log.flush()
    kept = bases if closing else bases[:-1]
    copied = [indexes_of(disk, base, log.path) for base in kept]
    assert all(len(index) > ENTRY_BYTES for indexes in copied for index in indexes)

    disk.crash(Nothing())

    assert [indexes_of(disk, base, log.path) for base in kept] == copied


def test_retention_leaves_the_indexes_of_a_log_alone_that_is_being_moved() -> None:
    disk = MemDisk()
    log = finished(disk)
    zeros = bytes(len(disk.read_file(name_of(0, TIME_INDEX))))
    disk.write_file(name_of(0, TIME_INDEX), zeros)
    disk.make_directory("/two")
    again = again_on(disk, log, Stop.CLEAN)
    assert begin_move(again, directory_of(disk, home="/two"), "aa") is not None

    assert dropped_by_retention(again) == 0
    assert disk.read_file(name_of(0, TIME_INDEX)) == zeros


def test_retention_keeps_a_segment_whose_greatest_timestamp_is_in_its_middle() -> None:
    disk = MemDisk()
    log = log_on(disk, replace(CONFIG, segment_ms=30 * DAY_MS), clock=ManualClock(NOW))
    for day in (-30, -29, 0, -30, -30, -30, -30):
        put(log, batch_of(b"x" * 100, timestamps=NOW + day * DAY_MS))
    log.roll()
    log.close()
    good = disk.read_file(name_of(0, TIME_INDEX))
    disk.write_file(name_of(0, TIME_INDEX), entry(NOW - 28 * DAY_MS, 0))
    again = again_on(disk, log, Stop.CLEAN)

    assert dropped_by_retention(again) == 0
    assert disk.read_file(name_of(0, TIME_INDEX)) == good


def test_a_segment_with_a_damaged_header_and_index_is_as_old_as_its_file() -> None:
    disk = MemDisk()
    disk.now_ms = NOW
    log = log_on(disk, replace(CONFIG, segment_ms=30 * DAY_MS), clock=ManualClock(NOW))
    for day in (-20, -1, 0):
        put(log, batch_of(b"x" * 100, timestamps=NOW + day * DAY_MS))
    log.roll()
    put(log, batch_of(b"next", timestamps=NOW))
    log.close()
    disk.write_file(name_of(0, TIME_INDEX), entry(NOW - 20 * DAY_MS, 0))
    disk.flip(name_of(0, LOG), disk.stat(name_of(0, LOG)).size // 3 + 16, 0xFF)
    again = again_on(disk, log, Stop.CLEAN)

    assert dropped_by_retention(again) == 0
    assert retain(again, NOW + WEEK_MS, committed=again.log_end, trash=Trash(disk)) == 0
    assert retain(again, NOW + WEEK_MS + 1, committed=again.log_end, trash=Trash(disk)) == 2


def test_indexes_that_the_active_segment_has_not_saved_are_not_missed() -> None:
    disk = MemDisk()
    log = written(disk)
    log.close()
    directory = directory_of(disk)
    found: list[str] = []
    directory.on_finding = lambda _, finding: found.append(finding.event)
    # The log goes on in a new segment after committed records that the disk has lost.
    again = log_on(
        disk, CONFIG, stop=Stop.PROCESS_CRASH, directory=directory, clock=ManualClock(NOW), high_watermark=2 * BATCHES
    )
    fill(again)

    assert retain(again, NOW + 30 * DAY_MS, committed=again.log_end, trash=Trash(disk)) == 2
    assert found == ["committed_records_missing"]


def test_a_sound_segment_costs_retention_nothing_until_it_is_due() -> None:
    disk = MemDisk()
    log = finished(disk)
    again = again_on(disk, log, Stop.CLEAN)
    read: list[str] = []
    open_read = disk.open_read

    def watched(path: str) -> DiskFile:
        read.append(path)
        return open_read(path)

    disk.open_read = watched  # type: ignore[method-assign]

    assert dropped_by_retention(again) == 0
    assert read == [name_of(0, TIME_INDEX)]
    assert dropped_by_retention(again) == 0
    assert read == [name_of(0, TIME_INDEX)]
    writes = disk.operations
    assert retain(again, NOW + WEEK_MS - 1, committed=again.log_end, trash=Trash(disk)) == 1
    # The renames of the segment's files alone.
    assert disk.operations - writes == len(SEGMENT_FILES)


@pytest.mark.parametrize("flushed", [False, True])
def test_truncated_aborted_transactions_do_not_return_after_a_power_cut(flushed: bool) -> None:
    disk = MemDisk()
    log = written(disk)
    for first in range(0, BATCHES, 2):
        log.txn_index.add(Offset(0), AbortedTxn(7, first, first + 1, first))  # type: ignore[arg-type]
    log.flush()
    log.truncate_to(Offset(4))
    put(log, batch_of(b"next", timestamps=NOW))
    if flushed:
        log.flush()

    cut_power(disk, Nothing())

    kept = txn_index.read(disk, name_of(0, ".txnindex"))
    assert [each.last_offset for each in kept] == [1, 3]
