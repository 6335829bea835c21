"""CreatePartitions (API key 37), versions 0 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 37
NAME = "CreatePartitions"
VERSION_MIN = 0
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_it = Struct(">i?")


class CreatePartitionsAssignment(Message):
    __slots__ = ("broker_ids",)

    def __init__(self, *, broker_ids: list[int] | tuple[int, ...] = ()) -> None:
        self.broker_ids: list[int] = list(broker_ids) if isinstance(broker_ids, tuple) else broker_ids


class CreatePartitionsTopic(Message):
    __slots__ = ("name", "count", "assignments")

    def __init__(
        self,
        *,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | tuple[CreatePartitionsAssignment, ...] | None = (),
    ) -> None:
        self.name = name
        self.count = count
        self.assignments: list[CreatePartitionsAssignment] | None = (
            list(assignments) if isinstance(assignments, tuple) else assignments
        )


class Request(Message):
    __slots__ = ("topics", "timeout_ms", "validate_only")

    def __init__(
        self,
        *,
        topics: list[CreatePartitionsTopic] | tuple[CreatePartitionsTopic, ...] = (),
        timeout_ms: int = 0,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatePartitionsTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


def _read_create_partitions_assignment(r: Reader, v: int) -> CreatePartitionsAssignment:
    m = CreatePartitionsAssignment.__new__(CreatePartitionsAssignment)
    m.broker_ids = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_create_partitions_assignment(w: Writer, m: CreatePartitionsAssignment, v: int) -> None:
    w.integers("i", m.broker_ids)
    w.tags()


def _read_create_partitions_topic(r: Reader, v: int) -> CreatePartitionsTopic:
    m = CreatePartitionsTopic.__new__(CreatePartitionsTopic)
    m.name = r.string()
    m.count = r.int32()
    m.assignments = r.array_nullable(_read_create_partitions_assignment, v, 2)
    r.skip_tags()
    return m


def _write_create_partitions_topic(w: Writer, m: CreatePartitionsTopic, v: int) -> None:
    w.string(m.name)
    w.int32(m.count)
    w.array_nullable(_write_create_partitions_assignment, m.assignments, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_create_partitions_topic, v, 7)
    m.timeout_ms, m.validate_only = r.fixed(_it)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_create_partitions_topic, m.topics, v)
    w += _it.pack(m.timeout_ms, m.validate_only)
    w.tags()


class CreatePartitionsTopicResult(Message):
    __slots__ = ("name", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, name: str = "", error_code: int = 0, error_message: str | None = None) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsTopicResult] | tuple[CreatePartitionsTopicResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[CreatePartitionsTopicResult] = list(results) if isinstance(results, tuple) else results


def _read_create_partitions_topic_result(r: Reader, v: int) -> CreatePartitionsTopicResult:
    m = CreatePartitionsTopicResult.__new__(CreatePartitionsTopicResult)
    m.name = r.string()
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_create_partitions_topic_result(w: Writer, m: CreatePartitionsTopicResult, v: int) -> None:
    w.string(m.name)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_create_partitions_topic_result, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_create_partitions_topic_result, m.results, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 2)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 2)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 2)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 2)
