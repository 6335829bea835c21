"""BrokerHeartbeat (API key 63), versions 0 to 2. Written by tools/generate_wire.py; do not edit."""

from __future__ import annotations

from struct import Struct

from penstock.wire.primitives import Buffer, Message, Reader, Writer, decode, encode, out_of_range

API_KEY = 63
NAME = "BrokerHeartbeat"
VERSION_MIN = 0
VERSION_MAX = 2
FLEXIBLE_FROM: int | None = 0

_ihttt = Struct(">ih???")
_iqqtt = Struct(">iqq??")


class Request(Message):
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "current_metadata_offset",
        "want_fence",
        "want_shut_down",
        "offline_log_dirs",
        "cordoned_log_dirs",
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        current_metadata_offset: int = 0,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: list[bytes] | tuple[bytes, ...] = (),
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.current_metadata_offset = current_metadata_offset
        self.want_fence = want_fence
        self.want_shut_down = want_shut_down
        self.offline_log_dirs: list[bytes] = (
            list(offline_log_dirs) if isinstance(offline_log_dirs, tuple) else offline_log_dirs
        )
        self.cordoned_log_dirs = cordoned_log_dirs


def _read_request(r: Reader, v: int) -> Request:
    m = Request.__new__(Request)
    m.broker_id, m.broker_epoch, m.current_metadata_offset, m.want_fence, m.want_shut_down = r.fixed(_iqqtt)
    m.offline_log_dirs = []
    m.cordoned_log_dirs = None
    for tag, end in r.tagged():
        if tag == 0 and v >= 1:
            m.offline_log_dirs = r.uuids()
        elif tag == 1 and v >= 2:
            m.cordoned_log_dirs = r.uuids_nullable()
        else:
            r.pos = end
    return m


def _write_request(w: Writer, m: Request, v: int) -> None:
    w += _iqqtt.pack(m.broker_id, m.broker_epoch, m.current_metadata_offset, m.want_fence, m.want_shut_down)
    tagged: list[tuple[int, Writer]] = []
    if (v >= 1) and m.offline_log_dirs:
        t = w.fresh()
        t.uuids(m.offline_log_dirs)
        tagged.append((0, t))
    if (v >= 2) and m.cordoned_log_dirs is not None:
        t = w.fresh()
        t.uuids_nullable(m.cordoned_log_dirs)
        tagged.append((1, t))
    w.tags(tagged)


class Response(Message):
    __slots__ = ("throttle_time_ms", "error_code", "is_caught_up", "is_fenced", "should_shut_down")
    ERROR_FIELD = "error_code"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        is_caught_up: bool = False,
        is_fenced: bool = True,
        should_shut_down: bool = False,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.is_caught_up = is_caught_up
        self.is_fenced = is_fenced
        self.should_shut_down = should_shut_down


def _read_response(r: Reader, v: int) -> Response:
    m = Response.__new__(Response)
    m.throttle_time_ms, m.error_code, m.is_caught_up, m.is_fenced, m.should_shut_down = r.fixed(_ihttt)
    r.skip_tags()
    return m


def _write_response(w: Writer, m: Response, v: int) -> None:
    w += _ihttt.pack(m.throttle_time_ms, m.error_code, m.is_caught_up, m.is_fenced, m.should_shut_down)
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
