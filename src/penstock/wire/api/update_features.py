"""UpdateFeatures (API key 57), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, absent, decode, encode, out_of_range

API_KEY = 57
NAME = "UpdateFeatures"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 0

_ih = Struct(">ih")


class FeatureUpdateKey(Message):
    __slots__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type")

    def __init__(
        self, *, feature: str = "", max_version_level: int = 0, allow_downgrade: bool = False, upgrade_type: int = 1
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade
        self.upgrade_type = upgrade_type


class Request(Message):
    __slots__ = ("timeout_ms", "feature_updates", "validate_only")

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] | tuple[FeatureUpdateKey, ...] = (),
        validate_only: bool = False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates: list[FeatureUpdateKey] = (
            list(feature_updates) if isinstance(feature_updates, tuple) else feature_updates
        )
        self.validate_only = validate_only


def _read_feature_update_key(r: Reader, v: int) -> FeatureUpdateKey:
    m = FeatureUpdateKey.__new__(FeatureUpdateKey)
    m.feature = r.string()
    m.max_version_level = r.int16()
    if v <= 0:
        m.allow_downgrade = r.boolean()
    else:
        m.allow_downgrade = False
    if v >= 1:
        m.upgrade_type = r.int8()
    else:
        m.upgrade_type = 1
    r.skip_tags()
    return m


def _write_feature_update_key(w: Writer, m: FeatureUpdateKey, v: int) -> None:
    w.string(m.feature)
    w.int16(m.max_version_level)
    if v <= 0:
        w.boolean(m.allow_downgrade)
    else:
        if m.allow_downgrade:
            absent(m, "allow_downgrade", v)
    if v >= 1:
        w.int8(m.upgrade_type)
    else:
        if m.upgrade_type != 1:
            absent(m, "upgrade_type", v)
    w.tags()


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.timeout_ms = r.int32()
    m.feature_updates = r.array(_read_feature_update_key, v, 5)
    if v >= 1:
        m.validate_only = r.boolean()
    else:
        m.validate_only = False
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w.int32(m.timeout_ms)
    w.array(_write_feature_update_key, m.feature_updates, v)
    if v >= 1:
        w.boolean(m.validate_only)
    else:
        if m.validate_only:
            absent(m, "validate_only", v)
    w.tags()


class UpdatableFeatureResult(Message):
    __slots__ = ("feature", "error_code", "error_message")
    ERROR_FIELD = "error_code"

    def __init__(self, *, feature: str = "", error_code: int = 0, error_message: str | None = "") -> None:
        self.feature = feature
        self.error_code = error_code
        self.error_message = error_message


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
        results: list[UpdatableFeatureResult] | tuple[UpdatableFeatureResult, ...] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[UpdatableFeatureResult] = list(results) if isinstance(results, tuple) else results


def _read_updatable_feature_result(r: Reader, v: int) -> UpdatableFeatureResult:
    m = UpdatableFeatureResult.__new__(UpdatableFeatureResult)
    m.feature = r.string()
    m.error_code = r.int16()
    m.error_message = r.string_nullable()
    r.skip_tags()
    return m


def _write_updatable_feature_result(w: Writer, m: UpdatableFeatureResult, v: int) -> None:
    w.string(m.feature)
    w.int16(m.error_code)
    w.string_nullable(m.error_message)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code = r.fixed(_ih)
    m.error_message = r.string_nullable()
    if v <= 1:
        m.results = r.array(_read_updatable_feature_result, v, 5)
    else:
        m.results = []
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ih.pack(m.throttle_time_ms, m.error_code)
    w.string_nullable(m.error_message)
    if v <= 1:
        w.array(_write_updatable_feature_result, m.results, v)
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
