"""Files that disappear after a clean stop: their partition is offline, and no offset is used twice."""

from __future__ import annotations

import pytest
from tests.unit.partition.rig import HOME, Rig, Seeded, batch, everything, topic, values

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.storage import completeness
from penstock.storage.names import GAPS, LOG, SEGMENT_FILES, offset_name
from penstock.testing.mem_disk import MemDisk

FOLDER = f"{HOME}/orders-0"
OTHER = topic("other", number=2)
SMALL = topic(configs={"segment.bytes": str(1 << 20)})
BATCHES = 5
STARTS = (0, 2, 4)
"""Where segments of one megabyte begin, with batches of 400 kilobytes."""


def stopped(*, compacted: bool = False) -> MemDisk:
    """The disk of a broker that stopped cleanly, with three segments of `orders` and one of `other`."""
    rig = Rig(SMALL, OTHER)
    rig.append(rig.replica("other"), batch(b"other"))
    for at in range(BATCHES):
        rig.append(rig.replica(), batch(b"%d" % at * 400_000))
    assert tuple(segment.base for segment in rig.replica().log.segments) == STARTS
    disk = rig.stop()
    if compacted:
        disk.write_file(f"{FOLDER}/{GAPS}", b"")
    return disk


def started(disk: MemDisk) -> Rig:
    rig = Rig(SMALL, OTHER, disk=disk)
    assert values(rig.replica("other")) == [b"other"]
    return rig


def remove_segment(disk: MemDisk, base: int) -> dict[str, bytes]:
    """Remove a segment's files; returns their contents."""
    names = [offset_name(base, kind) for kind in SEGMENT_FILES]
    removed = {name: disk.read_file(f"{FOLDER}/{name}") for name in names if disk.exists(f"{FOLDER}/{name}")}
    for name in removed:
        disk.unlink(f"{FOLDER}/{name}")
    return removed


def refused(rig: Rig) -> str:
    with pytest.raises(KafkaStorageError) as refusal:
        rig.replica()
    return str(refusal.value)


@pytest.mark.parametrize("base", STARTS)
@pytest.mark.parametrize("compacted", [False, True])
def test_a_missing_segment_takes_its_partition_offline_until_it_is_back(base: int, compacted: bool) -> None:
    disk = stopped(compacted=compacted)
    removed = remove_segment(disk, base)

    for clean in (True, False, True):
        rig = started(disk)
        message = refused(rig)
        assert offset_name(base, LOG) in message
        assert "accept-loss" in message
        assert [fields["partition"] for fields in rig.notes.named("records_missing")] == ["orders-0"]
        disk = rig.stop(clean=clean)

    for name, data in removed.items():
        disk.write_file(f"{FOLDER}/{name}", data)
    rig = started(disk)
    assert len(everything(rig.replica())) == BATCHES
    assert rig.append(rig.replica(), batch(b"next")).base_offset == BATCHES
    assert not disk.exists(f"{FOLDER}/{completeness.NOTE}")


def test_a_segment_that_lost_its_end_takes_its_partition_offline() -> None:
    disk = stopped()
    file = disk.open(f"{FOLDER}/{offset_name(4, LOG)}")
    file.truncate(file.size() - 1)

    assert "bytes" in refused(started(disk))


def test_a_missing_directory_takes_its_partition_offline_through_further_starts() -> None:
    disk = stopped()
    disk.remove_tree(FOLDER)

    for clean in (False, True):
        rig = started(disk)
        assert offset_name(0, LOG) in refused(rig)
        disk = rig.stop(clean=clean)


def killed(*, flushed: bool, power_cut: bool) -> MemDisk:
    """The disk of a broker that was killed or lost its power after a checkpoint, without the directory of `orders`."""
    rig = Rig(SMALL, OTHER)
    for name in ("other", "orders"):
        rig.append(rig.replica(name), batch(b"other"))
        rig.replica(name).note_committed()
    rig.replica("other").log.flush()
    if flushed:
        rig.replica().log.flush()
    rig.store.checkpoint()
    disk = rig.stop(clean=False)
    if power_cut:
        disk.crash(Seeded(1))
    if disk.exists(FOLDER):
        disk.remove_tree(FOLDER)
    return disk


@pytest.mark.parametrize(("flushed", "power_cut"), [(True, True), (True, False), (False, False)])
def test_a_missing_directory_is_noticed_also_after_a_crash(flushed: bool, power_cut: bool) -> None:
    disk = killed(flushed=flushed, power_cut=power_cut)

    for clean in (False, True):
        rig = started(disk)
        assert "every segment is missing" in refused(rig)
        disk = rig.stop(clean=clean)
    completeness.give_up(disk, FOLDER)
    rig = started(disk)
    assert rig.append(rig.replica(), batch(b"next")).base_offset == 1


def test_a_directory_that_was_never_flushed_may_be_lost_in_a_power_cut() -> None:
    rig = started(killed(flushed=False, power_cut=True))

    assert rig.append(rig.replica(), batch(b"next")).base_offset == 0


def test_a_topic_that_was_created_again_after_the_checkpoint_has_lost_nothing() -> None:
    disk = killed(flushed=True, power_cut=False)

    rig = Rig(topic(number=7), OTHER, disk=disk)

    assert rig.append(rig.replica(), batch(b"next")).base_offset == 0


def test_a_replica_that_left_and_came_back_since_the_checkpoint_has_lost_nothing() -> None:
    rig = Rig(SMALL, OTHER)
    for name in ("other", "orders"):
        rig.append(rig.replica(name), batch(b"other"))
        rig.replica(name).log.flush()
    rig.store.checkpoint()
    rig.store.delete(TopicPartition("orders", 0))

    again = started(rig.stop(clean=False))

    assert again.append(again.replica(), batch(b"next")).base_offset == 0


def test_a_directory_moved_to_another_disk_by_hand_is_no_loss() -> None:
    rig = Rig(SMALL, paths=(HOME, "/two"))
    rig.append(rig.replica(), batch(b"a"))
    disk = rig.stop()
    home = HOME if disk.exists(FOLDER) else "/two"
    disk.rename(f"{home}/orders-0", f"{'/two' if home == HOME else HOME}/orders-0")

    assert values(Rig(SMALL, disk=disk, paths=(HOME, "/two")).replica()) == [b"a"]


@pytest.mark.parametrize("base", STARTS)
def test_an_accepted_loss_leaves_a_gap_and_no_offset_is_used_twice(base: int) -> None:
    disk = stopped()
    remove_segment(disk, base)
    rig = started(disk)
    refused(rig)
    disk = rig.stop()
    assert completeness.give_up(disk, FOLDER) is not None

    rig = started(disk)

    lost = range(base, min(base + 2, BATCHES))
    assert [record.offset for record in everything(rig.replica())] == [at for at in range(BATCHES) if at not in lost]
    assert rig.append(rig.replica(), batch(b"next")).base_offset == BATCHES
    again = started(rig.stop(clean=False))
    assert again.replica().offsets.log_end == BATCHES + 1
    third = started(again.stop())
    assert third.replica().offsets.log_end == BATCHES + 1


def test_after_an_accepted_loss_of_its_directory_a_log_continues_at_its_old_end() -> None:
    disk = stopped()
    disk.remove_tree(FOLDER)
    disk = started(disk).stop()
    completeness.give_up(disk, FOLDER)

    rig = started(disk)

    assert rig.append(rig.replica(), batch(b"next")).base_offset == BATCHES
    assert everything(rig.replica())[0].offset == BATCHES


def test_a_missing_directory_of_a_deleted_topic_is_ignored() -> None:
    disk = stopped()
    disk.remove_tree(FOLDER)

    rig = Rig(OTHER, disk=disk)

    assert values(rig.replica("other")) == [b"other"]
    assert not disk.exists(FOLDER)
    rig.change(None, topic(number=3))
    assert rig.append(rig.replica(), batch(b"new")).base_offset == 0


def test_a_summary_without_segments_is_accepted() -> None:
    disk = stopped()
    path = f"{HOME}/log-summary-checkpoint"
    lines = [" ".join(line.split()[:8]) for line in disk.read_file(path).decode().split("\n")]
    disk.write_file(path, "\n".join(lines).encode())

    assert len(everything(started(disk).replica())) == BATCHES
