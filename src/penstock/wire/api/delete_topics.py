"""DeleteTopics (API key 20), versions 1 to 6. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import ZERO_UUID, Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 20
NAME = "DeleteTopics"
VERSION_MIN = 1
VERSION_MAX = 6
FLEXIBLE_FROM: int | None = 4


class DeleteTopicState(Message):
    __slots__ = ("name", "topic_id")

    def __init__(self, *, name: str | None = None, topic_id: bytes = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id


class Request(Message):
    __slots__ = ("topic_names", "topics", "timeout_ms")

    def __init__(
        self,
        *,
        topic_names: list[str] | tuple[str, ...] = (),
        topics: list[DeleteTopicState] | tuple[DeleteTopicState, ...] = (),
        timeout_ms: int = 0,
    ) -> None:
        self.topic_names: list[str] = list(topic_names) if isinstance(topic_names, tuple) else topic_names
        self.topics: list[DeleteTopicState] = list(topics) if isinstance(topics, tuple) else topics
        self.timeout_ms = timeout_ms


def _read_delete_topic_state(r: Reader, v: int) -> DeleteTopicState:
    m = DeleteTopicState.__new__(DeleteTopicState)
    m.name = r.string_nullable()
    m.topic_id = r.uuid()
    r.skip_tags()
    return m


def _write_delete_topic_state(w: Writer, m: DeleteTopicState, v: int) -> None:
    w.string_nullable(m.name)
    w.uuid(m.topic_id)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v <= 5:
        m.topic_names = r.strings()
    else:
        m.topic_names = []
    if v >= 6:
        m.topics = r.array(_read_delete_topic_state, v, 18)
    else:
        m.topics = []
    m.timeout_ms = r.int32()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v <= 5:
        w.strings(m.topic_names)
    if v >= 6:
        w.array(_write_delete_topic_state, m.topics, v)
    else:
        if m.topics:
            absent(m, "topics", v)
    w.int32(m.timeout_ms)
    w.tags()


class DeletableTopicResult(Message):
    __slots__ = ("name", "topic_id", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "responses")
    ERROR_LISTS = ("responses",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] | tuple[DeletableTopicResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[DeletableTopicResult] = list(responses) if isinstance(responses, tuple) else responses


def _read_deletable_topic_result(r: Reader, v: int) -> DeletableTopicResult:
    m = DeletableTopicResult.__new__(DeletableTopicResult)
    m.name = r.string_nullable() if v >= 6 else r.string()
    if v >= 6:
        m.topic_id = r.uuid()
    else:
        m.topic_id = ZERO_UUID
    m.error_code = r.int16()
    if v >= 5:
        m.error_message = r.string_nullable()
    else:
        m.error_message = None
    r.skip_tags()
    return m


def _write_deletable_topic_result(w: Writer, m: DeletableTopicResult, v: int) -> None:
    if v >= 6:
        w.string_nullable(m.name)
    elif m.name is None:
        raise ValueError(f"name is null in version {v}")
    else:
        w.string(m.name)
    if v >= 6:
        w.uuid(m.topic_id)
    w.int16(m.error_code)
    if v >= 5:
        w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.responses = r.array(_read_deletable_topic_result, v, 4)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_deletable_topic_result, m.responses, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 4)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 4)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 4)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 4)
