"""AlterUserScramCredentials (API key 51), versions 0 to 0. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 51
NAME = "AlterUserScramCredentials"
VERSION_MIN = 0
VERSION_MAX = 0
FLEXIBLE_FROM: int | None = 0

_bi = Struct(">bi")


class ScramCredentialDeletion(Message):
    __slots__ = ("name", "mechanism")

    def __init__(self, *, name: str = "", mechanism: int = 0) -> None:
        self.name = name
        self.mechanism = mechanism


class ScramCredentialUpsertion(Message):
    __slots__ = ("name", "mechanism", "iterations", "salt", "salted_password")

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password


class Request(Message):
    __slots__ = ("deletions", "upsertions")

    def __init__(
        self,
        *,
        deletions: list[ScramCredentialDeletion] | tuple[ScramCredentialDeletion, ...] = (),
        upsertions: list[ScramCredentialUpsertion] | tuple[ScramCredentialUpsertion, ...] = (),
    ) -> None:
        self.deletions: list[ScramCredentialDeletion] = list(deletions) if isinstance(deletions, tuple) else deletions
        self.upsertions: list[ScramCredentialUpsertion] = (
            list(upsertions) if isinstance(upsertions, tuple) else upsertions
        )


def _read_scram_credential_deletion(r: Reader, v: int) -> ScramCredentialDeletion:
    m = ScramCredentialDeletion.__new__(ScramCredentialDeletion)
    m.name = r.string()
    m.mechanism = r.int8()
    r.skip_tags()
    return m


def _write_scram_credential_deletion(w: Writer, m: ScramCredentialDeletion, v: int) -> None:
    w.string(m.name)
    w.int8(m.mechanism)
    w.tags()


def _read_scram_credential_upsertion(r: Reader, v: int) -> ScramCredentialUpsertion:
    m = ScramCredentialUpsertion.__new__(ScramCredentialUpsertion)
    m.name = r.string()
    m.mechanism, m.iterations = r.fixed(_bi)
    m.salt = r.raw()
    m.salted_password = r.raw()
    r.skip_tags()
    return m


def _write_scram_credential_upsertion(w: Writer, m: ScramCredentialUpsertion, v: int) -> None:
    w.string(m.name)
    w += _bi.pack(m.mechanism, m.iterations)
    w.raw(m.salt)
    w.raw(m.salted_password)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.deletions = r.array(_read_scram_credential_deletion, v, 3)
    m.upsertions = r.array(_read_scram_credential_upsertion, v, 9)
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.array(_write_scram_credential_deletion, m.deletions, v)
    w.array(_write_scram_credential_upsertion, m.upsertions, v)
    w.tags()


class AlterUserScramCredentialsResult(Message):
    __slots__ = ("user", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, user: str = "", error_code: int = 0, error_message: str | None = "") -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterUserScramCredentialsResult] | tuple[AlterUserScramCredentialsResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterUserScramCredentialsResult] = list(results) if isinstance(results, tuple) else results


def _read_alter_user_scram_credentials_result(r: Reader, v: int) -> AlterUserScramCredentialsResult:
    m = AlterUserScramCredentialsResult.__new__(AlterUserScramCredentialsResult)
    m.user = r.string()
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_alter_user_scram_credentials_result(w: Writer, m: AlterUserScramCredentialsResult, v: int) -> None:
    w.string(m.user)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_alter_user_scram_credentials_result, v, 5)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_alter_user_scram_credentials_result, m.results, v)
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
