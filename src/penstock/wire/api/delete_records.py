"""DeleteRecords (API key 21), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 21
NAME = "DeleteRecords"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 2

_iq = Struct(">iq")
_iqh = Struct(">iqh")


class DeleteRecordsPartition(Message):
    __slots__ = ("partition_index", "offset")

    def __init__(self, *, partition_index: int = 0, offset: int = 0) -> None:
        self.partition_index = partition_index
        self.offset = offset


class DeleteRecordsTopic(Message):
    __slots__ = ("name", "partitions")

    def __init__(
        self, *, name: str = "", partitions: list[DeleteRecordsPartition] | tuple[DeleteRecordsPartition, ...] = ()
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = ("topics", "timeout_ms")

    def __init__(
        self, *, topics: list[DeleteRecordsTopic] | tuple[DeleteRecordsTopic, ...] = (), timeout_ms: int = 0
    ) -> None:
        self.topics: list[DeleteRecordsTopic] = list(topics) if isinstance(topics, tuple) else topics
        self.timeout_ms = timeout_ms


def _read_delete_records_partition(r: Reader, v: int) -> DeleteRecordsPartition:
    m = DeleteRecordsPartition.__new__(DeleteRecordsPartition)
    m.partition_index, m.offset = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_delete_records_partition(w: Writer, m: DeleteRecordsPartition, v: int) -> None:
    w += _iq.pack(m.partition_index, m.offset)
    w.tags()


def _read_delete_records_topic(r: Reader, v: int) -> DeleteRecordsTopic:
    m = DeleteRecordsTopic.__new__(DeleteRecordsTopic)
    m.name = r.string()
    m.partitions = r.array(_read_delete_records_partition, v, 12)
    r.skip_tags()
    return m


def _write_delete_records_topic(w: Writer, m: DeleteRecordsTopic, v: int) -> None:
    w.string(m.name)
    w.array(_write_delete_records_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.topics = r.array(_read_delete_records_topic, v, 3)
    m.timeout_ms = r.int32()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_delete_records_topic, m.topics, v)
    w.int32(m.timeout_ms)
    w.tags()


class DeleteRecordsPartitionResult(Message):
    __slots__ = ("partition_index", "low_watermark", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, low_watermark: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code


class DeleteRecordsTopicResult(Message):
    __slots__ = ("name", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DeleteRecordsPartitionResult] | tuple[DeleteRecordsPartitionResult, ...] = (),
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartitionResult] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsTopicResult] | tuple[DeleteRecordsTopicResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DeleteRecordsTopicResult] = list(topics) if isinstance(topics, tuple) else topics


def _read_delete_records_partition_result(r: Reader, v: int) -> DeleteRecordsPartitionResult:
    m = DeleteRecordsPartitionResult.__new__(DeleteRecordsPartitionResult)
    m.partition_index, m.low_watermark, m.error_code = r.fixed(_iqh)
    r.skip_tags()
    return m


def _write_delete_records_partition_result(w: Writer, m: DeleteRecordsPartitionResult, v: int) -> None:
    w += _iqh.pack(m.partition_index, m.low_watermark, m.error_code)
    w.tags()


def _read_delete_records_topic_result(r: Reader, v: int) -> DeleteRecordsTopicResult:
    m = DeleteRecordsTopicResult.__new__(DeleteRecordsTopicResult)
    m.name = r.string()
    m.partitions = r.array(_read_delete_records_partition_result, v, 14)
    r.skip_tags()
    return m


def _write_delete_records_topic_result(w: Writer, m: DeleteRecordsTopicResult, v: int) -> None:
    w.string(m.name)
    w.array(_write_delete_records_partition_result, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.topics = r.array(_read_delete_records_topic_result, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_delete_records_topic_result, m.topics, v)
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
