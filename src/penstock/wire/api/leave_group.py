"""LeaveGroup (API key 13), versions 0 to 5. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 13
NAME = "LeaveGroup"
VERSION_MIN = 0
VERSION_MAX = 5
FLEXIBLE_FROM: int | None = 4


class MemberIdentity(Message):
    __slots__ = ("member_id", "group_instance_id", "reason")

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, reason: str | None = None) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class Request(Message):
    __slots__ = ("group_id", "member_id", "members")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] | tuple[MemberIdentity, ...] = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members: list[MemberIdentity] = list(members) if isinstance(members, tuple) else members


def _read_member_identity(r: Reader, v: int) -> MemberIdentity:
    m = MemberIdentity.__new__(MemberIdentity)
    m.member_id = r.string()
    m.group_instance_id = r.string_nullable()
    if v >= 5:
        m.reason = r.string_nullable()
    else:
        m.reason = None
    r.skip_tags()
    return m


def _write_member_identity(w: Writer, m: MemberIdentity, v: int) -> None:
    w.string(m.member_id)
    w.string_nullable(m.group_instance_id)
    if v >= 5:
        w.string_nullable(m.reason)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    if v <= 2:
        m.member_id = r.string()
    else:
        m.member_id = ""
    if v >= 3:
        m.members = r.array(_read_member_identity, v, 3)
    else:
        m.members = []
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    if v <= 2:
        w.string(m.member_id)
    else:
        if m.member_id:
            absent(m, "member_id", v)
    if v >= 3:
        w.array(_write_member_identity, m.members, v)
    else:
        if m.members:
            absent(m, "members", v)
    w.tags()


class MemberResponse(Message):
    __slots__ = ("member_id", "group_instance_id", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = "", error_code: int = 0) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "members")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("members",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] | tuple[MemberResponse, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members: list[MemberResponse] = list(members) if isinstance(members, tuple) else members


def _read_member_response(r: Reader, v: int) -> MemberResponse:
    m = MemberResponse.__new__(MemberResponse)
    m.member_id = r.string()
    m.group_instance_id = r.string_nullable()
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_member_response(w: Writer, m: MemberResponse, v: int) -> None:
    w.string(m.member_id)
    w.string_nullable(m.group_instance_id)
    w.int16(m.error_code)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.error_code = r.int16()
    if v >= 3:
        m.members = r.array(_read_member_response, v, 5)
    else:
        m.members = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 1:
        w.int32(m.throttle_time_ms)
    w.int16(m.error_code)
    if v >= 3:
        w.array(_write_member_response, m.members, v)
    else:
        if m.members:
            absent(m, "members", v)
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
