"""ElectLeaders (API key 43), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 43
NAME = "ElectLeaders"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 2

_ih = Struct(">ih")


class TopicPartitions(Message):
    __slots__ = ("topic", "partitions")

    def __init__(self, *, topic: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic = topic
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("election_type", "topic_partitions", "timeout_ms")

    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | tuple[TopicPartitions, ...] | None = (),
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type
        self.topic_partitions: list[TopicPartitions] | None = (
            list(topic_partitions) if isinstance(topic_partitions, tuple) else topic_partitions
        )
        self.timeout_ms = timeout_ms


def _read_topic_partitions(r: Reader, v: int) -> TopicPartitions:
    m = TopicPartitions.__new__(TopicPartitions)
    m.topic = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_topic_partitions(w: Writer, m: TopicPartitions, v: int) -> None:
    w.string(m.topic)
    w.integers("i", m.partitions)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 1:
        m.election_type = r.int8()
    else:
        m.election_type = 0
    m.topic_partitions = r.array_nullable(_read_topic_partitions, v, 3)
    m.timeout_ms = r.int32()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 1:
        w.int8(m.election_type)
    else:
        if m.election_type != 0:
            absent(m, "election_type", v)
    w.array_nullable(_write_topic_partitions, m.topic_partitions, v)
    w.int32(m.timeout_ms)
    w.tags()


class PartitionResult(Message):
    __slots__ = ("partition_id", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_id: int = 0, error_code: int = 0, error_message: str | None = "") -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message


class ReplicaElectionResult(Message):
    __slots__ = ("topic", "partition_result")
    ERROR_LISTS = ("partition_result",)

    def __init__(
        self, *, topic: str = "", partition_result: list[PartitionResult] | tuple[PartitionResult, ...] = ()
    ) -> None:
        self.topic = topic
        self.partition_result: list[PartitionResult] = (
            list(partition_result) if isinstance(partition_result, tuple) else partition_result
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "replica_election_results")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("replica_election_results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] | tuple[ReplicaElectionResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.replica_election_results: list[ReplicaElectionResult] = (
            list(replica_election_results) if isinstance(replica_election_results, tuple) else replica_election_results
        )


def _read_partition_result(r: Reader, v: int) -> PartitionResult:
    m = PartitionResult.__new__(PartitionResult)
    m.partition_id, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_partition_result(w: Writer, m: PartitionResult, v: int) -> None:
    w += _ih.pack(m.partition_id, m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_replica_election_result(r: Reader, v: int) -> ReplicaElectionResult:
    m = ReplicaElectionResult.__new__(ReplicaElectionResult)
    m.topic = r.string()
    m.partition_result = r.array(_read_partition_result, v, 8)
    r.skip_tags()
    return m


def _write_replica_election_result(w: Writer, m: ReplicaElectionResult, v: int) -> None:
    w.string(m.topic)
    w.array(_write_partition_result, m.partition_result, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    if v >= 1:
        m.error_code = r.int16()
    else:
        m.error_code = 0
    m.replica_election_results = r.array(_read_replica_election_result, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    if v >= 1:
        w.int16(m.error_code)
    else:
        if m.error_code != 0:
            absent(m, "error_code", v)
    w.array(_write_replica_election_result, m.replica_election_results, v)
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
