"""Bit rot in the files of one partition affects at most that partition: the broker starts and serves the others."""

from __future__ import annotations

import copy
import errno
from contextlib import suppress

import pytest
from tests.unit.partition.rig import HOME, Rig, batch, everything, topic, values
from tests.unit.partition.test_aborted_after_crash import PRODUCERS, Writers

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.topic import TopicState
from penstock.storage.names import EPOCHS, LOG, OFFSET_INDEX, QUARANTINED, SNAPSHOT
from penstock.testing.mem_disk import MemDisk

FOLDER = f"{HOME}/orders-0"
FIRST_LOG = f"{FOLDER}/{0:020d}{LOG}"
HEALTHY = topic("healthy", number=2)


def started(*topics: TopicState, disk: MemDisk) -> Rig:
    """A broker over a disk; it serves its healthy partition."""
    rig = Rig(*topics, HEALTHY, disk=disk)
    assert values(rig.replica("healthy")) == [b"healthy"]
    return rig


def two_megabytes() -> tuple[MemDisk, int]:
    """The disk of a killed broker with 300 batches in one segment, and the bytes of each."""
    rig = Rig(topic(), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    for at in range(300):
        rig.append(rig.replica(), batch(b"%05d" % at + b"x" * 8000))
    size = rig.replica().log.size_bytes // 300
    return rig.stop(clean=False), size


def test_a_damaged_header_loses_its_batch_only() -> None:
    disk, size = two_megabytes()
    disk.flip(FIRST_LOG, size * 3 + 16)

    again = started(topic(), disk=disk)

    offsets = [record.offset for record in everything(again.replica())]
    assert offsets == [offset for offset in range(300) if offset != 3]
    assert again.append(again.replica(), batch(b"next")).base_offset == 300
    assert disk.exists(FIRST_LOG + QUARANTINED), "the damaged file is kept for the operator"
    assert [fields["offset"] for fields in again.notes.named("segment_quarantined")] == [3]


def test_a_damaged_index_is_rebuilt() -> None:
    disk, _ = two_megabytes()
    index = f"{FOLDER}/{0:020d}{OFFSET_INDEX}"
    for position in range(4, disk.stat(index).size, 8):
        disk.flip(index, position + 3)

    again = started(topic(), disk=disk)

    assert [record.offset for record in everything(again.replica())] == list(range(300))


def test_leader_epochs_are_rebuilt_from_a_damaged_log() -> None:
    disk, size = two_megabytes()
    disk.flip(FIRST_LOG, size * 3 + 16)
    disk.unlink(f"{FOLDER}/{EPOCHS}")

    again = started(topic(), disk=disk)

    assert [record.offset for record in everything(again.replica())][-1] == 299
    assert again.replica().log.epochs.entries() == [(0, 0)]


def test_a_log_that_cannot_be_recovered_is_offline_alone_and_is_recovered_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, _ = two_megabytes()

    def fail(*_: object) -> None:
        raise IndexError("a bug that bit rot reveals")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.storage.recovery.SegmentScan.run", fail)
        rig = Rig(topic(), HEALTHY, disk=disk)
    with pytest.raises(KafkaStorageError, match=r"orders-0 .* is offline"):
        rig.replica()
    assert {fields["partition"] for fields in rig.notes.named("partition_offline")} == {"orders-0", "healthy-0"}
    rig.stop()

    again = started(topic(), disk=disk)

    assert len(everything(again.replica())) == 300
    assert again.notes.named("directory_loaded")[0]["last_stop"] == "process crash"


def test_a_log_whose_producers_cannot_be_read_is_offline_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(topic(), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    rig.append(rig.replica(), batch(b"one", producer_id=5))
    disk = rig.stop(clean=False)

    def fail(*_: object) -> None:
        raise IndexError("a bug that bit rot reveals")

    monkeypatch.setattr("penstock.partition.producers.ProducerTable.record", fail)
    again = started(topic(), disk=disk)

    with pytest.raises(KafkaStorageError, match="its producers cannot be read"):
        again.replica()


def test_a_disk_error_during_the_replay_takes_only_its_log_directory_offline() -> None:
    rig = Rig(topic(), HEALTHY, paths=("/a", "/b"))
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    rig.append(rig.replica(), batch(b"one", producer_id=5))
    replica = rig.replica()
    replica.snapshot(0)
    home = replica.log.directory.path
    disk = rig.stop(clean=False)
    disk.fail("pread", SNAPSHOT, 5)

    again = Rig(topic(), HEALTHY, disk=disk, paths=("/a", "/b"))

    assert [directory.path for directory in again.store.all_directories if directory.offline] == [home]
    assert values(again.replica("healthy")) == [b"healthy"]
    with pytest.raises(KafkaStorageError):
        again.replica()


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped cleanly"])
def test_no_damaged_byte_of_any_file_prevents_a_start(clean: bool) -> None:
    writers = Writers()
    rig = writers.rig
    rig.change(None, HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    for round_ in range(4):
        for producer_id in PRODUCERS:
            writers.write(producer_id)
        for producer_id in PRODUCERS:
            writers.end(producer_id, commit=producer_id == 6)
        if round_ == 1:
            writers.replica.snapshot(0)
            rig.store.checkpoint()
    disk = writers.rig.stop(clean=clean)
    config = topic(configs={"internal.segment.bytes": "600"})
    names = [f"{FOLDER}/{name}" for name in disk.list_directory(FOLDER)]
    names += [f"{HOME}/{name}" for name in disk.list_directory(HOME) if name.endswith("-checkpoint")]
    assert len(names) > 15
    flips = 0
    for name in names:
        for position in range(0, disk.stat(name).size, 3):
            rotten = copy.deepcopy(disk)
            rotten.flip(name, position, 1 << (position % 8))
            # Damage to a file that all partitions share may affect any of them.
            again = started(config, disk=rotten) if name.startswith(FOLDER) else Rig(config, HEALTHY, disk=rotten)
            with suppress(KafkaStorageError):
                replica = again.replica()
                replica.read(replica.offsets.log_start, 1 << 20, at_least_one=True)
                again.append(replica, batch(b"next"))
            flips += 1
    assert flips > 800


def test_no_damaged_byte_of_the_newest_segment_moves_the_log_end_after_a_clean_stop() -> None:
    rig = Rig(topic(), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    for at in range(4):
        rig.append(rig.replica(), batch(b"%05d" % at))
    disk = rig.stop()

    for position in range(disk.stat(FIRST_LOG).size):
        rotten = copy.deepcopy(disk)
        rotten.flip(FIRST_LOG, position, 1 << (position % 8))
        again = started(topic(), disk=rotten)
        assert again.append(again.replica(), batch(b"next")).base_offset == 4, f"byte {position}"


def test_a_log_that_cannot_be_recovered_on_a_full_disk_is_offline_until_the_next_start() -> None:
    disk, _ = two_megabytes()
    disk.fail("append", FOLDER, errno.ENOSPC)

    full = started(topic(), disk=disk)

    with pytest.raises(KafkaStorageError, match=r"orders-0 .* is offline: it was not recovered: No space .*free space"):
        full.replica()
    full.stop()
    disk.faults.clear()
    again = started(topic(), disk=disk)
    assert len(everything(again.replica())) == 300


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped cleanly"])
@pytest.mark.parametrize("operation", ["open", "pread", "list", "unlink"])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EISDIR])
def test_a_file_that_may_not_be_read_takes_only_its_partition_offline(clean: bool, operation: str, error: int) -> None:
    rig = Rig(topic(), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    rig.append(rig.replica(), batch(b"one", producer_id=5))
    rig.replica().snapshot(0)
    disk = rig.stop(clean=clean)
    disk.write_file(f"{FOLDER}/left.tmp", b"")
    disk.fail(operation, FOLDER, error)

    again = started(topic(), disk=disk)

    with pytest.raises(KafkaStorageError, match=r"orders-0 .* is offline: .*correct its owner or type, and restart"):
        again.replica()
    assert values(again.replica("healthy")) == [b"healthy"]
    disk.faults.clear()
    assert values(started(topic(), disk=again.stop()).replica()) == [b"one"]


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped cleanly"])
def test_a_directory_in_the_place_of_any_file_affects_only_its_partition(clean: bool) -> None:
    rig = Rig(topic(), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    rig.append(rig.replica(), batch(b"one", producer_id=5))
    rig.replica().snapshot(0)
    disk = rig.stop(clean=clean)

    for name in disk.list_directory(FOLDER):
        odd = copy.deepcopy(disk)
        odd.unlink(f"{FOLDER}/{name}")
        odd.make_directory(f"{FOLDER}/{name}")
        for _ in range(2):
            again = started(topic(), disk=odd)
            with suppress(KafkaStorageError):
                again.replica()
            assert values(again.replica("healthy")) == [b"healthy"], name
            again.stop(clean=clean)


def test_a_segment_that_cannot_be_opened_while_the_broker_runs_affects_only_its_partition() -> None:
    rig = Rig(topic(configs={"internal.segment.bytes": "300"}), HEALTHY)
    rig.append(rig.replica("healthy"), batch(b"healthy"))
    for at in range(8):
        rig.append(rig.replica(), batch(b"%d" % at * 50))
    rig.disk.fail("open", f"{FOLDER}/{0:020d}", errno.EACCES)

    with pytest.raises(KafkaStorageError, match="Permission denied"):
        values(rig.replica())

    assert values(rig.replica("healthy")) == [b"healthy"]
    assert rig.store.all_directories[0].offline is None
