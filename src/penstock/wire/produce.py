# cython: annotation_typing=False
"""A handwritten codec of Produce, versions 3 to 13, since every record that a broker stores comes through it.

Records are handed out as views of the request's own buffer, writable where that is, so that a broker can put the
offsets in place; nothing is copied. Byte for byte the same as the generated ``api.produce``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from penstock.wire.primitives import Buffer, FlexibleReader, FlexibleWriter, Malformed, Reader, Writer

VERSION_MIN = 3
VERSION_MAX = 13
FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_I32 = Struct(">i")
_LEADER = Struct(">ii")
_RESULT_V3 = Struct(">ihqq")
_RESULT_V5 = Struct(">ihqqq")
_RESULT_V8 = Struct(">ihqqqih")
_RESULT_V9 = Struct(">ihqqq3s")

# No record errors, no error message, no tags.
_FINE_V9 = b"\x01\x00\x00"

PartitionRecords = tuple[int, memoryview | None]
"""A partition's index and its records."""
TopicRecords = tuple[str | None, bytes | None, list[PartitionRecords]]
"""A topic's name (None from version 13), its id (None before), and its partitions."""


class ProduceRequest:
    """A Produce request."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[TopicRecords]) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducedPartition:
    """The result of one partition."""

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: Sequence[tuple[int, str | None]] = (),
        error_message: str | None = None,
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.current_leader = current_leader


ProducedTopic = tuple[str | None, bytes | None, Sequence[ProducedPartition]]
"""A topic's name, its id, and its partitions; a version sends the one of the two that it has."""
NodeEndpoint = tuple[int, str, int, str | None]
"""Node id, host, port, rack."""


def decode_produce(data: Buffer, offset: int, version: int) -> ProduceRequest:
    """The request that begins at ``offset``; bytes behind it are ignored."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"Produce has no version {version}"
    reader = FlexibleReader(data, offset) if version >= FLEXIBLE_FROM else Reader(data, offset)
    try:
        return _read_request(reader, memoryview(data), version)
    except UnicodeDecodeError as error:
        raise Malformed(f"Produce version {version}: {error}") from error


def _read_request(reader: Reader, view: memoryview, version: int) -> ProduceRequest:
    transactional_id = reader.string_nullable()
    acks = reader.int16()
    timeout_ms = reader.int32()
    topics: list[TopicRecords] = []
    for _ in range(reader.count(3, False)):
        name: str | None = None
        topic_id: bytes | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id = reader.uuid()
        else:
            name = reader.string()
        partitions: list[PartitionRecords] = []
        for _ in range(reader.items(6, False)):
            index = reader.int32()
            size = reader.bytes_length()
            if size < 0:
                if size != -1:
                    raise Malformed(f"records of length {size} at {reader.pos}")
                partitions.append((index, None))
            else:
                start = reader.take(size)
                partitions.append((index, view[start : start + size]))
            reader.skip_tags()
        reader.skip_tags()
        topics.append((name, topic_id, partitions))
    reader.skip_tags()
    reader.finish()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_response(
    topics: Sequence[ProducedTopic],
    version: int,
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The response's body; ``node_endpoints`` say where the leaders named in the results listen."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"Produce has no version {version}"
    if version < FLEXIBLE_FROM:
        return _encode_legacy(topics, version, throttle_ms)
    out = FlexibleWriter()
    out.length(len(topics))
    for name, topic_id, results in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None, "from version 13 a topic goes by its id"
            out.uuid(topic_id)
        else:
            assert name is not None, "before version 13 a topic goes by its name"
            out.string(name)
        out.length(len(results))
        for result in results:
            fine = not result.record_errors and result.error_message is None and result.current_leader is None
            out += _RESULT_V9.pack(
                result.index,
                result.error_code,
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
                _FINE_V9,
            )
            if not fine:
                del out[-3:]
                _write_trouble(out, result, version)
        out.append(0)
    out += _I32.pack(throttle_ms)
    if node_endpoints and version >= 10:
        out.tags([(0, _endpoints(node_endpoints))])
    else:
        out.append(0)
    return bytes(out)


def _encode_legacy(topics: Sequence[ProducedTopic], version: int, throttle_ms: int) -> bytes:
    out = Writer()
    out.length(len(topics))
    for name, _, results in topics:
        assert name is not None, "before version 13 a topic goes by its name"
        out.string(name)
        out.length(len(results))
        for result in results:
            where = (result.index, result.error_code, result.base_offset, result.log_append_time_ms)
            if version < 5:
                out += _RESULT_V3.pack(*where)
            elif version < 8:
                out += _RESULT_V5.pack(*where, result.log_start_offset)
            elif not result.record_errors and result.error_message is None:
                out += _RESULT_V8.pack(*where, result.log_start_offset, 0, -1)
            else:
                out += _RESULT_V5.pack(*where, result.log_start_offset)
                _write_errors(out, result)
    out += _I32.pack(throttle_ms)
    return bytes(out)


def _write_errors(out: Writer, result: ProducedPartition) -> None:
    out.length(len(result.record_errors))
    for index, message in result.record_errors:
        out += _I32.pack(index)
        out.string_nullable(message)
        out.tags()
    out.string_nullable(result.error_message)


def _write_trouble(out: FlexibleWriter, result: ProducedPartition, version: int) -> None:
    """The last fields of a result that has errors or names another leader."""
    _write_errors(out, result)
    leader = result.current_leader
    if leader is None or version < 10 or leader == (-1, -1):
        out.tags()
        return
    body = FlexibleWriter(_LEADER.pack(*leader))
    body.tags()
    out.tags([(0, body)])


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
