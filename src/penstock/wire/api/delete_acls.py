"""DeleteAcls (API key 31), versions 1 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 31
NAME = "DeleteAcls"
VERSION_MIN = 1
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_bb = Struct(">bb")


class DeleteAclsFilter(Message):
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


class Request(Message):
    __slots__ = ("filters",)

    def __init__(self, *, filters: list[DeleteAclsFilter] | tuple[DeleteAclsFilter, ...] = ()) -> None:
        self.filters: list[DeleteAclsFilter] = list(filters) if isinstance(filters, tuple) else filters


def _read_delete_acls_filter(r: Reader, v: int) -> DeleteAclsFilter:
    m = DeleteAclsFilter.__new__(DeleteAclsFilter)
    m.resource_type_filter = r.int8()
    m.resource_name_filter = r.string_nullable()
    m.pattern_type_filter = r.int8()
    m.principal_filter = r.string_nullable()
    m.host_filter = r.string_nullable()
    m.operation, m.permission_type = r.fixed(_bb)
    r.skip_tags()
    return m


def _write_delete_acls_filter(w: Writer, m: DeleteAclsFilter, v: int) -> None:
    w.int8(m.resource_type_filter)
    w.string_nullable(m.resource_name_filter)
    w.int8(m.pattern_type_filter)
    w.string_nullable(m.principal_filter)
    w.string_nullable(m.host_filter)
    w += _bb.pack(m.operation, m.permission_type)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.filters = r.array(_read_delete_acls_filter, v, 8)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_delete_acls_filter, m.filters, v)
    w.tags()


class DeleteAclsMatchingAcl(Message):
    __slots__ = (
        "error_code",
        "error_message",
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class DeleteAclsFilterResult(Message):
    __slots__ = ("error_code", "error_message", "matching_acls")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("matching_acls",)

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        matching_acls: list[DeleteAclsMatchingAcl] | tuple[DeleteAclsMatchingAcl, ...] = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.matching_acls: list[DeleteAclsMatchingAcl] = (
            list(matching_acls) if isinstance(matching_acls, tuple) else matching_acls
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "filter_results")
    ERROR_LISTS = ("filter_results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        filter_results: list[DeleteAclsFilterResult] | tuple[DeleteAclsFilterResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.filter_results: list[DeleteAclsFilterResult] = (
            list(filter_results) if isinstance(filter_results, tuple) else filter_results
        )


def _read_delete_acls_matching_acl(r: Reader, v: int) -> DeleteAclsMatchingAcl:
    m = DeleteAclsMatchingAcl.__new__(DeleteAclsMatchingAcl)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.pattern_type = r.int8()
    m.principal = r.string()
    m.host = r.string()
    m.operation, m.permission_type = r.fixed(_bb)
    r.skip_tags()
    return m


def _write_delete_acls_matching_acl(w: Writer, m: DeleteAclsMatchingAcl, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.int8(m.pattern_type)
    w.string(m.principal)
    w.string(m.host)
    w += _bb.pack(m.operation, m.permission_type)
    w.tags()


def _read_delete_acls_filter_result(r: Reader, v: int) -> DeleteAclsFilterResult:
    m = DeleteAclsFilterResult.__new__(DeleteAclsFilterResult)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.matching_acls = r.array(_read_delete_acls_matching_acl, v, 11)
    r.skip_tags()
    return m


def _write_delete_acls_filter_result(w: Writer, m: DeleteAclsFilterResult, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_delete_acls_matching_acl, m.matching_acls, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.filter_results = r.array(_read_delete_acls_filter_result, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_delete_acls_filter_result, m.filter_results, v)
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
