"""The producer ids that were given away, kept beside the logs that know them.

The counter is in the metadata. Where that is lost, or restored from an older copy, the counter goes back, and an id
that is given away again meets what the logs know of its first owner: batches of the new producer pass for duplicates,
and are acknowledged without being stored.
"""

from contextlib import suppress

from penstock.storage.checkpoint import CheckpointDamaged, encode_lines, read_lines
from penstock.storage.disk import Disk, replace_file

PRODUCER_IDS = "producer-ids-checkpoint"


class ProducerIdFloor:
    """The first producer id that no broker of a log directory has given away. Its methods wait for the disk."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{PRODUCER_IDS}"

    def read(self) -> int:
        """0 where nothing says so, or nothing that can be believed."""
        with suppress(OSError, CheckpointDamaged, ValueError):
            return max(map(int, read_lines(self._disk, self._path)), default=0)
        return 0

    def write(self, next_id: int) -> None:
        """A disk that does not take it refuses no id: the metadata still counts."""
        with suppress(OSError):
            replace_file(self._disk, self._path, encode_lines([str(next_id)]), sync=True)
