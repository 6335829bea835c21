"""DescribeDelegationToken (API key 41), versions 1 to 3. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 41
NAME = "DescribeDelegationToken"
VERSION_MIN = 1
VERSION_MAX = 3
FLEXIBLE_FROM: int | None = 2

_qqq = Struct(">qqq")


class DescribeDelegationTokenOwner(Message):
    __slots__ = ("principal_type", "principal_name")

    def __init__(self, *, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class Request(Message):
    __slots__ = ("owners",)

    def __init__(
        self, *, owners: list[DescribeDelegationTokenOwner] | tuple[DescribeDelegationTokenOwner, ...] | None = ()
    ) -> None:
        self.owners: list[DescribeDelegationTokenOwner] | None = list(owners) if isinstance(owners, tuple) else owners


def _read_describe_delegation_token_owner(r: Reader, v: int) -> DescribeDelegationTokenOwner:
    m = DescribeDelegationTokenOwner.__new__(DescribeDelegationTokenOwner)
    m.principal_type = r.string()
    m.principal_name = r.string()
    r.skip_tags()
    return m


def _write_describe_delegation_token_owner(w: Writer, m: DescribeDelegationTokenOwner, v: int) -> None:
    w.string(m.principal_type)
    w.string(m.principal_name)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.owners = r.array_nullable(_read_describe_delegation_token_owner, v, 3)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array_nullable(_write_describe_delegation_token_owner, m.owners, v)
    w.tags()


class DescribedDelegationTokenRenewer(Message):
    __slots__ = ("principal_type", "principal_name")

    def __init__(self, *, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name


class DescribedDelegationToken(Message):
    __slots__ = (
        "principal_type",
        "principal_name",
        "token_requester_principal_type",
        "token_requester_principal_name",
        "issue_timestamp",
        "expiry_timestamp",
        "max_timestamp",
        "token_id",
        "hmac",
        "renewers",
    )

    def __init__(
        self,
        *,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp: int = 0,
        expiry_timestamp: int = 0,
        max_timestamp: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        renewers: list[DescribedDelegationTokenRenewer] | tuple[DescribedDelegationTokenRenewer, ...] = (),
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp = issue_timestamp
        self.expiry_timestamp = expiry_timestamp
        self.max_timestamp = max_timestamp
        self.token_id = token_id
        self.hmac = hmac
        self.renewers: list[DescribedDelegationTokenRenewer] = (
            list(renewers) if isinstance(renewers, tuple) else renewers
        )


class Response(Message):
    __slots__ = ("error_code", "tokens", "throttle_time_ms")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        tokens: list[DescribedDelegationToken] | tuple[DescribedDelegationToken, ...] = (),
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.tokens: list[DescribedDelegationToken] = list(tokens) if isinstance(tokens, tuple) else tokens
        self.throttle_time_ms = throttle_time_ms


def _read_described_delegation_token_renewer(r: Reader, v: int) -> DescribedDelegationTokenRenewer:
    m = DescribedDelegationTokenRenewer.__new__(DescribedDelegationTokenRenewer)
    m.principal_type = r.string()
    m.principal_name = r.string()
    r.skip_tags()
    return m


def _write_described_delegation_token_renewer(w: Writer, m: DescribedDelegationTokenRenewer, v: int) -> None:
    w.string(m.principal_type)
    w.string(m.principal_name)
    w.tags()


def _read_described_delegation_token(r: Reader, v: int) -> DescribedDelegationToken:
    m = DescribedDelegationToken.__new__(DescribedDelegationToken)
    m.principal_type = r.string()
    m.principal_name = r.string()
    if v >= 3:
        m.token_requester_principal_type = r.string()
        m.token_requester_principal_name = r.string()
    else:
        m.token_requester_principal_type = ""
        m.token_requester_principal_name = ""
    m.issue_timestamp, m.expiry_timestamp, m.max_timestamp = r.fixed(_qqq)
    m.token_id = r.string()
    m.hmac = r.raw()
    m.renewers = r.array(_read_described_delegation_token_renewer, v, 3)
    r.skip_tags()
    return m


def _write_described_delegation_token(w: Writer, m: DescribedDelegationToken, v: int) -> None:
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
    w += _qqq.pack(m.issue_timestamp, m.expiry_timestamp, m.max_timestamp)
    w.string(m.token_id)
    w.raw(m.hmac)
    w.array(_write_described_delegation_token_renewer, m.renewers, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code = r.int16()
    m.tokens = r.array(_read_described_delegation_token, v, 30)
    m.throttle_time_ms = r.int32()
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int16(m.error_code)
    w.array(_write_described_delegation_token, m.tokens, v)
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
