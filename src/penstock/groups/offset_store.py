"""The committed offsets of a shard's groups.

There may be a million of them, so each is a few packed bytes: half the memory of a tuple of numbers, and no object for
the garbage collector to traverse.
"""

import struct
from collections.abc import Iterable, Iterator

from penstock.groups.commands import CommittedOffset
from penstock.groups.events import (
    NO_EXPIRY_MS,
    OffsetCommitted,
    OffsetForgotten,
    TxnOffsetPending,
    TxnOffsetsDecided,
)
from penstock.groups.pending_txn_offsets import PendingTxnOffsets
from penstock.model.ids import TOPIC_ID_ZERO, TopicId

SINCE_COMMIT = -1
"""Retention begins with each commit instead of at one time for the whole group."""

FIXED = struct.Struct("<qqqi16s")
"""Offset, time of the commit, time of its own expiry, leader epoch, topic id; the metadata's UTF-8 follows."""

pack = FIXED.pack
unpack_from = FIXED.unpack_from

PARTITION_NUMBERS = tuple(range(4096))
"""One object for each usual partition number, shared by all groups."""

Partitions = dict[int, bytes]


class OffsetStore:
    """The offsets of every group of a shard."""

    __slots__ = ("_groups", "_pending", "_topic_names", "_unsettled")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Partitions]] = {}
        self._topic_names: dict[str, str] = {}
        """One object for each name, shared by all groups that read the topic."""
        self._pending = PendingTxnOffsets()
        self._unsettled = self._pending.by_place

    def committed(self, event: OffsetCommitted, *, latest: bool = True) -> None:
        """Store an offset. The latest one also supersedes every pending offset of its partition."""
        group, topic, partition, offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id = event
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[self._topic_names.setdefault(topic, topic)] = {}
        packed = pack(offset, commit_ms, expire_ms, leader_epoch, topic_id)
        if metadata:
            packed += metadata.encode("utf-8", "surrogatepass")
        if partition in partitions:
            partitions[partition] = packed
        else:
            partitions[PARTITION_NUMBERS[partition] if 0 <= partition < len(PARTITION_NUMBERS) else partition] = packed
        if latest and self._unsettled:
            self._pending.supersede((group, topic, partition))

    def pending(self, event: TxnOffsetPending) -> None:
        """Keep an offset until its transaction ends."""
        self._pending.add(event.producer_id, event.offset)

    def decided(self, event: TxnOffsetsDecided) -> None:
        """A transaction ended: commit or discard its offsets."""
        for offset in self._pending.decided(event.producer_id, commit=event.commit):
            self.committed(offset, latest=False)

    def unsettled(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change what a group has committed for a partition."""
        return (group, topic, partition) in self._unsettled

    def forgotten(self, event: OffsetForgotten) -> None:
        """Delete an offset, if there is one, and the pending ones of its partition."""
        if self._unsettled:
            self._pending.forgotten(event)
        topics = self._groups.get(event.group)
        partitions = topics.get(event.topic) if topics else None
        if topics is None or partitions is None or partitions.pop(event.partition, None) is None:
            return
        if not partitions:
            del topics[event.topic]
            if not topics:
                del self._groups[event.group]

    def has(self, group: str, topic: str, partition: int) -> bool:
        return partition in self._groups.get(group, {}).get(topic, ())

    def topics_of(self, group: str) -> tuple[str, ...]:
        """The topics that the group has committed offsets for."""
        return tuple(self._groups.get(group, ()))

    def count_of(self, group: str, topic: str | None = None) -> int:
        """How many offsets a group has, pending ones included, or how many committed ones for one topic."""
        topics = self._groups.get(group, {})
        if topic is None:
            pending = len(self._pending.places_of(group)) if self._unsettled else 0
            return sum(map(len, topics.values())) + pending
        return len(topics.get(topic, ()))

    def some_of(self, group: str, wanted: Iterable[tuple[str, int]]) -> list[CommittedOffset]:
        """The offsets that the group has committed for these partitions."""
        topics = self._groups.get(group, {})
        found: list[CommittedOffset] = []
        for topic, partition in wanted:
            packed = topics.get(topic, {}).get(partition)
            if packed is not None:
                found.append(unpacked(topic, partition, packed))
        return found

    def all_of(self, group: str) -> list[CommittedOffset]:
        """Every offset of a group."""
        return [
            unpacked(topic, partition, packed)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, packed in partitions.items()
        ]

    def everything(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Every offset with its group."""
        for group, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, packed in partitions.items():
                    yield group, unpacked(topic, partition, packed)

    def tombstones_of(self, group: str) -> list[OffsetForgotten]:
        """Tombstones for all offsets of a group."""
        places = {
            (group, topic, partition): None
            for topic, partitions in self._groups.get(group, {}).items()
            for partition in partitions
        }
        if self._unsettled:
            places.update(dict.fromkeys(self._pending.places_of(group)))
        return [OffsetForgotten(*place) for place in places]

    def of_gone_topic(self, topic: str, topic_id: TopicId | None, count: int | None) -> list[OffsetForgotten]:
        """Tombstones for a topic's offsets: for all if the topic is deleted, else for those of an older topic id, and
        of partitions that it does not have any more: `count` is how many it has.

        Offsets without a topic id, from old records or old clients, belong to any topic of the name.
        """
        places = {
            (group, topic, partition): None
            for group, topics in self._groups.items()
            for partition, packed in topics.get(topic, {}).items()
            if topic_id is None
            or (count is not None and partition >= count)
            or unpack_from(packed)[4] not in (topic_id, TOPIC_ID_ZERO)
        }
        if self._unsettled and topic_id is None:
            places.update(dict.fromkeys(self._pending.places_in(topic)))
        return [OffsetForgotten(*place) for place in places]

    def expired(self, group: str, topic: str, from_ms: int, retention_ms: int, now_ms: int) -> list[OffsetForgotten]:
        """Tombstones for a group's offsets of a topic that are past their retention.

        A commit with a retention of its own, as OffsetCommit had up to version 4, expires by that.
        """
        found: list[OffsetForgotten] = []
        for partition, packed in self._groups.get(group, {}).get(topic, {}).items():
            _, commit_ms, expire_ms, _, _ = unpack_from(packed)
            if expire_ms == NO_EXPIRY_MS:
                expire_ms = (commit_ms if from_ms == SINCE_COMMIT else from_ms) + retention_ms
            if now_ms >= expire_ms and (group, topic, partition) not in self._unsettled:
                found.append(OffsetForgotten(group, topic, partition))
        return found


def unpacked(topic: str, partition: int, packed: bytes) -> CommittedOffset:
    offset, commit_ms, _, leader_epoch, topic_id = unpack_from(packed)
    metadata = packed[FIXED.size :].decode("utf-8", "surrogatepass") if len(packed) > FIXED.size else ""
    return CommittedOffset(topic, partition, offset, leader_epoch, metadata, commit_ms, TopicId(topic_id))
