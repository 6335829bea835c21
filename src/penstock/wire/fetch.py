# cython: annotation_typing=False
"""A handwritten codec of Fetch, versions 4 to 18, since every record that a broker serves goes through it.

The response is a list of buffers. A partition's records are in it as the same object (bytes, a view, a slice of a
file: anything that has a length), so that the network can send them without a copy. Joined, the list is byte for byte
the same as the generated ``api.fetch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from struct import Struct

from penstock.model.ids import NO_BROKER, NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset
from penstock.wire.primitives import (
    ZERO_UUID,
    Buffer,
    FlexibleReader,
    FlexibleWriter,
    Malformed,
    Reader,
    Writer,
)

VERSION_MIN = 4
VERSION_MAX = 18
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
PARTITIONS_PER_SLICE = 256
"""Partitions of a long response that are encoded at once."""

HIGH_WATERMARK_UNKNOWN = Offset((1 << 63) - 1)
HELD_END_TAG = 100
"""Of a partition in a request between brokers of penstock: an int64, up to where a follower holds its log."""
REMOVALS_TAG = 100
"""Of a partition in a response between brokers of penstock: two int64, mark and revision of what compaction removed."""

_WANTS = Struct(">iiib")
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_REMOVALS = Struct(">qq")
_PAIR = Struct(">ii")
_HEAD_V4 = Struct(">i")
_HEAD_V7 = Struct(">ihi")
_FETCHED_V4 = Struct(">ihqq")
_FETCHED_V5 = Struct(">ihqqq")
_I32 = Struct(">i")


class FetchPartition:
    """One partition of a request, with its fetch offset."""

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "held_end",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "replica_directory_id",
    )

    def __init__(
        self,
        index: int,
        fetch_offset: Offset,
        bytes_max: int,
        current_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        log_start_offset: Offset = NO_OFFSET,
        replica_directory_id: bytes = ZERO_UUID,
        high_watermark: Offset = HIGH_WATERMARK_UNKNOWN,
        held_end: Offset = NO_OFFSET,
    ) -> None:
        self.index = index
        self.fetch_offset = fetch_offset
        self.bytes_max = bytes_max
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark
        self.held_end = held_end


FetchTopic = tuple[str | None, bytes | None, list[FetchPartition]]
"""A topic's name (None from version 13), its id (None before), and its partitions."""
ForgottenTopic = tuple[str | None, bytes | None, list[int]]
"""A topic's name or id and the partitions that leave the session."""


class FetchRequest:
    """A Fetch request; ``replica_id`` is -1 for a consumer."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_wait_ms",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(
        self,
        replica_id: BrokerId,
        max_wait_ms: int,
        bytes_min: int,
        bytes_max: int,
        isolation_level: int,
        session_id: int,
        session_epoch: int,
        topics: list[FetchTopic],
        forgotten: list[ForgottenTopic],
        rack_id: str,
        cluster_id: str | None = None,
        replica_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.bytes_min = bytes_min
        self.bytes_max = bytes_max
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = topics
        self.forgotten = forgotten
        self.rack_id = rack_id
        self.cluster_id = cluster_id
        self.replica_epoch = replica_epoch


class FetchedPartition:
    """The records of a partition, or its error."""

    __slots__ = (
        "aborted",
        "current_leader",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "index",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
        "removals",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: Sized | None = b"",
        aborted: Sequence[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        diverging_epoch: tuple[int, int] | None = None,
        current_leader: tuple[int, int] | None = None,
        removals: tuple[int, int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader
        self.removals = removals


FetchedTopic = tuple[str | None, bytes | None, Sequence[FetchedPartition]]
"""A topic's name, its id, and its partitions; a version sends the one of the two that it has."""
NodeEndpoint = tuple[int, str, int, str | None]
"""Node id, host, port, rack."""


def decode_fetch(data: Buffer, offset: int, version: int) -> FetchRequest:
    """The request that begins at ``offset``; bytes after it are ignored."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"Fetch has no version {version}"
    reader = FlexibleReader(data, offset) if version >= FLEXIBLE_FROM else Reader(data, offset)
    try:
        return _read_request(reader, version)
    except UnicodeDecodeError as error:
        raise Malformed(f"Fetch version {version}: {error}") from error


def _read_request(reader: Reader, version: int) -> FetchRequest:
    replica_id = BrokerId(reader.int32()) if version < 15 else NO_BROKER
    max_wait_ms, bytes_min, bytes_max, isolation_level = reader.fixed(_WANTS)
    session_id, session_epoch = reader.fixed(_PAIR) if version >= 7 else (0, -1)
    topics: list[FetchTopic] = []
    for _ in range(reader.items(3, False)):
        name, topic_id = _read_topic(reader, version)
        partitions = [_read_partition(reader, version) for _ in range(reader.items(16, False))]
        reader.skip_tags()
        topics.append((name, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        for _ in range(reader.items(3, False)):
            name, topic_id = _read_topic(reader, version)
            forgotten.append((name, topic_id, reader.integers("i", 4)))
            reader.skip_tags()
    rack_id = reader.string() if version >= 11 else ""
    request = FetchRequest(
        replica_id,
        max_wait_ms,
        bytes_min,
        bytes_max,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )
    _read_request_tags(reader, request, version)
    reader.finish()
    return request


def _read_topic(reader: Reader, version: int) -> tuple[str | None, bytes | None]:
    if version >= TOPIC_IDS_FROM:
        return None, reader.uuid()
    return reader.string(), None


def _read_request_tags(reader: Reader, request: FetchRequest, version: int) -> None:
    for tag, end in reader.tagged():
        if tag == 0:
            request.cluster_id = reader.string_nullable()
        elif tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = reader.fixed(_EPOCH_END)
            reader.skip_tags()
        else:
            reader.pos = end


def _read_partition(reader: Reader, version: int) -> FetchPartition:
    if version >= 12:
        index, epoch, offset, fetched_epoch, log_start, bytes_max = reader.fixed(_PARTITION_V12)
        partition = FetchPartition(index, offset, bytes_max, epoch, fetched_epoch, log_start)
        _read_partition_tags(reader, partition, version)
        return partition
    if version >= 9:
        index, epoch, offset, log_start, bytes_max = reader.fixed(_PARTITION_V9)
        return FetchPartition(index, offset, bytes_max, epoch, NO_LEADER_EPOCH, log_start)
    if version >= 5:
        index, offset, log_start, bytes_max = reader.fixed(_PARTITION_V5)
        return FetchPartition(index, offset, bytes_max, NO_LEADER_EPOCH, NO_LEADER_EPOCH, log_start)
    index, offset, bytes_max = reader.fixed(_PARTITION_V4)
    return FetchPartition(index, offset, bytes_max)


def _read_partition_tags(reader: Reader, partition: FetchPartition, version: int) -> None:
    for tag, end in reader.tagged():
        if tag == 0 and version >= 17:
            partition.replica_directory_id = reader.uuid()
        elif tag == 1 and version >= 18:
            partition.high_watermark = Offset(reader.int64())
        elif tag == HELD_END_TAG:
            partition.held_end = Offset(reader.int64())
        else:
            reader.pos = end


def encode_fetch_response(
    topics: Sequence[FetchedTopic],
    version: int,
    throttle_ms: int,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> tuple[list[Sized], int]:
    """The response's body as buffers in order, and their total size in bytes."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"Fetch has no version {version}"
    parts: list[Sized] = []
    total = 0
    out = FlexibleWriter() if version >= FLEXIBLE_FROM else Writer()
    out += _HEAD_V7.pack(throttle_ms, error_code, session_id) if version >= 7 else _HEAD_V4.pack(throttle_ms)
    out.length(len(topics))
    for name, topic_id, partitions in topics:
        _write_topic(out, name, topic_id, len(partitions), version)
        total += _write_partitions(out, parts, partitions, version)
        out.tags()
    if node_endpoints and version >= 16:
        out.tags([(0, _endpoints(node_endpoints))])
    else:
        out.tags()
    if out:
        parts.append(bytes(out))
        total += len(out)
    return parts, total


def fetch_response_slices(
    topics: Sequence[FetchedTopic], version: int, parts: list[Sized], node_endpoints: Sequence[NodeEndpoint] = ()
) -> Iterator[None]:
    """Append the encoded topics of a long response to `parts`, some partitions at a time, like `encode_fetch_response`.

    `encode_fetch_head` precedes them.
    """
    for name, topic_id, partitions in topics:
        out = FlexibleWriter() if version >= FLEXIBLE_FROM else Writer()
        _write_topic(out, name, topic_id, len(partitions), version)
        for first in range(0, len(partitions), PARTITIONS_PER_SLICE):
            _write_partitions(out, parts, partitions[first : first + PARTITIONS_PER_SLICE], version)
            yield
        out.tags()
        parts.append(bytes(out))
    if version >= FLEXIBLE_FROM:
        last = FlexibleWriter()
        last.tags([(0, _endpoints(node_endpoints))] if node_endpoints and version >= 16 else [])
        parts.append(bytes(last))


def encode_fetch_head(topic_count: int, version: int, throttle_ms: int, error_code: int, session_id: int) -> bytes:
    """The fields before the topics of a response."""
    out = FlexibleWriter() if version >= FLEXIBLE_FROM else Writer()
    out += _HEAD_V7.pack(throttle_ms, error_code, session_id) if version >= 7 else _HEAD_V4.pack(throttle_ms)
    out.length(topic_count)
    return bytes(out)


def _write_topic(out: Writer, name: str | None, topic_id: bytes | None, count: int, version: int) -> None:
    if version >= TOPIC_IDS_FROM:
        assert topic_id is not None, "from version 13 a topic goes by its id"
        out.uuid(topic_id)
    else:
        assert name is not None, "before version 13 a topic goes by its name"
        out.string(name)
    out.length(count)


def _write_partitions(out: Writer, parts: list[Sized], partitions: Sequence[FetchedPartition], version: int) -> int:
    """Write partitions; records go to `parts`, after the bytes written so far. Returns the bytes added to `parts`."""
    flexible = version >= FLEXIBLE_FROM
    total = 0
    for partition in partitions:
        _write_partition(out, partition, version)
        records = partition.records
        size = -1 if records is None else len(records)
        out.length(size)
        if records is not None and size:
            parts.append(bytes(out))
            parts.append(records)
            total += len(out) + size
            out.clear()
        if flexible:
            _write_partition_tags(out, partition)
    return total


def _write_partition(out: Writer, partition: FetchedPartition, version: int) -> None:
    if version >= 5:
        out += _FETCHED_V5.pack(
            partition.index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    else:
        out += _FETCHED_V4.pack(
            partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
    aborted = partition.aborted
    if aborted is None:
        out.length(-1)
    else:
        out.length(len(aborted))
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            out.tags()
    if version >= 11:
        out += _I32.pack(partition.preferred_read_replica)


def _write_partition_tags(out: Writer, partition: FetchedPartition) -> None:
    if partition.diverging_epoch is None and partition.current_leader is None and partition.removals is None:
        out.append(0)
        return
    tagged: list[tuple[int, Writer]] = []
    for tag, layout, value in (
        (0, _EPOCH_END, partition.diverging_epoch),
        (1, _PAIR, partition.current_leader),
    ):
        if value is not None and value != (-1, -1):
            body = FlexibleWriter(layout.pack(*value))
            body.tags()
            tagged.append((tag, body))
    if partition.removals is not None:
        tagged.append((REMOVALS_TAG, FlexibleWriter(_REMOVALS.pack(*partition.removals))))
    out.tags(tagged)


def _endpoints(endpoints: Sequence[NodeEndpoint]) -> FlexibleWriter:
    body = FlexibleWriter()
    body.length(len(endpoints))
    for node_id, host, port, rack in endpoints:
        body.int32(node_id)
        body.string(host)
        body.int32(port)
        body.string_nullable(rack)
        body.tags()
    return body
