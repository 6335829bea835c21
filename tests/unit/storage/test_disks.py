"""Both disks implement the `Disk` interface; the one in memory also fails on request."""

import errno
import os

import pytest
from tests.unit.storage.logs import Seeded

from penstock.storage.disk import Disk, RealDisk, replace_file
from penstock.testing.mem_disk import MemDisk, PowerCut


@pytest.fixture(params=["real", "memory"])
def disk_and_path(request, tmp_path):
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = MemDisk()
    disk.make_directory("/data")
    return disk, "/data"


def test_files_are_appended_read_truncated_and_measured(disk_and_path):
    disk, path = disk_and_path
    file = disk.open(f"{path}/x", create=True)

    assert file.append(memoryview(b"hello ")) == 6
    assert file.append(b"world") == 5
    assert (file.pread(5, 6), file.pread(100, 9), file.pread(5, 50)) == (b"world", b"ld", b"")
    assert file.pread_nowait(5, 6) == b"world"
    file.truncate(3)
    file.append(b"!")
    file.sync()
    assert (file.size(), disk.stat(f"{path}/x").size, disk.read_file(f"{path}/x")) == (4, 4, b"hel!")
    assert os.pread(file.fileno(), 10, 0) == b"hel!"
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.open_read(f"{path}/x").append(b"x")


def test_names_are_made_renamed_linked_listed_and_removed(disk_and_path):
    disk, path = disk_and_path
    disk.make_directory(f"{path}/d/e", parents=True)
    disk.make_directory(f"{path}/d")
    replace_file(disk, f"{path}/d/a", b"1", sync=True)
    disk.link(f"{path}/d/a", f"{path}/d/b")
    with pytest.raises(FileExistsError):
        disk.link(f"{path}/d/a", f"{path}/d/b")
    disk.rename(f"{path}/d/a", f"{path}/d/c")

    assert sorted(disk.list_directory(f"{path}/d")) == ["b", "c", "e"]
    assert (disk.exists(f"{path}/d/b"), disk.exists(f"{path}/d/a")) == (True, False)
    disk.unlink(f"{path}/d/b")
    disk.sync_directory(f"{path}/d")
    assert disk.read_file(f"{path}/d/c") == b"1"
    disk.rename(f"{path}/d", f"{path}/f")
    disk.remove_tree(f"{path}/f")
    assert disk.list_directory(path) == []


def test_a_missing_parent_directory_is_not_recreated(disk_and_path):
    disk, path = disk_and_path

    with pytest.raises(FileNotFoundError):
        disk.make_directory(f"{path}/gone/t-0")

    assert disk.list_directory(path) == []


def test_missing_files_raise(disk_and_path):
    disk, path = disk_and_path
    for act in (disk.open, disk.open_read, disk.read_file, disk.unlink, disk.stat, disk.list_directory):
        with pytest.raises(FileNotFoundError):
            act(f"{path}/missing")
    disk.write_file(f"{path}/file", b"")
    with pytest.raises(NotADirectoryError):
        disk.read_file(f"{path}/file/below")


def test_an_open_file_can_be_read_after_it_is_unlinked(disk_and_path):
    disk, path = disk_and_path
    file = disk.open(f"{path}/x", create=True)
    file.append(b"still here")
    disk.unlink(f"{path}/x")

    assert file.pread(100, 0) == b"still here"


def test_a_lock_is_held_by_one_until_released(disk_and_path):
    disk, path = disk_and_path
    lock = disk.lock(f"{path}/.lock")

    assert lock is not None
    assert disk.lock(f"{path}/.lock") is None
    lock.release()
    assert disk.lock(f"{path}/.lock") is not None


def test_a_disk_reports_its_free_space_and_boot_id(disk_and_path):
    disk, path = disk_and_path
    free, total = disk.free_bytes(path)

    assert 0 < free <= total
    assert disk.boot_id() == disk.boot_id() != ""


def test_an_open_file_closes_with_its_last_reference(tmp_path):
    disk: Disk = RealDisk()
    file = disk.open(str(tmp_path / "x"), create=True)
    fd = int(str(file.fileno()))

    del file

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_bound_method_keeps_its_file_open(disk_and_path):
    disk, path = disk_and_path

    assert disk.open(f"{path}/x", create=True).append(b"hello") == 5
    pread = disk.open_read(f"{path}/x").pread

    assert pread(5, 0) == b"hello"


def test_a_power_cut_keeps_synced_data_and_some_of_the_rest():
    outcomes = set()
    for seed in range(60):
        disk = MemDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        file = disk.open("/d/x", create=True)
        file.append(b"synced")
        file.sync()
        disk.sync_directory("/d")
        file.append(b"+maybe")
        disk.write_file("/d/y", b"new")

        disk.crash(Seeded(seed))

        content = disk.read_file("/d/x")
        assert content in (b"synced", b"synced+maybe")
        outcomes.add((content, disk.exists("/d/y")))
    assert len(outcomes) == 4


def test_an_unsynced_directory_entry_can_be_lost_though_the_file_was_synced():
    lost = False
    for seed in range(30):
        disk = MemDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        disk.write_file("/d/x", b"data", sync=True)
        disk.crash(Seeded(seed))
        lost |= not disk.exists("/d/x")
    assert lost


def test_a_small_disk_writes_what_fits_and_then_fails():
    disk = MemDisk(capacity_bytes=10)
    disk.make_directory("/d")
    file = disk.open("/d/x", create=True)

    assert file.append(b"123456") == 6
    assert file.append(b"123456") == 4
    with pytest.raises(OSError, match="No space left") as raised:
        file.append(b"1")
    assert raised.value.errno == errno.ENOSPC
    disk.capacity_bytes = 12
    assert file.append(b"12") == 2


def test_the_power_is_cut_at_the_given_operation():
    disk = MemDisk()
    disk.make_directory("/d")
    disk.cut_power_at = disk.operations + 2
    file = disk.open("/d/x", create=True)
    file.append(b"a")

    with pytest.raises(PowerCut):
        file.append(b"b")
    disk.kill()

    assert disk.read_file("/d/x") == b"a"
