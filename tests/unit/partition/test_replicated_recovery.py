"""A replica that lost or damaged a part of its log cuts it there, and does not pretend to hold the rest."""

from __future__ import annotations

import errno

import pytest
from tests.unit.partition.rig import Rig, Seeded
from tests.unit.partition.test_following import ORDERS, Pair, copy, shared, stored

from penstock.model.generated_errors import KafkaStorageError
from penstock.storage.names import LOG
from penstock.testing import MemDisk
from penstock.testing.mem_disk import PowerCut

SEGMENTED = {"internal.segment.bytes": "1000"}
RECORD = b"r" * 300


def copied(count: int, *, flush: str = "os") -> Pair:
    """A follower with as many one-record batches of its leader, flushed and known to be committed."""
    pair = Pair(configs=SEGMENTED | {"flush": flush})
    for _ in range(count):
        pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=count)
    pair.two.flush()
    pair.follower.log.flush()
    pair.follower.note_committed()
    pair.two.store.checkpoint()
    return pair


def log_files(disk: MemDisk) -> list[str]:
    return sorted(name for name in disk.list_directory("/data/orders-0") if name.endswith(LOG))


def again(disk: MemDisk, flush: str = "os") -> Rig:
    """Broker 2 after a restart, following broker 1."""
    rig = Rig(shared(configs=SEGMENTED | {"flush": flush}), disk=disk, broker_id=2, fenced=True)
    rig.replicas.unfence()
    return rig


def test_damage_below_the_high_watermark_is_cut_off_with_everything_after_it() -> None:
    pair = copied(10)
    disk = pair.two.stop(clean=False)
    files = log_files(disk)
    assert len(files) > 3
    disk.flip(f"/data/orders-0/{files[-1]}", 200)
    cut = int(files[-1].removesuffix(LOG))

    rig = again(disk)

    follower = rig.replica()
    assert (follower.offsets.log_end, follower.offsets.high_watermark) == (cut, cut)
    assert follower.log.high_watermark == cut
    assert ORDERS in rig.store.damaged
    assert not [name for name in disk.list_directory("/data/orders-0") if "quarantine" in name]
    copy(pair.leader, follower)
    assert stored(follower) == stored(pair.leader)


def test_a_missing_segment_cuts_the_log_before_it() -> None:
    pair = copied(10)
    disk = pair.two.stop()
    files = log_files(disk)
    disk.unlink(f"/data/orders-0/{files[2]}")

    rig = again(disk)

    assert rig.replica().offsets.log_end == int(files[2].removesuffix(LOG))
    assert ORDERS in rig.store.damaged
    copy(pair.leader, rig.replica())
    assert stored(rig.replica()) == stored(pair.leader)


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_directory_is_an_empty_log(clean: bool) -> None:
    pair = copied(10)
    disk = pair.two.stop(clean=clean)
    disk.remove_tree("/data/orders-0")

    rig = again(disk)

    assert (rig.replica().offsets.log_end, rig.replica().offsets.high_watermark) == (0, 0)
    assert ORDERS in rig.store.damaged
    copy(pair.leader, rig.replica())
    assert stored(rig.replica()) == stored(pair.leader)


def test_records_that_a_power_cut_took_are_not_counted_as_held() -> None:
    pair = copied(4)
    for _ in range(4):
        pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=8)
    pair.follower.note_committed()
    pair.two.store.checkpoint()
    pair.two.disk.crash(Seeded(7))

    rig = again(pair.two.disk)

    offsets = rig.replica().offsets
    assert offsets.log_end < 8, "nothing was flushed beyond the fourth record"
    assert offsets.high_watermark <= offsets.log_end
    copy(pair.leader, rig.replica())
    assert stored(rig.replica()) == stored(pair.leader)


def test_the_high_watermark_after_a_restart_is_the_checkpointed_one_and_not_the_log_end() -> None:
    pair = copied(4)
    pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=4)

    rig = again(pair.two.stop())

    assert (rig.replica().offsets.log_end, rig.replica().offsets.high_watermark) == (5, 4)


def test_the_whole_copy_of_a_crashed_process_is_kept() -> None:
    pair = copied(4)
    pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=4)

    rig = again(pair.two.stop(clean=False))

    assert rig.replica().offsets.log_end == 5
    assert rig.store.damaged == set()


def test_with_flush_group_a_follower_holds_after_a_power_cut_what_it_had_acknowledged() -> None:
    pair = copied(4, flush="group")
    position = pair.follower.fetch_position()
    assert position is not None
    assert position.held_end == 4
    pair.two.disk.crash(Seeded(7))

    rig = again(pair.two.disk, flush="group")

    assert rig.replica().offsets.log_end == 4
    assert rig.store.damaged == set()


@pytest.mark.parametrize("seed", range(8))
def test_marks_are_lowered_before_records_are_appended_where_a_log_was_cut(seed: int) -> None:
    pair = copied(10)
    disk = pair.two.stop(clean=False)
    disk.flip(f"/data/orders-0/{log_files(disk)[-1]}", 200)
    rig = again(disk)
    for _ in range(10):
        pair.append(RECORD)
    copy(pair.leader, rig.replica(), high_watermark=0)
    disk.crash(Seeded(seed))

    third = again(disk)

    copy(pair.leader, third.replica())
    assert stored(third.replica()) == stored(pair.leader)


@pytest.mark.parametrize("flushed", [0, 4])
def test_records_of_a_failed_fsync_are_copied_again_although_the_page_cache_has_them(flushed: int) -> None:
    pair = copied(flushed)
    for _ in range(8):
        pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=8)
    pair.two.disk.fail("sync", "orders-0", errno.EIO)
    with pytest.raises(KafkaStorageError):
        pair.follower.log.flush()
    disk = pair.two.stop(clean=False)
    disk.faults.clear()

    rig = again(disk)

    assert rig.replica().offsets.log_end <= flushed
    assert ORDERS in rig.store.damaged
    copy(pair.leader, rig.replica())
    rig.replica().log.flush()
    rig.store.checkpoint()
    disk.crash(Seeded(3))
    third = again(disk)
    copy(pair.leader, third.replica())
    assert stored(third.replica()) == stored(pair.leader)


def test_a_power_cut_at_any_point_of_a_restart_leaves_a_log_that_can_follow() -> None:
    steps = 0
    while True:
        pair = Pair(isr=(1,), configs=SEGMENTED)
        for _ in range(6):
            pair.append(RECORD)
        copy(pair.leader, pair.follower)
        pair.follower.log.flush()
        pair.follower.note_committed()
        pair.two.store.checkpoint()
        for _ in range(6):
            pair.append(RECORD)
        pair.leader.delete_records(9)
        disk = pair.two.disk
        disk.cut_power_at = disk.operations + steps
        try:
            pair.two.replicas.restart({ORDERS: 9})
            copy(pair.leader, pair.follower)
        except PowerCut:
            pass
        else:
            break
        disk.crash(Seeded(7))

        rig = again(disk)
        follower = rig.replica()
        assert follower.offsets.log_end in (9, *range(7)), f"after {steps} operations"
        if follower.offsets.log_end < 9:
            rig.replicas.restart({ORDERS: 9})
        copy(pair.leader, follower)
        assert stored(follower, 9) == stored(pair.leader, 9)
        steps += 1
    assert steps > 5
