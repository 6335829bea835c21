"""AssignReplicasToDirs (API key 73), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 73
NAME = "AssignReplicasToDirs"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_iq = Struct(">iq")


class RequestPartitionData(Message):
    __slots__ = ("partition_index",)

    def __init__(self, *, partition_index: int = 0) -> None:
        self.partition_index = partition_index


class RequestTopicData(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[RequestPartitionData] | tuple[RequestPartitionData, ...] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[RequestPartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class RequestDirectoryData(Message):
    __slots__ = ("id_", "topics")

    def __init__(
        self, *, id_: bytes = ZERO_UUID, topics: list[RequestTopicData] | tuple[RequestTopicData, ...] = ()
    ) -> None:
        self.id_ = id_
        self.topics: list[RequestTopicData] = list(topics) if isinstance(topics, tuple) else topics


class Request(Message):
    __slots__ = ("broker_id", "broker_epoch", "directories")

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        directories: list[RequestDirectoryData] | tuple[RequestDirectoryData, ...] = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.directories: list[RequestDirectoryData] = (
            list(directories) if isinstance(directories, tuple) else directories
        )


def _read_request_partition_data(r: Reader, v: int) -> RequestPartitionData:
    m = RequestPartitionData.__new__(RequestPartitionData)
    m.partition_index = r.int32()
    r.skip_tags()
    return m


def _write_request_partition_data(w: Writer, m: RequestPartitionData, v: int) -> None:
    w.int32(m.partition_index)
    w.tags()


def _read_request_topic_data(r: Reader, v: int) -> RequestTopicData:
    m = RequestTopicData.__new__(RequestTopicData)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_request_partition_data, v, 5)
    r.skip_tags()
    return m


def _write_request_topic_data(w: Writer, m: RequestTopicData, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_request_partition_data, m.partitions, v)
    w.tags()


def _read_request_directory_data(r: Reader, v: int) -> RequestDirectoryData:
    m = RequestDirectoryData.__new__(RequestDirectoryData)
    m.id_ = r.uuid()
    m.topics = r.array(_read_request_topic_data, v, 18)
    r.skip_tags()
    return m


def _write_request_directory_data(w: Writer, m: RequestDirectoryData, v: int) -> None:
    w.uuid(m.id_)
    w.array(_write_request_topic_data, m.topics, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.broker_id, m.broker_epoch = r.fixed(_iq)
    m.directories = r.array(_read_request_directory_data, v, 18)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w += _iq.pack(m.broker_id, m.broker_epoch)
    w.array(_write_request_directory_data, m.directories, v)
    w.tags()


class ResponsePartitionData(Message):
    __slots__ = ("partition_index", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class ResponseTopicData(Message):
    __slots__ = ("topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[ResponsePartitionData] | tuple[ResponsePartitionData, ...] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[ResponsePartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class ResponseDirectoryData(Message):
    __slots__ = ("id_", "topics")
    ERROR_LISTS = ("topics",)

    def __init__(
        self, *, id_: bytes = ZERO_UUID, topics: list[ResponseTopicData] | tuple[ResponseTopicData, ...] = ()
    ) -> None:
        self.id_ = id_
        self.topics: list[ResponseTopicData] = list(topics) if isinstance(topics, tuple) else topics


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "directories")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("directories",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        directories: list[ResponseDirectoryData] | tuple[ResponseDirectoryData, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.directories: list[ResponseDirectoryData] = (
            list(directories) if isinstance(directories, tuple) else directories
        )


def _read_response_partition_data(r: Reader, v: int) -> ResponsePartitionData:
    m = ResponsePartitionData.__new__(ResponsePartitionData)
    m.partition_index, m.error_code = r.fixed(_ih)
    r.skip_tags()
    return m


def _write_response_partition_data(w: Writer, m: ResponsePartitionData, v: int) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.tags()


def _read_response_topic_data(r: Reader, v: int) -> ResponseTopicData:
    m = ResponseTopicData.__new__(ResponseTopicData)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_response_partition_data, v, 7)
    r.skip_tags()
    return m


def _write_response_topic_data(w: Writer, m: ResponseTopicData, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_response_partition_data, m.partitions, v)
    w.tags()


def _read_response_directory_data(r: Reader, v: int) -> ResponseDirectoryData:
    m = ResponseDirectoryData.__new__(ResponseDirectoryData)
    m.id_ = r.uuid()
    m.topics = r.array(_read_response_topic_data, v, 18)
    r.skip_tags()
    return m


def _write_response_directory_data(w: Writer, m: ResponseDirectoryData, v: int) -> None:
    w.uuid(m.id_)
    w.array(_write_response_topic_data, m.topics, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.directories = r.array(_read_response_directory_data, v, 18)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.array(_write_response_directory_data, m.directories, v)
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
