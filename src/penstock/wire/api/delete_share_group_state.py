"""DeleteShareGroupState (API key 86), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 86
NAME = "DeleteShareGroupState"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class PartitionData(Message):
    __slots__ = ("partition",)

    def __init__(self, *, partition: int = 0) -> None:
        self.partition = partition


class DeleteStateData(Message):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, partitions: list[PartitionData] | tuple[PartitionData, ...] = ()
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = list(partitions) if isinstance(partitions, tuple) else partitions


class Request(Message):
    __slots__ = ("group_id", "topics")

    def __init__(self, *, group_id: str = "", topics: list[DeleteStateData] | tuple[DeleteStateData, ...] = ()) -> None:
        self.group_id = group_id
        self.topics: list[DeleteStateData] = list(topics) if isinstance(topics, tuple) else topics


def _read_partition_data(r: Reader, v: int) -> PartitionData:
    m = PartitionData.__new__(PartitionData)
    m.partition = r.int32()
    r.skip_tags()
    return m


def _write_partition_data(w: Writer, m: PartitionData, v: int) -> None:
    w.int32(m.partition)
    w.tags()


def _read_delete_state_data(r: Reader, v: int) -> DeleteStateData:
    m = DeleteStateData.__new__(DeleteStateData)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_partition_data, v, 5)
    r.skip_tags()
    return m


def _write_delete_state_data(w: Writer, m: DeleteStateData, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_partition_data, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.topics = r.array(_read_delete_state_data, v, 18)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.array(_write_delete_state_data, m.topics, v)
    w.tags()


class PartitionResult(Message):
    __slots__ = ("partition", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition: int = 0, error_code: int = 0, error_message: str | None = None) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class DeleteStateResult(Message):
    __slots__ = ("topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self, *, topic_id: bytes = ZERO_UUID, partitions: list[PartitionResult] | tuple[PartitionResult, ...] = ()
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = list(partitions) if isinstance(partitions, tuple) else partitions


class Response(Message):
    __slots__ = ("results",)
    ERROR_LISTS = ("results",)

    def __init__(self, *, results: list[DeleteStateResult] | tuple[DeleteStateResult, ...] = ()) -> None:
        self.results: list[DeleteStateResult] = list(results) if isinstance(results, tuple) else results


def _read_partition_result(r: Reader, v: int) -> PartitionResult:
    m = PartitionResult.__new__(PartitionResult)
    m.partition, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_partition_result(w: Writer, m: PartitionResult, v: int) -> None:
    w += _ih.pack(m.partition, m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_delete_state_result(r: Reader, v: int) -> DeleteStateResult:
    m = DeleteStateResult.__new__(DeleteStateResult)
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_partition_result, v, 8)
    r.skip_tags()
    return m


def _write_delete_state_result(w: Writer, m: DeleteStateResult, v: int) -> None:
    w.uuid(m.topic_id)
    w.array(_write_partition_result, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.results = r.array(_read_delete_state_result, v, 18)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.array(_write_delete_state_result, m.results, v)
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
