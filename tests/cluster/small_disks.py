"""File systems of a few megabytes in memory, which can be filled, made read-only and removed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

MakeDisk = Callable[..., "SmallDisk"]


class SmallDisk:
    """A tmpfs of its own."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        mount("-t", "tmpfs", "-o", f"size={megabytes}m", "penstock-test", str(folder))

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Fill it with one file, except for some bytes."""
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            try:
                filler.write(bytes(max(0, free - leave_bytes)))
            except OSError as error:
                # Another process has used some of the space since it was measured.
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        (self.folder / "filler").unlink()

    def read_only(self) -> None:
        mount("-o", "remount,ro", str(self.folder))

    def writable(self) -> None:
        mount("-o", "remount,rw", str(self.folder))

    def remove(self) -> None:
        # Lazily: a killed broker may have files open for a moment longer.
        subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)


def vanish(folder: Path) -> None:
    """Remove a folder in use, all at once: file by file, some would be recreated meanwhile."""
    gone = folder.with_name(f"{folder.name}-gone")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def can_mount(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    try:
        SmallDisk(folder / "probe", 1).remove()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Make small disks; they are removed at the end of the test."""
    if not can_mount(tmp_path):
        pytest.skip("mounting a small disk needs root and the right to mount")
    with ExitStack() as disks:

        def make(name: str, megabytes: int = 24) -> SmallDisk:
            disk = SmallDisk(tmp_path / name, megabytes)
            disks.callback(disk.remove)
            return disk

        yield make
