"""The highest producer id that was assigned, kept beside the logs.

The counter is in the metadata. If that is lost, or restored from an older copy, the counter goes back, and an id is
assigned twice: the logs still have the state of its first owner, so batches of the new one would look like duplicates
and be acknowledged without being stored.
"""

import asyncio
from concurrent.futures import Executor
from contextlib import suppress

from penstock.storage.checkpoint import CheckpointDamaged, encode_lines, read_lines
from penstock.storage.disk import Disk, replace_file

PRODUCER_IDS = "producer-ids-checkpoint"


class ProducerIdFloor:
    """The first producer id that was never assigned on a log directory. Threads wait for the disk."""

    __slots__ = ("_disk", "_path", "_threads")

    def __init__(self, disk: Disk, directory: str, threads: Executor) -> None:
        self._disk = disk
        self._threads = threads
        self._path = f"{directory}/{PRODUCER_IDS}"

    async def read(self) -> int:
        """0 when the file is missing or damaged."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read)

    async def write(self, next_id: int) -> None:
        """A failing disk does not refuse the id: the metadata has the counter."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._write, next_id)

    def _read(self) -> int:
        with suppress(OSError, CheckpointDamaged, ValueError):
            return max(map(int, read_lines(self._disk, self._path)), default=0)
        return 0

    def _write(self, next_id: int) -> None:
        with suppress(OSError):
            replace_file(self._disk, self._path, encode_lines([str(next_id)]), sync=True)
