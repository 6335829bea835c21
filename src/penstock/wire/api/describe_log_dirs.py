"""DescribeLogDirs (API key 35), versions 1 to 5. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 35
NAME = "DescribeLogDirs"
VERSION_MIN = 1
VERSION_MAX = 5
FLEXIBLE_FROM: int | None = 2

_iqqt = Struct(">iqq?")
_qq = Struct(">qq")


class DescribableLogDirTopic(Message):
    __slots__ = ("topic", "partitions")

    def __init__(self, *, topic: str = "", partitions: list[int] | tuple[int, ...] = ()) -> None:
        self.topic = topic
        self.partitions: list[int] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("topics",)

    def __init__(
        self, *, topics: list[DescribableLogDirTopic] | tuple[DescribableLogDirTopic, ...] | None = ()
    ) -> None:
        self.topics: list[DescribableLogDirTopic] | None = list(topics) if isinstance(topics, tuple) else topics


def _read_describable_log_dir_topic(r: Reader, v: int) -> DescribableLogDirTopic:
    m = DescribableLogDirTopic.__new__(DescribableLogDirTopic)
    m.topic = r.string()
    m.partitions = r.integers("i", 4)
    r.skip_tags()
    return m


def _write_describable_log_dir_topic(w: Writer, m: DescribableLogDirTopic, v: int) -> None:
    w.string(m.topic)
    w.integers("i", m.partitions)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array_nullable(_read_describable_log_dir_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array_nullable(_write_describable_log_dir_topic, m.topics, v)
    w.tags()


class DescribeLogDirsPartition(Message):
    __slots__ = ("partition_index", "partition_size", "offset_lag", "is_future_key")

    def __init__(
        self, *, partition_index: int = 0, partition_size: int = 0, offset_lag: int = 0, is_future_key: bool = False
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key


class DescribeLogDirsTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self, *, name: str = "", partitions: list[DescribeLogDirsPartition] | tuple[DescribeLogDirsPartition, ...] = ()
    ) -> None:
        self.name = name
        self.partitions: list[DescribeLogDirsPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class DescribeLogDirsResult(Message):
    __slots__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        log_dir: str = "",
        topics: list[DescribeLogDirsTopic] | tuple[DescribeLogDirsTopic, ...] = (),
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics: list[DescribeLogDirsTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes
        self.is_cordoned = is_cordoned


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "results")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResult] | tuple[DescribeLogDirsResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results: list[DescribeLogDirsResult] = list(results) if isinstance(results, tuple) else results


def _read_describe_log_dirs_partition(r: Reader, v: int) -> DescribeLogDirsPartition:
    m = DescribeLogDirsPartition.__new__(DescribeLogDirsPartition)
    m.partition_index, m.partition_size, m.offset_lag, m.is_future_key = r.fixed(_iqqt)
    r.skip_tags()
    return m


def _write_describe_log_dirs_partition(w: Writer, m: DescribeLogDirsPartition, v: int) -> None:
    w += _iqqt.pack(m.partition_index, m.partition_size, m.offset_lag, m.is_future_key)
    w.tags()


def _read_describe_log_dirs_topic(r: Reader, v: int) -> DescribeLogDirsTopic:
    m = DescribeLogDirsTopic.__new__(DescribeLogDirsTopic)
    m.name = r.string()
    m.partitions = r.array(_read_describe_log_dirs_partition, v, 21)
    r.skip_tags()
    return m


def _write_describe_log_dirs_topic(w: Writer, m: DescribeLogDirsTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_describe_log_dirs_partition, m.partitions, v)
    w.tags()


def _read_describe_log_dirs_result(r: Reader, v: int) -> DescribeLogDirsResult:
    m = DescribeLogDirsResult.__new__(DescribeLogDirsResult)
    m.error_code = r.int16()
    m.log_dir = r.string()
    m.topics = r.array(_read_describe_log_dirs_topic, v, 3)
    if v >= 4:
        m.total_bytes, m.usable_bytes = r.fixed(_qq)
    else:
        m.total_bytes = -1
        m.usable_bytes = -1
    if v >= 5:
        m.is_cordoned = r.boolean()
    else:
        m.is_cordoned = False
    r.skip_tags()
    return m


def _write_describe_log_dirs_result(w: Writer, m: DescribeLogDirsResult, v: int) -> None:
    w.int16(m.error_code)
    w.string(m.log_dir)
    w.array(_write_describe_log_dirs_topic, m.topics, v)
    if v >= 4:
        w += _qq.pack(m.total_bytes, m.usable_bytes)
    if v >= 5:
        w.boolean(m.is_cordoned)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    if v >= 3:
        m.error_code = r.int16()
    else:
        m.error_code = 0
    m.results = r.array(_read_describe_log_dirs_result, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    if v >= 3:
        w.int16(m.error_code)
    w.array(_write_describe_log_dirs_result, m.results, v)
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
