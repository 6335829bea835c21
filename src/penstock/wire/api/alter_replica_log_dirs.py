"""AlterReplicaLogDirs (API key 34), versions 1 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 34
NAME = "AlterReplicaLogDirs"
VERSION_MIN = 1
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 2

_ih = Struct(">ih")


class AlterReplicaLogDirTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.name = name
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class AlterReplicaLogDir(Message):
    __slots__ = ("path", "topics")

    def __init__(
        self, *, path: str = "", topics: list[AlterReplicaLogDirTopic] | tuple[AlterReplicaLogDirTopic, ...] = ()
    ) -> None:
        self.path = path
        self.topics: list[AlterReplicaLogDirTopic] = list(topics) if isinstance(topics, tuple) else topics


class Request(Message):
    __slots__ = ("dirs",)

    def __init__(self, *, dirs: list[AlterReplicaLogDir] | tuple[AlterReplicaLogDir, ...] = ()) -> None:
        self.dirs: list[AlterReplicaLogDir] = list(dirs) if isinstance(dirs, tuple) else dirs


def _read_alter_replica_log_dir_topic(r: Reader, v: int) -> AlterReplicaLogDirTopic:
    m = AlterReplicaLogDirTopic.__new__(AlterReplicaLogDirTopic)
    m.name = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_alter_replica_log_dir_topic(w: Writer, m: AlterReplicaLogDirTopic, v: int) -> None:
    w.string(m.name)
    w.integers("i", m.partitions)
    w.tags()


def _read_alter_replica_log_dir(r: Reader, v: int) -> AlterReplicaLogDir:
    m = AlterReplicaLogDir.__new__(AlterReplicaLogDir)
    m.path = r.string()
    m.topics = r.array(_read_alter_replica_log_dir_topic, v, 3)
    r.skip_tags()
    return m


def _write_alter_replica_log_dir(w: Writer, m: AlterReplicaLogDir, v: int) -> None:
    w.string(m.path)
    w.array(_write_alter_replica_log_dir_topic, m.topics, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.dirs = r.array(_read_alter_replica_log_dir, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_alter_replica_log_dir, m.dirs, v)
    w.tags()


class AlterReplicaLogDirPartitionResult(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class AlterReplicaLogDirTopicResult(Message):
    __slots__ = ("topic_name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] | tuple[AlterReplicaLogDirPartitionResult, ...] = (),
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterReplicaLogDirPartitionResult] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirTopicResult] | tuple[AlterReplicaLogDirTopicResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterReplicaLogDirTopicResult] = list(results) if isinstance(results, tuple) else results


def _read_alter_replica_log_dir_partition_result(r: Reader, v: int) -> AlterReplicaLogDirPartitionResult:
    m = AlterReplicaLogDirPartitionResult.__new__(AlterReplicaLogDirPartitionResult)
    m.partition_index, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_alter_replica_log_dir_partition_result(w: Writer, m: AlterReplicaLogDirPartitionResult, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.tags()


def _read_alter_replica_log_dir_topic_result(r: Reader, v: int) -> AlterReplicaLogDirTopicResult:
    m = AlterReplicaLogDirTopicResult.__new__(AlterReplicaLogDirTopicResult)
    m.topic_name = r.string()
    m.partitions = r.array(_read_alter_replica_log_dir_partition_result, v, 6)
    r.skip_tags()
    return m


def _write_alter_replica_log_dir_topic_result(w: Writer, m: AlterReplicaLogDirTopicResult, v: int) -> None:
    w.string(m.topic_name)
    w.array(_write_alter_replica_log_dir_partition_result, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_alter_replica_log_dir_topic_result, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_alter_replica_log_dir_topic_result, m.results, v)
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
