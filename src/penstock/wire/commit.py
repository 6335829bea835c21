# cython: annotation_typing=False
"""A handwritten codec of OffsetCommit, versions 2 to 10: the most frequent request to a group coordinator.

Byte for byte the same as the generated ``api.offset_commit``.
"""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, FlexibleReader, FlexibleWriter, Malformed, Reader, Writer

VERSION_MIN = 2
VERSION_MAX = 10
FLEXIBLE_FROM = 8
TOPIC_IDS_FROM = 10

_I32 = Struct(">i")
_RESULT = Struct(">ih")
_RESULT_FLEXIBLE = Struct(">ihB")

CommittedPartition = tuple[int, int, int, str]
"""Index, offset, leader epoch (-1 if unknown), metadata."""
CommittedTopic = tuple[str, bytes | None, list[CommittedPartition]]
"""A topic's name (empty from version 10), its id (None before), and its partitions."""
TopicResponse = tuple[str, bytes | None, list[tuple[int, int]]]
"""The same with each partition's index and error code."""


class CommitRequest:
    """An OffsetCommit request."""

    __slots__ = ("generation", "group", "group_instance_id", "member_id", "retention_ms", "topics")

    def __init__(
        self,
        group: str,
        generation: int,
        member_id: str,
        retention_ms: int,
        group_instance_id: str | None,
        topics: list[CommittedTopic],
    ) -> None:
        self.group = group
        self.generation = generation
        self.member_id = member_id
        self.retention_ms = retention_ms
        self.group_instance_id = group_instance_id
        self.topics = topics


def decode_commit(data: Buffer, offset: int, version: int) -> CommitRequest:
    """The request that begins at ``offset``; bytes after it are ignored."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"OffsetCommit has no version {version}"
    reader = FlexibleReader(data, offset) if version >= FLEXIBLE_FROM else Reader(data, offset)
    try:
        return _read_request(reader, version)
    except UnicodeDecodeError as error:
        raise Malformed(f"OffsetCommit version {version}: {error}") from error


def _read_request(reader: Reader, version: int) -> CommitRequest:
    group = reader.string()
    generation = reader.int32()
    member_id = reader.string()
    retention_ms = -1
    if version <= 4:
        retention_ms = reader.int64()
    instance_id: str | None = None
    if version >= 7:
        instance_id = reader.string_nullable()
    topics: list[CommittedTopic] = []
    for _ in range(reader.items(3, False)):
        name = ""
        topic_id: bytes | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id = reader.uuid()
        else:
            name = reader.string()
        partitions: list[CommittedPartition] = []
        for _ in range(reader.items(14, False)):
            index = reader.int32()
            committed = reader.int64()
            epoch = -1
            if version >= 6:
                epoch = reader.int32()
            metadata = reader.string_nullable()
            reader.skip_tags()
            partitions.append((index, committed, epoch, metadata or ""))
        reader.skip_tags()
        topics.append((name, topic_id, partitions))
    reader.skip_tags()
    reader.finish()
    return CommitRequest(group, generation, member_id, retention_ms, instance_id, topics)


def encode_commit_response(topics: list[TopicResponse], version: int, throttle_ms: int) -> bytes:
    """The response's body."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"OffsetCommit has no version {version}"
    flexible = version >= FLEXIBLE_FROM
    out = FlexibleWriter() if flexible else Writer()
    if version >= 3:
        out += _I32.pack(throttle_ms)
    out.length(len(topics))
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None, "from version 10 a topic goes by its id"
            out.uuid(topic_id)
        else:
            out.string(name)
        out.length(len(partitions))
        for index, code in partitions:
            out += _RESULT_FLEXIBLE.pack(index, code, 0) if flexible else _RESULT.pack(index, code)
        out.tags()
    out.tags()
    return bytes(out)
