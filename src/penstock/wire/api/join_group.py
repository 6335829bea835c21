"""JoinGroup (API key 11), versions 0 to 9. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 11
NAME = "JoinGroup"
VERSION_MIN = 0
VERSION_MAX = 9
FLEXIBLE_FROM: int | None = 6

_hi = Struct(">hi")


class JoinGroupRequestProtocol(Message):
    __slots__ = ("name", "metadata")

    def __init__(self, *, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata


class Request(Message):
    __slots__ = (
        "group_id",
        "session_timeout_ms",
        "rebalance_timeout_ms",
        "member_id",
        "group_instance_id",
        "protocol_type",
        "protocols",
        "reason",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequestProtocol] | tuple[JoinGroupRequestProtocol, ...] = (),
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocols: list[JoinGroupRequestProtocol] = list(protocols) if isinstance(protocols, tuple) else protocols
        self.reason = reason


def _read_join_group_request_protocol(r: Reader, v: int) -> JoinGroupRequestProtocol:
    m = JoinGroupRequestProtocol.__new__(JoinGroupRequestProtocol)
    m.name = r.string()
    m.metadata = r.raw()
    r.skip_tags()
    return m


def _write_join_group_request_protocol(w: Writer, m: JoinGroupRequestProtocol, v: int) -> None:
    w.string(m.name)
    w.raw(m.metadata)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.group_id = r.string()
    m.session_timeout_ms = r.int32()
    if v >= 1:
        m.rebalance_timeout_ms = r.int32()
    else:
        m.rebalance_timeout_ms = -1
    m.member_id = r.string()
    if v >= 5:
        m.group_instance_id = r.string_nullable()
    else:
        m.group_instance_id = None
    m.protocol_type = r.string()
    m.protocols = r.array(_read_join_group_request_protocol, v, 3)
    if v >= 8:
        m.reason = r.string_nullable()
    else:
        m.reason = None
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.string(m.group_id)
    w.int32(m.session_timeout_ms)
    if v >= 1:
        w.int32(m.rebalance_timeout_ms)
    w.string(m.member_id)
    if v >= 5:
        w.string_nullable(m.group_instance_id)
    else:
        if m.group_instance_id is not None:
            absent(m, "group_instance_id", v)
    w.string(m.protocol_type)
    w.array(_write_join_group_request_protocol, m.protocols, v)
    if v >= 8:
        w.string_nullable(m.reason)
    w.tags()


class JoinGroupResponseMember(Message):
    __slots__ = ("member_id", "group_instance_id", "metadata")

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, metadata: bytes = b"") -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata


class Response(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "generation_id",
        "protocol_type",
        "protocol_name",
        "leader",
        "skip_assignment",
        "member_id",
        "members",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponseMember] | tuple[JoinGroupResponseMember, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.member_id = member_id
        self.members: list[JoinGroupResponseMember] = list(members) if isinstance(members, tuple) else members


def _read_join_group_response_member(r: Reader, v: int) -> JoinGroupResponseMember:
    m = JoinGroupResponseMember.__new__(JoinGroupResponseMember)
    m.member_id = r.string()
    if v >= 5:
        m.group_instance_id = r.string_nullable()
    else:
        m.group_instance_id = None
    m.metadata = r.raw()
    r.skip_tags()
    return m


def _write_join_group_response_member(w: Writer, m: JoinGroupResponseMember, v: int) -> None:
    w.string(m.member_id)
    if v >= 5:
        w.string_nullable(m.group_instance_id)
    w.raw(m.metadata)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 2:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.error_code, m.generation_id = r.fixed(_hi)
    if v >= 7:
        m.protocol_type = r.string_nullable()
    else:
        m.protocol_type = None
    m.protocol_name = r.string_nullable() if v >= 7 else r.string()
    m.leader = r.string()
    if v >= 9:
        m.skip_assignment = r.boolean()
    else:
        m.skip_assignment = False
    m.member_id = r.string()
    m.members = r.array(_read_join_group_response_member, v, 4)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 2:
        w.int32(m.throttle_time_ms)
    w += _hi.pack(m.error_code, m.generation_id)
    if v >= 7:
        w.string_nullable(m.protocol_type)
    if v >= 7:
        w.string_nullable(m.protocol_name)
    elif m.protocol_name is None:
        raise ValueError(f"protocol_name is null in version {v}")
    else:
        w.string(m.protocol_name)
    w.string(m.leader)
    if v >= 9:
        w.boolean(m.skip_assignment)
    else:
        if m.skip_assignment:
            absent(m, "skip_assignment", v)
    w.string(m.member_id)
    w.array(_write_join_group_response_member, m.members, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 6)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 6)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 6)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 6)
