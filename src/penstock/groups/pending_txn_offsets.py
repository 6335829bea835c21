"""Offsets committed within open transactions.

They are in the log but not visible until a marker commits or aborts them. Of several commits for one partition the
latest in the log counts, in whatever order their transactions end. So a pending offset that a later commit has
superseded is kept only to mark the partition as unsettled.
"""

from penstock.groups.events import OffsetCommitted, OffsetForgotten
from penstock.model.ids import ProducerId

Place = tuple[str, str, int]
"""Group, topic and partition."""

PendingOffset = tuple[int, OffsetCommitted | None]
"""Its sequence number and the offset; None if a later commit has superseded it."""


class PendingTxnOffsets:
    """The pending offsets of one shard, by the producer of their transaction."""

    __slots__ = ("_by_producer", "_count", "by_place")

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[Place, PendingOffset]] = {}
        self.by_place: dict[Place, set[ProducerId]] = {}
        """The producers that have a pending offset for a place."""
        self._count = 0

    def add(self, producer_id: ProducerId, offset: OffsetCommitted) -> None:
        """Keep an offset until its transaction ends."""
        place = (offset.group, offset.topic, offset.partition)
        self._count += 1
        self._by_producer.setdefault(producer_id, {})[place] = (self._count, offset)
        self.by_place.setdefault(place, set()).add(producer_id)

    def supersede(self, place: Place, before: int | None = None) -> None:
        """A later commit is the group's offset now: drop the pending ones, or those with a number below `before`."""
        for producer_id in self.by_place.get(place, ()):
            pending = self._by_producer[producer_id]
            if before is None or pending[place][0] < before:
                pending[place] = (pending[place][0], None)

    def decided(self, producer_id: ProducerId, *, commit: bool) -> list[OffsetCommitted]:
        """A producer's transaction ended: the offsets that it commits."""
        pending = self._by_producer.pop(producer_id, None)
        if pending is None:
            return []
        found: list[OffsetCommitted] = []
        for place, (count, offset) in pending.items():
            self._unlink(place, producer_id)
            if commit and offset is not None:
                found.append(offset)
                self.supersede(place, count)
        return found

    def forgotten(self, event: OffsetForgotten) -> None:
        """A tombstone also deletes the pending offsets of its place."""
        place = (event.group, event.topic, event.partition)
        for producer_id in self.by_place.pop(place, ()):
            pending = self._by_producer[producer_id]
            del pending[place]
            if not pending:
                del self._by_producer[producer_id]

    def _unlink(self, place: Place, producer_id: ProducerId) -> None:
        producers = self.by_place[place]
        producers.discard(producer_id)
        if not producers:
            del self.by_place[place]

    def places_of(self, group: str) -> list[Place]:
        """The partitions of a group with pending offsets."""
        return [place for place in self.by_place if place[0] == group]

    def places_in(self, topic: str) -> list[Place]:
        """The partitions of a topic with pending offsets, of all groups."""
        return [place for place in self.by_place if place[1] == topic]
