"""CreateAcls (API key 30), versions 1 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 30
NAME = "CreateAcls"
VERSION_MIN = 1
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_bb = Struct(">bb")


class AclCreation(Message):
    __slots__ = (
        "resource_type",
        "resource_name",
        "resource_pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        resource_pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class Request(Message):
    __slots__ = ("creations",)

    def __init__(self, *, creations: list[AclCreation] | tuple[AclCreation, ...] = ()) -> None:
        self.creations: list[AclCreation] = list(creations) if isinstance(creations, tuple) else creations


def _read_acl_creation(r: Reader, v: int) -> AclCreation:
    m = AclCreation.__new__(AclCreation)
    m.resource_type = r.int8()
    m.resource_name = r.string()
    m.resource_pattern_type = r.int8()
    m.principal = r.string()
    m.host = r.string()
    m.operation, m.permission_type = r.fixed(_bb)
    r.skip_tags()
    return m


def _write_acl_creation(w: Writer, m: AclCreation, v: int) -> None:
    w.int8(m.resource_type)
    w.string(m.resource_name)
    w.int8(m.resource_pattern_type)
    w.string(m.principal)
    w.string(m.host)
    w += _bb.pack(m.operation, m.permission_type)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.creations = r.array(_read_acl_creation, v, 8)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_acl_creation, m.creations, v)
    w.tags()


class AclCreationResult(Message):
    __slots__ = ("error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, error_code: int = 0, error_message: str | None = "") -> None:
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self, *, throttle_time_ms: int = 0, results: list[AclCreationResult] | tuple[AclCreationResult, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AclCreationResult] = list(results) if isinstance(results, tuple) else results


def _read_acl_creation_result(r: Reader, v: int) -> AclCreationResult:
    m = AclCreationResult.__new__(AclCreationResult)
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_acl_creation_result(w: Writer, m: AclCreationResult, v: int) -> None:
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_acl_creation_result, v, 4)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_acl_creation_result, m.results, v)
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
