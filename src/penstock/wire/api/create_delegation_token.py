"""CreateDelegationToken (API key 38), versions 1 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 38
NAME = "CreateDelegationToken"
VERSION_MIN = 1
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_qqq = Struct(">qqq")


class CreatableRenewers(Message):
    __slots__ = ("principal_type", "principal_name")

    def __init__(self, *, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class Request(Message):
    __slots__ = ("owner_principal_type", "owner_principal_name", "renewers", "max_lifetime_ms")

    def __init__(
        self,
        *,
        owner_principal_type: str | None = "",
        owner_principal_name: str | None = "",
        renewers: list[CreatableRenewers] | tuple[CreatableRenewers, ...] = (),
        max_lifetime_ms: int = 0,
    ) -> None:
        self.owner_principal_type = owner_principal_type
        self.owner_principal_name = owner_principal_name
        self.renewers: list[CreatableRenewers] = list(renewers) if isinstance(renewers, tuple) else renewers
        self.max_lifetime_ms = max_lifetime_ms


def _read_creatable_renewers(r: Reader, v: int) -> CreatableRenewers:
    m = CreatableRenewers.__new__(CreatableRenewers)
    m.principal_type = r.string()
    m.principal_name = r.string()
    r.skip_tags()
    return m


def _write_creatable_renewers(w: Writer, m: CreatableRenewers, v: int) -> None:
    w.string(m.principal_type)
    w.string(m.principal_name)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 3:
        m.owner_principal_type = r.string_nullable()
        m.owner_principal_name = r.string_nullable()
    else:
        m.owner_principal_type = ""
        m.owner_principal_name = ""
    m.renewers = r.array(_read_creatable_renewers, v, 3)
    m.max_lifetime_ms = r.int64()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 3:
        w.string_nullable(m.owner_principal_type)
        w.string_nullable(m.owner_principal_name)
    else:
        if m.owner_principal_type != "":
            absent(m, "owner_principal_type", v)
        if m.owner_principal_name != "":
            absent(m, "owner_principal_name", v)
    w.array(_write_creatable_renewers, m.renewers, v)
    w.int64(m.max_lifetime_ms)
    w.tags()


class Response(Message):
    __slots__ = (
        "error_code",
        "principal_type",
        "principal_name",
        "token_requester_principal_type",
        "token_requester_principal_name",
        "issue_timestamp_ms",
        "expiry_timestamp_ms",
        "max_timestamp_ms",
        "token_id",
        "hmac",
        "throttle_time_ms",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp_ms: int = 0,
        expiry_timestamp_ms: int = 0,
        max_timestamp_ms: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp_ms = issue_timestamp_ms
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.token_id = token_id
        self.hmac = hmac
        self.throttle_time_ms = throttle_time_ms


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code = r.int16()
    m.principal_type = r.string()
    m.principal_name = r.string()
    if v >= 3:
        m.token_requester_principal_type = r.string()
        m.token_requester_principal_name = r.string()
    else:
        m.token_requester_principal_type = ""
        m.token_requester_principal_name = ""
    m.issue_timestamp_ms, m.expiry_timestamp_ms, m.max_timestamp_ms = r.fixed(_qqq)
    m.token_id = r.string()
    m.hmac = r.raw()
    m.throttle_time_ms = r.int32()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int16(m.error_code)
    w.string(m.principal_type)
    w.string(m.principal_name)
    if v >= 3:
        w.string(m.token_requester_principal_type)
        w.string(m.token_requester_principal_name)
    else:
        if m.token_requester_principal_type:
            absent(m, "token_requester_principal_type", v)
        if m.token_requester_principal_name:
            absent(m, "token_requester_principal_name", v)
    w += _qqq.pack(m.issue_timestamp_ms, m.expiry_timestamp_ms, m.max_timestamp_ms)
    w.string(m.token_id)
    w.raw(m.hmac)
    w.int32(m.throttle_time_ms)
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
