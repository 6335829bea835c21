"""Memory as a machine has it that has run for a while: full of pages of files, hardly any of it free.

On a virtual machine the first use of a page that nobody has used yet, or that was free for some seconds, waits for
the host to give it. Whoever writes then is judged by the host's memory and not by its own work: seconds of processor
time for a gigabyte were seen. A page that is taken from the page cache costs nothing of the kind.
"""

from __future__ import annotations

import os
from pathlib import Path

HOLES = "holes"
FREE_BYTES_MAX = 512 * 1024 * 1024
CHUNK_BYTES = 2 * 1024 * 1024
CHUNKS_BETWEEN_LOOKS = 32


def settle(folder: Path) -> None:
    """Nothing dirty and nothing free: what every work begins with.

    Dirty pages of the work before would throttle this one: one would judge the disk.
    """
    os.sync()
    fill(folder / HOLES)


def fill(holes: Path) -> None:
    """Read a file of holes, as large as the memory, until little is free; what is there already costs nothing."""
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
    raise OSError("/proc/meminfo does not tell what is free")
