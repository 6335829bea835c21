"""DescribeUserScramCredentials (API key 50), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 50
NAME = "DescribeUserScramCredentials"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_bi = Struct(">bi")
_ih = Struct(">ih")


class UserName(Message):
    __slots__ = ("name",)

    def __init__(self, *, name: str = "") -> None:
        self.name = name


class Request(Message):
    __slots__ = ("users",)

    def __init__(self, *, users: list[UserName] | tuple[UserName, ...] | None = ()) -> None:
        self.users: list[UserName] | None = list(users) if isinstance(users, tuple) else users


def _read_user_name(r: Reader, v: int) -> UserName:
    m = UserName.__new__(UserName)
    m.name = r.string()
    r.skip_tags()
    return m


def _write_user_name(w: Writer, m: UserName, v: int) -> None:
    w.string(m.name)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.users = r.array_nullable(_read_user_name, v, 2)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array_nullable(_write_user_name, m.users, v)
    w.tags()


class CredentialInfo(Message):
    __slots__ = ("mechanism", "iterations")

    def __init__(self, *, mechanism: int = 0, iterations: int = 0) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class DescribeUserScramCredentialsResult(Message):
    __slots__ = ("user", "error_code", "error_message", "credential_infos")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = "",
        credential_infos: list[CredentialInfo] | tuple[CredentialInfo, ...] = (),
    ) -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message
        self.credential_infos: list[CredentialInfo] = (
            list(credential_infos) if isinstance(credential_infos, tuple) else credential_infos
        )


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results")
    ERROR_FIELD = "error_code"
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[DescribeUserScramCredentialsResult] | tuple[DescribeUserScramCredentialsResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[DescribeUserScramCredentialsResult] = (
            list(results) if isinstance(results, tuple) else results
        )


def _read_credential_info(r: Reader, v: int) -> CredentialInfo:
    m = CredentialInfo.__new__(CredentialInfo)
    m.mechanism, m.iterations = r.fixed(_bi)
    r.skip_tags()
    return m


def _write_credential_info(w: Writer, m: CredentialInfo, v: int) -> None:
    w += _bi.pack(m.mechanism, m.iterations)
    w.tags()


def _read_describe_user_scram_credentials_result(r: Reader, v: int) -> DescribeUserScramCredentialsResult:
    m = DescribeUserScramCredentialsResult.__new__(DescribeUserScramCredentialsResult)
    m.user = r.string()
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    m.credential_infos = r.array(_read_credential_info, v, 6)
    r.skip_tags()
    return m


def _write_describe_user_scram_credentials_result(w: Writer, m: DescribeUserScramCredentialsResult, v: int) -> None:
    w.string(m.user)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_credential_info, m.credential_infos, v)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    m.results = r.array(_read_describe_user_scram_credentials_result, v, 6)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    w.array(_write_describe_user_scram_credentials_result, m.results, v)
    w.tags()


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, True)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, True)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, True)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, True)
