"""The ranges of offsets of a share partition, as its coordinator keeps them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from penstock.shares.persister import JOINED_FROM, StateBatch, finished_joined

BY_LAST = attrgetter("last")


class StateBatches:
    """Ranges sorted by offset, without overlaps; neighbours that touch differ.

    Of two ranges that overlap the one with more deliveries counts, and among equals the one with the later state, as in
    Kafka. Delivery counts and states only grow, so that is the one that was written last; a write that is replayed out
    of order cannot undo a later one.
    """

    __slots__ = ("_join_from", "_ranges")

    def __init__(self, ranges: Iterable[StateBatch] = ()) -> None:
        self._ranges: list[StateBatch] = []
        self._join_from = JOINED_FROM
        for each in ranges:
            self.add(each)

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[StateBatch]:
        return iter(self._ranges)

    def copy(self) -> "StateBatches":
        made = StateBatches()
        made._ranges, made._join_from = self._ranges.copy(), self._join_from
        return made

    def combine(self, added: Sequence[StateBatch], start_offset: int) -> None:
        """Add ranges, and drop what lies below the start offset; -1 is none."""
        for each in added:
            self.add(each)
        if start_offset >= 0:
            self.drop_below(start_offset)
        if len(self._ranges) >= self._join_from:
            self._ranges = finished_joined(self._ranges)
            # Not with every write where little can be joined.
            self._join_from = max(2 * len(self._ranges), JOINED_FROM)

    def add(self, added: StateBatch) -> None:
        """Add one range."""
        ranges = self._ranges
        begin = end = bisect_left(ranges, added.first - 1, key=BY_LAST)
        pieces: list[StateBatch] = []
        position = added.first
        while end < len(ranges) and ranges[end].first <= added.last + 1:
            before = ranges[end]
            end += 1
            if before.first > added.last:
                # It begins where the added range ends.
                if position <= added.last:
                    append(pieces, added._replace(first=position))
                position = added.last + 1
                append(pieces, before)
                continue
            if before.first < added.first:
                append(pieces, before._replace(last=min(before.last, added.first - 1)))
            if before.last < added.first:
                continue
            if position < before.first:
                append(pieces, added._replace(first=position, last=before.first - 1))
            first, last = max(before.first, added.first), min(before.last, added.last)
            winner = before if rank(before) > rank(added) else added
            append(pieces, winner._replace(first=first, last=last))
            if before.last > added.last:
                append(pieces, before._replace(first=added.last + 1))
            position = last + 1
        if position <= added.last:
            append(pieces, added._replace(first=position))
        ranges[begin:end] = pieces

    def drop_below(self, offset: int) -> None:
        """Drop what lies below an offset."""
        ranges = self._ranges
        end = bisect_left(ranges, offset, key=BY_LAST)
        if end:
            del ranges[:end]
        if ranges and ranges[0].first < offset:
            ranges[0] = ranges[0]._replace(first=offset)


def rank(batch: StateBatch) -> tuple[int, int]:
    return batch.deliveries, batch.state


def append(pieces: list[StateBatch], piece: StateBatch) -> None:
    """Append a range, which extends the last one if it continues it."""
    if pieces and pieces[-1].last + 1 == piece.first and pieces[-1][2:] == piece[2:]:
        pieces[-1] = pieces[-1]._replace(last=piece.last)
    else:
        pieces.append(piece)
