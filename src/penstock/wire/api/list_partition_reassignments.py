"""ListPartitionReassignments (API key 46), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 46
NAME = "ListPartitionReassignments"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class ListPartitionReassignmentsTopics(Message):
    __slots__ = ("name", "partition_indexes")

    def __init__(self, *, name: str = "", partition_indexes: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partition_indexes: list[int] = (
            list(partition_indexes) if isinstance(partition_indexes, tuple) else partition_indexes
        )


class Request(Message):
    __slots__ = ("timeout_ms", "topics")

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | tuple[ListPartitionReassignmentsTopics, ...] | None = (),
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics: list[ListPartitionReassignmentsTopics] | None = (
            list(topics) if isinstance(topics, tuple) else topics
        )


def _read_list_partition_reassignments_topics(r: Reader, v: int) -> ListPartitionReassignmentsTopics:
    m = ListPartitionReassignmentsTopics.__new__(ListPartitionReassignmentsTopics)
    m.name = r.string()
    m.partition_indexes = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_list_partition_reassignments_topics(w: Writer, m: ListPartitionReassignmentsTopics, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partition_indexes)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.timeout_ms = r.int32()
    m.topics = r.array_nullable(_read_list_partition_reassignments_topics, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.int32(m.timeout_ms)
    w.array_nullable(_write_list_partition_reassignments_topics, m.topics, v)
    w.tags()


class OngoingPartitionReassignment(Message):
    __slots__ = ("partition_index", "replicas", "adding_replicas", "removing_replicas")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replicas: list[int] | tuple[int, ...] = (),
        adding_replicas: list[int] | tuple[int, ...] = (),
        removing_replicas: list[int] | tuple[int, ...] = (),
    ) -> None:
        self.partition_index = partition_index
        self.replicas: list[int] = list(replicas) if isinstance(replicas, tuple) else replicas
        self.adding_replicas: list[int] = (
            list(adding_replicas) if isinstance(adding_replicas, tuple) else adding_replicas
        )
        self.removing_replicas: list[int] = (
            list(removing_replicas) if isinstance(removing_replicas, tuple) else removing_replicas
        )


class OngoingTopicReassignment(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OngoingPartitionReassignment] | tuple[OngoingPartitionReassignment, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[OngoingPartitionReassignment] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "topics")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[OngoingTopicReassignment] | tuple[OngoingTopicReassignment, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[OngoingTopicReassignment] = list(topics) if isinstance(topics, tuple) else topics


def _read_ongoing_partition_reassignment(r: Reader, v: int) -> OngoingPartitionReassignment:
    m = OngoingPartitionReassignment.__new__(OngoingPartitionReassignment)
    m.partition_index = r.int32()
    m.replicas = r.integers("i", 4)
    m.adding_replicas = r.integers("i", 4)
    m.removing_replicas = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_ongoing_partition_reassignment(w: Writer, m: OngoingPartitionReassignment, v: int) -> None:
    w.int32(m.partition_index)
    w.integers("i", m.replicas)
    w.integers("i", m.adding_replicas)
    w.integers("i", m.removing_replicas)
    w.tags()


def _read_ongoing_topic_reassignment(r: Reader, v: int) -> OngoingTopicReassignment:
    m = OngoingTopicReassignment.__new__(OngoingTopicReassignment)
    m.name = r.string()
    m.partitions = r.array(_read_ongoing_partition_reassignment, v, 8)
    r.skip_tags()
    return m


def _write_ongoing_topic_reassignment(w: Writer, m: OngoingTopicReassignment, v: int) -> None:
    w.string(m.name)
    w.array(_write_ongoing_partition_reassignment, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.topics = r.array(_read_ongoing_topic_reassignment, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_ongoing_topic_reassignment, m.topics, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, True)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, True)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, True)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, True)
