"""ListGroups (API key 16), versions 0 to 5. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 16
NAME = "ListGroups"
VERSION_MIN = 0
VERSION_MAX = 5
FLEXIBLE_FROM: int | None = 3


class Request(Message):
    __slots__ = ("states_filter", "types_filter")

    def __init__(
        self, *, states_filter: list[str] | tuple[str, ...] = (), types_filter: list[str] | tuple[str, ...] = ()
    ) -> None:
        self.states_filter: list[str] = list(states_filter) if isinstance(states_filter, tuple) else states_filter
        self.types_filter: list[str] = list(types_filter) if isinstance(types_filter, tuple) else types_filter


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 4:
        m.states_filter = r.strings()
    else:
        m.states_filter = []
    if v >= 5:
        m.types_filter = r.strings()
    else:
        m.types_filter = []
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 4:
        w.strings(m.states_filter)
    else:
        if m.states_filter:
            absent(m, "states_filter", v)
    if v >= 5:
        w.strings(m.types_filter)
    else:
        if m.types_filter:
            absent(m, "types_filter", v)
    w.tags()


class ListedGroup(Message):
    __slots__ = ("group_id", "protocol_type", "group_state", "group_type")

    def __init__(
        self, *, group_id: str = "", protocol_type: str = "", group_state: str = "", group_type: str = ""
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "groups")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] | tuple[ListedGroup, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups: list[ListedGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_listed_group(r: Reader, v: int) -> ListedGroup:
    m = ListedGroup.__new__(ListedGroup)
    m.group_id = r.string()
    m.protocol_type = r.string()
    if v >= 4:
        m.group_state = r.string()
    else:
        m.group_state = ""
    if v >= 5:
        m.group_type = r.string()
    else:
        m.group_type = ""
    r.skip_tags()
    return m


def _write_listed_group(w: Writer, m: ListedGroup, v: int) -> None:
    w.string(m.group_id)
    w.string(m.protocol_type)
    if v >= 4:
        w.string(m.group_state)
    if v >= 5:
        w.string(m.group_type)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.error_code = r.int16()
    m.groups = r.array(_read_listed_group, v, 3)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 1:
        w.int32(m.throttle_time_ms)
    w.int16(m.error_code)
    w.array(_write_listed_group, m.groups, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 3)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 3)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 3)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 3)
