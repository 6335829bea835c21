"""DeleteGroups (API key 42), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 42
NAME = "DeleteGroups"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 2


class Request(Message):
    __slots__ = ("groups_names",)

    def __init__(self, *, groups_names: list[str] | tuple[str, ...] = ()) -> None:
        self.groups_names: list[str] = list(groups_names) if isinstance(groups_names, tuple) else groups_names


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.groups_names = r.strings()
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.strings(m.groups_names)
    w.tags()


class DeletableGroupResult(Message):
    __slots__ = ("group_id", "error_code")
    ERROR_FIELD = "error_code"

    def __init__(self, *, group_id: str = "", error_code: int = 0) -> None:
        self.group_id = group_id
        self.error_code = error_code


class Response(Message):
    __slots__ = ("throttle_time_ms", "results")
    ERROR_LISTS = ("results",)

    def __init__(
        self, *, throttle_time_ms: int = 0, results: list[DeletableGroupResult] | tuple[DeletableGroupResult, ...] = ()
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DeletableGroupResult] = list(results) if isinstance(results, tuple) else results


def _read_deletable_group_result(r: Reader, v: int) -> DeletableGroupResult:
    m = DeletableGroupResult.__new__(DeletableGroupResult)
    m.group_id = r.string()
    m.error_code = r.int16()
    r.skip_tags()
    return m


def _write_deletable_group_result(w: Writer, m: DeletableGroupResult, v: int) -> None:
    w.string(m.group_id)
    w.int16(m.error_code)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms = r.int32()
    m.results = r.array(_read_deletable_group_result, v, 4)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int32(m.throttle_time_ms)
    w.array(_write_deletable_group_result, m.results, v)
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
