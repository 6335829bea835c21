"""Bit rot in checkpoint files: no record is lost, no deleted one returns, and no offset is used twice."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from tests.unit.partition.rig import HOME, Rig, Seeded, batch, everything, topic

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId
from penstock.storage import completeness, partition_metadata, set_aside
from penstock.storage.marks import MARKS
from penstock.storage.names import LOG, PARTITION_METADATA, offset_name
from penstock.testing.mem_disk import MemDisk

SMALL = topic(configs={"internal.segment.bytes": "600"})
OTHER = topic("other", number=2)
FOLDER = f"{HOME}/orders-0"
STARTED_AT = 5
BATCHES = 12
STOPS = ("clean", "kill", "power cut")


def written(stop: str) -> MemDisk:
    """The disk of a broker with a log whose first records were deleted, and another log."""
    rig = Rig(SMALL, OTHER)
    for at in range(BATCHES):
        rig.append(rig.replica(), batch(b"%03d" % at * 30))
    rig.append(rig.replica("other"), batch(b"a", b"b"))
    rig.replica().delete_records(STARTED_AT)
    for replica in (rig.replica(), rig.replica("other")):
        replica.note_committed()
        replica.log.flush()
    rig.store.checkpoint()
    if stop == "power cut":
        rig.disk.crash(Seeded(1))
        return rig.disk
    return rig.stop(clean=stop == "clean")


def check_complete(disk: MemDisk, what: str) -> Rig:
    rig = Rig(SMALL, OTHER, disk=disk)
    state = rig.replica().offsets
    assert [record.offset for record in everything(rig.replica())] == list(range(STARTED_AT, BATCHES)), what
    assert (state.log_start, state.log_end) == (STARTED_AT, BATCHES), what
    assert [record.value for record in everything(rig.replica("other"))] == [b"a", b"b"], what
    assert rig.replica("other").offsets.log_end == 2, what
    return rig


def rotten(disk: MemDisk, path: str) -> Iterator[tuple[MemDisk, str]]:
    """The disk with bits of each byte of a file flipped in turn: another digit, and any other character."""
    for position in range(disk.stat(path).size):
        for bit in {0, position % 8}:
            found = copy.deepcopy(disk)
            found.flip(path, position, 1 << bit)
            yield found, f"bit {bit} of byte {position} of {path}"


@pytest.mark.parametrize("stop", STOPS)
def test_no_flipped_bit_of_a_checkpoint_changes_a_log(stop: str) -> None:
    disk = written(stop)
    names = [name for name in disk.list_directory(HOME) if name.endswith("-checkpoint")]
    assert MARKS in names
    assert len(names) >= 5

    for name in names:
        for found, what in rotten(disk, f"{HOME}/{name}"):
            check_complete(found, what)


@pytest.mark.parametrize("stop", STOPS)
def test_no_flipped_bit_of_a_topic_id_separates_a_log_from_its_topic(stop: str) -> None:
    disk = written(stop)

    for found, what in rotten(disk, f"{FOLDER}/{PARTITION_METADATA}"):
        rig = check_complete(found, what)
        rig.stop(clean=False)
        if stop != "clean":
            # The file was corrected, so that it is right without the checkpoint.
            found.unlink(f"{HOME}/{MARKS}")
        check_complete(found, what)


@pytest.mark.parametrize("stop", STOPS)
def test_kafkas_checkpoints_are_used_where_there_is_no_other(stop: str) -> None:
    disk = written(stop)
    disk.unlink(f"{HOME}/{MARKS}")

    check_complete(disk, "without checksums")


def test_a_topic_of_another_id_is_not_taken_for_rot() -> None:
    disk = written("kill")
    other = TopicId(SMALL.topic_id[:8] + b"another!")
    disk.write_file(f"{FOLDER}/{PARTITION_METADATA}", partition_metadata.encode(other))

    rig = Rig(SMALL, OTHER, disk=disk)

    assert rig.notes.named("log_set_aside")
    assert everything(rig.replica()) == []


def test_no_flipped_bit_of_a_note_restores_a_log_wrongly() -> None:
    disk = Rig(OTHER, disk=written("kill")).stop(clean=False)
    aside = next(name for name in disk.list_directory(HOME) if name.endswith("-stray"))

    restored = 0
    for found, what in rotten(disk, f"{HOME}/{aside}/{set_aside.NOTE}"):
        rig = Rig(SMALL, OTHER, disk=found)
        if rig.notes.named("log_restored"):
            restored += 1
            assert [record.offset for record in everything(rig.replica())] == list(range(STARTED_AT, BATCHES)), what
        else:
            assert [fields["path"] for fields in rig.notes.named("set_aside_note_damaged")] == [f"{HOME}/{aside}"], what
            assert found.exists(f"{HOME}/{aside}"), what
    assert restored > 0, "where only the name of the checksum field is damaged"


def test_no_flipped_bit_of_a_note_lets_missing_records_be_forgotten() -> None:
    disk = written("clean")
    disk.unlink(f"{FOLDER}/{offset_name(9, LOG)}")
    disk = Rig(SMALL, OTHER, disk=disk).stop(clean=False)

    for found, what in rotten(disk, f"{FOLDER}/{completeness.NOTE}"):
        rig = Rig(SMALL, OTHER, disk=found)
        with pytest.raises(KafkaStorageError):
            rig.replica()
        assert len(everything(rig.replica("other"))) == 2, what
