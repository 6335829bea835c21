"""ApiVersions (API key 18), versions 0 to 4. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 18
NAME = "ApiVersions"
VERSION_MIN = 0
VERSION_MAX = 4
FLEXIBLE_FROM: int | None = 3

_hh = Struct(">hh")
_hhh = Struct(">hhh")


class Request(Message):
    __slots__ = ("client_software_name", "client_software_version")

    def __init__(self, *, client_software_name: str = "", client_software_version: str = "") -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    if v >= 3:
        m.client_software_name = r.string()
        m.client_software_version = r.string()
    else:
        m.client_software_name = ""
        m.client_software_version = ""
    r.skip_tags()
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    if v >= 3:
        w.string(m.client_software_name)
        w.string(m.client_software_version)
    w.tags()


class ApiVersion(Message):
    __slots__ = ("api_key", "min_version", "max_version")

    def __init__(self, *, api_key: int = 0, min_version: int = 0, max_version: int = 0) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version


class SupportedFeatureKey(Message):
    __slots__ = ("name", "min_version", "max_version")

    def __init__(self, *, name: str = "", min_version: int = 0, max_version: int = 0) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version


class FinalizedFeatureKey(Message):
    __slots__ = ("name", "max_version_level", "min_version_level")

    def __init__(self, *, name: str = "", max_version_level: int = 0, min_version_level: int = 0) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level


class Response(Message):
    __slots__ = (
        "error_code",
        "api_keys",
        "throttle_time_ms",
        "supported_features",
        "finalized_features_epoch",
        "finalized_features",
        "zk_migration_ready",
    )
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersion] | tuple[ApiVersion, ...] = (),
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] | tuple[SupportedFeatureKey, ...] = (),
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] | tuple[FinalizedFeatureKey, ...] = (),
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys: list[ApiVersion] = list(api_keys) if isinstance(api_keys, tuple) else api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features: list[SupportedFeatureKey] = (
            list(supported_features) if isinstance(supported_features, tuple) else supported_features
        )
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features: list[FinalizedFeatureKey] = (
            list(finalized_features) if isinstance(finalized_features, tuple) else finalized_features
        )
        self.zk_migration_ready = zk_migration_ready


def _read_api_version(r: Reader, v: int) -> ApiVersion:
    m = ApiVersion.__new__(ApiVersion)
    m.api_key, m.min_version, m.max_version = r.fixed(_hhh)
    r.skip_tags()
    return m


def _write_api_version(w: Writer, m: ApiVersion, v: int) -> None:
    w += _hhh.pack(m.api_key, m.min_version, m.max_version)
    w.tags()


def _read_supported_feature_key(r: Reader, v: int) -> SupportedFeatureKey:
    m = SupportedFeatureKey.__new__(SupportedFeatureKey)
    m.name = r.string()
    m.min_version, m.max_version = r.fixed(_hh)
    r.skip_tags()
    return m


def _write_supported_feature_key(w: Writer, m: SupportedFeatureKey, v: int) -> None:
    w.string(m.name)
    w += _hh.pack(m.min_version, m.max_version)
    w.tags()


def _read_finalized_feature_key(r: Reader, v: int) -> FinalizedFeatureKey:
    m = FinalizedFeatureKey.__new__(FinalizedFeatureKey)
    m.name = r.string()
    m.max_version_level, m.min_version_level = r.fixed(_hh)
    r.skip_tags()
    return m


def _write_finalized_feature_key(w: Writer, m: FinalizedFeatureKey, v: int) -> None:
    w.string(m.name)
    w += _hh.pack(m.max_version_level, m.min_version_level)
    w.tags()


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.error_code = r.int16()
    m.api_keys = r.array(_read_api_version, v, 6)
    if v >= 1:
        m.throttle_time_ms = r.int32()
    else:
        m.throttle_time_ms = 0
    m.supported_features = []
    m.finalized_features_epoch = -1
    m.finalized_features = []
    m.zk_migration_ready = False
    for tag, end in r.tagged():
        if tag == 0:
            m.supported_features = r.array(_read_supported_feature_key, v, 6)
        elif tag == 1:
            m.finalized_features_epoch = r.int64()
        elif tag == 2:
            m.finalized_features = r.array(_read_finalized_feature_key, v, 6)
        elif tag == 3:
            m.zk_migration_ready = r.boolean()
        else:
            r.pos = end
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w.int16(m.error_code)
    w.array(_write_api_version, m.api_keys, v)
    if v >= 1:
        w.int32(m.throttle_time_ms)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 3) and m.supported_features:
        t = w.fresh()
        t.array(_write_supported_feature_key, m.supported_features, v)
        tagged.append((0, t))
    if (v >= 3) and m.finalized_features_epoch != -1:
        t = w.fresh()
        t.int64(m.finalized_features_epoch)
        tagged.append((1, t))
    if (v >= 3) and m.finalized_features:
        t = w.fresh()
        t.array(_write_finalized_feature_key, m.finalized_features, v)
        tagged.append((2, t))
    if (v >= 3) and m.zk_migration_ready:
        t = w.fresh()
        t.boolean(m.zk_migration_ready)
        tagged.append((3, t))
    w.tags(tagged)


def decode_request(data: Buffer, offset: int, version: int) -> Request:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_request, data, offset, version, version >= 3)


def encode_request(msg: Request, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_request, msg, version, version >= 3)


def decode_response(data: Buffer, offset: int, version: int) -> Response:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return decode(_read_response, data, offset, version, version >= 3)


def encode_response(msg: Response, version: int) -> bytes:
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise out_of_range(NAME, version, VERSION_MIN, VERSION_MAX)
    return encode(_write_response, msg, version, version >= 3)
