"""Fills free memory with file pages, as on a machine that has run for a while.

On a virtual machine the first use of a page that is new, or was free for some seconds, waits for the host to provide
it. A writer would then be measured by the host's memory and not by its own work: it took seconds of processor time per
gigabyte. Reusing a page of the page cache has no such cost.
"""

from __future__ import annotations

import os
from pathlib import Path

HOLES = "holes"
FREE_BYTES_MAX = 512 * 1024 * 1024
CHUNK_BYTES = 2 * 1024 * 1024
CHUNKS_BETWEEN_LOOKS = 32


def settle(folder: Path) -> None:
    """Sync dirty pages and fill free memory, before every work.

    Dirty pages of the previous work would throttle this one, and the disk would be measured.
    """
    os.sync()
    fill(folder / HOLES)


def fill(holes: Path) -> None:
    """Read a sparse file, as large as the memory, until little memory is free."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with holes.open("ab+") as file:
        file.truncate(memory_bytes)
        for number, offset in enumerate(range(0, memory_bytes, CHUNK_BYTES)):
            if number % CHUNKS_BETWEEN_LOOKS == 0 and free_bytes() < FREE_BYTES_MAX:
                return
            os.posix_fadvise(file.fileno(), offset, CHUNK_BYTES, os.POSIX_FADV_WILLNEED)


def free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line for free memory")
