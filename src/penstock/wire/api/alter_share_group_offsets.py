"""AlterShareGroupOffsets (API key 91), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 91
NAME = "AlterShareGroupOffsets"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")
_iq = Struct(">iq")


class AlterShareGroupOffsetsRequestPartition(Message):
    __slots__ = ("partition_index", "start_offset")

    def __init__(self, *, partition_index: int = 0, start_offset: int = 0) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset


class AlterShareGroupOffsetsRequestTopic(Message):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition]
        | tuple[AlterShareGroupOffsetsRequestPartition, ...] = (),
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterShareGroupOffsetsRequestPartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Request(Message):
    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] | tuple[AlterShareGroupOffsetsRequestTopic, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.topics: list[AlterShareGroupOffsetsRequestTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_alter_share_group_offsets_request_partition(r: Reader, v: int) -> AlterShareGroupOffsetsRequestPartition:
    m = AlterShareGroupOffsetsRequestPartition.__new__(AlterShareGroupOffsetsRequestPartition)
    m.partition_index, m.start_offset = r.fixed(_iq)
    r.skip_tags()
    return m


def _write_alter_share_group_offsets_request_partition(
    w: Writer, m: AlterShareGroupOffsetsRequestPartition, v: int
) -> None:
    w += _iq.pack(m.partition_index, m.start_offset)
    w.tags()


def _read_alter_share_group_offsets_request_topic(r: Reader, v: int) -> AlterShareGroupOffsetsRequestTopic:
    m = AlterShareGroupOffsetsRequestTopic.__new__(AlterShareGroupOffsetsRequestTopic)
    m.topic_name = r.string()
    m.partitions = r.array(_read_alter_share_group_offsets_request_partition, v, 13)
    r.skip_tags()
    return m


def _write_alter_share_group_offsets_request_topic(w: Writer, m: AlterShareGroupOffsetsRequestTopic, v: int) -> None:
    w.string(m.topic_name)
    w.array(_write_alter_share_group_offsets_request_partition, m.partitions, v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.topics = r.array(_read_alter_share_group_offsets_request_topic, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.array(_write_alter_share_group_offsets_request_topic, m.topics, v)
    w.tags()


class AlterShareGroupOffsetsResponsePartition(Message):
    __slots__ = ("partition_index", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, partition_index: int = 0, error_code: int = 0, error_message: str | None = None) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class AlterShareGroupOffsetsResponseTopic(Message):
    __slots__ = ("topic_name", "topic_id", "partitions")
    ERROR_LISTS = ("partitions",)

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[AlterShareGroupOffsetsResponsePartition]
        | tuple[AlterShareGroupOffsetsResponsePartition, ...] = (),
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[AlterShareGroupOffsetsResponsePartition] = (
            list(partitions) if isinstance(partitions, tuple) else partitions
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "responses")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] | tuple[AlterShareGroupOffsetsResponseTopic, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[AlterShareGroupOffsetsResponseTopic] = (
            list(responses) if isinstance(responses, tuple) else responses
        )


def _read_alter_share_group_offsets_response_partition(r: Reader, v: int) -> AlterShareGroupOffsetsResponsePartition:
    m = AlterShareGroupOffsetsResponsePartition.__new__(AlterShareGroupOffsetsResponsePartition)
    m.partition_index, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_alter_share_group_offsets_response_partition(
    w: Writer, m: AlterShareGroupOffsetsResponsePartition, v: int
) -> None:
    w += _ih.pack(m.partition_index, m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_alter_share_group_offsets_response_topic(r: Reader, v: int) -> AlterShareGroupOffsetsResponseTopic:
    m = AlterShareGroupOffsetsResponseTopic.__new__(AlterShareGroupOffsetsResponseTopic)
    m.topic_name = r.string()
    m.topic_id = r.uuid()
    m.partitions = r.array(_read_alter_share_group_offsets_response_partition, v, 8)
    r.skip_tags()
    return m


def _write_alter_share_group_offsets_response_topic(w: Writer, m: AlterShareGroupOffsetsResponseTopic, v: int) -> None:
    w.string(m.topic_name)
    w.uuid(m.topic_id)
    w.array(_write_alter_share_group_offsets_response_partition, m.partitions, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.responses = r.array(_read_alter_share_group_offsets_response_topic, v, 19)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_alter_share_group_offsets_response_topic, m.responses, v)
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
