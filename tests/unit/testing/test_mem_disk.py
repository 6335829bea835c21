"""The disk in memory: the space it counts, and what an fsync keeps."""

import errno
import random

import pytest

from penstock.testing.mem_disk import MemDisk, inodes_of


class Seeded:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid_bytes(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def walked_bytes(disk: MemDisk) -> int:
    return sum(len(inode.data) for inode in inodes_of(disk._root))


def test_used_bytes_are_those_of_all_files_with_a_name() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        disk = MemDisk()
        names = [f"/d{folder}/f{file}" for folder in range(2) for file in range(3)]
        for folder in range(2):
            disk.make_directory(f"/d{folder}")
        opened = [disk.open(name, create=True) for name in names[:3]]
        for _ in range(60):
            name, other = rng.sample(names, 2)
            step = rng.randrange(9)
            try:
                if step == 0:
                    opened.append(disk.open(name, create=True))
                elif step == 1:
                    disk.unlink(name)
                elif step == 2:
                    disk.rename(name, other)
                elif step == 3:
                    disk.link(name, other)
                elif step == 4:
                    rng.choice(opened).truncate(rng.randrange(50))
                elif step == 5:
                    disk.write_file(name, rng.randbytes(rng.randrange(40)), sync=rng.random() < 0.5)
                elif step == 6:
                    disk.rename("/d1", "/d2" if rng.random() < 0.5 else "/d1")
                elif step == 7 and rng.random() < 0.1:
                    disk.remove_tree("/d1")
                else:
                    rng.choice(opened).append(rng.randbytes(rng.randrange(40)))
            except (FileNotFoundError, FileExistsError):
                pass
            assert disk.used_bytes() == walked_bytes(disk)
        disk.crash(Seeded(seed))
        assert disk.used_bytes() == walked_bytes(disk)


def test_a_sync_keeps_every_write_and_truncation_before_it() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        disk = MemDisk()
        file = disk.open("/log", create=True)
        disk.sync_directory("/")
        for _ in range(30):
            if rng.random() < 0.3:
                file.truncate(rng.randrange(2000))
            else:
                file.append(rng.randbytes(rng.randrange(1500)))
        file.sync()
        expected = disk.read_file("/log")
        disk.crash(Seeded(seed))
        assert disk.read_file("/log") == expected


def test_what_a_failed_sync_left_unwritten_is_gone_after_a_truncation() -> None:
    for seed in range(10):
        disk = MemDisk()
        file = disk.open("/log", create=True)
        disk.sync_directory("/")
        file.append(b"a" * 700)
        file.sync()
        file.append(b"b" * 700)
        disk.fail("sync", "/log", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()

        file.truncate(700)
        file.sync()
        disk.crash(Seeded(seed))

        assert disk.read_file("/log") == b"a" * 700


def test_a_truncation_keeps_unwritten_what_comes_before_it() -> None:
    lost = 0
    for seed in range(10):
        disk = MemDisk()
        file = disk.open("/log", create=True)
        disk.sync_directory("/")
        file.append(b"b" * 1400)
        disk.fail("sync", "/log", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()

        file.truncate(700)
        file.sync()
        disk.crash(Seeded(seed))

        left = disk.read_file("/log")
        assert len(left) <= 700
        lost += left != b"b" * 700
    assert lost
