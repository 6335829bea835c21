"""The offset index: maps an offset to a position in a segment, with an entry for every few kilobytes.

An entry is the last offset of a batch, relative to the segment's base, and the position where that batch starts; both
are four bytes, big-endian, as in Kafka's `.index` files. `OffsetIndex` is the growing index of the active segment;
`OffsetIndexFile` searches a finished one on the disk, without loading it.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right

from penstock.storage.disk import DiskFile

ENTRY_BYTES = 8
PAGE_BYTES = 4096
ENTRIES_PER_PAGE = PAGE_BYTES // ENTRY_BYTES


class WouldBlock(Exception):
    """A needed page is not in the page cache: search again off the loop, where waiting is allowed."""


def encode(offsets: "array[int]", positions: "array[int]") -> bytes:
    """Entries as the file has them."""
    mixed = array("I", bytes(ENTRY_BYTES * len(offsets)))
    mixed[0::2] = offsets
    mixed[1::2] = positions
    if sys.byteorder == "little":
        mixed.byteswap()
    return mixed.tobytes()


def decode(data: bytes) -> "tuple[array[int], array[int]]":
    """Whole entries of a file's contents, as two columns; a torn last entry is left out."""
    mixed = array("I")
    mixed.frombytes(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    if sys.byteorder == "little":
        mixed.byteswap()
    return mixed[0::2], mixed[1::2]


class OffsetIndex:
    """The index of the active segment, in memory, as two columns.

    `saved` counts the entries that are in the file; the others are written when there are enough, or at a flush.
    """

    __slots__ = ("offsets", "positions", "saved")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.saved = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def load(cls, data: bytes) -> "OffsetIndex":
        """An index from its file; `is_sound` checks it."""
        index = cls()
        index.offsets, index.positions = decode(data)
        index.saved = len(index.offsets)
        return index

    def is_sound(self) -> bool:
        """Whether both columns rise; entries of a page that never reached the disk do not."""
        offsets, positions = self.offsets, self.positions
        return all(map(int.__lt__, offsets, offsets[1:])) and all(map(int.__lt__, positions, positions[1:]))

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """Where to start searching for an offset: a batch at or before the one that holds it."""
        at = bisect_right(self.offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def boundary(self, position: int) -> int:
        """The greatest batch start known that is not beyond `position`; 0 when none is known."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def beyond(self, position: int) -> int | None:
        """The last relative offset of the first batch known to start at or beyond `position`; None when none is."""
        at = bisect_left(self.positions, position)
        return self.offsets[at] if at < len(self.positions) else None

    def truncate_to_size(self, size: int) -> None:
        """Forget batches that start at or beyond `size`."""
        at = bisect_left(self.positions, size)
        del self.offsets[at:], self.positions[at:]
        self.saved = min(self.saved, at)

    def unsaved(self) -> bytes:
        """Entries that are not in the file yet, encoded."""
        return encode(self.offsets[self.saved :], self.positions[self.saved :])


Page = tuple["array[int]", "array[int]"]
"""Entries as two columns: offsets and positions."""


class OffsetIndexFile:
    """The index of a finished segment, searched on the disk: a binary search over pages, then one page.

    The last page is kept: a sequential reader needs the same one hundreds of times.
    """

    __slots__ = ("_entries", "_file", "_page")

    def __init__(self, file: DiskFile, size: int) -> None:
        self._file = file
        self._entries = size // ENTRY_BYTES
        self._page: Page | None = None

    def floor(self, relative_offset: int, *, wait: bool) -> int:
        (_, positions), at = self._search(relative_offset, 0, wait)
        return positions[at - 1] if at else 0

    def boundary(self, position: int, *, wait: bool) -> int:
        (_, positions), at = self._search(position, 1, wait)
        return positions[at - 1] if at else 0

    def last_position(self) -> int:
        """The batch start of the last entry; 0 when there is none. Waits for the disk."""
        if not self._entries:
            return 0
        _, positions = decode(self._read(ENTRY_BYTES, (self._entries - 1) * ENTRY_BYTES, wait=True))
        return positions[0] if positions else 0

    def beyond(self, position: int, *, wait: bool) -> int | None:
        """As `OffsetIndex.beyond`, but None also where only the next page has the entry."""
        (offsets, _), at = self._search(position - 1, 1, wait)
        return offsets[at] if at < len(offsets) else None

    def _search(self, wanted: int, column: int, wait: bool) -> tuple[Page, int]:
        """A page, and how many of its entries are at most `wanted`; no later page has such entries."""
        page = self._page
        if page is None or not page[column][0] <= wanted < page[column][-1]:
            page = self._find_page(wanted, column, wait)
            if page[0]:
                self._page = page
        return page, bisect_right(page[column], wanted)

    def _find_page(self, wanted: int, column: int, wait: bool) -> Page:
        low, high = 0, (self._entries + ENTRIES_PER_PAGE - 1) // ENTRIES_PER_PAGE
        # The first entry of page `low` is at most `wanted`, or there is none such.
        while high - low > 1:
            middle = (low + high) // 2
            probe = self._read(ENTRY_BYTES, middle * PAGE_BYTES, wait)
            if int.from_bytes(probe[column * 4 : column * 4 + 4], "big") <= wanted:
                low = middle
            else:
                high = middle
        first = low * ENTRIES_PER_PAGE
        count = min(ENTRIES_PER_PAGE, self._entries - first)
        return decode(self._read(count * ENTRY_BYTES, first * ENTRY_BYTES, wait) if count > 0 else b"")

    def _read(self, size: int, position: int, wait: bool) -> bytes:
        data = self._file.pread(size, position) if wait else self._file.pread_nowait(size, position)
        if data is None:
            raise WouldBlock
        return data
