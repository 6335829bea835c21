"""DescribeGroups (API key 15), versions 0 to 6. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 15
NAME = "DescribeGroups"
VERSION_MIN = 0
VERSION_MAX = 6
FLEXIBLE_FROM: int | None = 5


class Request(Message):
    __slots__ = ("groups", "include_authorized_operations")

    def __init__(
        self, *, groups: list[str] | tuple[str, ...] = (), include_authorized_operations: bool = False
    ) -> None:
        self.groups: list[str] = list(groups) if isinstance(groups, tuple) else groups
        self.include_authorized_operations = include_authorized_operations


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.groups = r.strings()
    if v >= 3:
        m.include_authorized_operations = r.boolean()
    else:
        m.include_authorized_operations = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.strings(m.groups)
    if v >= 3:
        w.boolean(m.include_authorized_operations)
    else:
        if m.include_authorized_operations:
            absent(m, "include_authorized_operations", v)
    w.tags()


class DescribedGroupMember(Message):
    __slots__ = ("member_id", "group_instance_id", "client_id", "client_host", "member_metadata", "member_assignment")

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment


class DescribedGroup(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "protocol_type",
        "protocol_data",
        "members",
        "authorized_operations",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: list[DescribedGroupMember] | tuple[DescribedGroupMember, ...] = (),
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members: list[DescribedGroupMember] = list(members) if isinstance(members, tuple) else members
        self.authorized_operations = authorized_operations


class Response(Message):
    __slots__ = ("throttle_time_ms", "groups")
    ERROR_LISTS = ("groups",)

    def __init__(
        self, *, throttle_time_ms: int = 0, groups: list[DescribedGroup] | tuple[DescribedGroup, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = list(groups) if isinstance(groups, tuple) else groups


def _read_described_group_member(r: Reader, v: int) -> DescribedGroupMember:
    m = DescribedGroupMember.__new__(DescribedGroupMember)
    m.member_id = r.string()
    if v >= 4:
        m.group_instance_id = r.string_nullable()
    else:
        m.group_instance_id = None
    m.client_id = r.string()
    m.client_host = r.string()
    m.member_metadata = r.raw()
    m.member_assignment = r.raw()
    r.skip_tags()
    return m


def _write_described_group_member(w: Writer, m: DescribedGroupMember, v: int) -> None:
    w.string(m.member_id)
    if v >= 4:
        w.string_nullable(m.group_instance_id)
    w.string(m.client_id)
    w.string(m.client_host)
    w.raw(m.member_metadata)
    w.raw(m.member_assignment)
    w.tags()


def _read_described_group(r: Reader, v: int) -> DescribedGroup:
    m = DescribedGroup.__new__(DescribedGroup)
    m.error_code = r.int16()
    if v >= 6:
        m.error_message = r.string_nullable()
    else:
        m.error_message = None
    m.group_id = r.string()
    m.group_state = r.string()
    m.protocol_type = r.string()
    m.protocol_data = r.string()
    m.members = r.array(_read_described_group_member, v, 7)
    if v >= 3:
        m.authorized_operations = r.int32()
    else:
        m.authorized_operations = -2147483648
    r.skip_tags()
    return m


def _write_described_group(w: Writer, m: DescribedGroup, v: int) -> None:
    w.int16(m.error_code)
    if v >= 6:
        w.string_nullable(m.error_message)
    else:
        if m.error_message is not None:
            absent(m, "error_message", v)
    w.string(m.group_id)
    w.string(m.group_state)
    w.string(m.protocol_type)
    w.string(m.protocol_data)
    w.array(_write_described_group_member, m.members, v)
    if v >= 3:
        w.int32(m.authorized_operations)
    else:
        if m.authorized_operations != -2147483648:
            absent(m, "authorized_operations", v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.groups = r.array(_read_described_group, v, 12)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    if v >= 1:
        w.int32(m.throttle_time_ms)
    w.array(_write_described_group, m.groups, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 5)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 5)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 5)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 5)
