"""DeleteShareGroupOffsets (API key 92), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 92
NAME = "DeleteShareGroupOffsets"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class DeleteShareGroupOffsetsRequestTopic(Message):
    __slots__ = ("topic_name",)

    def __init__(self, *, topic_name: str = "") -> None:
        self.topic_name = topic_name


class Request(Message):
    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] | tuple[DeleteShareGroupOffsetsRequestTopic, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.topics: list[DeleteShareGroupOffsetsRequestTopic] = list(topics) if isinstance(topics, tuple) else topics


def _read_delete_share_group_offsets_request_topic(r: Reader, v: int) -> DeleteShareGroupOffsetsRequestTopic:
    m = DeleteShareGroupOffsetsRequestTopic.__new__(DeleteShareGroupOffsetsRequestTopic)
    m.topic_name = r.string()
    r.skip_tags()
    return m


def _write_delete_share_group_offsets_request_topic(w: Writer, m: DeleteShareGroupOffsetsRequestTopic, v: int) -> None:
    w.string(m.topic_name)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.topics = r.array(_read_delete_share_group_offsets_request_topic, v, 2)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.array(_write_delete_share_group_offsets_request_topic, m.topics, v)
    w.tags()


class DeleteShareGroupOffsetsResponseTopic(Message):
    __slots__ = ("topic_name", "topic_id", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


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
        responses: list[DeleteShareGroupOffsetsResponseTopic] | tuple[DeleteShareGroupOffsetsResponseTopic, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[DeleteShareGroupOffsetsResponseTopic] = (
            list(responses) if isinstance(responses, tuple) else responses
        )


def _read_delete_share_group_offsets_response_topic(r: Reader, v: int) -> DeleteShareGroupOffsetsResponseTopic:
    m = DeleteShareGroupOffsetsResponseTopic.__new__(DeleteShareGroupOffsetsResponseTopic)
    m.topic_name = r.string()
    m.topic_id = r.uuid()
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_delete_share_group_offsets_response_topic(
    w: Writer, m: DeleteShareGroupOffsetsResponseTopic, v: int
) -> None:
    w.string(m.topic_name)
    w.uuid(m.topic_id)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.responses = r.array(_read_delete_share_group_offsets_response_topic, v, 21)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_delete_share_group_offsets_response_topic, m.responses, v)
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
