"""The follower's side of Fetch: encodes its requests and decodes the leader's responses.

Only between brokers of penstock, so that one version is enough. Records stay views of the response's buffer. Read by
any broker, requests and responses are those of an ordinary Fetch with tags that others skip (``fetch.HELD_END_TAG``,
``fetch.REMOVALS_TAG``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import TypeVar

from penstock.model.ids import NO_LEADER_EPOCH, NO_OFFSET, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from penstock.model.removals import Removals
from penstock.wire.fetch import HELD_END_TAG, REMOVALS_TAG
from penstock.wire.primitives import Buffer, FlexibleReader, FlexibleWriter, Writer

Item = TypeVar("Item")

VERSION = 18
"""With topic ids, broker epochs, leaders' endpoints, and the follower's high watermark."""
HIGH_WATERMARK_TAG = 1

_WANTS = Struct(">iiibii")
_PARTITION = Struct(">iiqiqi")
_OFFSET = Struct(">q")
_REPLICA = Struct(">iq")
_HEAD = Struct(">ihi")
_FETCHED = Struct(">ihqqq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")
_REMOVALS = Struct(">qq")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetch:
    """One partition of a follower's request."""

    topic_id: TopicId
    partition: int
    offset: Offset
    held_end: Offset
    bytes_max: int
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start: Offset
    high_watermark: Offset | None = None
    """The follower's, if it wants to know of a greater one at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchRequest:
    """A follower's request: its partitions that changed since the last request of its session, or all of them."""

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    session_id: int
    session_epoch: int
    partitions: Iterable[PartitionFetch]
    """Those of a topic one after the other."""
    forgotten: Iterable[tuple[TopicId, int]] = ()


class FetchedReplica:
    """One partition of a leader's response."""

    __slots__ = (
        "diverging",
        "error_code",
        "high_watermark",
        "leader",
        "leader_epoch",
        "log_start",
        "partition",
        "records",
        "removals",
        "topic_id",
    )

    def __init__(self, topic_id: TopicId, partition: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.error_code = 0
        self.high_watermark = NO_OFFSET
        self.log_start = NO_OFFSET
        self.records = memoryview(b"")
        self.diverging: tuple[LeaderEpoch, Offset] | None = None
        """Epoch and end up to which the leader's log agrees at most; None where all of it does."""
        self.removals: Removals | None = None
        """What compaction removed from the leader's log, where the follower may not have copied it before."""
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        """Of an error that says that another broker leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchResponse:
    """A leader's response; partitions without news are left out in a session."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedReplica]


def encode_replica_fetch(request: ReplicaFetchRequest) -> bytearray:
    """The body of a request."""
    out = FlexibleWriter()
    out += _WANTS.pack(
        request.max_wait_ms, request.bytes_min, request.bytes_max, 0, request.session_id, request.session_epoch
    )
    topics = by_topic((item.topic_id, item) for item in request.partitions)
    out.length(len(topics))
    for topic_id, items in topics:
        out.uuid(topic_id)
        out.length(len(items))
        for item in items:
            out += _PARTITION.pack(
                item.partition, item.leader_epoch, item.offset, item.last_fetched_epoch, item.log_start, item.bytes_max
            )
            if item.held_end == item.offset and item.high_watermark is None:
                out.tags()
            else:
                _write_tags(out, item)
        out.tags()
    forgotten = by_topic(request.forgotten)
    out.length(len(forgotten))
    for topic_id, indexes in forgotten:
        out.uuid(topic_id)
        out.integers("i", indexes)
        out.tags()
    out.string("")
    replica = FlexibleWriter(_REPLICA.pack(request.replica_id, request.replica_epoch))
    replica.tags()
    out.tags([(1, replica)])
    return out


def _write_tags(out: FlexibleWriter, item: PartitionFetch) -> None:
    tagged: list[tuple[int, Writer]] = []
    if item.high_watermark is not None:
        tagged.append((HIGH_WATERMARK_TAG, FlexibleWriter(_OFFSET.pack(item.high_watermark))))
    if item.held_end != item.offset:
        tagged.append((HELD_END_TAG, FlexibleWriter(_OFFSET.pack(item.held_end))))
    out.tags(tagged)


def by_topic(items: Iterable[tuple[TopicId, Item]]) -> list[tuple[TopicId, list[Item]]]:
    """Items by topic, one entry for each run of a topic."""
    topics: list[tuple[TopicId, list[Item]]] = []
    for topic_id, item in items:
        if not topics or topics[-1][0] != topic_id:
            topics.append((topic_id, []))
        topics[-1][1].append(item)
    return topics


def decode_replica_fetched(data: Buffer, offset: int) -> ReplicaFetchResponse:
    """The response whose body begins at ``offset``."""
    reader = FlexibleReader(data, offset)
    throttle_time_ms, error_code, session_id = reader.fixed(_HEAD)
    partitions: list[FetchedReplica] = []
    for _ in range(reader.items(18, False)):
        topic_id = TopicId(reader.uuid())
        partitions += [_read_partition(reader, topic_id) for _ in range(reader.items(36, False))]
        reader.skip_tags()
    reader.skip_tags()
    reader.finish()
    return ReplicaFetchResponse(
        throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, partitions=partitions
    )


def _read_partition(reader: FlexibleReader, topic_id: TopicId) -> FetchedReplica:
    index, error_code, high_watermark, _, log_start = reader.fixed(_FETCHED)
    found = FetchedReplica(topic_id, index)
    found.error_code, found.high_watermark, found.log_start = error_code, high_watermark, log_start
    for _ in range(max(reader.array_length(), 0)):
        # Aborted transactions, which a leader does not send to followers.
        reader.take(16)
        reader.skip_tags()
    reader.take(4)
    found.records = reader.view_nullable() or memoryview(b"")
    for tag, end in reader.tagged():
        if tag == 0:
            epoch, end_offset = reader.fixed(_EPOCH_END)
            found.diverging = LeaderEpoch(epoch), Offset(end_offset)
        elif tag == 1:
            found.leader, found.leader_epoch = reader.fixed(_LEADER)
        elif tag == REMOVALS_TAG:
            mark, revision = reader.fixed(_REMOVALS)
            found.removals = Removals(Offset(mark), revision)
        reader.pos = end
    return found
