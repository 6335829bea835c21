"""DescribeAcls (API key 29), versions 1 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 29
NAME = "DescribeAcls"
VERSION_MIN = 1
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_bb = Struct(">bb")
_ih = Struct(">ih")


class Request(Message):
    __slots__ = (
        "resource_type_filter",
        "resource_name_filter",
        "pattern_type_filter",
        "principal_filter",
        "host_filter",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        *,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = "",
        pattern_type_filter: int = 3,
        principal_filter: str | None = "",
        host_filter: str | None = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type_filter = resource_type_filter
        self.resource_name_filter = resource_name_filter
        self.pattern_type_filter = pattern_type_filter
        self.principal_filter = principal_filter
        self.host_filter = host_filter
        self.operation = operation
        self.permission_type = permission_type


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.resource_type_filter = r.int8()
    m.resource_name_filter = r.string_nullable()
    m.pattern_type_filter = r.int8()
    m.principal_filter = r.string_nullable()
    m.host_filter = r.string_nullable()
    m.operation, m.permission_type = r.fixed(_bb)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.int8(m.resource_type_filter)
    w.string_nullable(m.resource_name_filter)
    w.int8(m.pattern_type_filter)
    w.string_nullable(m.principal_filter)
    w.string_nullable(m.host_filter)
    w += _bb.pack(m.operation, m.permission_type)
    w.tags()


class AclDescription(Message):
    __slots__ = ("principal", "host", "operation", "permission_type")

    def __init__(self, *, principal: str = "", host: str = "", operation: int = 0, permission_type: int = 0) -> None:
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class DescribeAclsResource(Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "acls")

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        acls: list[AclDescription] | tuple[AclDescription, ...] = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.acls: list[AclDescription] = list(acls) if isinstance(acls, tuple) else acls


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "resources")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        resources: list[DescribeAclsResource] | tuple[DescribeAclsResource, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.resources: list[DescribeAclsResource] = list(resources) if isinstance(resources, tuple) else resources


def _read_acl_description(r: Reader, v: int) -> AclDescription:
    m = AclDescription.__new__(AclDescription)
    m.principal = r.string()
    m.host = r.string()
    m.operation, m.permission_type = r.fixed(_bb)
    r.skip_tags()
    return m


def _write_acl_description(w: Writer, m: AclDescription, v: int) -> None:
    w.string(m.principal)
    w.string(m.host)
    w += _bb.pack(m.operation, m.permission_type)
    w.tags()


def _read_describe_acls_resource(r: Reader, v: int) -> DescribeAclsResource:
    m = DescribeAclsResource.__new__(DescribeAclsResource)
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.pattern_type = r.int8()
    m.acls = r.array(_read_acl_description, v, 5)
    r.skip_tags()
    return m


def _write_describe_acls_resource(w: Writer, m: DescribeAclsResource, v: int) -> None:
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.int8(m.pattern_type)
    w.array(_write_acl_description, m.acls, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.resources = r.array(_read_describe_acls_resource, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_describe_acls_resource, m.resources, v)
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
