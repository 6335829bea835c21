"""The index of a schedule partition: the last record of every schedule, and all of them in order of their due times.

A million schedules have to fit into memory many times over, so columns of numbers hold them, no objects: a hash table
from the digest of a key to the offset of its last record, in parts that grow one by one, and sorted runs of due times.
Keys and values stay in the log.

A run keeps entries that were replaced or cancelled meanwhile. They are left out when their time comes, and runs of
which most entries are dead are dissolved, one at a time, as new ones are made.
"""

from array import array
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import NamedTuple

from penstock.model.ids import NO_OFFSET, Offset

PARTS = 256
SLOTS_FIRST = 8
RUN_ENTRIES = 8_192
"""Entries that are sorted into a run: until then they are in a heap, which is larger and knows no dead ones."""
SWEPT_PER_RUN = 2
"""Runs looked through for dead entries whenever a run is made."""

EMPTY = -1
_DIGEST = Struct("=QQ")


class Digest(NamedTuple):
    """128 bits of a key's hash: two keys with the same ones count as one."""

    first: int
    second: int


def digest_of(key: bytes) -> Digest:
    return Digest._make(_DIGEST.unpack(blake2b(key, digest_size=16).digest()))


class Pending(NamedTuple):
    """A schedule that is due at some time."""

    due_ms: int
    offset: Offset
    digest: int
    """The first half of the key's digest."""
    partition_hash: int
    """Of the delivered key: the target partition follows from it."""


class OffsetTable:
    """Digest -> offset, as a hash table with linear probing."""

    __slots__ = ("_firsts", "_mask", "_offsets", "_seconds", "_used")

    def __init__(self) -> None:
        self._used = 0
        self._resize(SLOTS_FIRST)

    def _resize(self, slots: int) -> None:
        self._mask = slots - 1
        self._firsts = array("Q", [0]) * slots
        self._seconds = array("Q", [0]) * slots
        self._offsets = array("q", [EMPTY]) * slots

    def __len__(self) -> int:
        return self._used

    def _find(self, first: int, second: int) -> int:
        """The slot of a digest, or the empty one where it belongs."""
        mask, firsts, offsets = self._mask, self._firsts, self._offsets
        slot = (first >> 8) & mask
        while offsets[slot] != EMPTY:
            if firsts[slot] == first and self._seconds[slot] == second:
                break
            slot = (slot + 1) & mask
        return slot

    def get(self, digest: Digest) -> int:
        return self._offsets[self._find(*digest)]

    def has(self, first: int, offset: int) -> bool:
        """Whether an offset is the one of a digest of which the first half is known."""
        mask, offsets = self._mask, self._offsets
        slot = (first >> 8) & mask
        while (found := offsets[slot]) != EMPTY:
            if found == offset:
                return True
            slot = (slot + 1) & mask
        return False

    def put(self, digest: Digest, offset: int) -> int:
        """Set the offset unless a greater one is known; returns the one before, or -1."""
        slot = self._find(*digest)
        before = self._offsets[slot]
        if before == EMPTY:
            self._used += 1
            self._firsts[slot], self._seconds[slot] = digest
            self._offsets[slot] = offset
            if self._used * 4 > (self._mask + 1) * 3:
                self._grow()
        elif before < offset:
            self._offsets[slot] = offset
        return before

    def _grow(self) -> None:
        old = zip(self._firsts, self._seconds, self._offsets, strict=True)
        self._resize((self._mask + 1) * 2)
        for first, second, offset in old:
            if offset != EMPTY:
                slot = self._find(first, second)
                self._firsts[slot], self._seconds[slot], self._offsets[slot] = first, second, offset

    def remove(self, digest: Digest) -> int:
        """Forget a digest; returns its offset, or -1."""
        slot = self._find(*digest)
        before = self._offsets[slot]
        if before == EMPTY:
            return EMPTY
        self._used -= 1
        mask, firsts, seconds, offsets = self._mask, self._firsts, self._seconds, self._offsets
        # Close the gap: entries that were pushed beyond it by others move up.
        hole, slot = slot, (slot + 1) & mask
        while offsets[slot] != EMPTY:
            home = (firsts[slot] >> 8) & mask
            if (slot - home) & mask >= (slot - hole) & mask:
                firsts[hole], seconds[hole], offsets[hole] = firsts[slot], seconds[slot], offsets[slot]
                hole = slot
            slot = (slot + 1) & mask
        offsets[hole] = EMPTY
        return before


class Run:
    """Sorted entries as columns, of which those before `at` are used up."""

    __slots__ = ("at", "digests", "dues", "hashes", "offsets")

    def __init__(self, entries: list[Pending]) -> None:
        self.at = 0
        dues, offsets, digests, hashes = zip(*entries, strict=True)
        self.dues = array("q", dues)
        self.offsets = array("q", offsets)
        self.digests = array("Q", digests)
        self.hashes = array("I", hashes)

    def __len__(self) -> int:
        return len(self.dues) - self.at

    def entry(self, at: int) -> Pending:
        return Pending(self.dues[at], Offset(self.offsets[at]), self.digests[at], self.hashes[at])


class PendingIndex:
    """The schedules of one partition."""

    __slots__ = ("_heads", "_in_runs", "_parts", "_runs", "_runs_made", "_sweep", "_young", "size")

    def __init__(self) -> None:
        self._parts = [OffsetTable() for _ in range(PARTS)]
        self.size = 0
        """Schedules that exist."""
        self._young: list[Pending] = []
        """A heap."""
        self._runs: dict[int, Run] = {}
        self._runs_made = 0
        self._in_runs = 0
        """Entries in runs, dead ones too."""
        self._heads: list[tuple[int, int, int]] = []
        """Heap of (due, offset, number) of the first entry of each run."""
        self._sweep: list[int] = []
        """Runs to be looked through for dead entries, the next one last."""

    def last_of(self, digest: Digest) -> int:
        """The offset of a schedule's last record, or -1."""
        return self._parts[digest.first & 255].get(digest)

    def is_last(self, entry: Pending) -> bool:
        """Whether an entry was neither replaced nor cancelled."""
        return self._parts[entry.digest & 255].has(entry.digest, entry.offset)

    def put(self, digest: Digest, offset: int) -> int:
        """Make an offset that of a schedule's last record, unless a greater one is; returns the one before, or -1."""
        before = self._parts[digest.first & 255].put(digest, offset)
        if before == EMPTY:
            self.size += 1
        return before

    def remove(self, digest: Digest, offset: int) -> int:
        """Forget a schedule whose last record is before an offset; returns that of the record, or -1."""
        part = self._parts[digest.first & 255]
        if part.get(digest) >= offset:
            return NO_OFFSET
        before = part.remove(digest)
        if before != EMPTY:
            self.size -= 1
        return before

    # In order of due times

    def add(self, entry: Pending) -> None:
        heappush(self._young, entry)
        if len(self._young) >= RUN_ENTRIES:
            self._seal()

    def next_due(self) -> int | None:
        """The earliest due time, perhaps of an entry that is dead; None if there is no entry."""
        young, heads = self._young, self._heads
        if young and (not heads or young[0][:2] <= heads[0][:2]):
            return young[0].due_ms
        return heads[0][0] if heads else None

    def pop(self) -> Pending:
        """The entry that is due first, perhaps a dead one."""
        young, heads = self._young, self._heads
        if young and (not heads or young[0][:2] <= heads[0][:2]):
            return heappop(young)
        _, _, number = heappop(heads)
        run = self._runs[number]
        entry = run.entry(run.at)
        run.at += 1
        self._in_runs -= 1
        self._push_head(number, run)
        return entry

    def _push_head(self, number: int, run: Run) -> None:
        if len(run):
            heappush(self._heads, (run.dues[run.at], run.offsets[run.at], number))
        else:
            del self._runs[number]

    def _seal(self) -> None:
        self._young.sort()
        self._runs_made += 1
        self._in_runs += len(self._young)
        run = self._runs[self._runs_made] = Run(self._young)
        self._young = []
        self._push_head(self._runs_made, run)
        if self._in_runs > 2 * self.size:
            for _ in range(SWEPT_PER_RUN):
                self._sweep_one()

    def _sweep_one(self) -> None:
        """Dissolve the next run if most of its entries are dead; the others are young again."""
        if not self._sweep:
            self._sweep = sorted(self._runs, reverse=True)
        if not self._sweep:
            return
        number = self._sweep.pop()
        run = self._runs.get(number)
        if run is None:
            return
        live = [entry for at in range(run.at, len(run.dues)) if self.is_last(entry := run.entry(at))]
        if 2 * len(live) <= len(run):
            del self._runs[number]
            self._in_runs -= len(run)
            self._heads = [head for head in self._heads if head[2] != number]
            heapify(self._heads)
            self._young += live
            heapify(self._young)
