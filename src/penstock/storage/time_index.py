"""The time index: maps a timestamp to an offset in a segment, with an entry for each entry of the offset index.

An entry is a timestamp (eight bytes) and the last offset of the batch that has it, relative to the segment's base
(four), as in Kafka's `.timeindex` files. Each has the greatest timestamp so far, so timestamps rise strictly.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right

ENTRY = struct.Struct(">qI")
ENTRY_BYTES = ENTRY.size


class TimeIndex:
    """The time index of one segment, as two columns.

    A lookup in a finished segment reads the file whole.
    """

    __slots__ = ("offsets", "saved", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")
        self.saved = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    @classmethod
    def load(cls, data: bytes) -> "TimeIndex":
        index = cls()
        whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
        for timestamp, offset in ENTRY.iter_unpack(memoryview(data)[:whole]):
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        index.saved = len(index.timestamps)
        return index

    def is_sound(self) -> bool:
        """Whether both columns rise, timestamps strictly."""
        times, offsets = self.timestamps, self.offsets
        return all(map(int.__lt__, times, times[1:])) and all(map(int.__le__, offsets, offsets[1:]))

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if `timestamp` is the greatest so far."""
        if not self.timestamps or timestamp > self.timestamps[-1]:
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def floor(self, timestamp: int) -> int:
        """A relative offset before whose batch every record is older than `timestamp`; 0 when the index has none.

        The batch that ends there may itself be the first with `timestamp`, so a search includes it.
        """
        at = bisect_right(self.timestamps, timestamp)
        return self.offsets[at - 1] if at else 0

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Forget batches that end at or beyond an offset."""
        at = bisect_left(self.offsets, relative_offset)
        del self.timestamps[at:], self.offsets[at:]
        self.saved = min(self.saved, at)

    def unsaved(self) -> bytes:
        start = self.saved
        return b"".join(map(ENTRY.pack, self.timestamps[start:], self.offsets[start:]))


def last_entry(data: bytes) -> tuple[int, int] | None:
    """The greatest timestamp of a finished segment and the relative offset of its batch."""
    if len(data) < ENTRY_BYTES:
        return None
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    timestamp, offset = ENTRY.unpack_from(data, whole - ENTRY_BYTES)
    return timestamp, offset
