"""Produce by hand, versions 3 to 13: every message a broker stores comes through here.

Records are handed out as views of the request's own buffer, writable where that is, so that a broker can put the
offsets in place; nothing is copied. Byte for byte the same as the generated ``api.produce``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from penstock.wire.primitives import (
    ITEMS_MAX,
    STRING_BYTES_MAX,
    Buffer,
    FlexibleReader,
    FlexibleWriter,
    Malformed,
    Writer,
)

VERSION_MIN = 3
VERSION_MAX = 13
FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_I16 = Struct(">h")
_I32 = Struct(">i")
_ACKS = Struct(">hi")
_ACKS_AND_COUNT = Struct(">hii")
_INDEX_AND_SIZE = Struct(">ii")
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
    """What a producer wants written."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[TopicRecords]) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProducedPartition:
    """What came of one partition's records."""

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
    """The request that fills ``data`` from ``offset`` to its end."""
    assert VERSION_MIN <= version <= VERSION_MAX, f"Produce has no version {version}"
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(data, offset, version)
        return _decode_legacy(data, offset)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"Produce version {version}: {error}") from error


def _decode_legacy(data: Buffer, pos: int) -> ProduceRequest:
    view = memoryview(data)
    end = len(view)
    size: int = _I16.unpack_from(view, pos)[0]
    pos += 2
    transactional_id: str | None = None
    if size >= 0:
        if size > end - pos:
            raise Malformed(f"a transactional id of {size} bytes passes the end")
        transactional_id = str(view[pos : pos + size], "utf-8")
        pos += size
    elif size != -1:
        raise Malformed(f"a transactional id of length {size}")
    acks, timeout_ms, topic_count = _ACKS_AND_COUNT.unpack_from(view, pos)
    pos += 10
    if topic_count < 0 or topic_count * 6 > end - pos:
        raise Malformed(f"{topic_count} topics in {end - pos} bytes")
    items_left = ITEMS_MAX - topic_count
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        size = _I16.unpack_from(view, pos)[0]
        pos += 2
        if size < 0 or size > end - pos:
            raise Malformed(f"a topic name of {size} bytes, {end - pos} remain")
        name = str(view[pos : pos + size], "utf-8")
        pos += size
        count: int = _I32.unpack_from(view, pos)[0]
        pos += 4
        items_left -= count
        if count < 0 or count * 8 > end - pos or items_left < 0:
            raise Malformed(f"{count} partitions in {end - pos} bytes")
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index, size = _INDEX_AND_SIZE.unpack_from(view, pos)
            pos += 8
            if size > end - pos or size < -1:
                raise Malformed(f"records of {size} bytes, {end - pos} remain")
            if size < 0:
                partitions.append((index, None))
            else:
                partitions.append((index, view[pos : pos + size]))
                pos += size
        topics.append((name, None, partitions))
    if pos != end:
        raise Malformed(f"{end - pos} bytes follow the request")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(data: Buffer, pos: int, version: int) -> ProduceRequest:
    view = memoryview(data)
    end = len(view)
    transactional_id: str | None = None
    size = view[pos]
    pos += 1
    if size:
        if size > 0x7F:
            size, pos = _long_varint(view, pos - 1)
        size -= 1
        if size > end - pos or size > STRING_BYTES_MAX:
            raise Malformed(f"a transactional id of {size} bytes, {end - pos} remain")
        transactional_id = str(view[pos : pos + size], "utf-8")
        pos += size
    acks, timeout_ms = _ACKS.unpack_from(view, pos)
    pos += 6
    topic_count = view[pos]
    pos += 1
    if topic_count > 0x7F:
        topic_count, pos = _long_varint(view, pos - 1)
    topic_count -= 1
    if topic_count < 0 or topic_count * 3 > end - pos:
        raise Malformed(f"{topic_count} topics in {end - pos} bytes")
    items_left = ITEMS_MAX - topic_count
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name: str | None = None
        topic_id: bytes | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id = bytes(view[pos : pos + 16])
            pos += 16
        else:
            size = view[pos]
            pos += 1
            if size > 0x7F:
                size, pos = _long_varint(view, pos - 1)
            size -= 1
            if size < 0 or size > end - pos or size > STRING_BYTES_MAX:
                raise Malformed(f"a topic name of {size} bytes, {end - pos} remain")
            name = str(view[pos : pos + size], "utf-8")
            pos += size
        count = view[pos]
        pos += 1
        if count > 0x7F:
            count, pos = _long_varint(view, pos - 1)
        count -= 1
        items_left -= count
        if count < 0 or count * 6 > end - pos or items_left < 0:
            raise Malformed(f"{count} partitions in {end - pos} bytes")
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index: int = _I32.unpack_from(view, pos)[0]
            pos += 4
            size = view[pos]
            pos += 1
            if size > 0x7F:
                size, pos = _long_varint(view, pos - 1)
            size -= 1
            if size > end - pos:
                raise Malformed(f"records of {size} bytes, {end - pos} remain")
            if size < 0:
                partitions.append((index, None))
            else:
                partitions.append((index, view[pos : pos + size]))
                pos += size
            if view[pos] == 0:
                pos += 1
            else:
                pos = _skip_tags(data, pos)
        topics.append((name, topic_id, partitions))
        pos = pos + 1 if view[pos] == 0 else _skip_tags(data, pos)
    pos = pos + 1 if view[pos] == 0 else _skip_tags(data, pos)
    if pos != end:
        raise Malformed(f"{end - pos} bytes follow the request")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _long_varint(view: memoryview, pos: int) -> tuple[int, int]:
    reader = FlexibleReader(view, pos)
    return reader.varint(), reader.pos


def _skip_tags(data: Buffer, pos: int) -> int:
    reader = FlexibleReader(data, pos)
    reader.skip_tags()
    return reader.pos


def encode_produce_response(
    topics: Sequence[ProducedTopic],
    version: int,
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The answer's body; ``node_endpoints`` say where the leaders named in the results listen."""
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
    """The tail of a result with errors, or with another leader to turn to."""
    _write_errors(out, result)
    leader = result.current_leader
    if leader is None or version < 10 or leader == (-1, -1):
        out.tags()
        return
    body = FlexibleWriter(_INDEX_AND_SIZE.pack(*leader))
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
