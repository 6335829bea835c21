"""The record of a broker's registration in its log directories."""

from __future__ import annotations

import pytest
from fastcrc.crc32 import iscsi as crc32c

from penstock.model.ids import BrokerEpoch
from penstock.storage.registration import REGISTRATION, RegistrationFile, RegistrationRecord
from penstock.testing.mem_disk import MemDisk

RECORD = RegistrationRecord(admitted_before=BrokerEpoch(7), may_have_lost=True, store_id="s", store_imported=True)


def disk_of(*directories: str) -> MemDisk:
    disk = MemDisk()
    for directory in directories:
        disk.make_directory(directory, parents=True)
    return disk


def test_a_record_is_read_as_it_was_written() -> None:
    file = RegistrationFile(disk_of("/a"), ["/a"])
    assert file.read() == RegistrationRecord()
    file.write(RECORD)
    assert file.read() == RECORD
    file.write(RegistrationRecord(admitted_before=BrokerEpoch(8)))
    assert file.read() == RegistrationRecord(admitted_before=BrokerEpoch(8))


def test_a_record_is_in_every_directory_and_survives_all_but_one() -> None:
    disk = disk_of("/a", "/b")
    RegistrationFile(disk, ["/a", "/b"]).write(RECORD)
    disk.unlink(f"/a/{REGISTRATION}")
    assert RegistrationFile(disk, ["/a", "/b"]).read() == RECORD


def test_the_record_of_the_last_admission_counts() -> None:
    disk = disk_of("/a", "/b")
    RegistrationFile(disk, ["/a"]).write(RECORD)
    RegistrationFile(disk, ["/b"]).write(RegistrationRecord(admitted_before=BrokerEpoch(9)))
    assert RegistrationFile(disk, ["/a", "/b"]).read() == RegistrationRecord(admitted_before=BrokerEpoch(9))


def test_a_loss_that_one_of_two_equal_records_has_counts() -> None:
    disk = disk_of("/a", "/b")
    RegistrationFile(disk, ["/a", "/b"]).write(RegistrationRecord(admitted_before=BrokerEpoch(7)))
    RegistrationFile(disk, ["/b"]).write(RegistrationRecord(admitted_before=BrokerEpoch(7), may_have_lost=True))
    assert RegistrationFile(disk, ["/a", "/b"]).read().may_have_lost


@pytest.mark.parametrize("damage", [b"", b"0\n1\n7 0 s 00000000\n", b"0\n2\n", b"\xff\xfe"])
def test_a_damaged_record_is_none(damage: bytes) -> None:
    disk = disk_of("/a")
    disk.write_file(f"/a/{REGISTRATION}", damage)
    assert RegistrationFile(disk, ["/a"]).read() == RegistrationRecord()


def test_a_directory_that_does_not_exist_yet_is_left_out() -> None:
    disk = disk_of("/a")
    file = RegistrationFile(disk, ["/a", "/later"])
    file.write(RECORD)
    assert file.read() == RECORD
    assert not disk.exists("/later")


def test_a_loss_counts_through_later_starts_until_an_admission_was_seen() -> None:
    record = RegistrationRecord(admitted_before=BrokerEpoch(7), store_id="s")

    lost = record.recovered(lost=True).recovered(lost=False)

    assert lost.may_have_lost
    assert lost.admitted_before == 7
    assert lost.admitted(BrokerEpoch(9), "s") == RegistrationRecord(admitted_before=BrokerEpoch(9), store_id="s")


def test_each_directory_says_whether_it_was_there_and_has_lost_nothing() -> None:
    disk = disk_of("/a", "/b", "/c", "/new")
    old, now = RegistrationRecord(admitted_before=BrokerEpoch(5)), RegistrationRecord(admitted_before=BrokerEpoch(7))
    RegistrationFile(disk, ["/c"]).write(old)
    RegistrationFile(disk, ["/a", "/b"]).write(now.recovered(lost=True), ["/a"])
    file = RegistrationFile(disk, ["/a", "/b", "/c", "/new", "/gone"])
    assert file.present() == {"/a": True, "/b": False}
    assert file.read().may_have_lost, "the broker as a whole has"


@pytest.mark.parametrize(("store_id", "known", "imported"), [("s", "s", False), ("s.imported", "s", True)])
def test_a_record_of_the_first_format_is_read(store_id: str, known: str, imported: bool) -> None:
    facts = f"7 1 {store_id}"
    line = f"{facts} {crc32c(facts.encode()):08x}"
    assert RegistrationRecord.parse(line) == RegistrationRecord(
        admitted_before=BrokerEpoch(7), may_have_lost=True, store_id=known, store_imported=imported
    )
